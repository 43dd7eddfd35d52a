"""Imports of runs: stored hidden, in short transactions, and shown all at once at their end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, delete, exists, func, insert, select, update

from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.model import Case, RunConfig, TrialResult
from evaldesk.model.run import MAX_TRIALS
from evaldesk.model.stored import ImportStatus, ImportSummary
from evaldesk.store import media
from evaldesk.store.database import Clock, StepSize, StorePart
from evaldesk.store.experiments import NewExperiment, insert_experiment
from evaldesk.store.runs import planning, totals, trash
from evaldesk.store.runs.facets import add_tags, words_of_divergence
from evaldesk.store.runs.planning import NO_EVALSET
from evaldesk.store.runs.recording import Storable, record, scores, storable_rows
from evaldesk.store.tables.columns import DatabaseSeconds
from evaldesk.store.tables.imports import IMPORT_RECORD, IMPORT_RUN, IMPORTED_RUN
from evaldesk.store.tables.runs import CASE_SNAPSHOT, RUN, RUN_CASE, TRIAL, VISIBLE

MAX_ROWS = 300
"""Rows that one transaction writes: some 10 ms of computing, so that a slow disk has the rest of 100 ms.

It writes fewer where the last ones took long.
"""

MAX_BYTES = 2 * 1024 * 1024
"""Bytes of packed cases and transcripts that one transaction writes; a larger one is alone in its own."""

LEASE_S = 60.0
"""An import is renewed with each of its transactions, and while it waits for another of its process."""

_NEW_LEASE = DatabaseSeconds() + LEASE_S

MAX_SCORE = 1e100

MOST_PASSED = 50
"""Cases that are read to come to the next one of a failed trial, before it is looked for."""

ROWS_OF_RUN = 4
"""Rows that make a run known, before its cases."""

T = TypeVar("T")
_R = IMPORT_RECORD.c


@dataclass(frozen=True, slots=True)
class NewRun:
    """A run that is to be imported; `digest` is of its content in the file, `reason` says where it came from.

    `n_each` are the trials of each case.
    """

    config: RunConfig
    cases: Sequence[Case]
    results: Sequence[TrialResult]
    reason: str
    digest: str
    n_each: Sequence[int]


def new_run(
    config: RunConfig,
    cases: Sequence[Case],
    results: Sequence[TrialResult],
    reason: str,
    digest: str,
    *,
    may_be_empty: bool = False,
) -> NewRun:
    """A run of these trials: each case has all indexes up to its last one, at least the planned number.

    Raises UsageError without a trial unless it `may_be_empty`, for more than MAX_TRIALS, and for a trial or a score
    that cannot be stored.
    """
    if not results and not may_be_empty:
        raise UsageError("the file contains no trial; there is nothing to store as a run")
    n_each = [config.recorded.n_each if config.recorded else 1] * len(cases)
    for result in results:
        if not 0 <= result.case_index < len(cases) or result.trial_index < 0:
            place = f"case {result.case_index}, trial {result.trial_index}"
            raise UsageError(f"a trial is of {place}, but the run has {len(cases)} cases")
        values = ((score.metric, score.value) for score in result.scores if score.value is not None)
        if huge := next(((metric, value) for metric, value in values if abs(value) > MAX_SCORE), None):
            raise UsageError(f"{huge[0]}: a score of {huge[1]:g} cannot be added up with others")
        n_each[result.case_index] = max(n_each[result.case_index], result.trial_index + 1)
    if (n_trials := sum(n_each)) > MAX_TRIALS:
        raise UsageError(f"{n_trials:,} trials are more than the {MAX_TRIALS:,} of one run")
    return NewRun(replace(config, n=min(n_each)), cases, results, reason, digest, n_each)


class AlreadyImportedError(ConflictError):
    """All of the file was imported before; `run_ids` are its runs, or `evalset` is its eval set where it has no run."""

    def __init__(self, run_ids: Sequence[int], evalset: str = "") -> None:
        place = f"run {', '.join(map(str, run_ids))}" if run_ids else f"eval set {evalset}"
        self.words = f"already imported as {place}"
        super().__init__(self.words if evalset else f"{self.words}; --again imports it once more")
        self.run_ids = tuple(run_ids)


class ImportUnderWayError(ConflictError):
    """The same content is being imported now, by the import `import_id`."""

    def __init__(self, import_id: int) -> None:
        super().__init__(f"import {import_id} of the same content is under way; wait for its end, or cancel it")
        self.import_id = import_id


class ImportEndedError(ConflictError):
    """The import was cancelled, or ended, before all of it was stored."""


class DivergenceWords:
    """The words of the first divergences of failed trials from their cases, which mostly come in one order."""

    def __init__(self, run: NewRun) -> None:
        from evaldesk.transcripts.recorded import ReadItems

        self._run = run
        self._read = run.cases.read if isinstance(run.cases, ReadItems) else None
        self._rest: Iterator[tuple[int, Case]] = iter(())
        self._last: tuple[int, Case] | None = None

    def __call__(self, result: TrialResult) -> str:
        from evaldesk.store.runs.long_trials import divergence_of

        divergence = divergence_of(self._case(result.case_index), result, self._run.config)
        return words_of_divergence(divergence, result, self._run.config)

    def _case(self, index: int) -> Case:
        """The case; of cases on the disk the next ones are read along, since each look for one reads many."""
        if self._read is None:
            return self._run.cases[index]
        at = self._last[0] if self._last else -1
        if self._last is None or not at <= index <= at + MOST_PASSED:
            self._rest, self._last = enumerate(self._read(index), index), None
        while self._last is None or self._last[0] < index:
            self._last = next(self._rest)
        return self._last[1]


class ImportStore(StorePart):
    """Where imported trials become runs. Each transaction is bounded by rows and bytes."""

    def find_run(self, digest: str) -> int | None:
        """The newest run that was imported with this content and is not deleted."""
        with self._database.reading() as connection:
            return _runs_by_digest(connection, [digest]).get(digest)

    def begin(
        self,
        source: str,
        runs: Sequence[NewRun],
        owner: str,
        *,
        set_id: str = "",
        is_again: bool = False,
        experiment: NewExperiment | None = None,
    ) -> tuple[int, list[int]]:
        """Begin an import and give its id and those of its hidden runs; `owner` is the process that imports.

        The runs of an `experiment` have their parts of it, but for its id, which is given here.

        Raises ImportUnderWayError or AlreadyImportedError for a run that another import stores or has stored since,
        unless `is_again`.
        """
        n_total = sum(len(run.cases) + len(run.results) for run in runs)
        now = self._clock()
        first = {"status": "importing", "stage": "storing", "set_path": "", "set_version": "", "reason": ""}
        values = first | {"source": source, "owner": owner, "set_id": set_id, "n_total": n_total, "created_at": now}
        values |= {"leased_until": _NEW_LEASE}
        import_id, experiment_id, run_ids, size = 0, 0, list[int](), StepSize(MAX_ROWS)
        try:
            for some in _batches(runs, lambda _: (ROWS_OF_RUN, 0), size):
                with self._step(import_id, 0, size) if import_id else size.writing(self._database) as connection:
                    if not is_again:
                        _check_new(connection, import_id, [run.digest for run in some])
                    # The record comes with its first runs: one that is refused, or killed before, leaves none.
                    current_id = import_id or _begin(connection, values)
                    current_experiment_id = experiment_id
                    if experiment and not experiment_id:
                        current_experiment_id = insert_experiment(connection, experiment, now)
                    configs = [_with_experiment(run.config, current_experiment_id) for run in some]
                    both = zip(some, configs, strict=True)
                    run_ids += [self._insert_run(connection, current_id, run, config) for run, config in both]
                import_id, experiment_id = current_id, current_experiment_id
        except (Exception, KeyboardInterrupt) as error:
            if import_id:
                self.end(import_id, "failed", str(error))
            raise
        return import_id, run_ids

    def _insert_run(self, connection: Connection, import_id: int, run: NewRun, config: RunConfig) -> int:
        now = self._clock()
        run_id = planning.insert_run(connection, config, run.n_each, now, "", self._starter)
        values = {"status": "finished", "deleted_at": now, "reason": run.reason}
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(values))
        connection.execute(insert(IMPORT_RUN).values(run_id=run_id, import_id=import_id))
        connection.execute(insert(IMPORTED_RUN).values(run_id=run_id, digest=run.digest))
        return run_id

    def add(
        self,
        import_id: int,
        run_id: int,
        run: NewRun,
        scrubbed: Callable[[TrialResult], TrialResult] = lambda each: each,
    ) -> Iterator[int]:
        """Store the cases and the trials of a hidden run, a transaction at a time; gives the number after each.

        `scrubbed` takes secrets out of a trial. Raises ImportEndedError when the import was cancelled.
        """
        size = StepSize(MAX_ROWS)
        both = enumerate(zip(run.cases, run.n_each, strict=True))
        cases = ((*planning.case_rows(index, case, n), case) for index, (case, n) in both)
        for rows in _batches(cases, lambda rows: (2, len(rows[1]["data"])), size):
            with self._step(import_id, len(rows), size) as connection:
                connection.execute(insert(RUN_CASE), [{"run_id": run_id} | own for own, _, _ in rows])
                connection.execute(insert(CASE_SNAPSHOT), [{"run_id": run_id} | snapshot for _, snapshot, _ in rows])
                totals.add_planned(connection, run_id, len(rows))
                add_tags(connection, run_id, ((own["case_index"], case) for own, _, case in rows))
                bytes_by_digest = media.bytes_of(item for *_, case in rows for item in case.media)
                media.keep(connection, {"run_id": run_id}, bytes_by_digest, self._clock)
            yield len(rows)
        trial_places = ((index, trial) for index, n in enumerate(run.n_each) for trial in range(n))
        for places in _batches(trial_places, lambda _: (1, 0), size):
            with self._step(import_id, 0, size) as connection:
                connection.execute(insert(TRIAL), [planning.trial_row(run_id, *place) for place in places])
            yield 0
        results = (replace(scrubbed(result), run_id=run_id, attempt=1) for result in run.results)
        words_of = DivergenceWords(run)
        storable = (row for result in results for row in storable_rows([result], words_of=words_of))
        for batch in _batches(storable, _weight, size):
            with self._step(import_id, len(batch), size) as connection:
                record(connection, batch, self._clock)
            yield len(batch)

    def make_ready(self, import_id: int, *, set_path: str = "", set_version: str = "") -> None:
        """Note that every row is stored, and which file will be the eval set: from now on a crash may be continued.

        Raises ImportEndedError.
        """
        with self._step(import_id, 0) as connection:
            values = {"stage": "ready", "set_path": set_path, "set_version": set_version}
            connection.execute(update(IMPORT_RECORD).where(_R.id == import_id).values(values))

    def publish(self, import_id: int, put_in_place: Callable[[], None] = lambda: None) -> None:
        """Show all runs of a ready import in one transaction; `put_in_place` puts the eval set in place before its end.

        Raises ImportEndedError, and the errors of `put_in_place`; nothing is shown then.
        """
        own = select(IMPORT_RUN.c.run_id).where(IMPORT_RUN.c.import_id == import_id)
        with self._step(import_id, 0) as connection:
            values = {"deleted_at": None, "finished_at": self._clock()}
            connection.execute(update(IMPORT_RECORD).where(_R.id == import_id).values(stage="naming"))
            connection.execute(update(RUN).where(RUN.c.id.in_(own)).values(values))
            put_in_place()

    def name_last_runs(self, import_id: int) -> None:
        """Make the runs that are shown the last ones of their cases, and end the import. May be called again."""
        with self._database.reading() as connection:
            runs = select(RUN.c.id, RUN.c.n_cases).join(IMPORT_RUN, IMPORT_RUN.c.run_id == RUN.c.id)
            own = (IMPORT_RUN.c.import_id == import_id) & RUN.c.evalset_id.not_like(f"{NO_EVALSET}%")
            run_rows = connection.execute(runs.where(own).order_by(RUN.c.id)).all()
        size = StepSize(MAX_ROWS)
        for run_id, n_cases in run_rows:
            start = 0
            while start < n_cases:
                end = start + size.n
                with size.writing(self._database) as connection:
                    trash.name_last_run_of(connection, run_id, start, end)
                start = end
        with self._database.writing() as connection:
            _end(connection, import_id, "done", "", self._clock)

    def end(self, import_id: int, status: ImportStatus, reason: str = "") -> bool:
        """End an import before it is shown; its rows are deleted with those of deleted runs. False when it is over."""
        with self._database.writing() as connection:
            stage = connection.scalar(select(_R.stage).where(_R.id == import_id))
            return stage != "naming" and _end(connection, import_id, status, reason, self._clock)

    def renew(self, import_ids: Collection[int]) -> None:
        """Keep imports that wait, for the process that will store them."""
        waiting_imports = _R.id.in_(import_ids) & (_R.status == "importing")
        with self._database.writing() as connection:
            connection.execute(update(IMPORT_RECORD).where(waiting_imports).values(leased_until=_NEW_LEASE))

    def summary(self, import_id: int) -> ImportSummary:
        """An import. Raises NotFoundError."""
        with self._database.reading() as connection:
            row = connection.execute(_rows().where(_R.id == import_id)).first()
            if row is None:
                raise NotFoundError(f"there is no import {import_id}")
            return _summary(connection, row)

    def list(self, limit: int = 20, *, is_unfinished: bool = False) -> list[ImportSummary]:
        """Imports, newest first; on request only unfinished ones."""
        rows = _rows().order_by(_R.id.desc()).limit(limit)
        with self._database.reading() as connection:
            import_rows = connection.execute(rows.where(_R.status == "importing") if is_unfinished else rows).all()
            return [_summary(connection, row) for row in import_rows]

    @contextmanager
    def _step(self, import_id: int, n: int, size: StepSize | None = None) -> Iterator[Connection]:
        """A transaction of an import that goes on, which stores `n` more of its cases and trials."""
        with (size or StepSize(1)).writing(self._database) as connection:
            going = (_R.id == import_id, _R.status == "importing", _R.stage != "naming")
            result = connection.execute(
                update(IMPORT_RECORD).where(*going).values(n_done=_R.n_done + n, leased_until=_NEW_LEASE)
            )
            if not result.rowcount:
                raise ImportEndedError(f"import {import_id} was cancelled")
            yield connection


PROCESS_ENDED = "The process that imported it ended."
"""The reason of an import that a kill cut short."""


def _begin(connection: Connection, values: dict[str, Any]) -> int:
    """A new record, which takes the place of those of the same source that a kill cut short; its id."""
    is_left = exists().where(IMPORT_RUN.c.import_id == _R.id)
    cut_short = (_R.source == values["source"]) & (_R.status == "failed") & (_R.reason == PROCESS_ENDED)
    connection.execute(delete(IMPORT_RECORD).where(cut_short, ~is_left))
    return int(connection.execute(insert(IMPORT_RECORD).values(values).returning(_R.id)).scalar_one())


def _with_experiment(config: RunConfig, experiment_id: int) -> RunConfig:
    """The configuration with the id of its experiment, if it is of one."""
    part = config.experiment
    return replace(config, experiment=replace(part, experiment_id=experiment_id)) if part else config


def _runs_by_digest(connection: Connection, digests: Sequence[str]) -> dict[str, int]:
    """The newest visible run of each digest that has one."""
    columns = IMPORTED_RUN.c
    rows = select(columns.digest, func.max(columns.run_id).label("run_id")).join(RUN, RUN.c.id == columns.run_id)
    newest = connection.execute(rows.where(columns.digest.in_(digests), VISIBLE).group_by(columns.digest))
    return {row.digest: row.run_id for row in newest}


def _check_new(connection: Connection, import_id: int, digests: Sequence[str]) -> None:
    runs_by_digest = _runs_by_digest(connection, digests)
    if runs_by_digest:
        raise AlreadyImportedError(sorted(runs_by_digest.values()))
    others = (
        select(_R.id)
        .join(IMPORT_RUN, IMPORT_RUN.c.import_id == _R.id)
        .join(IMPORTED_RUN, IMPORTED_RUN.c.run_id == IMPORT_RUN.c.run_id)
        .where(IMPORTED_RUN.c.digest.in_(digests), _R.status == "importing", _R.id != import_id)
    )
    other = connection.scalar(others.limit(1))
    if other is not None:
        raise ImportUnderWayError(other)


def _end(connection: Connection, import_id: int, status: ImportStatus, reason: str, clock: Clock) -> bool:
    values = {"status": status, "reason": reason, "finished_at": clock()}
    going = (_R.id == import_id) & (_R.status == "importing")
    return connection.execute(update(IMPORT_RECORD).where(going).values(values)).rowcount == 1


def _summary(connection: Connection, row: Row[Any]) -> ImportSummary:
    runs = select(IMPORT_RUN.c.run_id).join(RUN, RUN.c.id == IMPORT_RUN.c.run_id)
    visible_runs = runs.where(IMPORT_RUN.c.import_id == row.id, VISIBLE).order_by(IMPORT_RUN.c.run_id)
    values = {name: value for name, value in row._mapping.items() if name != "leased_until"}
    return ImportSummary(run_ids=tuple(connection.scalars(visible_runs)), **values)


def _rows() -> Select[Any]:
    """The imports, each with whether its process renewed it in time."""
    return select(IMPORT_RECORD, (_R.leased_until > DatabaseSeconds()).label("is_leased"))


def _weight(row: Storable) -> tuple[int, int]:
    """The rows that a result becomes, and the bytes of its transcript."""
    return 3 + 2 * len(scores(row.result)), len(row.transcript["data"])


def _batches(items: Iterable[T], weigh: Callable[[T], tuple[int, int]], size: StepSize) -> Iterator[Sequence[T]]:
    """The items in lists of at most `size` rows and its share of MAX_BYTES; `weigh` gives both of an item."""
    batch: list[T] = []
    n_rows = n_bytes = 0
    for item in items:
        rows, length = weigh(item)
        if batch and (n_rows + rows > size.n or n_bytes + length > size.share(MAX_BYTES)):
            yield batch
            batch, n_rows, n_bytes = [], 0, 0
        batch.append(item)
        n_rows, n_bytes = n_rows + rows, n_bytes + length
    if batch:
        yield batch
