"""The life of a run: planned as rows, taken up, tried again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)

from evaldesk.errors import ConflictError, UsageError
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case, RunConfig, RunStatus, TurnRecord
from evaldesk.model.comparison import Baseline
from evaldesk.model.conclusion import Stop
from evaldesk.model.fork import ForkPart
from evaldesk.model.run import Place
from evaldesk.model.stored import PendingTrial, TrialKey
from evaldesk.model.trial_turns import MANY_TURNS
from evaldesk.reading.pinned_turns import pinned_turns as turns_of_case
from evaldesk.store import media, pinned_turns
from evaldesk.store.database import NOBODY, Clock, Database, Starter, execute_many
from evaldesk.store.runs import totals
from evaldesk.store.runs.facets import add_tags
from evaldesk.store.runs.histories import history_class
from evaldesk.store.runs.recording import Storable, Values
from evaldesk.store.runs.recounting import forget_errors, recount_some
from evaldesk.store.runs.run_queries import run_row
from evaldesk.store.tables.columns import DatabaseSeconds, pack, pack_json, replacing
from evaldesk.store.tables.runs import (
    CASE_SNAPSHOT,
    LAST_RUN,
    N_OF_CASE,
    OF_CASE,
    RUN,
    RUN_BASELINE,
    RUN_CASE,
    RUN_SOURCE,
    SCORE,
    TO_DO,
    TRIAL,
    VISIBLE,
)
from evaldesk.wire import to_json

ACTIVE: tuple[RunStatus, ...] = ("running", "stopping")
ENDED: tuple[RunStatus, ...] = ("stopped", "finished", "failed")

LEASE_S = 15.0
NEW_LEASE = DatabaseSeconds() + LEASE_S


NO_EVALSET = "imported-"
"""The start of the eval set ids of runs whose cases came with them and are in no file here."""


ROWS_AT_ONCE = 1_500
"""Rows that one transaction plans, about: some 50 ms of computing."""

_HAS_FRESH = exists().where(OF_CASE, TRIAL.c.trial_index == N_OF_CASE).correlate(RUN_CASE)

TRIALS_RETRIED = 1_000
"""Trials of the cases that one transaction of a retry looks at, about."""


@dataclass(frozen=True, slots=True)
class _Step:
    """Cases of a run from `first` on, with the rows that one transaction stores of them."""

    first: int
    cases: Sequence[Case]
    rows: Sequence[tuple[Values, Values]]
    pinned_rows: Mapping[int, Any]
    media: Mapping[str, bytes]

    @property
    def n_cases(self) -> int:
        """The number of its cases."""
        return len(self.cases)


@dataclass
class Planning:
    """A new run that is planned in transactions of some cases each, so that others write between them.

    The first one stores the run, whose id is `run_id` from then on; its trials may be played while the others follow.
    `n_each` are the trials of each case; empty where each has those of the configuration. `prefix` are the pinned turns
    of a fork.
    """

    database: Database
    clock: Clock
    config: RunConfig
    cases: Sequence[Case]
    driver: str = ""
    baseline: Baseline | None = None
    n_each: Sequence[int] = ()
    starter: Starter = NOBODY
    prefix: Sequence[TurnRecord] = ()
    run_id: int = 0
    n_planned: int = 0

    def __post_init__(self) -> None:
        if not self.cases:
            raise UsageError("a run needs at least one case; select one", field="cases")
        self.n_each = self.n_each or (self.config.n,) * len(self.cases)
        if min(self.n_each) < 1:
            raise UsageError(f"a run plays each case at least once, got n = {min(self.n_each)}", field="n")
        self._at_once = max(1, ROWS_AT_ONCE // (2 + max(self.n_each)))

    @property
    def is_done(self) -> bool:
        """Whether every trial is planned."""
        return self.n_planned >= len(self.cases)

    @property
    def has_steps(self) -> bool:
        """Whether it takes more than one transaction."""
        return len(self.cases) > self._at_once

    def step(self) -> None:
        """Plan the next cases; a failed step may be tried again.

        Raises ConflictError when the run was deleted or taken by another process meanwhile.
        """
        step = self._next_step()
        with self.database.writing() as connection:
            run_id = self._store(connection, step)
        self.run_id = run_id
        self.n_planned += step.n_cases

    def _next_step(self, n_together: int = 1) -> _Step:
        """The rows of the next cases; fewer, where `n_together` runs are begun in one transaction."""
        some = self.cases[self.n_planned : self.n_planned + max(1, self._at_once // n_together)]
        all_media = [item for case in some for item in case.media]
        for _, turns in self._pinned(some):
            all_media += [*(item for turn in turns for item in turn.all_media), *media.result_images(turns)]
        return _Step(
            self.n_planned,
            some,
            [case_rows(index, case, self.n_each[index]) for index, case in enumerate(some, self.n_planned)],
            {at: pinned_turns.content_rows(turns) for at, turns in self._pinned(some) if turns},
            media.bytes_of(all_media),
        )

    def _store(self, connection: Connection, step: _Step) -> int:
        run_id = self.run_id or self._begin(connection)
        if self.run_id and not (renew if self.driver else is_own)(connection, run_id, 1):
            raise ConflictError(f"run {run_id} was deleted or taken over while it was planned")
        _plan_cases(connection, run_id, self.config, step.rows)
        for at, rows in step.pinned_rows.items():
            pinned_turns.keep(connection, run_id, at, rows)
        if self.config.source_run_id is not None:
            indexes = range(step.first, step.first + step.n_cases)
            pinned_turns.copy(connection, self.config.source_run_id, run_id, indexes)
        add_tags(connection, run_id, enumerate(step.cases, step.first))
        if step.media:
            media.keep(connection, {"run_id": run_id}, step.media, self.clock)
        return run_id

    def _pinned(self, some: Sequence[Case]) -> Iterator[tuple[int, Sequence[TurnRecord]]]:
        """The pinned turns of the next cases, by their index."""
        if self.config.source_run_id is not None:
            return
        for at, case in enumerate(some, self.n_planned):
            yield at, self.prefix or turns_of_case(case)

    def _begin(self, connection: Connection) -> int:
        config = self.config
        run_id = insert_run(connection, config, self.n_each, self.clock(), self.driver, self.starter)
        if self.baseline is not None:
            codec, data = pack(self.baseline)
            connection.execute(insert(RUN_BASELINE).values(run_id=run_id, codec=codec, data=data))
        if config.source_run_id is not None:
            connection.execute(insert(RUN_SOURCE).values(run_id=run_id, source_id=config.source_run_id))
        return run_id


def begin_together(
    database: Database,
    plannings: Sequence[Planning],
    configs_of: Callable[[Connection], Sequence[RunConfig]],
) -> None:
    """Store several new runs with their first cases in one transaction, so that a kill leaves all of them or none.

    `configs_of` stores their experiment in it, and gives their configurations.
    """
    steps = [each._next_step(len(plannings)) for each in plannings]
    with database.writing() as connection:
        for planning, config in zip(plannings, configs_of(connection), strict=True):
            planning.config = config
        run_ids = [planning._store(connection, step) for planning, step in zip(plannings, steps, strict=True)]
    for planning, step, run_id in zip(plannings, steps, run_ids, strict=True):
        planning.run_id = run_id
        planning.n_planned = step.n_cases


def _plan_cases(connection: Connection, run_id: int, config: RunConfig, both: Sequence[tuple[Values, Values]]) -> None:
    """Store some cases of a run, and a planned row for each of their trials."""
    rows: list[Values] = [{"run_id": run_id} | row for row, _ in both]
    connection.execute(insert(RUN_CASE), rows)
    connection.execute(insert(CASE_SNAPSHOT), [{"run_id": run_id} | snapshot for _, snapshot in both])
    totals.add_planned(connection, run_id, len(rows))
    names = ["run_id", "case_index", "trial_index", "status", "attempt", "n_calls", "tokens_in", "tokens_out"]
    trials = _every_trial(run_id, rows[0]["case_index"], max(len(row["strip"]) for row in rows))
    connection.execute(insert(TRIAL).from_select([*names, "duration_ms"], trials))
    if config.source_run_id is None and config.fork is None:
        _name_last_run(connection, config.evalset_id, rows)


def n_unplanned(connection: Connection, run_id: int) -> int:
    """The cases of a run that were never stored: its planning goes on, or broke off."""
    run = run_row(connection, run_id)
    if run.n_totalled < run.n_cases:  # of an earlier version, which planned a run in one transaction
        return 0
    return int(run.n_cases) - sum(n for _, n in totals.outcome_rows(connection, run_id))


def cut_to_planned(connection: Connection, run_id: int) -> None:
    """Let a run whose planning broke off be one of the cases that it has."""
    n_cases = run_row(connection, run_id).n_cases - n_unplanned(connection, run_id)
    sizes = {"n_cases": n_cases, "n_totalled": n_cases, "n_faceted": n_cases}
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(sizes))
    count_planned(connection, run_id)


def count_planned(connection: Connection, run_id: int) -> None:
    """Let a run be one of the trials that its cases have."""
    counts = {"n": func.max(N_OF_CASE), "n_least": func.min(N_OF_CASE), "n_trials": func.sum(N_OF_CASE)}
    of_run = select(*(count.label(name) for name, count in counts.items())).where(RUN_CASE.c.run_id == run_id)
    totals = connection.execute(of_run).one()
    if totals.n is not None:
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(totals._asdict()))


def set_status(
    connection: Connection, run_id: int, status: RunStatus, reason: str, driver: str | None, clock: Clock
) -> None:
    """Move a run on: its time begins and ends with it, and is counted by the process that plays it alone."""
    run, now = run_row(connection, run_id), clock()
    values: Values = {"status": status, "reason": reason}
    ms = clock.lap(run_id, run.ticked_at, now)
    if ms is not None or status not in ACTIVE:
        values |= {"active_ms": run.active_ms + (ms or 0.0), "ticked_at": now if status in ACTIVE else None}
    if driver is not None:
        # The fence: who lost the lease stores nothing more (decision 114).
        values |= {"driver": driver, "lease": run.lease + 1, "leased_until": NEW_LEASE}
    if driver is not None and run.stop:  # it was decided: who resumes it wants the other trials
        values |= {"stop": None, "stop_rule": ""}
    if status in ACTIVE and run.started_at is None:
        values["started_at"] = now
    values["finished_at"] = now if status in ENDED else None
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(values))


def set_stop(connection: Connection, run_id: int, stop: Stop) -> None:
    """Keep why the run ended before its last trial."""
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(stop=to_json(stop).decode()))


def check_lease(connection: Connection, run_id: int, lease: int) -> None:
    """Raise ConflictError when another process took the run since this one got that lease of it."""
    row = connection.execute(select(RUN.c.lease, RUN.c.driver).where(RUN.c.id == run_id)).first()
    if row is not None and row.lease != lease:
        raise ConflictError(f"run {run_id} was taken over by another process: {row.driver}")


def renew(connection: Connection, run_id: int, lease: int, places: Sequence[Place] = ()) -> bool:
    """Keep the run for the process with that lease, for LEASE_S more seconds, and tell where its trials are played.

    False when another process took it, or it is over.
    """
    own = (RUN.c.id == run_id, RUN.c.lease == lease, RUN.c.status.not_in(ENDED), VISIBLE)
    places_json = to_json(places).decode() if places else ""
    return connection.execute(update(RUN).where(*own).values(leased_until=NEW_LEASE, places=places_json)).rowcount == 1


def is_own(connection: Connection, run_id: int, lease: int) -> bool:
    """Whether the run is shown, and not taken by another process."""
    own = (RUN.c.id == run_id) & (RUN.c.lease == lease) & VISIBLE
    return connection.scalar(select(RUN.c.id).where(own)) is not None


def is_leased(connection: Connection, run_id: int) -> bool:
    """Whether the lease of the run has not run out."""
    leased_run = (RUN.c.id == run_id) & (RUN.c.leased_until > DatabaseSeconds()) & VISIBLE
    return connection.scalar(select(RUN.c.id).where(leased_run)) is not None


def pending(
    connection: Connection,
    run_id: int,
    after: TrialKey | None = None,
    limit: int | None = None,
    order: Sequence[int] | None = None,
) -> list[PendingTrial]:
    """The trials to play, the first trial of every case before the second of any.

    With `limit` about that number of them after the trial at `after`, or none at their end. The cases come
    in the `order` of their indexes, or in that of the file.
    """
    run = run_row(connection, run_id)
    to_do = select(TRIAL.c.case_index, TRIAL.c.trial_index, TRIAL.c.attempt, TRIAL.c.status)
    to_do = to_do.where(TRIAL.c.run_id == run_id, TRIAL.c.verdict.is_(None))
    if limit is None:
        return _pending(connection.execute(to_do.order_by(TRIAL.c.trial_index, TRIAL.c.case_index)))
    trials: list[PendingTrial] = []
    last = run.n - 1
    if n_unplanned(connection, run_id):  # the first trials of later cases come before the second of any
        last = 0
    elif run.n_confirming:
        last = connection.scalar(select(func.max(TRIAL.c.trial_index)).where(TRIAL.c.run_id == run_id)) or last
    indexes = range(run.n_cases) if order is None else order
    first_case, first_trial = (indexes.index(after[0]) + 1, after[1]) if after else (0, 0)
    # By whole keys: the trials of a case are beside each other, so a range would read all of them.
    page = to_do.where(
        TRIAL.c.case_index.in_(bindparam("cases", expanding=True)), TRIAL.c.trial_index == bindparam("at")
    )
    for trial_index in range(first_trial, last + 1):
        for start in range(first_case, run.n_cases, limit):
            cases = list(indexes[start : start + limit])
            rows = connection.execute(page.order_by(TRIAL.c.case_index), {"cases": cases, "at": trial_index})
            some = _pending(rows)
            trials += some if order is None else sorted(some, key=lambda trial: cases.index(trial.case_index))
            if len(trials) >= limit:
                return trials
        first_case = 0
    return trials


def _pending(rows: Iterable[Any]) -> list[PendingTrial]:
    return [PendingTrial(case, trial, attempt + (status == "cancelled")) for case, trial, attempt, status in rows]


def without_fresh(connection: Connection, run_id: int, case_ids: Collection[str]) -> list[int]:
    """The places of these cases that have no fresh trials yet, in their order."""
    run_row(connection, run_id)
    rows = connection.execute(
        select(RUN_CASE.c.case_index, RUN_CASE.c.case_id)
        .where(RUN_CASE.c.run_id == run_id, ~_HAS_FRESH)
        .order_by(RUN_CASE.c.case_index)
    )
    return [row.case_index for row in rows if row.case_id in case_ids]


def plan_confirming(connection: Connection, run_id: int, cases: Sequence[int], n: int) -> None:
    """Plan `n` fresh trials of these cases, after the others of each; a case that has some already gets none."""
    run_row(connection, run_id)
    own = (RUN_CASE.c.run_id == run_id) & RUN_CASE.c.case_index.in_(cases)
    rows = connection.execute(select(RUN_CASE.c.case_index, N_OF_CASE.label("first")).where(own, ~_HAS_FRESH)).all()
    trials = [trial_row(run_id, row.case_index, row.first + place) for row in rows for place in range(n)]
    execute_many(connection, insert(TRIAL), trials)
    more = {name: RUN.c[name] + len(trials) for name in ("n_confirming", "n_confirming_todo")}
    connection.execute(update(RUN).where(RUN.c.id == run_id).values(more))


def begin_retry(connection: Connection, run_id: int) -> None:
    """Reset the totals and the stop decision of a run before a retry."""
    if run_row(connection, run_id).stop:
        connection.execute(update(RUN).where(RUN.c.id == run_id).values(stop=None))
    totals.forget(connection, run_id)


def retry_some(connection: Connection, run_id: int, first: int) -> tuple[int, int]:
    """Plan errored trials of some cases from `first` on again, as their next attempt, and take them out of every total.

    Returns the case after them, and the number of trials; 0 when no errored trial is left.
    """
    of_run = (TRIAL.c.run_id == run_id) & (TRIAL.c.verdict == "errored") & (TRIAL.c.case_index >= first)
    next_case = select(TRIAL.c.case_index).where(of_run).order_by(TRIAL.c.case_index).limit(1)
    case_index = connection.scalar(next_case)
    if case_index is None:
        return first, 0
    first, n = int(case_index), run_row(connection, run_id).n
    end = first + max(1, TRIALS_RETRIED // n)
    errored_trials = of_run & (TRIAL.c.case_index >= first) & (TRIAL.c.case_index < end)
    found_trials = connection.execute(
        select(TRIAL, N_OF_CASE.label("n_of_case")).join(RUN_CASE, OF_CASE).where(errored_trials)
    )
    trials = [row._asdict() for row in found_trials]
    n_confirming = sum(trial["trial_index"] >= trial["n_of_case"] for trial in trials)
    own = (TRIAL.c.case_index == SCORE.c.case_index) & (TRIAL.c.trial_index == SCORE.c.trial_index)
    connection.execute(delete(SCORE).where(SCORE.c.run_id == run_id, exists().where(errored_trials & own)))
    again = {"status": "planned", "verdict": None, "attempt": TRIAL.c.attempt + 1, "n_calls": 0, "cost": None}
    nothing = {"tokens_in": 0, "tokens_out": 0, "duration_ms": 0.0, "error_kind": None, "error_message": None}
    nothing |= {"is_least": False, "divergence": None}
    connection.execute(update(TRIAL).where(errored_trials).values(again | nothing))
    forget_errors(connection, trials)
    recount_some(connection, run_id, first, end, n_confirming)
    return end, len(trials)


def without_deleted(connection: Connection, rows: Sequence[Storable]) -> list[Storable]:
    """The rows of results without those of deleted runs, which stay as they were deleted."""
    run_ids = {row.result.run_id for row in rows}
    visible_ids = set(connection.scalars(select(RUN.c.id).where(RUN.c.id.in_(run_ids), VISIBLE)))
    return [row for row in rows if row.result.run_id in visible_ids]


def insert_run(
    connection: Connection,
    config: RunConfig,
    n_each: Sequence[int],
    now: datetime,
    driver: str,
    starter: Starter = NOBODY,
) -> int:
    """Insert the row of a run without cases yet, and return its id."""
    names: Values = {
        "agent_id": config.agent.id,
        "evalset_id": config.evalset_id,
        "note": config.note,
        "history_class": history_class(config),
        "set_version": config.set_version,
        "driver": driver,
        "lease": 1,
        "leased_until": NEW_LEASE if driver else None,
        "started_by": starter.name,
        "started_on": starter.host,
        "stop_rule": (config.source_run_id is None and config.gates.stop_when_decided) or "",
    }
    if config.experiment:
        part = config.experiment
        names |= {"experiment_id": part.experiment_id, "variant_index": part.variant_index}
    if config.fork:
        names |= fork_columns(config.fork)
    n_cases, n_trials = len(n_each), sum(n_each)
    sizes = {"n_cases": n_cases, "n_totalled": n_cases, "n_faceted": n_cases, "n_trials": n_trials}
    sizes |= {"n": max(n_each, default=config.n), "n_least": min(n_each, default=config.n)}
    run_values = {"config": to_json(config).decode(), "status": "pending", "created_at": now} | sizes
    run_id: int = connection.execute(insert(RUN).values(names | run_values).returning(RUN.c.id)).scalar_one()
    return run_id


def fork_columns(part: ForkPart) -> Values:
    """The columns of a run that continues a trial of another run."""
    point = part.point
    return {
        "parent_run": point.run_id,
        "parent_case": point.case_index,
        "parent_trial": point.trial_index,
        "parent_turn": point.turn,
        "parent_call": point.call,
        "fork_fingerprint": part.fingerprint,
    }


def case_rows(index: int, case: Case, n: int) -> tuple[Values, Values]:
    """The row of a case, and that of its snapshot, without their run; made before a transaction."""
    place = {"case_index": index}
    codec, data = _pack(case)
    own = {"case_id": case.id, "digest": case_version(case), "strip": TO_DO * n}
    return place | own, place | {"codec": codec, "data": data}


def _pack(case: Case) -> tuple[int, bytes]:
    if len(case.turns) > MANY_TURNS and not case.media:
        from evaldesk.store.runs.long_trials import packed_case

        return packed_case(case)
    data = to_json(case)
    return pack_json(media.taken_out(data, case.media) if case.media else data)


def trial_row(run_id: int, case_index: int, trial_index: int) -> Values:
    """The row of a planned trial."""
    place = {"run_id": run_id, "case_index": case_index, "trial_index": trial_index}
    return place | {"status": "planned", "attempt": 1}


def _every_trial(run_id: int, first_case: int, n: int) -> Select[tuple[object, ...]]:
    first = select(literal(0).label("trial_index")).cte("numbers", recursive=True)
    numbers = first.union_all(select(first.c.trial_index + 1).where(first.c.trial_index < n - 1))
    fixed = (literal("planned"), literal(1), literal(0), literal(0), literal(0), literal(0.0))
    trials = select(RUN_CASE.c.run_id, RUN_CASE.c.case_index, numbers.c.trial_index, *fixed)
    trials = trials.select_from(RUN_CASE.join(numbers, literal(value=True))).where(RUN_CASE.c.run_id == run_id)
    trials = trials.where(RUN_CASE.c.case_index >= first_case, numbers.c.trial_index < N_OF_CASE)
    # In the order of the key: rows put in elsewhere make a million of them ten times slower.
    return trials.order_by(RUN_CASE.c.case_index, numbers.c.trial_index)


def _name_last_run(connection: Connection, evalset_id: str, rows: Sequence[Values]) -> None:
    """The run of these cases is the newest that played them."""
    names = ("run_id", "case_id", "case_index")
    lasts = [{"evalset_id": evalset_id} | {name: row[name] for name in names} for row in rows]
    execute_many(connection, replacing(connection.dialect.name, LAST_RUN), lasts)
