"""Questions about the cases of a run, answered from their totals and strips."""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, get_args

from sqlalchemy import ColumnElement, Connection, Float, Row, and_, bindparam, case, func, select, tuple_

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import Case, RunConfig
from evaldesk.model.stored import CaseFilter, CaseOutcome, CaseRow, CaseSort, Neighbours, TrialKey
from evaldesk.store.blobs import unpack
from evaldesk.store.runs.run_queries import counts_of, run_row
from evaldesk.store.tables import CASE_METRIC, CASE_SNAPSHOT, RUN_CASE, SCORE, TO_DO, TRIAL
from evaldesk.wire import from_json

_COMPARED = tuple(name for name in CaseOutcome.__dataclass_fields__ if name not in ("counts", "means"))


def case_outcomes(connection: Connection, run_id: int) -> list[CaseOutcome]:
    """Every case with its counts and means, for a comparison."""
    config = from_json(run_row(connection, run_id).config, RunConfig)
    held = CASE_METRIC.c
    means: dict[int, dict[str, float]] = defaultdict(dict)
    scored = select(held.case_index, held.metric, held.total / held.n).where(held.run_id == run_id)
    for case_index, metric, mean in connection.execute(scored):
        means[case_index][metric] = mean
    rows = connection.execute(select(RUN_CASE).where(_C.run_id == run_id).order_by(_C.case_index))
    return [
        CaseOutcome(
            counts=counts_of(row, config.n, config),
            means=means[row.case_index],
            **{name: row._mapping[name] for name in _COMPARED},
        )
        for row in rows
    ]


def median_ms(connection: Connection, run_id: int) -> float | None:
    """The median time of the trials in milliseconds; None where no time is known, as of an imported run."""
    run_row(connection, run_id)
    is_timed = (TRIAL.c.run_id == run_id) & TRIAL.c.verdict.is_not(None) & (TRIAL.c.duration_ms > 0)
    done = select(TRIAL.c.duration_ms).where(is_timed).subquery()
    n: int = connection.scalar(select(func.count()).select_from(done)) or 0
    if not n:
        return None
    middle = select(done.c.duration_ms).order_by(done.c.duration_ms).offset((n - 1) // 2).limit(2 - n % 2)
    values = [float(value) for value in connection.scalars(middle)]
    return sum(values) / len(values)


def score_counts(connection: Connection, run_id: int) -> dict[str, list[tuple[float, int]]]:
    """For each metric its values in order, each with how many trials have it; reads every score of the run."""
    run_row(connection, run_id)
    held = SCORE.c
    rows = select(held.metric, held.value, func.count()).where(held.run_id == run_id)
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for metric, value, n in connection.execute(rows.group_by(held.metric, held.value).order_by(held.value)):
        found[metric].append((value, n))
    return found


_C = RUN_CASE.c
_DONE = _C.n_passed + _C.n_failed + _C.n_errored + _C.n_unscored
_MISMATCHES = _C.n_failed + _C.n_errored + _C.n_unscored
_MEAN_MS = _C.duration_ms / func.nullif(_DONE, 0)
_OF_RUN = _C.run_id == bindparam("run_id")
_PLACES = ("place_0", "place_1", "place_2")
_SHOWN = tuple(name for name in CaseRow.__dataclass_fields__ if name not in ("counts", "means", "cursor"))


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
    config = _config(connection, run_id)
    place = dict(zip(_PLACES, _place(after, sort), strict=False)) if after else {}
    query = _page_query(sort, only, config.errors_are_failures, is_continued=bool(after))
    values = {"run_id": run_id, "limit": limit, "pass_threshold": config.pass_threshold} | place
    page = connection.execute(query, values).all()
    means = _means(connection, run_id, [row.case_index for row in page])
    return [_case_row(row, means[row.case_index], sort, config) for row in page]


def case_row(connection: Connection, run_id: int, case_index: int) -> CaseRow:
    """One case as a line. Raises NotFoundError."""
    config = _config(connection, run_id)
    query = select(RUN_CASE, _MEAN_MS.label("mean_ms"), _C.case_index.label(_PLACES[0]))
    row = connection.execute(query.where(_OF_RUN, _C.case_index == case_index), {"run_id": run_id}).first()
    if row is None:
        raise NotFoundError(f"run {run_id} has no case {case_index}")
    return _case_row(row, _means(connection, run_id, [case_index])[case_index], "file", config)


def case_ids(connection: Connection, run_id: int, case_indexes: Sequence[int] | None = None) -> dict[int, str]:
    """The ids of the cases of a run, in its order; None means all."""
    rows = select(_C.case_index, _C.case_id).where(_C.run_id == run_id).order_by(_C.case_index)
    if case_indexes is not None:
        rows = rows.where(_C.case_index.in_(case_indexes))
    return {row.case_index: row.case_id for row in connection.execute(rows)}


def case_counts(connection: Connection, run_id: int) -> dict[CaseFilter, int]:
    """How many cases each filter of `case_rows` shows."""
    config = _config(connection, run_id)
    filters = _filters(config.errors_are_failures)
    counts = [func.coalesce(func.sum(case((condition, 1), else_=0)), 0) for condition in filters.values()]
    values = {"run_id": run_id, "pass_threshold": config.pass_threshold}
    row = connection.execute(select(*counts).where(_OF_RUN), values).one()
    return dict(zip(filters, row, strict=True))


def outcome_counts(connection: Connection, run_id: int) -> list[tuple[int, int, int]]:
    """How many cases have so many scored and so many passed trials: (n_scored, n_passed, n_cases).

    Errored trials are scored where the run counts errors as failures.
    """
    scored = _scored(_config(connection, run_id).errors_are_failures)
    counts = select(scored, _C.n_passed, func.count()).where(_C.run_id == run_id)
    rows = connection.execute(counts.group_by(scored, _C.n_passed).order_by(scored, _C.n_passed))
    return [(n_scored, n_passed, n_cases) for n_scored, n_passed, n_cases in rows]


def snapshot(connection: Connection, run_id: int, case_index: int) -> Case:
    """The case as it was run. Raises NotFoundError."""
    run_row(connection, run_id)
    at = (CASE_SNAPSHOT.c.run_id == run_id) & (CASE_SNAPSHOT.c.case_index == case_index)
    row = connection.execute(select(CASE_SNAPSHOT.c.codec, CASE_SNAPSHOT.c.data).where(at)).first()
    if row is None:
        raise NotFoundError(f"run {run_id} has no case {case_index}")
    return unpack(row.codec, row.data, Case)


def snapshots(connection: Connection, run_id: int) -> list[Case]:
    """All cases as they were run, in the order of the run."""
    run_row(connection, run_id)
    held = CASE_SNAPSHOT.c
    rows = connection.execute(select(held.codec, held.data).where(held.run_id == run_id).order_by(held.case_index))
    return [unpack(row.codec, row.data, Case) for row in rows]


def neighbours(connection: Connection, run_id: int, case_index: int, trial_index: int) -> Neighbours:
    """The trials beside one in its case, and the nearest in its run that did not pass. Raises NotFoundError."""
    run_row(connection, run_id)
    of_run = select(_C.case_index, _C.strip).where(_C.run_id == run_id)
    own = connection.execute(of_run.where(_C.case_index == case_index)).first()
    if own is None or not 0 <= trial_index < len(own.strip):
        raise NotFoundError(f"run {run_id} has no trial {trial_index} of case {case_index}")
    found = of_run.where(_MISMATCHES > 0).limit(1)
    earlier = connection.execute(found.where(_C.case_index < case_index).order_by(_C.case_index.desc())).first()
    later = connection.execute(found.where(_C.case_index > case_index).order_by(_C.case_index)).first()
    here = [index for index in _mismatches(own.strip) if index != trial_index]
    before = [(case_index, index) for index in here if index < trial_index] or _trials(earlier)
    behind = [(case_index, index) for index in here if index > trial_index] or _trials(later)
    return Neighbours(
        previous_trial=(case_index, trial_index - 1) if trial_index > 0 else None,
        next_trial=(case_index, trial_index + 1) if trial_index + 1 < len(own.strip) else None,
        previous_mismatch=before[-1] if before else None,
        next_mismatch=behind[0] if behind else None,
    )


def _config(connection: Connection, run_id: int) -> RunConfig:
    return from_json(run_row(connection, run_id).config, RunConfig)


@cache
def _page_query(sort: CaseSort, only: CaseFilter | None, errors_are_failures: bool, *, is_continued: bool) -> Any:
    order = _order(sort, errors_are_failures)
    names = _PLACES[: len(order)]
    places = [expression.label(name) for expression, name in zip(order, names, strict=True)]
    query = select(RUN_CASE, _MEAN_MS.label("mean_ms"), *places).where(_OF_RUN)
    if only is not None:
        query = query.where(_filter(only, errors_are_failures))
    if is_continued:
        query = query.where(tuple_(*order) > tuple_(*(bindparam(name, type_=Float) for name in names)))
    return query.order_by(*order).limit(bindparam("limit"))


def _scored(errors_are_failures: bool) -> ColumnElement[Any]:
    scored = _C.n_passed + _C.n_failed
    return scored + _C.n_errored if errors_are_failures else scored


def _share(errors_are_failures: bool) -> ColumnElement[Any]:
    return _C.n_passed * 1.0 / func.nullif(_scored(errors_are_failures), 0)


def _filters(errors_are_failures: bool) -> dict[CaseFilter, ColumnElement[bool]]:
    return {
        "failed": _C.n_failed > 0,
        "errored": _C.n_errored > 0,
        "unscored": _C.n_unscored > 0,
        "flaky": and_(_C.n_passed > 0, _scored(errors_are_failures) > _C.n_passed),
        "passed": func.coalesce(_share(errors_are_failures), -1.0) >= bindparam("pass_threshold", type_=Float),
    }


def _filter(only: CaseFilter, errors_are_failures: bool) -> ColumnElement[bool]:
    filters = _filters(errors_are_failures)
    if only not in filters:
        raise UsageError(f"no filter of cases {only!r}; there are: {', '.join(filters)}", field="only")
    return filters[only]


def _order(sort: CaseSort, errors_are_failures: bool) -> list[ColumnElement[Any]]:
    share = _share(errors_are_failures)
    # Nothing but errors is as bad as nothing passed; unscored cases and those still to do come after all others.
    worst = func.coalesce(share, case((_C.n_errored > 0, 0.0), (_DONE > 0, 2.0), else_=3.0))
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


def _means(connection: Connection, run_id: int, case_indexes: Sequence[int]) -> Mapping[int, dict[str, float]]:
    held = CASE_METRIC.c
    rows = select(held.case_index, held.metric, held.total / held.n).where(held.run_id == run_id)
    means: dict[int, dict[str, float]] = defaultdict(dict)
    for index, metric, mean in connection.execute(rows.where(held.case_index.in_(case_indexes))):
        means[index][metric] = mean
    return means


def _case_row(row: Row[Any], means: Mapping[str, float], sort: CaseSort, config: RunConfig) -> CaseRow:
    values = row._asdict()
    place = [values[name] for name in _PLACES if name in values]
    counts = counts_of(row, config.n, config)
    return CaseRow(counts=counts, means=means, cursor=_cursor(sort, place), **{name: values[name] for name in _SHOWN})


def _cursor(sort: CaseSort, place: Sequence[float]) -> str:
    return base64.urlsafe_b64encode(json.dumps([sort, *place]).encode()).decode().rstrip("=")


def _place(cursor: str, sort: CaseSort) -> list[float]:
    try:
        held, *place = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError) as error:
        raise UsageError("this page of cases is not known; start again from the first one", field="after") from error
    is_number = all(type(value) in (int, float) for value in place)
    if held != sort or not is_number or len(place) != len(_order(sort, errors_are_failures=False)):
        raise UsageError("this page belongs to another order of the cases; start again", field="after")
    return list(place)


def _trials(row: Any) -> list[TrialKey]:
    return [(row.case_index, index) for index in _mismatches(row.strip)] if row else []


def _mismatches(strip: str) -> list[int]:
    return [index for index, letter in enumerate(strip) if letter not in (TO_DO, "p")]
