"""Questions about runs as a whole; none of them reads a trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, func, or_, select

from evaldesk.errors import NotFoundError
from evaldesk.model import Counts, RunConfig, RunStatus, TrialResult
from evaldesk.model.comparison import Baseline
from evaldesk.model.stored import ErrorGroup, LastStrip, MetricRow, RunSummary, TrialKey
from evaldesk.store.blobs import unpack
from evaldesk.store.clock import Clock
from evaldesk.store.tables import (
    CASE_METRIC,
    ERROR_GROUP,
    LAST_RUN,
    RUN,
    RUN_BASELINE,
    RUN_CASE,
    RUN_SOURCE,
    TRANSCRIPT,
)
from evaldesk.wire import from_json

UNFINISHED: tuple[RunStatus, ...] = ("pending", "running", "stopping")
VERDICT_COLUMNS = ("n_passed", "n_failed", "n_errored", "n_unscored")
_KEPT = RUN.c.deleted_at.is_(None)


def run_row(connection: Connection, run_id: int) -> Row[Any]:
    """The row of a run. Raises NotFoundError when there is none, or it was deleted."""
    row = connection.execute(select(RUN).where(RUN.c.id == run_id, _KEPT)).first()
    if row is None:
        raise NotFoundError(f"there is no run {run_id}; it was deleted, or belongs to another workspace")
    return row


def summary(row: Row[Any], clock: Clock) -> RunSummary:
    """A row of `run` as a value; the time since it was last written counts as active while it runs."""
    own = ("deleted_at", "ticked_at", "agent_id", "evalset_id", "n", "config", "active_ms", *VERDICT_COLUMNS)
    values = {name: value for name, value in row._mapping.items() if name not in own}
    active_ms = row.active_ms + clock.ms_since(row.id, row.ticked_at)
    config = from_json(row.config, RunConfig)
    return RunSummary(
        config=config,
        counts=replace(
            counts_of(row, row.n_cases * config.n, config), not_applicable=config.n_partly_asserted * config.n
        ),
        active_ms=active_ms,
        **values,
    )


def counts_of(row: Row[Any], planned: int, config: RunConfig) -> Counts:
    """The counts in a row of `run` or `run_case`."""
    verdicts = (row.n_passed, row.n_failed, row.n_errored, row.n_unscored)
    return Counts(planned, *verdicts, errors_are_failures=config.errors_are_failures)


def newest_runs(
    connection: Connection,
    *,
    status: RunStatus | None,
    agent_id: str | None,
    evalset_id: str | None,
    text: str,
    before: int | None,
    limit: int,
) -> Sequence[Row[Any]]:
    """Rows of runs, newest first."""
    chosen = select(RUN).where(_KEPT, *_matching(status, agent_id, evalset_id, text))
    if before is not None:
        chosen = chosen.where(RUN.c.id < before)
    return connection.execute(chosen.order_by(RUN.c.id.desc()).limit(limit)).all()


def newest_of_evalsets(connection: Connection) -> Sequence[Row[Any]]:
    """Rows of runs, one for each eval set."""
    newest = select(func.max(RUN.c.id)).where(_KEPT).group_by(RUN.c.evalset_id)
    return connection.execute(select(RUN).where(RUN.c.id.in_(newest))).all()


def scorings(connection: Connection, run_id: int) -> Sequence[Row[Any]]:
    """Rows of the runs that score the trials of a run again, oldest first."""
    chosen = select(RUN).join(RUN_SOURCE, RUN_SOURCE.c.run_id == RUN.c.id)
    return connection.execute(chosen.where(RUN_SOURCE.c.source_id == run_id, _KEPT).order_by(RUN.c.id)).all()


def baseline(connection: Connection, run_id: int) -> Baseline | None:
    """The earlier run that a run is compared with; None where there is none."""
    held = select(RUN_BASELINE.c.codec, RUN_BASELINE.c.data).where(RUN_BASELINE.c.run_id == run_id)
    row = connection.execute(held).first()
    return None if row is None else unpack(row.codec, row.data, Baseline)


def trials(connection: Connection, run_id: int, keys: Sequence[TrialKey]) -> dict[TrialKey, TrialResult]:
    """The newest recorded attempts of the trials at `keys`; a trial that was never recorded is left out."""
    run_row(connection, run_id)
    held, wanted = TRANSCRIPT.c, set(keys)
    rows = select(held.case_index, held.trial_index, held.codec, held.data).where(
        held.run_id == run_id,
        held.case_index.in_({case_index for case_index, _ in wanted}),
        held.trial_index.in_({trial_index for _, trial_index in wanted}),
    )
    newest = {(row.case_index, row.trial_index): row for row in connection.execute(rows.order_by(held.attempt))}
    return {key: unpack(row.codec, row.data, TrialResult) for key, row in newest.items() if key in wanted}


def counts_by_status(
    connection: Connection, *, agent_id: str | None = None, evalset_id: str | None = None, text: str = ""
) -> dict[RunStatus, int]:
    """How many of the matching runs there are of each status that occurs."""
    chosen = select(RUN.c.status, func.count().label("n")).where(_KEPT, *_matching(None, agent_id, evalset_id, text))
    rows = connection.execute(chosen.group_by(RUN.c.status))
    return {row.status: row.n for row in rows}


def agents(connection: Connection) -> list[str]:
    """The agents that any run is of, in order."""
    return _distinct(connection, RUN.c.agent_id)


def evalsets(connection: Connection) -> list[str]:
    """The eval sets that any run is of, in order."""
    return _distinct(connection, RUN.c.evalset_id)


def metric_rows(connection: Connection, run_id: int) -> list[MetricRow]:
    """The scores of each metric over the run, in the order of its criteria."""
    config = from_json(run_row(connection, run_id).config, RunConfig)
    thresholds = {criterion.metric: criterion.threshold for criterion in config.criteria}
    order = {name: place for place, name in enumerate(thresholds)}
    rows = connection.execute(_METRICS, {"run_id": run_id}).all()
    values = [_metric_row(row, thresholds.get(row.metric)) for row in rows]
    return sorted(values, key=lambda row: (order.get(row.metric, len(order)), row.metric))


def error_groups(connection: Connection, run_id: int) -> list[ErrorGroup]:
    """The errors of a run by their text, the most frequent first."""
    run_row(connection, run_id)
    rows = connection.execute(
        select(ERROR_GROUP)
        .where(ERROR_GROUP.c.run_id == run_id)
        .order_by(ERROR_GROUP.c.n.desc(), ERROR_GROUP.c.kind, ERROR_GROUP.c.message)
    )
    return [ErrorGroup(row.kind, row.message, row.n, (row.case_index, row.trial_index), row.example) for row in rows]


def last_strips(connection: Connection, evalset_id: str) -> dict[str, LastStrip]:
    """For each case id of an eval set that ever ran: its newest run and its strip there."""
    place = (RUN_CASE.c.run_id == LAST_RUN.c.run_id) & (RUN_CASE.c.case_index == LAST_RUN.c.case_index)
    rows = select(LAST_RUN.c.case_id, LAST_RUN.c.run_id, LAST_RUN.c.case_index, RUN_CASE.c.strip).join(RUN_CASE, place)
    rows = rows.where(LAST_RUN.c.evalset_id == evalset_id)
    return {case_id: LastStrip(*strip) for case_id, *strip in connection.execute(rows)}


def _distinct(connection: Connection, column: ColumnElement[str]) -> list[str]:
    return list(connection.scalars(select(column).where(_KEPT).distinct().order_by(column)))


def _matching(
    status: RunStatus | None, agent_id: str | None, evalset_id: str | None, text: str
) -> list[ColumnElement[bool]]:
    wanted = ((RUN.c.status, status), (RUN.c.agent_id, agent_id), (RUN.c.evalset_id, evalset_id))
    conditions: list[ColumnElement[bool]] = [column == value for column, value in wanted if value is not None]
    if text.strip():
        columns = (RUN.c.note, RUN.c.agent_id, RUN.c.evalset_id)
        conditions.append(or_(*(column.icontains(text.strip(), autoescape=True) for column in columns)))
    return conditions


def _metric_row(row: Row[Any], threshold: float | None) -> MetricRow:
    values = row._asdict()
    # Sums of squares leave a trace of rounding; equal values have no spread at all.
    squares = 0.0 if row.low == row.high else max(row.total_squares - row.n * row.mean**2, 0.0)
    del values["total_squares"]
    return MetricRow(threshold=threshold, squares=squares, **values)


def _metrics_query() -> Any:
    of_run = CASE_METRIC.c.run_id == bindparam("run_id")
    held, each = CASE_METRIC.c, CASE_METRIC.alias("each").c
    total = (
        select(
            held.metric,
            func.sum(held.n).label("n"),
            func.sum(held.n_passed).label("n_passed"),
            func.count().label("n_cases"),
            (func.sum(held.total) / func.sum(held.n)).label("mean"),
            func.sum(held.total_squares).label("total_squares"),
            func.min(held.low).label("low"),
            func.max(held.high).label("high"),
        )
        .where(of_run)
        .group_by(held.metric)
        .subquery()
    )
    apart = each.total - each.n * total.c.mean
    of_metric = (each.run_id == bindparam("run_id")) & (each.metric == total.c.metric)
    squares = select(func.sum(apart * apart)).where(of_metric).scalar_subquery()
    return select(*total.c, squares.label("cluster_squares"))


_METRICS = _metrics_query()
