"""Imports in short transactions: killed or cancelled at each of them, beside others, and never seen in part."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from shutil import copyfile
from threading import Thread
from typing import Any, TypeVar, cast

import pytest
from sqlalchemy import Connection, event, func, select
from tests.faulty_disk import FaultyDisk, Killed

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.imports.importing import AlreadyImportedError, ImportDesk, ImportEndedError, ImportUnderWayError
from evaldesk.errors import ConflictError, EvaldeskError, WorkspaceError
from evaldesk.formats import load_evalset
from evaldesk.formats.exchange import Imported
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, RunConfig, Score, TrialResult, Turn
from evaldesk.settings import Settings
from evaldesk.store import Store, database
from evaldesk.store.database import Database
from evaldesk.store.runs import imports
from evaldesk.store.tables import METADATA
from evaldesk.transcripts.recorded import RecordedRun

pytestmark = pytest.mark.long

T = TypeVar("T")

CASES = tuple(Case(f"c{index}", (Turn(f"say {index}"),)) for index in range(12))
CRITERION = Criterion("right", 1.0)


def trials(n: int, cases: tuple[Case, ...] = CASES) -> tuple[TrialResult, ...]:
    """`n` trials of each case, all passed."""
    score = Score("right", 1.0, None, 1.0, True, "")
    return tuple(
        TrialResult(0, index, trial, "finished", "passed", scores=(score,))
        for index in range(len(cases))
        for trial in range(n)
    )


SET = EvalSet("calc", cases=CASES)
RUNS = tuple(RecordedRun(f"run {n}", f"agent {n}", CASES, trials(n), (CRITERION,)) for n in (1, 2))
BOTH = Imported("promptfoo", SET, RUNS)


@dataclass
class ImportFolder:
    """A workspace with a database, and the desks on it."""

    folder: Path
    store: Store

    @property
    def settings(self) -> Settings:
        return Settings(self.folder, (self.folder,))

    def desk(self) -> ImportDesk:
        return ImportDesk(self.settings, self.store, EvalSetDesk(self.settings, self.store))

    def take_in(self, imported: Imported = BOTH, **options: Any) -> tuple[int, ...]:
        return self.desk().take_in(imported, source="a.json", name="calc", **options).run_ids

    def restart(self) -> None:
        """What the next desk does first."""
        self.desk().recover()
        self.store.runs.finish_deleting()

    def shown(self) -> tuple[int, list[tuple[int, int]]]:
        """The number of eval sets, and the passed and planned trials of each run."""
        runs = sorted(self.store.runs.list(), key=lambda run: run.id)
        files = list((self.folder / "evalsets").glob("*.evalset.json"))
        assert all(len(load_evalset(path).cases) == len(CASES) for path in files)
        return len(files), [(run.n_passed, run.n_trials) for run in runs]

    def rows(self) -> dict[str, int]:
        """The number of rows of each table that is about runs."""
        tables = ("run", "run_case", "case_snapshot", "trial", "transcript", "score", "imported_run", "import_run")
        with self.store.imports._database.reading() as connection:
            counts = {name: select(func.count()).select_from(METADATA.tables[name]) for name in tables}
            return {name: connection.execute(count).scalar_one() for name, count in counts.items()}

    def orphans(self) -> int:
        """The last runs of cases that are no run, or none that is shown."""
        last, run = METADATA.tables["last_run"], METADATA.tables["run"]
        shown = select(run.c.id).where(run.c.deleted_at.is_(None))
        with self.store.imports._database.reading() as connection:
            found = select(func.count()).select_from(last).where(last.c.run_id.not_in(shown))
            return int(connection.execute(found).scalar_one())

    def leftovers(self) -> list[Path]:
        return list(self.folder.rglob(".*evaldesk-tmp"))


WHOLE = (1, [(12, 12), (24, 24)])
NOTHING: tuple[int, list[tuple[int, int]]] = (0, [])


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "evaldesk.db"
    Store.open(path).close()
    return path


@pytest.fixture
def new_place(tmp_path: Path, migrated: Path) -> Iterator[Callable[[], ImportFolder]]:
    places: list[ImportFolder] = []

    def made() -> ImportFolder:
        folder = tmp_path / str(len(places))
        (folder / ".evaldesk").mkdir(parents=True)
        copyfile(migrated, folder / ".evaldesk" / "evaldesk.db")
        places.append(ImportFolder(folder, Store.open(folder / ".evaldesk" / "evaldesk.db")))
        return places[-1]

    yield made
    for place in places:
        place.store.close()


@pytest.fixture
def place(new_place: Callable[[], ImportFolder]) -> ImportFolder:
    return new_place()


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Transactions of few rows, so that a small import has many; the same number however busy the machine is."""
    monkeypatch.setattr(imports, "MAX_ROWS", 30)
    monkeypatch.setattr(database, "STEP_S", 1e6)


class Steps:
    """Counts the write transactions, and acts in or after the one at `at`, from 1."""

    def __init__(self, at: int, act: Callable[[], None], *, is_after: bool = False) -> None:
        self.n = 0
        self._at = at
        self._act = act
        self._is_after = is_after

    @contextmanager
    def inserted(self) -> Iterator[None]:
        real = Database.writing
        steps = self

        @contextmanager
        def writing(database: Database) -> Iterator[Connection]:
            steps.n += 1
            mine = steps.n == steps._at
            with real(database) as connection:
                yield connection
                if mine and not steps._is_after:
                    steps._act()
            if mine and steps._is_after:
                steps._act()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Database, "writing", writing)
            yield


def kill() -> None:
    raise Killed


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("is_after", [False, True], ids=["in", "after"])
def test_an_import_that_is_killed_at_any_transaction_is_there_whole_or_not_at_all(
    new_place: Callable[[], ImportFolder], *, is_after: bool
) -> None:
    seen = []

    for at in count(1):
        place = new_place()
        steps = Steps(at, kill, is_after=is_after)
        with steps.inserted(), suppress(Killed):
            place.take_in()
        before = place.shown()
        place.restart()
        after = place.shown()
        if steps.n < at:
            break

        seen.append(after)
        assert before in (NOTHING, (1, []), WHOLE)  # the set alone only until the next start
        assert after in (NOTHING, WHOLE)
        assert place.leftovers() == []
        if after == NOTHING:
            assert set(place.rows().values()) == {0}
            assert place.take_in() == (1, 2)  # no number is left out
        else:
            with pytest.raises(AlreadyImportedError):
                place.take_in()
        assert place.shown() == WHOLE
        assert [each.status for each in place.store.imports.list()] == ["done"]
        assert place.orphans() == 0
        evalset_id = place.store.runs.list()[0].config.evalset_id
        assert place.store.runs.last_verdicts(evalset_id)["c3"].run_id == 2 or after == NOTHING

    assert len(seen) > 12
    assert seen[0] == NOTHING
    assert seen[-1] == WHOLE


@pytest.mark.usefixtures("small_steps")
def test_a_retry_removes_the_rows_of_a_killed_import(place: ImportFolder) -> None:
    with Steps(8, kill, is_after=True).inserted(), suppress(Killed):
        place.take_in()

    place.take_in()

    assert place.shown() == WHOLE
    assert (place.rows()["run"], place.rows()["run_case"]) == (2, 2 * len(CASES))
    assert [each.status for each in place.store.imports.list()] == ["done"]
    assert [run.id for run in place.store.runs.list()] == [2, 1]


@pytest.mark.parametrize("n_deleted", [0, 1], ids=["no run before", "a deleted run before"])
def test_the_number_of_a_run_that_was_shown_is_given_to_no_other(place: ImportFolder, n_deleted: int) -> None:
    for _ in range(n_deleted):
        run_id = place.store.runs.create(RunConfig(AgentRef("a", ""), "set"), CASES[:1])
        place.store.runs.delete(run_id)
        place.store.runs.remove_deleted()
    with Steps(4, kill, is_after=True).inserted(), suppress(Killed):
        place.take_in()
    place.restart()

    assert place.store.runs.create(RunConfig(AgentRef("a", ""), "set"), CASES[:1]) == n_deleted + 1


def test_an_import_is_whole_or_not_there_when_it_is_killed_at_any_call_of_the_disk(
    new_place: Callable[[], ImportFolder],
) -> None:
    for at in count(1):
        place = new_place()
        disk = FaultyDisk(at)
        with disk.inserted(), suppress(Killed):
            place.take_in()
        if not disk.was_reached:
            break
        place.restart()

        assert place.shown() in (NOTHING, WHOLE)
        if place.shown() == NOTHING:
            place.take_in()
        assert place.shown() == WHOLE

    assert at > 5


def test_a_disk_that_fails_at_any_call_leaves_nothing(new_place: Callable[[], ImportFolder]) -> None:
    for at in count(1):
        place = new_place()
        disk = FaultyDisk(at, 28, lasts=True)
        with disk.inserted(), suppress(EvaldeskError):
            place.take_in()
        if place.shown() == WHOLE:
            break

        assert place.shown() == NOTHING
        assert set(place.rows().values()) == {0}
        place.take_in()
        assert place.shown() == WHOLE

    assert at > 3


IMPORT_AND_DIE = """
import os, signal, sys
from pathlib import Path
from tests.desk.test_import_steps import ImportFolder, Steps
from evaldesk.store import Store, database
from evaldesk.store.runs import imports

imports.MAX_ROWS = 30
database.STEP_S = 1e6
steps = Steps(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL), is_after=sys.argv[3] == "after")
folder = Path(sys.argv[1])
with steps.inserted():
    ImportFolder(folder, Store.open(folder / ".evaldesk" / "evaldesk.db")).take_in()
"""


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize(("from_end", "when", "found"), [(8, "in", NOTHING), (3, "in", WHOLE), (3, "after", WHOLE)])
def test_a_process_that_is_killed_leaves_an_import_that_the_next_one_ends(
    new_place: Callable[[], ImportFolder], from_end: int, when: str, found: object
) -> None:
    steps = Steps(0, kill)
    with steps.inserted():
        new_place().take_in()
    place = new_place()

    arguments = (str(place.folder), str(steps.n - from_end), when)
    ended = subprocess.run([sys.executable, "-c", IMPORT_AND_DIE, *arguments], check=False, capture_output=True)
    place.restart()

    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert place.shown() == found


@pytest.mark.usefixtures("small_steps")
def test_an_import_that_is_cancelled_at_any_transaction_leaves_nothing(new_place: Callable[[], ImportFolder]) -> None:
    n_cancelled = 0

    for at in count(2):
        place = new_place()
        other = Store.open(place.folder / ".evaldesk" / "evaldesk.db")
        desk = ImportDesk(place.settings, other, EvalSetDesk(place.settings, other))
        answers: list[bool] = []

        def cancel(desk: ImportDesk = desk, answers: list[bool] = answers) -> None:
            answers.append(desk.cancel(1))

        steps = Steps(at, cancel, is_after=True)
        with steps.inserted(), suppress(ImportEndedError):
            place.take_in()
        other.close()
        if not answers:
            break

        expected = NOTHING if answers[0] else WHOLE
        n_cancelled += answers[0]
        assert place.shown() == expected
        assert place.leftovers() == []
        if answers[0]:
            assert set(place.rows().values()) == {0}
            assert place.store.imports.summary(1).status == "cancelled"
            place.take_in()
        assert place.shown() == WHOLE

    assert n_cancelled > 8


@pytest.mark.usefixtures("small_steps")
def test_ctrl_c_at_any_transaction_leaves_nothing_or_all(new_place: Callable[[], ImportFolder]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    n_cancelled = 0

    for at in count(2):
        place = new_place()
        steps = Steps(at, interrupt, is_after=True)
        is_cancelled = False
        with steps.inserted():
            try:
                place.take_in()
            except KeyboardInterrupt:
                is_cancelled = True
        if steps.n < at:
            break

        n_cancelled += is_cancelled
        assert place.shown() == (NOTHING if is_cancelled else WHOLE)
        if is_cancelled:
            assert set(place.rows().values()) == {0}
            place.take_in()
        assert place.shown() == WHOLE
        assert place.store.imports.list()[0].status == "done"

    assert n_cancelled > 8


@pytest.mark.usefixtures("small_steps")
def test_nothing_is_seen_of_an_import_until_all_is_there(place: ImportFolder) -> None:
    seen = []

    place.take_in(watch=lambda n_done, n_total: seen.append((n_done, n_total, place.shown())))

    assert seen[-1] == (60, 60, NOTHING)
    assert [n_done for n_done, _, _ in seen] == sorted(n_done for n_done, _, _ in seen)
    assert {shown for _, _, (shown, _) in seen} == {0}
    assert place.shown() == WHOLE


@pytest.mark.usefixtures("small_steps")
def test_deleted_runs_go_and_the_runs_of_a_living_import_stay(place: ImportFolder) -> None:
    (other,) = place.take_in(Imported("promptfoo", runs=(replace(RUNS[0], name="other"),)))
    n_seen = 0

    def watch(n_done: int, n_total: int) -> None:
        nonlocal n_seen
        n_seen += 1
        if n_seen == 8:
            place.store.runs.delete(other)
        place.desk().recover()
        place.store.runs.finish_deleting()

    place.take_in(watch=watch)

    assert n_seen > 8
    assert place.shown() == WHOLE


@pytest.mark.usefixtures("small_steps")
def test_of_two_imports_of_the_same_content_at_once_one_is_refused(place: ImportFolder) -> None:
    refused: list[ConflictError] = []

    def again() -> None:
        try:
            place.desk().take_in(BOTH, source="a.json", name="other")
        except ConflictError as error:
            refused.append(error)

    place.take_in(watch=lambda n_done, _: again() if n_done == 12 else None)
    again()

    assert isinstance(refused[0], ImportUnderWayError)
    assert refused[0].import_id == 1
    assert isinstance(refused[-1], AlreadyImportedError)
    assert place.shown() == WHOLE


@pytest.mark.usefixtures("small_steps")
def test_of_many_imports_of_the_same_content_at_once_one_is_stored(place: ImportFolder) -> None:
    outcomes: list[object] = []

    def take_in() -> None:
        try:
            outcomes.append(place.take_in())
        except EvaldeskError as error:
            outcomes.append(error)

    threads = [Thread(target=take_in) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(isinstance(each, tuple) for each in outcomes) == 1
    assert all(isinstance(each, tuple | ConflictError) for each in outcomes), outcomes
    assert place.shown() == WHOLE


def counted_rows(store: Store) -> list[int]:
    """Fills with the number of rows that each write transaction writes."""
    engine = store.imports._database._writer
    found: list[int] = []

    @event.listens_for(engine, "begin")
    def begin(_: Connection) -> None:
        found.append(0)

    @event.listens_for(engine, "after_cursor_execute")
    def executed(_: object, cursor: Any, statement: str, parameters: Any, __: object, many: bool) -> None:
        if statement.startswith(("INSERT", "UPDATE", "DELETE")):
            found[-1] += len(parameters) if many else max(cursor.rowcount, 1)

    return found


N_MANY = 1_500
MANY = tuple(Case(f"c{index}", (Turn(f"say {index}"),)) for index in range(N_MANY))
LARGE = Imported("promptfoo", runs=(RecordedRun("many", "agent", MANY, trials(2, MANY), (CRITERION,)),))


def test_no_transaction_of_an_import_or_of_its_removal_writes_many_rows(place: ImportFolder) -> None:
    rows = counted_rows(place.store)

    def cancel(n_done: int, n_total: int) -> None:
        if n_done == n_total:
            place.desk().cancel(1)

    with pytest.raises(ImportEndedError):
        place.take_in(LARGE, watch=cancel)
    place.take_in(LARGE)

    assert place.shown() == (0, [(2 * N_MANY, 2 * N_MANY)])
    assert sum(rows) > 10 * N_MANY
    assert max(rows) <= 1.5 * imports.MAX_ROWS


class Generated(Sequence[T]):
    """Values that are made when they are asked for, and not kept."""

    def __init__(self, n: int, make: Callable[[int], T]) -> None:
        self._n = n
        self._make = make

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._make(each) for each in range(*index.indices(self._n))]
        if index >= self._n:
            raise IndexError(index)
        return self._make(index)


def generated(n: int) -> Imported:
    """A run of `n` cases with a trial each, of which none is in memory."""
    score = Score("right", 1.0, None, 1.0, True, "")
    cases = Generated(n, lambda index: Case(f"c{index}", (Turn(f"say {index} of {n}"),)))
    results = Generated(n, lambda index: TrialResult(0, index, 0, "finished", "passed", scores=(score,)))
    run = RecordedRun(f"{n} cases", "agent", cast("Any", cases), cast("Any", results), (CRITERION,))
    return Imported("promptfoo", runs=(run,))


def test_the_memory_of_storing_does_not_grow_with_the_cases(
    place: ImportFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports, "MAX_ROWS", 100)
    monkeypatch.setattr(database, "STEP_S", 1e6)  # steps of one size, however long they take
    peaks = {}
    place.take_in(generated(150))  # statements are compiled once
    gc.collect()
    gc.freeze()  # the more objects a process has, the later garbage is collected
    gc.collect()
    thresholds = gc.get_threshold()
    gc.set_threshold(700, 10, 10)  # tests have larger ones

    for n in (2_000, 6_000):
        tracemalloc.start()
        place.take_in(generated(n))
        peaks[n] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    gc.set_threshold(*thresholds)

    assert peaks[6_000] < 1.5 * peaks[2_000]
    assert {run.n_passed for run in place.store.runs.list()} == {150, 2_000, 6_000}


def test_no_transaction_writes_many_bytes(place: ImportFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MAX_BYTES", 20_000)
    cases = tuple(replace(case, extra={"noise": os.urandom(5_000).hex()}) for case in CASES)
    sizes: list[int] = []
    real = imports._batches

    def bounded(items: Any, weigh: Any, size: Any) -> Iterator[Any]:
        for batch in real(items, weigh, size):
            sizes.append(sum(weigh(item)[1] for item in batch))
            yield batch

    monkeypatch.setattr(imports, "_batches", bounded)

    place.take_in(Imported("promptfoo", runs=(replace(RUNS[0], cases=cases),)))

    assert place.store.runs.list()[0].n_passed == len(CASES)
    assert sum(sizes) > 60_000
    assert max(sizes) <= 20_000


def test_a_run_is_recorded_between_the_transactions_of_an_import(place: ImportFolder) -> None:
    config = RunConfig(AgentRef("hello", "agent:root_agent"), "calc", n=1)
    mine = place.store.runs.create(config, MANY[:40])
    stored: list[int] = []

    def play(n_done: int, n_total: int) -> None:
        """What the driver of a run does while the import goes on."""
        if len(stored) < 40:
            other = TrialResult(mine, len(stored), 0, "finished", "passed")
            stored.append(place.store.runs.record([other]))
            assert place.store.runs.summary(mine).n_passed == len(stored)

    place.take_in(LARGE, watch=play)

    assert len(stored) > 8
    assert stored == [1] * len(stored)
    assert {run.n_passed for run in place.store.runs.list()} == {len(stored), 2 * N_MANY}


@pytest.mark.usefixtures("small_steps")
def test_imports_in_the_background_wait_in_line_and_none_is_lost(place: ImportFolder) -> None:
    desk = place.desk()
    contents = [
        Imported("promptfoo", replace(SET, id=f"set_{n}"), (replace(RUNS[0], name=f"run {n}"),)) for n in range(6)
    ]

    for number, imported in enumerate(contents):
        desk.start(desk.begin(imported, source=f"{number}.json", name=f"set_{number}"))
    desk._worker.shutdown()

    assert place.shown() == (6, [(12, 12)] * 6)
    assert [(each.status, each.source, len(each.run_ids)) for each in desk.list()] == [
        ("done", f"{number}.json", 1) for number in reversed(range(6))
    ]
    assert desk.n_before(6) == 0


@pytest.mark.usefixtures("small_steps")
def test_a_desk_that_is_closed_ends_its_imports_and_the_next_start_removes_them(place: ImportFolder) -> None:
    desk = place.desk()
    started = [desk.begin(Imported("promptfoo", None, (run,)), source=run.name, name="") for run in RUNS]
    for each in started:
        desk._queue[each.id or 0] = each
    assert [desk.n_before(each.id or 0) for each in started] == [0, 1]

    desk._is_closing = True
    with pytest.raises(WorkspaceError, match="the desk was stopped"):
        desk.finish(started[0])
    desk._queue.pop(started[0].id or 0)
    desk.close()
    place.restart()

    assert {(each.status, each.n_done < each.n_total) for each in desk.list()} == {("failed", True)}
    assert place.shown() == NOTHING
    assert set(place.rows().values()) == {0}
    assert place.take_in()
