"""Questions about runs and their cases, answered from their totals and verdicts."""

from __future__ import annotations

import base64
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, lru_cache, partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, get_args

from msgspec import MsgspecError, ValidationError
from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Row,
    Table,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
)

from evaldesk.errors import TEXT_LIMIT, NotFoundError, UsageError, WorkspaceError
from evaldesk.model import Case, Counts, ErrorRecord, Prompts, RunConfig, RunStatus, TrialResult
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.comparison import Baseline, Sample
from evaldesk.model.conclusion import Stop
from evaldesk.model.run import Place
from evaldesk.model.stored import (
    CaseFilter,
    CaseRow,
    CaseScores,
    CaseSort,
    ErrorGroup,
    LastVerdicts,
    MetricRow,
    Neighbours,
    RunSummary,
    TrialKey,
)
from evaldesk.model.transcript import MAX_NUMBER
from evaldesk.statistics.intervals import MAX_KINDS, speaks_by_sums, weighed_alike
from evaldesk.store.database import Clock
from evaldesk.store.media import put_back, results_whole
from evaldesk.store.pinned_turns import with_pinned
from evaldesk.store.runs import totals
from evaldesk.store.runs.shared_states import shared_state
from evaldesk.store.runs.totals import are_errors_failures
from evaldesk.store.tables.columns import ConfigText, read_packed, unpack
from evaldesk.store.tables.runs import (
    CASE_METRIC,
    CASE_SNAPSHOT,
    ERROR_GROUP,
    LAST_RUN,
    LETTERS,
    LISTED,
    N_OF_CASE,
    OF_CASE,
    RUN,
    RUN_BASELINE,
    RUN_CASE,
    SCORE,
    TO_DO,
    TRANSCRIPT,
    TRIAL,
    TRIAL_AGENT,
    TRIAL_PROMPTS,
    VISIBLE,
)
from evaldesk.wire import from_json

UNFINISHED: tuple[RunStatus, ...] = ("pending", "running", "stopping")
STRIPS_AT_ONCE = 1000
MODELS_OF = 1000
"""Models are offered of so many newest runs: each is read from the configuration of its run."""


_MODEL = func.coalesce(
    func.nullif(ConfigText(RUN.c.config, literal("model")), ""), ConfigText(RUN.c.config, literal("agent_model")), ""
)
"""The model of a run: the one it asked for, else the agent's own; empty where it is not known."""


_IS_SHOWN = exists().where(RUN.c.id == LAST_RUN.c.run_id, VISIBLE).correlate(LAST_RUN)
_RUN_ROW = select(RUN).where(RUN.c.id == bindparam("run_id"), VISIBLE)


def run_row(connection: Connection, run_id: int) -> Row[Any]:
    """The row of a run. Raises NotFoundError when there is none, or it was deleted."""
    row = connection.execute(_RUN_ROW, {"run_id": run_id}).first()
    if row is None:
        raise NotFoundError(f"the list of runs has no run {run_id}; it was deleted, or belongs to another workspace")
    return row


def run_rows(connection: Connection, run_ids: Sequence[int]) -> list[Row[Any]]:
    """The rows of several runs in this order, with one question. Raises NotFoundError as `run_row`."""
    query = select(RUN).where(RUN.c.id.in_(run_ids), VISIBLE)
    row_by_id = {row.id: row for row in connection.execute(query)}
    return [row_by_id.get(run_id) or run_row(connection, run_id) for run_id in run_ids]


@lru_cache(maxsize=128)
def config_of(text: str | bytes) -> RunConfig:
    """The configuration in a row of `run`, one value for the rows that have the same text."""
    return from_json(text, RunConfig)


def summary(connection: Connection, row: Row[Any], clock: Clock) -> RunSummary:
    """A row of `run` as a value; the time since it was last written counts as active while it runs.

    Raises WorkspaceError for a row that Evaldesk cannot have written.
    """
    try:
        return _summary(connection, row, clock)
    except (MsgspecError, UsageError, ValueError, TypeError) as error:
        words = f"run {row.id} cannot be read: another program has changed its row ({str(error)[:TEXT_LIMIT]})"
        raise WorkspaceError(words) from error


def _summary(connection: Connection, row: Row[Any], clock: Clock) -> RunSummary:
    config = config_of(row.config)
    not_applicable = config.n_partly_planned or config.n_partly_asserted * config.n
    n_planned = max(row.n_trials, (config.recorded and config.recorded.n_planned) or 0)
    counts = replace(counts_of(row, n_planned, config), not_applicable=not_applicable)
    if row.n > row.n_least:
        counts = counts.of_cases(_outcome_counts(connection, row))
    return RunSummary(
        config=config,
        counts=counts,
        n_most=row.n,
        active_ms=row.active_ms + clock.ms_since(row.id, row.ticked_at),
        stop_rule=row.stop_rule or None,
        stop=from_json(row.stop, Stop) if row.stop else None,
        places=from_json(row.places, tuple[Place, ...]) if row.places else (),
        shared_state=shared_state(row.shared_state),
        **dict(zip(_SUMMARISED, _summarised_values(row), strict=True)),
    )


def _columns(value: type, table: Table, *but: str) -> list[str]:
    """The fields of a value that are columns of the table as they are."""
    return [field.name for field in fields(value) if field.name in table.columns and field.name not in but]


_SUMMARISED = _columns(RunSummary, RUN, "config", "active_ms", "stop_rule", "stop", "places", "shared_state")
_summarised_values = attrgetter(*_SUMMARISED)
_CASE_FIELDS = _columns(CaseRow, RUN_CASE)
_case_values = attrgetter(*_CASE_FIELDS)
"""The first fields of a `CaseRow`, which are columns of `run_case`; verdicts, counts and means follow them."""
_OUTCOMES = ("n_passed", "n_failed", "n_errored", "n_unscored")
_NO_MEANS: Mapping[str, float] = MappingProxyType({})
CASE_COLUMNS = tuple(RUN_CASE.c[name] for name in (*_CASE_FIELDS, "strip", *_OUTCOMES))
"""The columns that `case_row_of_values` reads, in its order."""


def counts_of(row: Row[Any], n_planned: int, config: RunConfig) -> Counts:
    """The counts in a row of `run` or `run_case`."""
    return _counts(n_planned, row.n_passed, row.n_failed, row.n_errored, row.n_unscored, config.errors_are_failures)


@lru_cache(maxsize=4096)
def _counts(planned: int, passed: int, failed: int, errored: int, unscored: int, strict: bool) -> Counts:
    """One value for the many cases that ended alike."""
    return Counts(planned, passed, failed, errored, unscored, errors_are_failures=strict)


def baseline(connection: Connection, run_id: int) -> Baseline | None:
    """The earlier run that a run is compared with; None where there is none."""
    return read_packed(connection, RUN_BASELINE, Baseline, RUN_BASELINE.c.run_id == run_id)


def trials(
    connection: Connection, run_id: int, keys: Sequence[TrialKey], *, is_whole: bool = True
) -> dict[TrialKey, TrialResult]:
    """The newest recorded attempts of the trials at `keys`; a trial that was never recorded is left out.

    Unless they are `is_whole`, results of tools have the digests of their images.
    """
    run_row(connection, run_id)
    columns = TRANSCRIPT.c
    rows = select(columns.case_index, columns.trial_index, columns.codec, columns.data).where(
        columns.run_id == run_id, tuple_(columns.case_index, columns.trial_index).in_([*dict.fromkeys(keys)])
    )
    newest = {(row.case_index, row.trial_index): row for row in connection.execute(rows.order_by(columns.attempt))}
    trial_results = [_trial(run_id, key, row) for key, row in newest.items()]
    results = {
        (result.case_index, result.trial_index): result for result in with_pinned(connection, run_id, trial_results)
    }
    return {key: _with_images(connection, result) for key, result in results.items()} if is_whole else results


def prompts(connection: Connection, run_id: int, key: TrialKey, attempt: int) -> Prompts | None:
    """The model calls of an attempt as they were sent; None where none were seen."""
    columns = TRIAL_PROMPTS.c
    place = (
        columns.run_id == run_id,
        columns.case_index == key[0],
        columns.trial_index == key[1],
        columns.attempt == attempt,
    )
    return read_packed(connection, TRIAL_PROMPTS, Prompts, *place)


def _with_images(connection: Connection, result: TrialResult) -> TrialResult:
    turns = results_whole(connection, result.transcript.turns)
    return replace(result, transcript=replace(result.transcript, turns=turns))


def _trial(run_id: int, key: TrialKey, row: Any) -> TrialResult:
    """The stored trial; one with a number that an early version took and that cannot be has that as its error."""
    try:
        result = unpack(row.codec, row.data, TrialResult)
        return replace(result, run_id=run_id, case_index=key[0], trial_index=key[1])  # where it is counts
    except ValidationError as error:
        record = ErrorRecord("unreadable", f"The stored trial cannot be read: {error}")
        return TrialResult(run_id, *key, "errored", "errored", stop_reason="error", error=record)


def counts_by_status(
    connection: Connection,
    *,
    agent_id: str | None = None,
    evalset_id: str | None = None,
    model: str | None = None,
    text: str = "",
    is_part: bool = False,
) -> dict[RunStatus, int]:
    """The number of matching runs of each occurring status."""
    statuses = select(RUN.c.status, func.count().label("n"))
    statuses = statuses.where(LISTED, *matching(None, agent_id, evalset_id, model, text, is_part=is_part))
    rows = connection.execute(statuses.group_by(RUN.c.status))
    return {row.status: row.n for row in rows}


def agents(connection: Connection) -> list[str]:
    """The agents that any run is of, in order."""
    return _distinct(connection, RUN.c.agent_id)


def evalsets(connection: Connection) -> list[str]:
    """The eval sets that any run is of, in order."""
    return _distinct(connection, RUN.c.evalset_id)


def models(connection: Connection) -> list[str]:
    """The models that the newest runs name, in order; no run is left out among MODELS_OF."""
    newest = select(_MODEL.label("model")).where(LISTED).order_by(RUN.c.id.desc()).limit(MODELS_OF).subquery()
    model_names = select(newest.c.model).where(newest.c.model != "").distinct()
    return sorted(connection.scalars(model_names))


def case_totals(connection: Connection, run_id: int) -> dict[int, dict[str, totals.CaseTotals]]:
    """The scores of each metric in each case of the run, by the index of the case."""
    run_row(connection, run_id)
    return totals.case_totals(connection, run_id)


def metric_rows(connection: Connection, run_id: int) -> list[MetricRow]:
    """The scores of each metric over the run, in the order of its criteria."""
    run = run_row(connection, run_id)
    config = from_json(run.config, RunConfig)
    thresholds = {criterion.metric: criterion.threshold for criterion in config.criteria}
    order = {name: place for place, name in enumerate(thresholds)}
    rows_with_kinds = (
        totals.metric_rows(connection, run_id) if _is_totalled(run) else counted_metrics(connection, run_id)
    )
    if run.n > run.n_least:
        alike: dict[str, list[float]] = defaultdict(list)
        for means in means_of_cases(connection, run_id).values():
            for metric, mean in means.items():
                alike[metric].append(mean)
        rows_with_kinds = [(weighed_alike(row, alike[row.metric]), True) for row, _ in rows_with_kinds if row.n]
    lopsided = [
        (row, has_kinds)
        for row, has_kinds in rows_with_kinds
        if not speaks_by_sums(row.n_cases, row.cluster_squares, row.cluster_cubes)
    ]
    unknown = [row.metric for row, has_kinds in lopsided if not has_kinds]
    kinds = {row.metric: row.kinds for row, _ in lopsided} | _kinds(connection, run_id, unknown)
    values = [
        replace(row, threshold=thresholds.get(row.metric), kinds=kinds.get(row.metric, ()))
        for row, _ in rows_with_kinds
        if row.n
    ]
    return sorted(values, key=lambda row: (order.get(row.metric, len(order)), row.metric))


def _is_totalled(run: Row[Any]) -> bool:
    """Whether the totals over cases are those of all cases; not in a run of an earlier version."""
    return bool(run.n_totalled >= run.n_cases)


def counted_metrics(connection: Connection, run_id: int) -> list[tuple[MetricRow, bool]]:
    """The scores of each metric, counted from the rows of all cases; the kinds of cases are left out."""
    rows = connection.execute(_TOTALS, {"run_id": run_id}).all()
    return [(_metric_row(connection, run_id, row), False) for row in rows]


def error_groups(connection: Connection, run_id: int) -> list[ErrorGroup]:
    """The errors of a run by their text, the most frequent first."""
    run_row(connection, run_id)
    rows = connection.execute(select(ERROR_GROUP).where(ERROR_GROUP.c.run_id == run_id)).all()
    groups = sorted(rows, key=lambda row: (-row.n, row.kind, row.message))
    return [ErrorGroup(row.kind, row.message, row.n, (row.case_index, row.trial_index), row.example) for row in groups]


def has_agent_totals(connection: Connection, run_id: int) -> bool:
    """Whether trials of the run have several agents."""
    first = select(TRIAL_AGENT.c.run_id).where(TRIAL_AGENT.c.run_id == run_id).limit(1)
    return connection.execute(first).first() is not None


def agent_totals(connection: Connection, run_id: int, verdict: str | None = None) -> list[AgentTotals]:
    """The actions of each agent over the trials of a run, or over those of one verdict, in the order of their tree."""
    run_row(connection, run_id)
    columns, of_trial = TRIAL_AGENT.c, [TRIAL_AGENT.c[name] == TRIAL.c[name] for name in TRIAL_KEY]
    summed = ("n_entries", "n_calls", "n_errors", "n_model_calls", "tokens", "duration_ms")
    keys = (columns.name, columns.parent, columns.tool)
    totals = (
        select(
            *keys,
            func.min(columns.depth).label("depth"),
            func.count().label("n_trials"),
            _n_of(TRIAL.c.verdict == "failed").label("n_failed"),
            _n_of(TRIAL.c.verdict == "errored").label("n_errored"),
            *(func.sum(columns[name]).label(name) for name in summed),
            func.coalesce(func.sum(columns.cost), 0.0).label("cost"),
            _n_of(columns.cost.is_(None)).label("n_unpriced"),
        )
        .join(TRIAL, and_(*of_trial))
        .where(columns.run_id == run_id, TRIAL.c.run_id == run_id)
        .group_by(*keys)
        .order_by(func.min(columns.position), *keys)
    )
    if verdict:
        totals = totals.where(TRIAL.c.verdict == verdict)
    return [AgentTotals(**row._asdict()) for row in connection.execute(totals)]


def _n_of(condition: ColumnElement[bool]) -> ColumnElement[Any]:
    return func.coalesce(func.sum(case((condition, 1), else_=0)), 0)


TRIAL_KEY = ("run_id", "case_index", "trial_index")


def last_verdicts(
    connection: Connection, evalset_id: str, case_ids: Collection[str] | None = None
) -> dict[str, LastVerdicts]:
    """For each case id of an eval set, or each of these, that ever ran: its newest run and its verdicts there."""
    place = (RUN_CASE.c.run_id == LAST_RUN.c.run_id) & (RUN_CASE.c.case_index == LAST_RUN.c.case_index)
    rows = select(LAST_RUN.c.case_id, LAST_RUN.c.run_id, LAST_RUN.c.case_index, RUN_CASE.c.strip).join(RUN_CASE, place)
    rows = rows.where(LAST_RUN.c.evalset_id == evalset_id, _IS_SHOWN)
    if case_ids is not None:
        rows = rows.where(LAST_RUN.c.case_id.in_(case_ids))
    verdicts_by_case = {case_id: LastVerdicts(*last) for case_id, *last in connection.execute(rows)}
    rules = select(RUN.c.id, RUN.c.config).where(RUN.c.id.in_({last.run_id for last in verdicts_by_case.values()}))
    strict = {run_id for run_id, config in connection.execute(rules) if are_errors_failures(config)}
    return {
        case_id: replace(last, errors_are_failures=last.run_id in strict) for case_id, last in verdicts_by_case.items()
    }


def last_run(connection: Connection, evalset_id: str) -> int | None:
    """The newest run of any case of an eval set; None where none ever ran."""
    newest = select(func.max(LAST_RUN.c.run_id)).where(LAST_RUN.c.evalset_id == evalset_id, _IS_SHOWN)
    run_id: int | None = connection.execute(newest).scalar_one()
    return run_id


def _distinct(connection: Connection, column: ColumnElement[str]) -> list[str]:
    return sorted(connection.scalars(select(column).where(LISTED).distinct()))  # a server sorts by its locale


def matching(
    status: RunStatus | None,
    agent_id: str | None,
    evalset_id: str | None,
    model: str | None,
    text: str,
    *,
    is_part: bool = False,
) -> list[ColumnElement[bool]]:
    """The conditions for runs; `text` is looked for in note, agent, eval set and model.

    With `is_part` agent, eval set and model are parts of names, in upper or lower case.
    """
    name_columns: tuple[ColumnElement[str], ...] = (RUN.c.agent_id, RUN.c.evalset_id, _MODEL)
    conditions: list[ColumnElement[bool]] = [] if status is None else [RUN.c.status == status]
    for column, value in zip(name_columns, (agent_id, evalset_id, model), strict=True):
        if value is not None:
            conditions.append(column.icontains(value, autoescape=True) if is_part else column == value)
    if text.strip():
        columns = (RUN.c.note, *name_columns)
        conditions.append(or_(*(column.icontains(text.strip(), autoescape=True) for column in columns)))
    return conditions


def _kinds(connection: Connection, run_id: int, metrics: Sequence[str]) -> dict[str, tuple[CaseScores, ...]]:
    """The cases by their scores, for metrics with few different scores."""
    columns = CASE_METRIC.c
    kinds_by_metric: dict[str, tuple[CaseScores, ...]] = {}
    for metric in metrics:
        rows = select(columns.n, columns.total, func.count()).where(columns.run_id == run_id, columns.metric == metric)
        few = select(columns.n, columns.total).where(columns.run_id == run_id, columns.metric == metric).distinct()
        if len(connection.execute(few.limit(MAX_KINDS + 1)).all()) > MAX_KINDS:  # it ends early, grouping does not
            continue
        groups = rows.group_by(columns.n, columns.total).order_by(columns.n, columns.total)
        kinds = tuple((n, total, times) for n, total, times in connection.execute(groups))
        kinds_by_metric[metric] = kinds
    return kinds_by_metric


def _metric_row(connection: Connection, run_id: int, row: Row[Any]) -> MetricRow:
    values = row._asdict()
    # Sums of squares leave a trace of rounding; equal values have no spread at all.
    squares = 0.0 if row.low == row.high else max(row.total_squares - row.n * row.mean * row.mean, 0.0)
    del values["total_squares"]
    powers = connection.execute(_POWERS, {"run_id": run_id, "metric": row.metric, "mean": row.mean}).one()
    sums: dict[str, Any] = {name: power or 0.0 for name, power in powers._mapping.items()}
    return MetricRow(threshold=None, squares=squares, **values, **sums)


_HELD = CASE_METRIC.c
_APART = _HELD.total - _HELD.n * bindparam("mean", type_=Float)
_TOTALS = (
    select(
        _HELD.metric,
        func.sum(_HELD.n).label("n"),
        func.sum(_HELD.n_passed).label("n_passed"),
        func.count().label("n_cases"),
        (func.sum(_HELD.total) / func.sum(_HELD.n)).label("mean"),
        func.sum(_HELD.total_squares).label("total_squares"),
        func.min(_HELD.low).label("low"),
        func.max(_HELD.high).label("high"),
    )
    .where(_HELD.run_id == bindparam("run_id"))
    .group_by(_HELD.metric)
)
_POWERS = select(
    func.sum(_APART * _APART).label("cluster_squares"),
    func.sum(_APART * _APART * _APART).label("cluster_cubes"),
    func.sum(_APART * _APART * _APART * _APART).label("cluster_fourths"),
).where(_HELD.run_id == bindparam("run_id"), _HELD.metric == bindparam("metric"))


def case_outcomes(connection: Connection, run_id: int) -> list[CaseRow]:
    """Every case with its counts and means, for a comparison."""
    run = run_row(connection, run_id)
    config = from_json(run.config, RunConfig)
    fresh = _confirming(connection, run_id) if run.n_confirming else {}
    means = means_of_cases(connection, run_id)
    rows = connection.execute(select(RUN_CASE).where(_C.run_id == run_id).order_by(_C.case_index))
    return [case_row_of(row, means[row.case_index], config, confirming=fresh.get(row.case_index, "")) for row in rows]


def pooled_failures(connection: Connection, run_id: int) -> dict[int, str]:
    """Why the trials of a case together fail, empty where they pass, by the index of each case that was judged so."""
    run_row(connection, run_id)
    rows = select(_C.case_index, _C.pooled_failure).where(_C.run_id == run_id, _C.pooled_failure.is_not(None))
    return {index: str(failure) for index, failure in connection.execute(rows)}


def metric_samples(connection: Connection, run_id: int) -> dict[str, dict[int, Sample]]:
    """The scores of each metric by the index of the case."""
    run_row(connection, run_id)
    columns, samples = CASE_METRIC.c, defaultdict[str, dict[int, Sample]](dict)
    sums = select(columns.metric, columns.case_index, columns.n, columns.total, columns.total_squares)
    for metric, index, *of_case in connection.execute(sums.where(columns.run_id == run_id, columns.n > 0)):
        samples[metric][index] = Sample.of_sums(*of_case)
    return samples


def trial_samples(connection: Connection, run_id: int) -> tuple[dict[int, Sample], dict[int, Sample]]:
    """The time, where it is known, and the cost of the planned trials, by the index of the case.

    Numbers that cannot be, which an early version stored, are left out.
    """
    run_row(connection, run_id)
    ended_trials = select(TRIAL.c.case_index).join(RUN_CASE, OF_CASE).group_by(TRIAL.c.case_index)
    ended_trials = ended_trials.where(
        TRIAL.c.run_id == run_id, TRIAL.c.verdict.is_not(None), TRIAL.c.trial_index < N_OF_CASE
    )

    def by_case(value: ColumnElement[float], *where: ColumnElement[bool]) -> dict[int, Sample]:
        sums = ended_trials.add_columns(func.count(), func.sum(value), func.sum(value * value))
        rows = connection.execute(sums.where(value.between(0, MAX_NUMBER), *where))
        return {index: Sample.of_sums(*row) for index, *row in rows}

    return by_case(TRIAL.c.duration_ms, TRIAL.c.duration_ms > 0), by_case(func.coalesce(TRIAL.c.cost, 0.0))


def case_versions(connection: Connection, run_id: int) -> list[tuple[str, str]]:
    """The id and the `case_version` of each case, in order."""
    run_row(connection, run_id)
    rows = select(_C.case_id, _C.digest).where(_C.run_id == run_id).order_by(_C.case_index)
    return [(case_id, digest) for case_id, digest in connection.execute(rows)]


def strips(connection: Connection, run_id: int, case_indexes: Sequence[int] | None = None) -> list[str]:
    """The letters of the planned trials of each of these cases, in their order, or of all; `.` is to do."""
    run_row(connection, run_id)
    rows = select(_C.case_index, _C.strip).where(_C.run_id == run_id).order_by(_C.case_index)
    if case_indexes is None:
        return [strip for _, strip in connection.execute(rows)]
    strips_by_index: dict[int, str] = {}
    for start in range(0, len(case_indexes), STRIPS_AT_ONCE):
        some = case_indexes[start : start + STRIPS_AT_ONCE]
        for index, strip in connection.execute(rows.where(_C.case_index.in_(some))):
            strips_by_index[index] = strip
    return [strips_by_index[index] for index in case_indexes]


def _confirming(connection: Connection, run_id: int) -> dict[int, str]:
    """The letters of the fresh trials that confirm a regression, by case; their indexes follow the planned trials."""
    columns = TRIAL.c
    rows = select(columns.case_index, columns.verdict).join(RUN_CASE, OF_CASE)
    rows = rows.where(columns.run_id == run_id, columns.trial_index >= N_OF_CASE)
    letters_by_case: dict[int, str] = defaultdict(str)
    for index, verdict in connection.execute(rows.order_by(columns.case_index, columns.trial_index)):
        letters_by_case[index] += LETTERS.get(verdict, TO_DO)
    return letters_by_case


def median_ms(connection: Connection, run_id: int) -> float | None:
    """The median time of the trials in milliseconds; None where no time is known, as of an imported run."""
    run_row(connection, run_id)
    is_timed = (TRIAL.c.run_id == run_id) & TRIAL.c.verdict.is_not(None) & (TRIAL.c.duration_ms > 0)
    times = select(TRIAL.c.duration_ms).where(is_timed).subquery()
    n: int = connection.scalar(select(func.count()).select_from(times)) or 0
    if not n:
        return None
    middle = select(times.c.duration_ms).order_by(times.c.duration_ms).offset((n - 1) // 2).limit(2 - n % 2)
    values = [float(value) for value in connection.scalars(middle)]
    return sum(values) / len(values)


def newest_counts(connection: Connection, run_id: int, limit: int) -> Counts:
    """The verdicts of the `limit` trials of a run that ended last, or of all that ended; reads all its trials."""
    columns = TRIAL.c
    config = _config(connection, run_id)
    verdicts = select(columns.verdict).join(RUN_CASE, OF_CASE)
    verdicts = verdicts.where(columns.run_id == run_id, columns.verdict.is_not(None), columns.trial_index < N_OF_CASE)
    last = verdicts.order_by(columns.recorded_at.desc(), columns.trial_index.desc(), columns.case_index.desc()).limit(
        limit
    )
    return Counts.of_verdicts(connection.scalars(last), errors_are_failures=config.errors_are_failures)


def score_counts(connection: Connection, run_id: int) -> dict[str, list[tuple[float, int]]]:
    """For each metric its values in order, each with its number of trials; reads every score of the run."""
    run_row(connection, run_id)
    columns = SCORE.c
    rows = select(columns.metric, columns.value, func.count()).where(columns.run_id == run_id)
    counts_by_metric: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for metric, value, n in connection.execute(rows.group_by(columns.metric, columns.value).order_by(columns.value)):
        counts_by_metric[metric].append((value, n))
    return counts_by_metric


_C = RUN_CASE.c
_MISMATCHES = _C.n_failed + _C.n_errored + _C.n_unscored
_MEAN_MS = _C.duration_ms / func.nullif(_C.n_timed, 0)
_OF_RUN = _C.run_id == bindparam("run_id")
_PLACES = ("place_0", "place_1", "place_2")


def case_rows(
    connection: Connection,
    run_id: int,
    *,
    sort: CaseSort = "worst",
    only: CaseFilter | None = None,
    after: str = "",
    limit: int = 50,
) -> list[CaseRow]:
    """A page of cases; `after` is the cursor of the last row before it. Raises UsageError for another's cursor."""
    run = run_row(connection, run_id)
    config = from_json(run.config, RunConfig)
    place = dict(zip(_PLACES, _place(after, sort), strict=False)) if after else {}
    is_indexed = sort == "worst" and _is_totalled(run)
    query = _page_query(sort, only, config.errors_are_failures, is_continued=bool(after), is_indexed=is_indexed)
    values = {"run_id": run_id, "limit": limit, "pass_threshold": config.pass_threshold} | place
    page = connection.execute(query, values).all()
    means = means_of_cases(connection, run_id, [row.case_index for row in page])
    return [case_row_of(row, means[row.case_index], config, cursor=_cursor(sort, row)) for row in page]


def case_row(connection: Connection, run_id: int, case_index: int) -> CaseRow:
    """One case as a line. Raises NotFoundError."""
    config = _config(connection, run_id)
    query = select(RUN_CASE, _C.case_index.label(_PLACES[0])).where(_OF_RUN, _C.case_index == case_index)
    row = connection.execute(query, {"run_id": run_id}).first()
    if row is None:
        raise NotFoundError(f"run {run_id} has no case {case_index}")
    means = means_of_cases(connection, run_id, [case_index])[case_index]
    return case_row_of(row, means, config, cursor=_cursor("file", row))


def case_ids(connection: Connection, run_id: int, case_indexes: Sequence[int] | None = None) -> dict[int, str]:
    """The ids of the cases of a run, in its order; None means all."""
    run_row(connection, run_id)
    rows = select(_C.case_index, _C.case_id).where(_C.run_id == run_id).order_by(_C.case_index)
    if case_indexes is not None:
        rows = rows.where(_C.case_index.in_(case_indexes))
    return {row.case_index: row.case_id for row in connection.execute(rows)}


def cases_named(connection: Connection, run_id: int, text: str, *, limit: int) -> dict[int, str]:
    """The ids that hold `text` among the cases of a run, in its order."""
    run_row(connection, run_id)
    rows = select(_C.case_index, _C.case_id).where(_C.run_id == run_id, _C.case_id.icontains(text, autoescape=True))
    named_cases = connection.execute(rows.order_by(_C.case_index).limit(limit))
    return {row.case_index: row.case_id for row in named_cases}


def find_case(connection: Connection, run_id: int, case_id: str) -> int | None:
    """The index of the first case of a run with that very id; None where it has none."""
    run_row(connection, run_id)
    rows = select(_C.case_index).where(_C.run_id == run_id, _C.case_id == case_id)
    return connection.scalar(rows.order_by(_C.case_index).limit(1))


def case_counts(connection: Connection, run_id: int) -> dict[CaseFilter, int]:
    """The number of cases that each filter of `case_rows` shows."""
    run = run_row(connection, run_id)
    config = from_json(run.config, RunConfig)
    counts: Counter[CaseFilter] = Counter()
    for (passed, failed, errored, unscored), n in _outcome_rows(connection, run):
        n_scored = passed + failed + errored * config.errors_are_failures
        counts["failed"] += n * (failed > 0)
        counts["errored"] += n * (errored > 0)
        counts["unscored"] += n * (unscored > 0)
        counts["flaky"] += n * (0 < passed < n_scored)
        counts["passed"] += n * (n_scored > 0 and passed / n_scored >= config.pass_threshold)
    return {name: counts[name] for name in get_args(CaseFilter)}


def outcome_counts(connection: Connection, run_id: int) -> list[tuple[int, int, int]]:
    """The number of cases by scored and passed trials: (n_scored, n_passed, n_cases).

    Errored trials are scored where the run counts errors as failures.
    """
    return _outcome_counts(connection, run_row(connection, run_id))


def ended_counts(connection: Connection, run_id: int) -> list[tuple[Counts, int]]:
    """The number of cases with each outcome, in a run with as many trials of each."""
    run = run_row(connection, run_id)
    are_failures = are_errors_failures(run.config)
    rows = sorted(_outcome_rows(connection, run))
    return [
        (Counts(run.n, passed, failed, errored, unscored, errors_are_failures=are_failures), times)
        for (passed, failed, errored, unscored), times in rows
    ]


def _outcome_counts(connection: Connection, run: Row[Any]) -> list[tuple[int, int, int]]:
    are_failures = are_errors_failures(run.config)
    counts: Counter[tuple[int, int]] = Counter()
    for (passed, failed, errored, _), n in _outcome_rows(connection, run):
        counts[passed + failed + errored * are_failures, passed] += n
    return [(*key, n) for key, n in sorted(counts.items())]


def _outcome_rows(connection: Connection, run: Row[Any]) -> list[tuple[totals.Outcome, int]]:
    """The number of cases with each outcome, from the totals or, where they are incomplete, from the cases."""
    if _is_totalled(run):
        return totals.outcome_rows(connection, run.id)
    outcome = [_C[name] for name in totals.OUTCOME]
    kinds = select(*outcome, func.count().label("n")).where(_C.run_id == run.id).group_by(*outcome)
    rows = connection.execute(kinds).all()
    return [((row.n_passed, row.n_failed, row.n_errored, row.n_unscored), row.n) for row in rows]


def snapshot(connection: Connection, run_id: int, case_index: int) -> Case:
    """The case as it was run. Raises NotFoundError."""
    run_row(connection, run_id)
    at = (CASE_SNAPSHOT.c.run_id == run_id) & (CASE_SNAPSHOT.c.case_index == case_index)
    case = read_packed(connection, CASE_SNAPSHOT, Case, at)
    if case is None:
        raise NotFoundError(f"run {run_id} has no case {case_index}")
    return case


def compared_with(connection: Connection, run_id: int, case_index: int) -> tuple[RunConfig, int, bytes]:
    """The configuration and the packed case of a trial, also in a run that is hidden. Raises NotFoundError."""
    config = connection.scalar(select(RUN.c.config).where(RUN.c.id == run_id))
    at = (CASE_SNAPSHOT.c.run_id == run_id) & (CASE_SNAPSHOT.c.case_index == case_index)
    case = connection.execute(select(CASE_SNAPSHOT.c.codec, CASE_SNAPSHOT.c.data).where(at)).first()
    if config is None or case is None:
        raise NotFoundError(f"run {run_id} has no case {case_index}")
    return from_json(config, RunConfig), case.codec, case.data


def snapshots(connection: Connection, run_id: int) -> list[Case]:
    """All cases as they were run, in the order of the run."""
    return [*some_snapshots(connection, run_id, None).values()]


def some_snapshots(connection: Connection, run_id: int, case_indexes: Sequence[int] | None) -> dict[int, Case]:
    """These cases as they were run, by index, in the order of the run; None means all."""
    run_row(connection, run_id)
    columns = CASE_SNAPSHOT.c
    rows = (
        select(columns.case_index, columns.codec, columns.data)
        .where(columns.run_id == run_id)
        .order_by(columns.case_index)
    )
    if case_indexes is not None:
        rows = rows.where(columns.case_index.in_(case_indexes))
    put_media_back = partial(put_back, connection)
    return {row.case_index: unpack(row.codec, row.data, Case, put_media_back) for row in connection.execute(rows).all()}


def neighbours(connection: Connection, run_id: int, case_index: int, trial_index: int) -> Neighbours:
    """The trials beside one in its case, and the nearest in its run that did not pass. Raises NotFoundError."""
    run = run_row(connection, run_id)
    of_run = select(_C.case_index, _C.strip).where(_C.run_id == run_id)
    own = connection.execute(of_run.where(_C.case_index == case_index)).first()
    fresh = _confirming(connection, run_id) if run.n_confirming else {}
    n_trials = len(own.strip) + len(fresh.get(case_index, "")) if own else 0
    if own is None or not 0 <= trial_index < n_trials:
        raise NotFoundError(f"run {run_id} has no trial {trial_index + 1} of case {case_index + 1}")
    mismatches = of_run.where(_MISMATCHES > 0).limit(1)
    earlier = connection.execute(mismatches.where(_C.case_index < case_index).order_by(_C.case_index.desc())).first()
    later = connection.execute(mismatches.where(_C.case_index > case_index).order_by(_C.case_index)).first()
    here = [index for index in _mismatches(own.strip) if index != trial_index]
    before = [(case_index, index) for index in here if index < trial_index] or _trials(earlier)
    behind = [(case_index, index) for index in here if index > trial_index] or _trials(later)
    return Neighbours(
        previous_trial=(case_index, trial_index - 1) if trial_index > 0 else None,
        next_trial=(case_index, trial_index + 1) if trial_index + 1 < n_trials else None,
        previous_mismatch=before[-1] if before else None,
        next_mismatch=behind[0] if behind else None,
    )


def _config(connection: Connection, run_id: int) -> RunConfig:
    return from_json(run_row(connection, run_id).config, RunConfig)


@cache
def _page_query(
    sort: CaseSort, only: CaseFilter | None, errors_are_failures: bool, *, is_continued: bool, is_indexed: bool
) -> Any:
    order = [_C.worst, -_C.n_errored, _C.case_index] if is_indexed else _order(sort, errors_are_failures)
    names = _PLACES[: len(order)]
    places = [expression.label(name) for expression, name in zip(order, names, strict=True)]
    query = select(RUN_CASE, *places).where(_OF_RUN)
    if only is not None:
        query = query.where(_filter(only, errors_are_failures))
    if is_continued:
        query = query.where(tuple_(*order) > tuple_(*(bindparam(name, type_=Float) for name in names)))
    if is_indexed:  # as the index has it; a page does not read what is before it
        query = query.where(_C.worst >= bindparam(names[0], type_=Float)) if is_continued else query
        return query.order_by(_C.worst, _C.n_errored.desc(), _C.case_index).limit(bindparam("limit"))
    return query.order_by(*order).limit(bindparam("limit"))


def _n_scored(errors_are_failures: bool) -> ColumnElement[Any]:
    n_scored = _C.n_passed + _C.n_failed
    return n_scored + _C.n_errored if errors_are_failures else n_scored


def _share(errors_are_failures: bool) -> ColumnElement[Any]:
    return _C.n_passed * 1.0 / func.nullif(_n_scored(errors_are_failures), 0)


def _filters(errors_are_failures: bool) -> dict[CaseFilter, ColumnElement[bool]]:
    return {
        "failed": _C.n_failed > 0,
        "errored": _C.n_errored > 0,
        "unscored": _C.n_unscored > 0,
        "flaky": and_(_C.n_passed > 0, _n_scored(errors_are_failures) > _C.n_passed),
        "passed": func.coalesce(_share(errors_are_failures), -1.0) >= bindparam("pass_threshold", type_=Float),
    }


def _filter(only: CaseFilter, errors_are_failures: bool) -> ColumnElement[bool]:
    filters = _filters(errors_are_failures)
    if only not in filters:
        raise UsageError(f"no filter of cases {only!r}; there are: {', '.join(filters)}", field="only")
    return filters[only]


def _order(sort: CaseSort, errors_are_failures: bool) -> list[ColumnElement[Any]]:
    share, n_scored = _share(errors_are_failures), _n_scored(errors_are_failures)
    worst = totals.worst_of([_C[name] for name in totals.OUTCOME], n_scored)
    orders: Mapping[CaseSort, list[ColumnElement[Any]]] = {
        "worst": [worst, -_C.n_errored],
        "flaky": [-func.coalesce(share * (1.0 - share), 0.0)],
        "slow": [-func.coalesce(_MEAN_MS, 0.0)],
        "cost": [-_C.cost],
        "file": [],
    }
    if sort not in orders:
        raise UsageError(f"no order of cases {sort!r}; there are: {', '.join(get_args(CaseSort))}", field="sort")
    return [*orders[sort], _C.case_index]


_MEANS = (
    select(_HELD.case_index, _HELD.metric, _HELD.total / _HELD.n)
    .where(_HELD.run_id == bindparam("run_id"))
    .order_by(_HELD.case_index)
)
_SOME_MEANS = _MEANS.where(_HELD.case_index.in_(bindparam("cases", expanding=True)))


def means_of_cases(
    connection: Connection, run_id: int, case_indexes: Sequence[int] | None = None
) -> Mapping[int, dict[str, float]]:
    """The mean of each metric in these cases, or in all."""
    means: dict[int, dict[str, float]] = defaultdict(dict)
    query = _MEANS if case_indexes is None else _SOME_MEANS
    for index, metric, mean in connection.execute(query, {"run_id": run_id, "cases": case_indexes}):
        means[index][metric] = mean
    return means


def case_row_of(row: Row[Any], means: Mapping[str, float], config: RunConfig, **more: Any) -> CaseRow:
    """A row of `run_case` as a value."""
    counts = counts_of(row, len(row.strip), config)
    values: tuple[Any, ...] = (*_case_values(row), row.strip, counts, means)
    return CaseRow(*values, **more)


def case_row_of_values(values: tuple[Any, ...], means: Mapping[int, Mapping[str, float]], config: RunConfig) -> CaseRow:
    """The values of `CASE_COLUMNS` as a value, with the means of its case; a page of many runs has thousands."""
    row = _case_row(values, config.errors_are_failures)
    own_means = means.get(row.case_index)
    return replace(row, means=own_means) if own_means else row


@lru_cache(maxsize=8_192)
def _case_row(values: tuple[Any, ...], strict: bool) -> CaseRow:
    """A row without means; one value for rows that are read again, as with another order, density or search."""
    *own, passed, failed, errored, unscored = values
    counts = _counts(len(own[-1]), passed, failed, errored, unscored, strict)
    fields_of_case: tuple[Any, ...] = (*own, counts, _NO_MEANS)
    return CaseRow(*fields_of_case)


def _cursor(sort: CaseSort, row: Row[Any]) -> str:
    place = [row._mapping[name] for name in _PLACES if name in row._mapping]
    return base64.urlsafe_b64encode(json.dumps([sort, *place]).encode()).decode().rstrip("=")


def _place(cursor: str, sort: CaseSort) -> list[float]:
    try:
        cursor_sort, *place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError) as error:
        raise UsageError("this page of cases is not known; start again from the first one", field="after") from error
    is_number = all(type(value) in (int, float) for value in place)
    if cursor_sort != sort or not is_number or len(place) != len(_order(sort, errors_are_failures=False)):
        raise UsageError("this page belongs to another order of the cases; start again", field="after")
    return list(place)


def _trials(row: Any) -> list[TrialKey]:
    return [(row.case_index, index) for index in _mismatches(row.strip)] if row else []


def _mismatches(verdicts: str) -> list[int]:
    return [index for index, letter in enumerate(verdicts) if letter not in (TO_DO, "p")]
