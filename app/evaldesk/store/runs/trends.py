"""The runs of an eval set for its trend: totals that are stored with each run, and no trial."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, func, select

from evaldesk.model import Criterion
from evaldesk.model.set_trend import TrendCase, TrendRun
from evaldesk.store.runs.histories import IMPORTED
from evaldesk.store.runs.totals import mean_score
from evaldesk.store.tables.runs import LISTED, RUN, RUN_CASE, RUN_METRIC, RUN_OUTCOME, TRIAL, VISIBLE
from evaldesk.wire import from_json, to_json

MOST_RUNS = 500
MOST_CASE_ROWS = 40_000
"""Cases of all runs of a trend that are read, to tell which runs played the same."""
MOST_TIMES = 20_000
"""Trials of all runs of a trend whose times are read."""


@dataclass(frozen=True)
class _Agent:
    id: str = ""
    kind: str = ""


@dataclass(frozen=True)
class _Experiment:
    variant: str = ""


@dataclass(frozen=True)
class _Config:
    """The part of a configuration that a trend tells."""

    agent: _Agent = field(default_factory=_Agent)
    model: str | None = None
    agent_model: str | None = None
    agent_version: str = ""
    evaldesk_version: str = ""
    criteria: tuple[Criterion, ...] = ()
    errors_are_failures: bool = False
    source_run_id: int | None = None
    experiment: _Experiment | None = None
    left_out: tuple[str, ...] = ()


def trend_runs(connection: Connection, evalset_id: str, limit: int = MOST_RUNS) -> list[TrendRun]:
    """The newest complete runs of a set that have a scored trial, oldest first; imported and re-scored ones too.

    Cases that are in quarantine in the newest run are in no outcome of any of them.
    """
    columns = RUN.c
    rows = connection.execute(
        select(
            columns.id,
            columns.created_at,
            columns.config,
            columns.set_version,
            columns.n_cases,
            columns.cost,
            columns.duration_ms,
            columns.n_timed,
        )
        .where(columns.evalset_id == evalset_id, LISTED, columns.status == "finished")
        .where(columns.n_totalled >= columns.n_cases)
        .order_by(columns.id.desc())
        .limit(limit)
    ).all()
    ids = [row.id for row in rows]
    outcomes: dict[int, list[tuple[int, int, int, int]]] = defaultdict(list)
    for row in connection.execute(select(RUN_OUTCOME).where(RUN_OUTCOME.c.run_id.in_(ids))):
        outcomes[row.run_id].append((row.n_passed, row.n_failed, row.n_errored, row.n_cases))
    contents = _contents(connection, [(row.id, row.n_cases) for row in rows])
    configs = {row.id: from_json(row.config, _Config) for row in rows}
    quarantine_ids = configs[ids[0]].left_out if ids else ()
    quarantine_counts = _outcomes_of(connection, ids, quarantine_ids)
    runs = []
    for row in reversed(rows):
        config = configs[row.id]
        triples = tuple(
            (
                passed + failed + errored * config.errors_are_failures,
                passed,
                n - quarantine_counts[row.id][passed, failed, errored],
            )
            for passed, failed, errored, n in outcomes[row.id]
            if n > quarantine_counts[row.id][passed, failed, errored]
        )
        if row.id not in contents or not any(trials for trials, _, _ in triples):
            continue
        runs.append(
            TrendRun(
                row.id,
                row.created_at,
                config.agent.id if config.agent.kind != IMPORTED else f"{config.agent.id} (imported)",
                config.model or config.agent_model or "",
                config.agent_version,
                hashlib.blake2b(to_json(config.criteria), digest_size=8).hexdigest(),
                config.evaldesk_version,
                row.set_version,
                contents[row.id],
                row.n_cases,
                triples,
                row.cost,
                row.duration_ms,
                row.n_timed,
                config.experiment.variant if config.experiment else "",
                config.left_out,
                quarantine_ids,
            )
        )
    return runs


def _outcomes_of(
    connection: Connection, run_ids: Sequence[int], case_ids: Sequence[str]
) -> dict[int, Counter[tuple[int, int, int]]]:
    """In each run the numbers of these cases by their passed, failed and errored trials."""
    outcomes: dict[int, Counter[tuple[int, int, int]]] = defaultdict(Counter)
    if case_ids:
        columns = RUN_CASE.c
        rows = select(columns.run_id, columns.n_passed, columns.n_failed, columns.n_errored)
        chosen_rows = rows.where(columns.run_id.in_(run_ids), columns.case_id.in_(case_ids))
        for run_id, *triple in connection.execute(chosen_rows):
            outcomes[run_id][triple[0], triple[1], triple[2]] += 1
    return outcomes


def _contents(connection: Connection, sizes: Sequence[tuple[int, int]]) -> dict[int, str]:
    """A digest over the contents of the cases of each run, of the newest ones with MOST_CASE_ROWS cases together."""
    n_rows, ids = 0, list[int]()
    for run_id, n_cases in sizes:
        n_rows += n_cases
        if n_rows > MOST_CASE_ROWS and ids:
            break
        ids.append(run_id)
    columns = RUN_CASE.c
    # One row a run: the driver needs more time for a row of each case than for all else of a trend.
    digests = select(columns.run_id, func.aggregate_strings(columns.digest, " ")).where(columns.run_id.in_(ids))
    return {
        run_id: hashlib.blake2b(" ".join(sorted(text.split(" "))).encode(), digest_size=8).hexdigest()
        for run_id, text in connection.execute(digests.group_by(columns.run_id))
    }


def trend_cases(connection: Connection, run_ids: Sequence[int], limit: int = MOST_CASE_ROWS) -> list[TrendCase]:
    """The cases of some runs with their trials, in the order of the runs and their files."""
    columns = RUN_CASE.c
    errors = {
        row.id: from_json(row.config, _Config).errors_are_failures
        for row in connection.execute(select(RUN.c.id, RUN.c.config).where(RUN.c.id.in_(run_ids), VISIBLE))
    }
    rows = select(
        *(columns.run_id, columns.case_id, columns.digest, columns.n_passed, columns.n_failed, columns.n_errored),
        *(columns.case_index, columns.strip),
    )
    rows = rows.where(columns.run_id.in_([*errors])).order_by(columns.run_id, columns.case_index).limit(limit)
    return [
        TrendCase(run_id, case_id, digest, passed, passed + failed + errored * errors[run_id], index, strip)
        for run_id, case_id, digest, passed, failed, errored, index, strip in connection.execute(rows)
    ]


def trend_metrics(connection: Connection, run_ids: Sequence[int]) -> dict[str, dict[int, float]]:
    """The mean score of each metric in each of some runs, from the totals of the runs; by metric, then by run."""
    means: dict[str, dict[int, float]] = defaultdict(dict)
    rows = select(RUN_METRIC).join(RUN, RUN.c.id == RUN_METRIC.c.run_id).where(RUN.c.id.in_(run_ids), VISIBLE)
    for row in connection.execute(rows.order_by(RUN_METRIC.c.metric)):
        if row.n:
            means[row.metric][row.run_id] = mean_score(row)
    return means


def trend_medians(connection: Connection, run_ids: Sequence[int], limit: int = MOST_TIMES) -> dict[int, float]:
    """The median time of a trial of some runs in ms, of the newest ones with `limit` trials together."""
    sizes = select(RUN.c.id, RUN.c.n_trials).where(RUN.c.id.in_(run_ids), VISIBLE).order_by(RUN.c.id.desc())
    n_rows, ids = 0, list[int]()
    for run_id, n_trials in connection.execute(sizes):
        n_rows += n_trials
        if n_rows > limit:
            break
        ids.append(run_id)
    columns = TRIAL.c
    is_timed = columns.run_id.in_(ids) & columns.verdict.is_not(None) & (columns.duration_ms > 0)
    place = func.row_number().over(partition_by=columns.run_id, order_by=columns.duration_ms).label("place")
    n_timed = func.count().over(partition_by=columns.run_id).label("n_timed")
    times = select(columns.run_id, columns.duration_ms, place, n_timed).where(is_timed).subquery()
    is_middle = (2 * times.c.place >= times.c.n_timed) & (2 * times.c.place <= times.c.n_timed + 2)
    medians = select(times.c.run_id, func.avg(times.c.duration_ms)).where(is_middle).group_by(times.c.run_id)
    return {run_id: float(median) for run_id, median in connection.execute(medians)}
