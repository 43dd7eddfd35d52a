"""The readable rows of a damaged database are kept, each once, and the report names the lost ones."""

from __future__ import annotations

import errno
import random
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import cache
from itertools import count
from pathlib import Path
from shutil import copyfile, rmtree
from typing import Any

import pytest
from tests.bound_processes import bound_python
from tests.damaged_database import PAGE, overwrite_index, overwrite_page, root_page
from tests.faulty_disk import FaultyDisk, Killed
from tests.store.conftest import Clock, end_trial, plan_run

from evaldesk.errors import DamagedDatabaseError, DiskError, WorkspaceError
from evaldesk.model import AgentRef, Case, ErrorRecord, Event, RunConfig, Transcript, TurnRecord
from evaldesk.model.failures import FindingDraft
from evaldesk.store import Store, recovery
from evaldesk.store.backups import back_up
from evaldesk.store.recovery import recover
from evaldesk.store.store import repair_marker
from evaldesk.store.tables import METADATA

N_CASES, N = 60, 2
AT_EVERY_CALL = pytest.mark.parametrize(
    "n_cases", [8, pytest.param(N_CASES, marks=pytest.mark.torture)], ids=["few rows", "many rows"]
)
"""A repair makes the same calls of the disk for few rows and for many."""
TURN = TurnRecord("Roll.", (Event("agent_message", text="six " * 100),))


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, migrated: Path) -> Callable[[int], Path]:
    """Gives a database to copy, with so many cases in each of two runs, and as many chats."""

    @cache
    def make(n_cases: int) -> Path:
        path = tmp_path_factory.mktemp("kept") / "evaldesk.db"
        copyfile(migrated, path)
        clock = Clock()
        with Store.open(path, clock=clock, seconds=clock.seconds) as store:
            for verdict in ("passed", "failed"):
                run_id = plan_run(store, n_cases, n=N)
                transcript = Transcript((TURN,))
                results = [
                    end_trial(run_id, case, trial, "errored" if case == 7 else verdict, transcript=transcript)
                    for case in range(n_cases)
                    for trial in range(N)
                ]
                store.runs.record(results)
                store.runs.set_status(run_id, "finished")
            store.labels.put(1, (3, 0), None, "me", "passed", "fine")
            for number in range(n_cases):
                chat = store.sessions.create("hello", f"Talk {number}", {"text": "x" * 100})
                store.sessions.append_turn(chat.id, TURN)
        assert [each.name for each in path.parent.iterdir()] == [path.name]
        return path

    return make


@pytest.fixture
def n_cases() -> int:
    return N_CASES


@pytest.fixture
def filled(kept: Callable[[int], Path], database: Path, n_cases: int) -> Path:
    """A database with two runs, chats, labels and a long transcript; nothing is in its log."""
    database.parent.mkdir()
    copyfile(kept(n_cases), database)
    return database


def _rows(path: Path) -> dict[str, set[tuple[Any, ...]]]:
    with closing(sqlite3.connect(path)) as connection:
        found = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in METADATA.tables}  # noqa: S608
        found["sqlite_sequence"] = connection.execute("SELECT * FROM sqlite_sequence").fetchall()
    assert all(len(set(rows)) == len(rows) for rows in found.values())
    return {name: set(rows) for name, rows in found.items()}


def _leaves(path: Path, name: str) -> list[int]:
    """The pages that hold the rows of a table of one or two levels. (SQLite file format, section 1.6)"""
    root = 1 if name == "sqlite_schema" else root_page(path, name)
    page = path.read_bytes()[(root - 1) * PAGE : root * PAGE]
    start = 100 if root == 1 else 0  # behind the header of the file
    if page[start] == 13:  # a leaf
        return [root]
    n_cells = int.from_bytes(page[start + 3 : start + 5])
    cells = [int.from_bytes(page[at : at + 2]) for at in range(start + 12, start + 12 + 2 * n_cells, 2)]
    return [int.from_bytes(page[start + 8 : start + 12]), *(int.from_bytes(page[at : at + 4]) for at in cells)]


def _is_sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        orphans = connection.execute("PRAGMA foreign_key_check").fetchall()
        return not orphans and connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_whole_database_is_the_same_afterwards(filled: Path) -> None:
    before = _rows(filled)

    said = recover(filled)

    assert _rows(filled) == before
    assert _is_sound(filled)
    assert "Recovered: 2 runs, 120 cases, 240 trials" in said
    assert said.endswith("Lost: nothing.")


@pytest.mark.long
@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.torture), 4], ids=["every page", "every 4th page"])
def test_no_page_costs_more_than_its_own_rows(filled: Path, tmp_path: Path, every: int) -> None:
    original = tmp_path / "original.db"
    copyfile(filled, original)
    whole = _rows(original)
    schema_pages = {1, *_leaves(original, "sqlite_schema")}
    n_whole = 0

    for page in range(1, original.stat().st_size // PAGE + 1, every):
        copyfile(original, filled)
        overwrite_page(filled, page)
        try:
            said = recover(filled)
        except WorkspaceError:
            assert page in schema_pages
            continue
        kept = _rows(filled)

        assert _is_sound(filled)
        for name in ("session", "session_turn", "label", "score"):
            keys = {row[:2] for row in whole[name]}
            assert {row[:2] for row in kept[name]} <= keys, (page, name)
        n_lost = sum(len(whole[name]) - len(kept[name]) for name in ("session", "session_turn", "run_case"))
        assert (n_lost == 0) or "Lost: nothing" not in said, (page, said)
        lost = {row[:2] for row in kept["run_case"] if row[2].startswith("lost_")}
        for run in kept["run"]:
            cases = [row for row in kept["run_case"] if row[0] == run[0]]
            trials = [row for row in kept["trial"] if row[0] == run[0]]
            assert sorted(row[1] for row in cases) == list(range(N_CASES))
            assert len(trials) == N_CASES * N
            assert all(row[5] for row in trials), page  # a trial is in two places of the file
            assert {row[:6] for row in trials if row[:2] not in lost} <= {row[:6] for row in whole["trial"]}
        assert {row[0] for row in kept["run"]} == {1, 2}
        n_whole += said.endswith("Lost: nothing.")

    assert n_whole > 5 // every


def test_a_first_page_that_is_gone_names_the_newest_backup(filled: Path) -> None:
    backup = back_up(filled, datetime.now(UTC))
    assert backup is not None
    overwrite_page(filled, 1)
    before = filled.read_bytes()

    with pytest.raises(WorkspaceError, match=f"no table .* can be read .* `evaldesk doctor --restore {backup.name}`"):
        recover(filled)

    assert filled.read_bytes() == before
    assert not repair_marker(filled).exists()
    assert not [*filled.parent.glob("damaged-*")]
    recovery.restore(filled, backup)
    assert _is_sound(filled)


def test_changes_in_the_log_are_recovered(filled: Path) -> None:
    with Store.open(filled) as store:
        store.sessions.create("hello", "only in the log")
        log = filled.with_name("evaldesk.db-wal").read_bytes()
        copyfile(filled, filled.with_name("kept"))
    filled.with_name("kept").rename(filled)
    filled.with_name("evaldesk.db-wal").write_bytes(log)

    whole = recover(filled)
    with Store.open(filled) as store:
        titles = {each.title for each in store.sessions.list(limit=100)}
    for place in (filled, *filled.parent.glob("damaged-*/evaldesk.db*")):
        place.unlink(missing_ok=True)

    assert "only in the log" in titles
    assert "61 chats" in whole


def test_a_lost_case_is_errored_and_the_others_keep_their_numbers(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        connection.execute("UPDATE run_case SET digest = run_id || '-' || case_index WHERE case_index = 6")
        for table in ("run_case", "case_snapshot"):
            connection.execute(f"DELETE FROM {table} WHERE case_index = 5")  # noqa: S608
        connection.execute("DELETE FROM case_snapshot WHERE case_index = 6")
        connection.execute("DELETE FROM trial WHERE case_index = 5 AND trial_index = 1")
        connection.execute("DELETE FROM transcript WHERE case_index = 5 AND trial_index = 1")
        connection.commit()

    said = recover(filled)

    assert "Lost: 2 trials, 2 cases" in said or "Lost: 2 cases, 2 trials" in said
    with Store.open(filled) as store:
        run = store.runs.summary(1)
        assert (run.status, run.n_cases, run.n_passed, run.n_errored) == ("finished", N_CASES, 117, 3)
        assert [case.id for case in store.runs.cases(1)][4:8] == ["c4", "lost_5", "c6", "c7"]
        assert store.runs.trial(1, 5, 0).verdict == "passed"
        assert store.runs.trial(1, 5, 1).error == ErrorRecord("lost", "the case was lost with a damaged database")
        assert store.runs.pending(1) == []


def test_a_trial_whose_transcript_is_lost_keeps_its_verdict_and_scores(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("DELETE FROM transcript WHERE run_id = 1 AND case_index IN (5, 7)")
        connection.commit()
    before = _rows(filled)

    recover(filled)

    after = _rows(filled)
    assert [after[name] for name in ("trial", "score", "run_case")] == [
        before[name] for name in ("trial", "score", "run_case")
    ]
    with Store.open(filled) as store:
        assert len(store.runs.trials(1, [(5, 0), (5, 1), (7, 0)])) == 3
        found = store.runs.trial(1, 5, 0)
        assert (found.verdict, found.scores[0].value) == ("passed", 1.0)
        assert "transcript was lost" in found.logs


def test_a_chat_goes_on_after_a_lost_turn(filled: Path) -> None:
    with Store.open(filled) as store:
        chat = store.sessions.create("hello", "long")
        for _ in range(4):
            store.sessions.append_turn(chat.id, TURN)
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("DELETE FROM session_turn WHERE session_id = ? AND turn_index = 1", (chat.id,))
        connection.commit()

    assert recover(filled).endswith("Lost: 1 chat turn.")

    with Store.open(filled) as store:
        assert store.sessions.append_turn(chat.id, TURN) == 3
        assert len(store.sessions.get(chat.id).turns) == 4


def test_lost_trials_are_planned_again_and_the_run_can_be_resumed(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("PRAGMA foreign_keys=OFF")
        for table in ("trial", "transcript", "score"):
            connection.execute(f"DELETE FROM {table} WHERE run_id = 1 AND case_index = 5")  # noqa: S608
        connection.commit()

    said = recover(filled)

    with Store.open(filled) as store:
        run = store.runs.summary(1)
        assert (run.status, run.n_passed, run.n_errored, len(store.runs.pending(1))) == ("stopped", 116, 2, 2)
        assert "damaged" in run.reason
    assert said.endswith("Lost: 2 trials.")


def _states(filled: Path, tmp_path: Path) -> tuple[Path, dict[str, set[tuple[Any, ...]]]]:
    whole = _rows(filled)
    original = tmp_path / "original.db"
    copyfile(filled, original)
    overwrite_index(original)
    return original, whole


def _place(home: Path, original: Path) -> Path:
    rmtree(home, ignore_errors=True)
    home.mkdir()
    copyfile(original, home / "evaldesk.db")
    return home / "evaldesk.db"


@pytest.mark.long
@AT_EVERY_CALL
def test_a_repair_that_is_killed_at_any_call_of_the_disk_is_finished_by_the_next(filled: Path, tmp_path: Path) -> None:
    original, whole = _states(filled, tmp_path)

    for at in count(1):
        path = _place(tmp_path / "home", original)
        disk = FaultyDisk(at)
        with disk.inserted(), suppress(Killed):
            recover(path)
        if not disk.was_reached:
            break
        if repair_marker(path).exists():
            with pytest.raises(WorkspaceError, match="is not finished; `evaldesk doctor --repair`"):
                Store.open(path)
        is_done = not repair_marker(path).exists() and _is_whole(path)
        said = "" if is_done else recover(path)

        assert is_done or said.endswith("Lost: nothing.")
        assert _rows(path) == whole
        (aside,) = path.parent.glob("damaged-*")
        assert sorted(each.name for each in aside.iterdir()) == ["evaldesk.db", "recovered.txt"]
        assert (aside / "evaldesk.db").read_bytes() == original.read_bytes()
        assert sorted(each.name for each in path.parent.iterdir()) == [aside.name, "evaldesk.db"]

    assert at > 15


def _is_whole(path: Path) -> bool:
    try:
        with Store.open(path) as store:
            store.check()
    except DamagedDatabaseError:
        return False
    return True


@pytest.mark.parametrize("step", ["create", "recount", "replace_file"])
def test_a_repair_that_is_killed_while_it_builds_begins_that_again(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    original, whole = _states(filled, tmp_path)
    path = _place(tmp_path / "home", original)

    def end(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(recovery, step, end)
        with pytest.raises(Killed):
            recover(path)
    recover(path)

    assert _rows(path) == whole


@pytest.mark.long
@AT_EVERY_CALL
def test_a_repair_on_a_full_disk_is_told_and_finished_later(filled: Path, tmp_path: Path) -> None:
    original, whole = _states(filled, tmp_path)

    for at in count(1):
        path = _place(tmp_path / "home", original)
        with FaultyDisk(at, errno.ENOSPC, lasts=True).inserted(), suppress(DiskError):
            recover(path)
            break
        recover(path)

        assert _rows(path) == whole

    assert at > 5


def test_a_disk_that_is_full_for_the_new_database_is_told(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, whole = _states(filled, tmp_path)
    path = _place(tmp_path / "home", original)

    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "recount", refuse)
        with pytest.raises(WorkspaceError, match="disk is full; free some space and run the command again"):
            recover(path)
    recover(path)

    assert _rows(path) == whole


@pytest.mark.server
def test_nothing_is_repaired_while_another_process_has_the_database_open(filled: Path) -> None:
    before = filled.read_bytes()
    held = bound_python("-c", HOLD, str(filled))
    with subprocess.Popen(held, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(WorkspaceError, match="is open in another process"):
            recover(filled)
        process.communicate()

    assert filled.read_bytes() == before
    assert not repair_marker(filled).exists()


HOLD = """
import sys
from pathlib import Path
from evaldesk.store import Store

with Store.open(Path(sys.argv[1])) as store:
    store.runs.counts_by_status()
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("seed", range(8))
def test_bytes_that_are_anything_give_a_sound_database_or_a_sentence(filled: Path, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(filled.read_bytes())
    pages = range(len(data) // PAGE)
    for _ in range(chance.randint(1, 30)):
        page, other = (chance.choice(pages) * PAGE for _ in range(2))
        if seed % 4 == 0:
            data[page : page + PAGE] = data[other : other + PAGE]
        elif seed % 4 == 1:
            data[page + chance.randrange(60)] = chance.randrange(256)
        elif seed % 4 == 2:
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        else:
            data = data[: max(len(data) - chance.randrange(2 * PAGE), 1)]
    filled.write_bytes(data)

    with suppress(WorkspaceError):
        recover(filled)
        assert _is_sound(filled)
        with Store.open(filled) as store:
            for run in store.runs.list():
                assert len(store.runs.cases(run.id)) == run.n_cases
    assert not repair_marker(filled).exists()


def test_a_file_without_a_table_of_ours_stays(tmp_path: Path) -> None:
    path = tmp_path / "evaldesk.db"
    path.write_bytes(b"\0" * PAGE * 3)

    with pytest.raises(WorkspaceError, match="no table of Evaldesk can be read"):
        recover(path)

    assert [each.name for each in tmp_path.iterdir()] == ["evaldesk.db"]


@pytest.mark.parametrize("name", ["../elsewhere", "damaged-0", ""])
def test_a_marker_that_came_with_a_repository_names_no_other_folder(filled: Path, name: str) -> None:
    repair_marker(filled).write_text(name)

    with pytest.raises(WorkspaceError, match="names no folder of a repair"):
        recover(filled)


def test_runs_whose_page_is_lost_keep_their_trials_under_their_number(filled: Path) -> None:
    for page in _leaves(filled, "run"):
        overwrite_page(filled, page)

    said = recover(filled)

    assert said.endswith("Lost: perhaps some runs, the options of 2 runs.")
    with Store.open(filled) as store:
        runs = [store.runs.summary(number) for number in (1, 2)]
        assert [(run.n_cases, run.n_passed, run.n_failed, run.n_errored) for run in runs] == [
            (N_CASES, 118, 0, 2),
            (N_CASES, 0, 118, 2),
        ]
        assert {(run.config.agent.id, run.config.evalset_id, run.config.n) for run in runs} == {("hello", "calc", N)}
        assert {run.reason for run in runs} == {recovery.LOST_OPTIONS}
        assert len(store.runs.last_verdicts("calc")) == N_CASES


def test_ids_of_lost_runs_are_not_given_again(filled: Path) -> None:
    for page in _leaves(filled, "run"):
        overwrite_page(filled, page)

    recover(filled)

    with Store.open(filled) as store:
        new = store.runs.create(RunConfig(AgentRef("hello", "agent:root_agent"), "calc"), [Case("a")])
    assert new == 3


@pytest.mark.parametrize("table", ["finding", "mode"])
def test_ids_of_lost_findings_and_modes_are_not_given_again(filled: Path, table: str) -> None:
    with Store.open(filled) as store:
        store.failures.add(FindingDraft(1, 0, 0, "wrong day"), "Ana", "dates")
    with closing(sqlite3.connect(filled)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for page in _leaves(filled, table):
        overwrite_page(filled, page)

    recover(filled)

    with Store.open(filled) as store:
        store.failures.add(FindingDraft(1, 1, 0, "wrong day"), "Ana", "times")
        ids = {
            "finding": [each.id for each in store.failures.list()],
            "mode": [each.id for each in store.failures.modes()],
        }
    assert 1 not in ids[table]
    assert 2 in ids[table]
