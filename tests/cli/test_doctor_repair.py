"""`evaldesk doctor --repair`: files that a kill or a full disk left half are moved aside, and whole cases are kept."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.damaged_database import overwrite_index

from evaldesk.cli import cli
from evaldesk.desk.repair import file_faults
from evaldesk.desk.trust import Trust
from evaldesk.desk.workspace import open_settings
from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.formats import read_evalset, write_evalset
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.store import Store, hold_workspace, recovery
from evaldesk.store.backups import back_up
from evaldesk.store.evalsets.half_files import half_file

CASES = tuple(Case(f"case_{number}", (Turn('{[a \\ "brace" }'),)) for number in range(3))
WHOLE = write_evalset(EvalSet("calc", cases=CASES))


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Path:
    """A workspace whose agent is plain, so that no sample is copied into it."""
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "agent.py").write_text("def root_agent(message):\n    return message\n")
    (tmp_path / ".evaldesk" / "trash").mkdir(parents=True)
    (tmp_path / ".evaldesk" / "uploads").mkdir()
    return tmp_path


def _doctor(home: Path, *words: str) -> Any:
    return CliRunner().invoke(cli, ["doctor", *words, "--trust", "--workspace", str(home)])


def _files(output: str) -> list[str]:
    return [line for line in output.splitlines() if line[6:].startswith("files ")]


def _half(home: Path, data: bytes) -> Path:
    path = home / "calc.evalset.json"
    path.write_bytes(data)
    return path


def _aside(home: Path) -> list[Path]:
    return list((home / ".evaldesk" / "trash").glob("*.unreadable"))


def test_the_whole_cases_of_a_half_set_are_kept_as_a_new_set(home: Path) -> None:
    data = WHOLE[: WHOLE.index(b"case_2") + 20]
    path = _half(home, data)

    found = _doctor(home)
    assert path.read_bytes() == data
    repaired = _doctor(home, "--repair")
    again = _doctor(home, "--repair")

    assert (found.exit_code, repaired.exit_code, again.exit_code) == (1, 0, 0)
    assert "--repair moves it into the trash folder and keeps its 2 whole cases" in _files(found.output)[0]
    assert "its 2 whole cases kept as calc_recovered.evalset.json" in _files(repaired.output)[0]
    assert _files(again.output) == []
    assert not path.exists()
    assert [each.read_bytes() for each in _aside(home)] == [data]
    recovered = read_evalset((home / "calc_recovered.evalset.json").read_bytes(), source="")
    assert recovered.cases == CASES[:2]


@pytest.mark.parametrize(
    "data",
    [b"", b"\0" * 4096, WHOLE[: WHOLE.index(b"case_0")], b'{"eval_cases": [{"a": 1}, {"b"'],
    ids=["empty", "zeros", "before the first case", "cases of another form"],
)
def test_a_half_set_without_a_whole_case_is_moved_aside_only(home: Path, data: bytes) -> None:
    path = _half(home, data)

    assert _doctor(home, "--repair").exit_code == 0

    assert not path.exists()
    assert [each.read_bytes() for each in _aside(home)] == [data]
    assert list(home.glob("*.json")) == []


@pytest.mark.parametrize(
    "data", [WHOLE, b'{"eval_cases": 3}', b"[1}", b"no JSON"], ids=["whole", "wrong", "odd", "text"]
)
def test_a_set_that_does_not_end_too_early_stays(home: Path, data: bytes) -> None:
    path = _half(home, data)

    assert _files(_doctor(home, "--repair").output) == []
    assert path.read_bytes() == data


def test_a_set_cut_anywhere_is_half_and_its_whole_cases_are_the_first() -> None:
    halves = [half_file(WHOLE[:length]) for length in range(len(WHOLE.rstrip()))]
    assert None not in halves

    kept = [read_evalset(half.whole_cases, source="").cases for half in halves if half and half.whole_cases]

    assert all(cases == CASES[: len(cases)] for cases in kept)
    assert {len(cases) for cases in kept} == {1, 2, 3}


def test_a_repair_that_was_killed_after_the_new_set_is_finished(home: Path) -> None:
    data = WHOLE[: WHOLE.index(b"case_2")]
    _half(home, data)
    assert _doctor(home, "--repair").exit_code == 0
    _half(home, data)  # as it was before the move

    assert _doctor(home, "--repair").exit_code == 0

    assert [path.name for path in home.glob("*.json")] == ["calc_recovered.evalset.json"]
    assert len(_aside(home)) == 1


def test_another_file_under_the_new_name_is_never_written_over(home: Path) -> None:
    path = _half(home, WHOLE[: WHOLE.index(b"case_2")])
    (home / "calc_recovered.evalset.json").write_bytes(WHOLE)

    result = _doctor(home, "--repair")

    assert result.exit_code == 1
    assert "could not be repaired: there is a file 'calc_recovered.evalset.json' already" in _files(result.output)[0]
    assert path.exists()


def test_a_set_that_was_saved_since_it_was_looked_at_stays(home: Path) -> None:
    path = _half(home, b"")
    (fault,) = file_faults(open_settings((), workspace=str(home)))
    path.write_bytes(WHOLE)

    with pytest.raises(ConflictError, match="changed meanwhile"):
        fault.mend()

    assert path.read_bytes() == WHOLE
    assert _aside(home) == []


def test_unreadable_cases_in_the_trash_and_unknown_uploads_are_moved_aside(home: Path) -> None:
    state = home / ".evaldesk"
    cases = state / "trash" / "0123456789abcdef.cases.json"
    edits = state / "trash" / "0123456789abcdef.edits.json"
    upload = state / "uploads" / f"{'0' * 24}.upload"
    known = state / "uploads" / f"{'1' * 24}.upload"
    cases.write_text('{"evalset": "calc", "ca')
    edits.write_text('{"evalset": "calc", "edits": [{"before": {}}]}')
    upload.write_text("no label")
    known.write_text(json.dumps({"source": "a.json"}) + "\n{}")

    found = _doctor(home)
    repaired = _doctor(home, "--repair")

    assert (found.exit_code, repaired.exit_code) == (1, 0)
    assert "deleted cases that cannot be read" in _files(repaired.output)[0]
    assert "replaced expectations that cannot be read" in _files(repaired.output)[1]
    assert "an upload that no import knows" in _files(repaired.output)[2]
    assert [path.exists() for path in (cases, edits, upload, known)] == [False, False, False, True]
    assert sorted(each.read_text() for each in _aside(home)) == [
        "no label",
        '{"evalset": "calc", "ca',
        '{"evalset": "calc", "edits": [{"before": {}}]}',
    ]


def test_what_a_kill_left_of_a_deletion_is_removed_and_a_file_of_no_place_is_moved_aside(home: Path) -> None:
    trash = home / ".evaldesk" / "trash"
    for token, files in {
        "0" * 16: {},
        "1" * 16: {"origin.json": b'{"path": "/a"}'},
        "2" * 16: {"calc.json": WHOLE},
    }.items():
        (trash / token).mkdir()
        for name, data in files.items():
            (trash / token / name).write_bytes(data)

    found = _doctor(home)
    repaired = _doctor(home, "--repair")

    assert (found.exit_code, repaired.exit_code, _files(_doctor(home).output)) == (1, 0, [])
    assert [line.partition("trash/")[2] for line in _files(repaired.output)[:2]] == [
        f"{digit * 16} is a folder without a file: now removed" for digit in "01"
    ]
    assert "calc.json is a deleted file of unknown place: moved to" in _files(repaired.output)[2]
    assert [each.read_bytes() for each in trash.iterdir()] == [WHOLE]


def test_the_lock_of_a_desk_that_was_killed_is_emptied(home: Path) -> None:
    lock = home / ".evaldesk" / "desk.lock"
    lock.write_text("999999999 http://127.0.0.1:1\n")

    assert "names a desk that is gone" in _files(_doctor(home).output)[0]
    assert _doctor(home, "--repair").exit_code == 0

    assert lock.read_text() == ""


def test_nothing_is_repaired_while_a_desk_is_open(home: Path) -> None:
    path = _half(home, b"")

    with hold_workspace(home / ".evaldesk", url="http://127.0.0.1:1"):
        result = _doctor(home, "--repair")

    assert result.exit_code != 0
    assert "is held by process" in str(result.exception)
    assert path.exists()


def test_an_untrusted_workspace_is_not_repaired(home: Path) -> None:
    path = _half(home, b"")
    (home / ".evaldesk" / "evaldesk.db").write_bytes(b"")

    result = CliRunner().invoke(cli, ["doctor", "--repair", "--workspace", str(home)], env={"EVALDESK_TRUST": ""})

    assert result.exit_code != 0
    assert "is not trusted" in str(result.exception)
    assert path.exists()


def _damaged(home: Path) -> Path:
    """A database with one chat, of which an index is damaged."""
    path = home / ".evaldesk" / "evaldesk.db"
    with Store.open(path) as store:
        store.sessions.create("plain", "A talk")
    overwrite_index(path)
    return path


def _database(output: str) -> list[str]:
    return [line for line in output.splitlines() if line[6:].startswith("database ")]


def test_a_damaged_database_is_recovered_and_kept_aside(home: Path) -> None:
    path = _damaged(home)
    before = path.read_bytes()

    found = _doctor(home)
    repaired = _doctor(home, "--repair")
    again = _doctor(home)

    assert (found.exit_code, repaired.exit_code, again.exit_code) == (1, 0, 0)
    assert "let `evaldesk doctor --repair` recover the rows that can be read" in _database(found.output)[0]
    (aside,) = path.parent.glob("damaged-*")
    assert f"is kept as {aside / 'evaldesk.db'}. Recovered: 1 chat. Lost: nothing." in repaired.output
    assert (aside / "evaldesk.db").read_bytes() == before
    with Store.open(path) as store:
        assert [each.title for each in store.sessions.list()] == ["A talk"]


def test_a_repair_of_the_database_that_was_killed_is_named_and_finished(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _damaged(home)

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "_put_in_place", end)
        with pytest.raises(KeyboardInterrupt):
            recovery.recover(path)
    found = _doctor(home)
    repaired = _doctor(home, "--repair")

    assert (found.exit_code, repaired.exit_code) == (1, 0)
    assert "is not finished; `evaldesk doctor --repair`" in _database(found.output)[0]
    assert "Recovered: 1 chat." in repaired.output
    with Store.open(path) as store:
        assert [each.title for each in store.sessions.list()] == ["A talk"]


def test_a_database_is_not_repaired_while_a_desk_is_open(home: Path) -> None:
    path = _damaged(home)
    before = path.read_bytes()

    with hold_workspace(home / ".evaldesk", url="http://127.0.0.1:1"):
        assert "is held by process" in str(_doctor(home, "--repair").exception)

    assert path.read_bytes() == before


def test_backups_are_listed_and_one_is_put_in_place(home: Path) -> None:
    path = home / ".evaldesk" / "evaldesk.db"
    Trust(open_settings((), workspace=str(home))).opened_store().close()
    made = back_up(path, datetime(2025, 11, 28, 12, tzinfo=UTC))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x07" * (len(data) - 4096)
    path.write_bytes(data)

    assert Trust(open_settings((), workspace=str(home))).is_database_ours

    damaged = _doctor(home)
    unknown = _doctor(home, "--restore", "yesterday")
    restored = _doctor(home, "--restore", "latest")

    assert made
    assert (damaged.exit_code, restored.exit_code) == (1, 0)
    assert isinstance(unknown.exception, NotFoundError)
    assert "20251128T120000Z" in str(unknown.exception)
    assert not Trust(open_settings((), workspace=str(home))).is_database_ours
    assert f"The backup of 2025-11-28 12:00 UTC is in the place of {path}." in restored.output
    assert "1 backup, 20251128T120000Z to 20251128T120000Z; evaldesk doctor --restore latest" in restored.output
