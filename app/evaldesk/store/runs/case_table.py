"""The table of cases by runs: its rows found, filtered and ordered by SQL, and the cells of the shown ones.

The totals of a case are columns of `run_case` and `case_metric`, kept up to date with each trial, and so are the facets
of a case and the first divergences of its trials: no question reads a transcript.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    FromClause,
    Row,
    Select,
    and_,
    cast,
    func,
    literal,
    or_,
    select,
    union_all,
)

from evaldesk.errors import UsageError
from evaldesk.model.case_table import (
    OVER_RUNS,
    CaseLayout,
    DivergenceCount,
    FacetKind,
    FoundCases,
    RowFilter,
    RowSort,
    TablePart,
    TableRow,
)
from evaldesk.model.stored import CaseRow, TrialKey
from evaldesk.store.runs import run_queries, totals
from evaldesk.store.tables.columns import JsonItem, is_among, json_rows
from evaldesk.store.tables.failures import FINDING
from evaldesk.store.tables.runs import CASE_FACET, CASE_METRIC, N_OF_CASE, OF_CASE, RUN_CASE, TRIAL

OrderKey: TypeAlias = tuple[ColumnElement[Any], bool]
"""An expression of an order, and whether its large values come first."""
LAST = 1e300
"""The value of a row that has none: it comes last."""
_NO_MEANS: Mapping[int, Mapping[str, float]] = MappingProxyType({})
_SAME = 1e-9
"""Pass rates that differ by less are the same."""


def table_part(
    connection: Connection,
    layout: CaseLayout,
    sort: RowSort,
    only: RowFilter,
    matches: FoundCases | None = None,
    after: str = "",
    limit: int = 100,
    with_means: Sequence[int] = (),
    ranks: Mapping[int, int] | None = None,
    among: Sequence[int] | None = None,
) -> TablePart:
    """Rows that meet `only` and, with `matches`, hold the searched words, in order after the cursor `after`.

    `with_means` are the runs whose means of metrics are read as well. `ranks` give each row its place in the order
    "change" or "spread"; rows without one are left out, and of "spread" they are read where they are not given.
    `among` are the only rows to show, where they are given. Raises NotFoundError for a run; UsageError for the cursor
    of another order.
    """
    runs = run_queries.run_rows(connection, layout.run_ids)
    rows = _Rows(connection.dialect.name, layout, runs, sort)
    conditions = _conditions(rows, only, matches)
    if among is not None:
        conditions.append(is_among(rows.row, among, rows.dialect))
    if sort.order == "spread" and ranks is None:
        ranks = ranks_by_spread(connection, layout, is_reversed=sort.is_reversed)
    if sort.order in OVER_RUNS:
        return _ranked_part(connection, rows, conditions, sort, ranks or {}, after, limit, with_means)
    if sort.order == "metric" and rows.driving is not None:
        means = _in_order_of_metric(connection, rows, conditions, sort, after, limit)
        cursor = _cursor(sort, means[limit - 1][::-1]) if len(means) > limit else ""
        cells = _with_cells(connection, rows, [row for row, _ in means[:limit]], with_means)
        return TablePart(cells, _n_fitting(connection, rows, conditions, only, matches, among), cursor)
    keys = _order_keys(rows, sort)
    names = [f"key_{at}" for at in range(len(keys))]
    columns = [expression.label(name) for (expression, _), name in zip(keys, names, strict=True)]
    fitting = select(rows.row.label("row"), *columns).select_from(rows.source).where(*rows.where, *conditions)
    if after:
        fitting = fitting.where(*_behind(keys, rows.row, _cursor_values(after, sort, len(keys) + 1)))
    order = [expression.desc() if is_falling else expression for expression, is_falling in keys]
    some = connection.execute(fitting.order_by(*order, rows.row).limit(limit + 1)).all()
    last = some[limit - 1] if len(some) > limit else None
    cursor = _cursor(sort, [*(last._mapping[name] for name in names), last.row]) if last else ""
    cells = _with_cells(connection, rows, [row.row for row in some[:limit]], with_means)
    return TablePart(cells, _n_fitting(connection, rows, conditions, only, matches, among), cursor)


def _in_order_of_metric(
    connection: Connection,
    rows: _Rows,
    conditions: Sequence[ColumnElement[bool]],
    sort: RowSort,
    after: str,
    limit: int,
) -> list[tuple[int, float]]:
    """One row more than `limit`, each with the mean of a metric: one pass over its means, not a look-up for each row.

    Rows without a value are last, and read only where the others are not enough.
    """
    own, run_id = CASE_METRIC.alias(), rows.runs[rows.sorting(sort)].id
    mean, of_metric = own.c.total / own.c.n, (own.c.run_id == run_id, own.c.metric == sort.metric)
    value, is_falling = _ordered(mean, sort, is_falling=False)
    last_value = -LAST if is_falling else LAST
    cursor = _cursor_values(after, sort, 2) if after else None
    ordered_rows: list[tuple[int, float]] = []
    if cursor is None or cursor[0] != last_value:
        with_value = select(own.c.case_index, value).where(*of_metric)
        if conditions:
            with_value = with_value.where(*rows.where, rows.row == own.c.case_index, *conditions)
        if cursor:
            with_value = with_value.where(*_behind([(value, is_falling)], own.c.case_index, cursor))
        ordered = with_value.order_by(value.desc() if is_falling else value, own.c.case_index).limit(limit + 1)
        ordered_rows = [(row, mean) for row, mean in connection.execute(ordered)]
        cursor = None
    if len(ordered_rows) <= limit:
        has_value = select(literal(1)).where(*of_metric, own.c.case_index == rows.row).correlate(rows.source).exists()
        without = select(rows.row).select_from(rows.source).where(*rows.where, *conditions, ~has_value)
        if cursor:
            without = without.where(rows.row > cursor[1])
        some = connection.scalars(without.order_by(rows.row).limit(limit + 1 - len(ordered_rows)))
        ordered_rows += [(row, last_value) for row in some]
    return ordered_rows


def _n_fitting(
    connection: Connection,
    rows: _Rows,
    conditions: Sequence[ColumnElement[bool]],
    only: RowFilter,
    matches: FoundCases | None,
    among: Sequence[int] | None,
) -> int:
    """The number of rows that meet all conditions; of a facet of one run alone it is that of its own rows."""
    if not conditions:
        return rows.n
    facets = [(kind, value) for kind, value in (("tag", only.tag), ("tool", only.tool)) if value]
    if len(conditions) == len(facets) == 1 and len(rows.runs) == 1 and matches is None and among is None:
        columns, (kind, value) = CASE_FACET.c, facets[0]
        of_facet = (columns.run_id == rows.runs[0].id, columns.kind == kind, columns.value == value)
        n: int | None = connection.scalar(select(func.count()).select_from(CASE_FACET).where(*of_facet))
        return n or 0
    return _count(connection, rows, conditions)


def ranks_by_spread(connection: Connection, layout: CaseLayout, *, is_reversed: bool = False) -> dict[int, int]:
    """The place of each row by the difference of its highest and lowest pass rate, large ones first.

    Rows without a difference are last, also where the order is reversed; places are negative there.
    """
    sort = RowSort("spread", is_reversed=is_reversed)
    rows = _Rows(connection.dialect.name, layout, run_queries.run_rows(connection, layout.run_ids), sort)
    spread = _spread(rows).subquery("spread")
    value, is_falling = _ordered(spread.c.spread, sort, is_falling=True)
    source = rows.source.outerjoin(spread, spread.c.row == rows.row)
    query = select(rows.row).select_from(source).where(*rows.where)
    ordered = connection.scalars(query.order_by(value.desc() if is_falling else value, rows.row))
    return {row: -rank if is_reversed else rank for rank, row in enumerate(ordered)}


def _ranked_part(
    connection: Connection,
    rows: _Rows,
    conditions: Sequence[ColumnElement[bool]],
    sort: RowSort,
    ranks: Mapping[int, int],
    after: str,
    limit: int,
    with_means: Sequence[int],
) -> TablePart:
    """The same in the order of ranks, which no column has."""
    if conditions:
        fitting = select(rows.row).select_from(rows.source).where(*rows.where, *conditions)
        ranked = [row for row in connection.scalars(fitting) if row in ranks]
    else:
        ranked = list(ranks)
    ranked.sort(key=lambda row: -ranks[row] if sort.is_reversed else ranks[row])
    start = int(_cursor_values(after, sort, 1)[0]) if after else 0
    some = ranked[start : start + limit]
    cursor = _cursor(sort, [start + limit]) if len(ranked) > start + limit else ""
    return TablePart(_with_cells(connection, rows, some, with_means), len(ranked), cursor)


class _Rows:
    """The rows of a layout in SQL: their source, and the index of the case of a row in each run.

    Where the cases of all runs are in the same order, the rows are those of the run by which they are sorted, so that
    an index may give them in that order.
    """

    def __init__(self, dialect: str, layout: CaseLayout, runs: Sequence[Row[Any]], sort: RowSort) -> None:
        self.layout, self.runs, self.dialect = layout, runs, dialect
        self.are_strict = [totals.are_errors_failures(run.config) for run in runs]
        self.where: list[ColumnElement[bool]] = []
        self.n: int
        self.driving: int | None = None
        if layout.places is None:
            self.driving = self.sorting(sort)
            self.source: FromClause = RUN_CASE
            self.row: ColumnElement[Any] = RUN_CASE.c.case_index
            self.where.append(RUN_CASE.c.run_id == runs[self.driving].id)
            self.n = runs[self.driving].n_cases
            return
        self.n = len(layout.places)
        self.source, self.row, self._item = json_rows(dialect, json.dumps(layout.places))

    def sorting(self, sort: RowSort) -> int:
        """The place of the run by which the rows are sorted; the first one where none is named."""
        return next((at for at, run in enumerate(self.runs) if run.id == sort.run_id), 0)

    def index_of(self, at: int) -> ColumnElement[Any]:
        """The index of the case of a row in a run; null where the run does not have it."""
        return self.row if self.driving is not None else JsonItem(self._item, literal(at))

    def of_case(self, at: int, make: Callable[[Any], ColumnElement[Any]]) -> ColumnElement[Any]:
        """An expression over the columns of the case in a run."""
        if at == self.driving:
            return make(RUN_CASE.c)
        own = RUN_CASE.alias()
        value = select(make(own.c)).where(own.c.run_id == self.runs[at].id, own.c.case_index == self.index_of(at))
        scalar: ColumnElement[Any] = value.correlate(self.source).scalar_subquery()
        return scalar

    def has(self, at: int, make: Callable[[Any], ColumnElement[bool]]) -> ColumnElement[bool]:
        """Whether the columns of the case in a run are so."""
        if at == self.driving:
            return make(RUN_CASE.c)
        own = RUN_CASE.alias()
        of_row = (own.c.run_id == self.runs[at].id) & (own.c.case_index == self.index_of(at))
        is_there: ColumnElement[bool] = select(literal(1)).where(of_row, make(own.c)).correlate(self.source).exists()
        return is_there

    def played_run_id(self, at: int) -> int:
        """The run that played the trials, to which findings belong."""
        source_id: int | None = run_queries.config_of(self.runs[at].config).source_run_id
        return self.runs[at].id if source_id is None else source_id

    def has_beside(
        self, at: int, table: Any, *where: ColumnElement[bool], run_id: int | None = None
    ) -> ColumnElement[bool]:
        """Whether another table has such a row of the case in a run."""
        of_row = (table.c.run_id == (run_id or self.runs[at].id)) & (table.c.case_index == self.index_of(at))
        is_there: ColumnElement[bool] = select(literal(1)).where(of_row, *where).correlate(self.source).exists()
        return is_there

    def n_scored(self, at: int, columns: Any) -> ColumnElement[Any]:
        """The trials of a case that are in its pass rate."""
        n_scored: ColumnElement[Any] = columns.n_passed + columns.n_failed
        return n_scored + columns.n_errored if self.are_strict[at] else n_scored

    def share(self, at: int, columns: Any) -> ColumnElement[Any]:
        """The pass rate of a case; null without a scored trial."""
        share: ColumnElement[Any] = columns.n_passed * 1.0 / func.nullif(self.n_scored(at, columns), 0)
        return share


def _conditions(rows: _Rows, only: RowFilter, matches: FoundCases | None) -> list[ColumnElement[bool]]:
    """The conditions of a filter and a search; each holds in one of the runs, or in that of the filter."""
    places = [at for at, run in enumerate(rows.runs) if only.run_id in (None, run.id)] or [*range(len(rows.runs))]
    makes: list[Callable[[int], ColumnElement[bool]]] = []
    if only.verdict:
        makes.append(lambda at: rows.has(at, lambda columns: _verdict(rows, at, columns, only)))
    for kind, value in (("tag", only.tag), ("tool", only.tool)):
        if value:
            facet = (CASE_FACET.c.kind == kind, CASE_FACET.c.value == value)
            makes.append(lambda at, facet=facet: rows.has_beside(at, CASE_FACET, *facet))  # type: ignore[misc]
    if only.error:
        makes.append(lambda at: rows.has(at, lambda columns: columns.n_errored > 0))
        makes.append(lambda at: rows.has_beside(at, TRIAL, TRIAL.c.error_kind == only.error))
    if only.divergence:
        makes.append(lambda at: rows.has_beside(at, TRIAL, TRIAL.c.divergence == only.divergence))
    if only.mode is not None:
        is_counted = (FINDING.c.mode_id == only.mode, FINDING.c.status == "counted")
        makes.append(lambda at: rows.has_beside(at, FINDING, *is_counted, run_id=rows.played_run_id(at)))
    if only.below:
        is_below = (CASE_METRIC.c.metric == only.below, CASE_METRIC.c.n_passed < CASE_METRIC.c.n)
        makes.append(lambda at: rows.has_beside(at, CASE_METRIC, *is_below))
    conditions = [or_(*(make(at) for at in places)) for make in makes]
    if only.disagree:
        spread = _spread(rows).subquery("spread")
        conditions.append(rows.row.in_(select(spread.c.row).where(spread.c.spread > _SAME)))
    if matches is not None:
        conditions.append(_is_found(rows, matches))
    return conditions


def _is_found(rows: _Rows, matches: FoundCases) -> ColumnElement[bool]:
    """Whether a row is among the cases of a search."""

    def is_named(columns: Any) -> ColumnElement[bool]:
        condition: ColumnElement[bool] = columns.case_id.icontains(matches.text, autoescape=True)
        return condition

    if rows.driving is not None:  # the ids are the same in all runs
        indexes = sorted({index for some in matches.cases_by_run.values() for index in some})
        has_text = is_among(rows.row, indexes, rows.dialect)
        return has_text if matches.has_ids else or_(has_text, is_named(RUN_CASE.c))
    texts = [
        is_among(rows.index_of(at), matches.cases_by_run.get(run.id, ()), rows.dialect)
        for at, run in enumerate(rows.runs)
    ]
    return or_(*texts, *([] if matches.has_ids else [rows.has(at, is_named) for at in range(len(rows.runs))]))


def _verdict(rows: _Rows, at: int, columns: Any, only: RowFilter) -> ColumnElement[bool]:
    if only.verdict == "flaky":
        return and_(columns.n_passed > 0, rows.n_scored(at, columns) > columns.n_passed)
    if only.verdict == "passed":
        threshold = run_queries.config_of(rows.runs[at].config).pass_threshold
        return func.coalesce(rows.share(at, columns), -1.0) >= threshold - _SAME
    has_verdict: ColumnElement[bool] = columns[f"n_{only.verdict}"] > 0
    return has_verdict


def _spread(rows: _Rows) -> Select[Any]:
    """The difference of the highest and the lowest pass rate of each row, over the runs with a scored trial."""
    columns = RUN_CASE.c
    if rows.driving is not None and len({*rows.are_strict}) == 1:
        share, of_runs = rows.share(0, columns), columns.run_id.in_([run.id for run in rows.runs])
        spread = (func.max(share) - func.min(share)).label("spread")
        return select(columns.case_index.label("row"), spread).where(of_runs).group_by(columns.case_index)
    shares = []
    for at, run in enumerate(rows.runs):
        if rows.driving is not None:
            own = select(columns.case_index.label("row"), rows.share(at, columns).label("share"))
            shares.append(own.where(columns.run_id == run.id))
        else:
            of_row = (columns.run_id == run.id) & (columns.case_index == rows.index_of(at))
            own = select(rows.row.label("row"), rows.share(at, columns).label("share"))
            shares.append(own.select_from(rows.source.join(RUN_CASE, of_row)))
    both = union_all(*shares).subquery("share")
    spread = (func.max(both.c.share) - func.min(both.c.share)).label("spread")
    return select(both.c.row, spread).group_by(both.c.row)


def _order_keys(rows: _Rows, sort: RowSort) -> list[OrderKey]:
    """The expressions of an order; equal rows are in that of the file."""
    at = rows.sorting(sort)

    def of_case(make: Callable[[Any], ColumnElement[Any]], *, is_falling: bool) -> OrderKey:
        return _ordered(rows.of_case(at, make), sort, is_falling=is_falling)

    def flakiness(columns: Any) -> ColumnElement[Any]:
        share = rows.share(at, columns)
        return share * (1.0 - share)

    if sort.order == "worst":
        if rows.driving is not None and rows.runs[at].n_totalled >= rows.runs[at].n_cases:
            # Bare columns: the index on them gives the order.
            return [(RUN_CASE.c.worst, sort.is_reversed), (RUN_CASE.c.n_errored, not sort.is_reversed)]
        return [
            of_case(lambda columns: _worst(rows, at, columns), is_falling=False),
            of_case(lambda columns: columns.n_errored, is_falling=True),
        ]
    if sort.order == "flaky":
        return [of_case(flakiness, is_falling=True)]
    if sort.order == "slow":
        return [of_case(lambda columns: columns.duration_ms / func.nullif(columns.n_timed, 0), is_falling=True)]
    if sort.order == "cost":
        return [of_case(lambda columns: columns.cost, is_falling=True)]
    if sort.order == "tokens":
        return [of_case(lambda columns: columns.tokens_in + columns.tokens_out, is_falling=True)]
    if sort.order == "id":
        ids = [rows.of_case(place, lambda columns: columns.case_id) for place in range(len(rows.runs))]
        return [(ids[0] if rows.driving is not None else func.coalesce(*ids, ""), sort.is_reversed)]
    if sort.order == "metric":  # of runs with different cases
        own = CASE_METRIC.c
        of_metric = (own.run_id == rows.runs[at].id, own.case_index == rows.index_of(at), own.metric == sort.metric)
        mean = select(own.total / own.n).where(*of_metric).correlate(rows.source).scalar_subquery()
        return [_ordered(mean, sort, is_falling=False)]
    return [(rows.row, True)] if sort.is_reversed else []


def _worst(rows: _Rows, at: int, columns: Any) -> ColumnElement[Any]:
    return totals.worst_of([columns[name] for name in totals.OUTCOME], rows.n_scored(at, columns))


def _ordered(value: ColumnElement[Any], sort: RowSort, *, is_falling: bool) -> OrderKey:
    """The value with rows that have none at the end, whichever way the order goes."""
    is_falling = is_falling != sort.is_reversed
    return func.coalesce(cast(value, Float), -LAST if is_falling else LAST), is_falling


def _behind(keys: Sequence[OrderKey], row: ColumnElement[Any], values: Sequence[Any]) -> list[ColumnElement[bool]]:
    """The conditions of the rows after a cursor; the first one lets an index begin there."""
    ordered = [*keys, (row, False)]
    alternatives = []
    for at, (expression, is_falling) in enumerate(ordered):
        same = [other == value for (other, _), value in zip(ordered[:at], values, strict=False)]
        alternatives.append(and_(*same, expression < values[at] if is_falling else expression > values[at]))
    first, is_falling = ordered[0]
    return [first <= values[0] if is_falling else first >= values[0], or_(*alternatives)]


def _cursor(sort: RowSort, values: Sequence[Any]) -> str:
    text = json.dumps([_order_name(sort), *values])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _cursor_values(cursor: str, sort: RowSort, n: int) -> list[Any]:
    """The values of a cursor. Raises UsageError for one of another order, or of nothing that was given out."""
    try:
        values: list[Any]
        name, *values = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, TypeError) as error:
        raise UsageError("this page of cases is not known; start again from the first one", field="after") from error
    first_kinds = (str,) if sort.order == "id" else (int, float)
    are_right = len(values) == n and type(values[0]) in first_kinds
    are_right = are_right and all(type(value) in (int, float) and abs(value) <= LAST for value in values[1:])
    is_row = are_right and (type(values[-1]) is int or sort.order in OVER_RUNS) and abs(values[-1]) < 2**31
    if name != _order_name(sort) or not is_row or values[-1] < 0:
        raise UsageError("this page belongs to another order of the cases; start again", field="after")
    return values


def _order_name(sort: RowSort) -> list[Any]:
    return [sort.order, sort.metric, sort.run_id, sort.is_reversed]


def _count(connection: Connection, rows: _Rows, conditions: Sequence[ColumnElement[bool]]) -> int:
    count = select(func.count()).select_from(rows.source).where(*rows.where, *conditions)
    return connection.scalar(count) or 0


def _with_cells(
    connection: Connection, rows: _Rows, numbers: Sequence[int], with_means: Sequence[int]
) -> list[TableRow]:
    """The rows with their case in each run."""
    indexes = [rows.layout.indexes(row) for row in numbers]
    own = {run.id: [case for index in indexes if (case := index[at]) is not None] for at, run in enumerate(rows.runs)}
    means = {
        run_id: run_queries.means_of_cases(connection, run_id, own[run_id]) for run_id in with_means if own.get(run_id)
    }
    configs = {run.id: run_queries.config_of(run.config) for run in rows.runs}
    cases: dict[tuple[int, int | None], CaseRow] = {}
    for some in _of_runs(own):
        rows_of_runs = select(RUN_CASE.c.run_id, *run_queries.CASE_COLUMNS).where(_is_of_runs(RUN_CASE.c, some))
        for values in connection.execute(rows_of_runs).all():
            run_id = values[0]
            of_case = run_queries.case_row_of_values(values[1:], means.get(run_id, _NO_MEANS), configs[run_id])
            cases[run_id, of_case.case_index] = of_case
    run_ids = rows.layout.run_ids
    return [
        TableRow(row, tuple(map(cases.get, zip(run_ids, index, strict=True))))
        for row, index in zip(numbers, indexes, strict=True)
    ]


def _of_runs(indexes: Mapping[int, Sequence[int]]) -> list[dict[int, Sequence[int]]]:
    """The cases of runs in parts for one question each: all runs together where they have about the same cases."""
    some = {run_id: own for run_id, own in indexes.items() if own}
    different = {index for own in some.values() for index in own}
    if len(different) <= 2 * max(map(len, some.values()), default=0):
        return [some] if some else []
    return [{run_id: own} for run_id, own in some.items()]


def _is_of_runs(columns: Any, indexes: Mapping[int, Sequence[int]]) -> ColumnElement[bool]:
    """Whether a row is of one of these runs, and its case among those of any."""
    different = sorted({index for own in indexes.values() for index in own})
    return and_(columns.run_id.in_(list(indexes)), columns.case_index.in_(different))


def are_alike(connection: Connection, run_ids: Sequence[int]) -> bool:
    """Whether the cases of all these runs have the same ids and contents in the same order."""
    first, *others = run_queries.run_rows(connection, run_ids)
    mine, yours = RUN_CASE.alias(), RUN_CASE.alias()
    same = (mine.c.case_index == yours.c.case_index) & (mine.c.case_id == yours.c.case_id)
    same &= mine.c.digest == yours.c.digest
    for other in others:
        if other.n_cases != first.n_cases:
            return False
        pairs = select(func.count()).select_from(mine.join(yours, same))
        n_same = connection.scalar(pairs.where(mine.c.run_id == first.id, yours.c.run_id == other.id))
        if n_same != first.n_cases:
            return False
    return True


_WORDS_OF_TRIAL = func.coalesce(TRIAL.c.divergence, TRIAL.c.error_kind + ": " + TRIAL.c.error_message, "")


def first_divergences(connection: Connection, indexes: Mapping[int, Sequence[int]]) -> dict[int, dict[TrialKey, str]]:
    """The words of the first divergence, or of the error, of each trial that has one, by run.

    `indexes` are the cases of each run that are asked for; others may be among the answer.
    """
    run_queries.run_rows(connection, list(indexes))
    columns = TRIAL.c
    query = select(columns.run_id, columns.case_index, columns.trial_index, _WORDS_OF_TRIAL)
    words: dict[int, dict[TrialKey, str]] = {run_id: {} for run_id in indexes}
    for some in _of_runs(indexes):
        for_some = query.where(_is_of_runs(columns, some), columns.verdict.in_(("failed", "errored")))
        for run_id, case_index, at, text in connection.execute(for_some).all():
            if text:
                words[run_id][case_index, at] = text
    return words


def divergence_words(
    connection: Connection, keys_by_run: Mapping[int, Sequence[TrialKey]]
) -> dict[int, dict[TrialKey, str]]:
    """The words of the first divergence, or of the error, of these trials alone; left out where a trial has none."""
    run_queries.run_rows(connection, list(keys_by_run))
    keys = [[run_id, *key] for run_id, own in keys_by_run.items() for key in own]
    source, _, item = json_rows(connection.dialect.name, json.dumps(keys))
    columns = TRIAL.c
    of_key = [
        column == JsonItem(item, literal(at))
        for at, column in enumerate((columns.run_id, columns.case_index, columns.trial_index))
    ]
    query = select(columns.run_id, columns.case_index, columns.trial_index, _WORDS_OF_TRIAL)
    words: dict[int, dict[TrialKey, str]] = {run_id: {} for run_id in keys_by_run}
    for run_id, case_index, at, text in connection.execute(query.select_from(source.join(TRIAL, and_(*of_key)))).all():
        if text:
            words[run_id][case_index, at] = text
    return words


def facet_counts(connection: Connection, run_ids: Sequence[int], kind: FacetKind) -> dict[str, int]:
    """The tags of the cases of these runs, or the tools that their trials called, each with its number of cases."""
    run_queries.run_rows(connection, run_ids)
    columns = CASE_FACET.c
    of_kind = columns.run_id.in_(run_ids) & (columns.kind == kind)
    rows = (
        select(columns.value, func.count(columns.case_index.distinct()).label("n"))
        .where(of_kind)
        .group_by(columns.value)
    )
    return {row.value: row.n for row in connection.execute(rows.order_by(columns.value))}


def divergence_counts(connection: Connection, run_id: int) -> list[DivergenceCount]:
    """The first divergences of all failed trials of a run, the most frequent first."""
    run_queries.run_row(connection, run_id)
    columns = TRIAL.c
    of_run = (columns.run_id == run_id) & columns.divergence.is_not(None) & (columns.trial_index < N_OF_CASE)
    rows = (
        select(
            columns.divergence,
            func.count().label("n"),
            func.count(columns.case_index.distinct()).label("n_cases"),
            func.min(RUN_CASE.c.case_id).label("case_id"),
        )
        .join(RUN_CASE, OF_CASE)
        .where(of_run)
        .group_by(columns.divergence)
    )
    counts = [DivergenceCount(row.divergence, row.n, row.n_cases, row.case_id) for row in connection.execute(rows)]
    return sorted(counts, key=lambda each: (-each.n, each.words))


def time_quantiles(connection: Connection, run_id: int, shares: Sequence[float]) -> list[float | None]:
    """Times of the trials of a run in ms below which these shares of them lie; None where no time is known."""
    run_queries.run_row(connection, run_id)
    columns = TRIAL.c
    is_timed = (columns.run_id == run_id) & columns.verdict.is_not(None) & (columns.duration_ms > 0)
    times = sorted(connection.scalars(select(columns.duration_ms).where(is_timed)))
    return [float(times[min(len(times) - 1, int(share * len(times)))]) if times else None for share in shares]
