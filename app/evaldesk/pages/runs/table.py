"""The one table of cases: rows are cases, column groups are runs. A run, compared runs and an experiment show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any
from urllib.parse import parse_qsl

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.stored_runs import StoredRuns, run_title
from evaldesk.desk.search import WHEN_INDEXED
from evaldesk.errors import NotFoundError, WorkspaceError
from evaldesk.model.case_table import (
    OVER_RUNS,
    CaseLayout,
    FoundCases,
    RowFilter,
    RowOrder,
    RowSort,
    TablePart,
    TableRow,
)
from evaldesk.model.comparison import KINDS, CaseChange, PlayedCase, RunChange, match_cases
from evaldesk.model.conclusion import Interval
from evaldesk.model.evalset import CaseKey, CasePosition, numbered_keys
from evaldesk.model.run import LIVE
from evaldesk.model.stored import CaseFilter, RunSummary, TrialKey
from evaldesk.pages.comparison import BADGES, CHANGED, by_place, change_of, facts_of
from evaldesk.pages.pair import pair_href
from evaldesk.pages.runs.matrix import (
    Cell,
    Column,
    MatrixRow,
    case_href,
    columns_of,
    dash_sentence,
    first_message,
    is_measured,
    metric_rows_of,
    plain_columns,
)
from evaldesk.pages.runs.table_query import FILTERS, TableQuery
from evaldesk.pages.runs.view import Filter, columns_k, first_problem, known_cost, reliability, trial_href
from evaldesk.statistics.intervals import wilson
from evaldesk.store import RunStore, Store
from evaldesk.store.runs.run_store import is_imported
from evaldesk.wording.words import CI, doubt_cell, passed_cell, passed_words, short_title

PAGE_SIZE = 100
NO_TITLES: Mapping[int, str] = {}
MOST_FOUND = 20_000
"""Cases that one search of texts gives."""
MOST_NAMED = 2_000
"""Cases found by their ids whose numbers stand in one statement."""
MAX_OPTIONS = 100
"""Tags, tools, errors or kinds of failure to choose from."""
LETTERS = [
    *"ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    *(f"A{letter}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    *(f"B{letter}" for letter in "ABCDEFGH"),
]
TOLD = 2
"""A number of passes is marked where it differs by as many trials from that of the first run."""
VERDICTS: tuple[CaseFilter, ...] = ("passed", "failed", "errored", "unscored", "flaky")
QUANTILES = (0.5, 0.95)
MAX_CHIPS = 6
MAX_SQUARES = 10
"""Trials of a case that are drawn for each of several runs; more would push the next run out of sight."""
MOST_SPREAD = 200_000
"""Cells of a table that is sorted by the spread of its rows unless its address says otherwise."""


@dataclass(frozen=True, slots=True)
class Chip:
    """An option that differs between the runs of a table, as one run has it."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class TableGroup:
    """The columns of one run, with the head above them; without a `summary` the run was deleted.

    `mark` says why its trials are no fresh evidence. `cost` is that of a trial in US dollars, `times` are the times in
    ms below which half and 95 % of its trials lie.
    """

    run_id: int
    letter: str
    title: str
    summary: RunSummary | None
    chips: Sequence[Chip] = ()
    mark: str = ""
    rate: float | None = None
    low: float = 0.0
    high: float = 0.0
    doubt: str = ""
    cost: float | None = None
    times: tuple[float | None, ...] = (None, None)
    n_columns: int = 1
    baseline_href: str = ""
    hide_href: str = ""

    @property
    def href(self) -> str:
        """The page of the run."""
        return f"/runs/{self.run_id}"


@dataclass(frozen=True, slots=True)
class RowColumn:
    """A column of the table: its head, its cell of a row, and its cell of the last line."""

    key: str
    title: str
    of_row: Callable[[TableRow], Cell]
    total: Cell
    sub: str = ""
    group: int | None = None
    sort_href: str = ""
    direction: str = ""
    is_extra: bool = False

    @property
    def is_number(self) -> bool:
        """Whether the column is set to the right."""
        return self.total.is_number


@dataclass(frozen=True, slots=True)
class Choice:
    """A value to filter by, or a column to show, with its number of cases; `href` takes it or leaves it."""

    value: str
    text: str
    n: int | None = None
    is_current: bool = False
    href: str = ""


@dataclass(frozen=True, slots=True)
class SavedView:
    """A named view of the eval set, as an address of this table."""

    id: int
    name: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class CaseTable:
    """All that the table shows. `is_alone` is one of a single run, whose groups have no head.

    `groups` are the columns that are not hidden. `summaries` are all runs of its address that are there, also hidden
    ones; `facts` has the words of each of them, `letters` those of all runs by their numbers.
    """

    query: TableQuery
    groups: Sequence[TableGroup]
    columns: Sequence[RowColumn]
    rows: Sequence[MatrixRow]
    n_rows: int
    n_fitting: int
    more_href: str
    filters: Sequence[Filter]
    sorts: Sequence[Filter]
    selects: Mapping[str, Sequence[Choice]]
    column_choices: Sequence[Choice]
    views: Sequence[SavedView]
    evalset_id: str
    search_note: str = ""
    has_total: bool = True
    hidden: Sequence[Choice] = ()
    dash_sentence: str = ""
    facts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    summaries: Sequence[RunSummary] = ()
    letters: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_alone(self) -> bool:
        """Whether it is the table of one run."""
        return len(self.groups) == 1

    @property
    def all_href(self) -> str:
        """The address without a filter."""
        return self.query.href(**dict.fromkeys(FILTERS))

    @property
    def fields(self) -> Sequence[tuple[str, str]]:
        """The parts of the address that a new search keeps."""
        own = ("q", "in", "tag", "tool", "error", "kind", "below", "after")
        return [(name, value) for name, value in self.query.fields().items() if name not in own]

    @property
    def is_live(self) -> bool:
        """Whether a run of it still plays."""
        return any(each.status in LIVE for each in self.summaries)

    @property
    def events_href(self) -> str:
        """The address of the events of its rows."""
        address = self.query.href(rows=",".join(str(row.index) for row in self.rows))
        return address.replace(self.query.base, f"{self.query.base}/events", 1)

    @property
    def density_href(self) -> str:
        """The address with the other density."""
        return self.query.href(density=None if self.query.density else "tight")


def table_layout(runs: RunStore, summaries: Sequence[RunSummary]) -> CaseLayout:
    """The places of the cases of these runs in one table: one rule says which cases are the same, `match_cases`."""
    return _layout(runs, tuple((each.id, each.n_cases, each.counts.planned) for each in summaries))


@lru_cache(maxsize=64)
def _layout(runs: RunStore, marks: tuple[tuple[int, int, int], ...]) -> CaseLayout:
    """The layout; kept as long as no run gets or loses cases."""
    run_ids = tuple(run_id for run_id, *_ in marks)
    if len(run_ids) == 1 or runs.are_alike(run_ids):
        return CaseLayout(run_ids)
    rows: list[list[int | None]] = []
    row_by_key: dict[CaseKey, int] = {}
    for at, run_id in enumerate(run_ids):
        keys = numbered_keys(("", case_id, digest) for case_id, digest in runs.case_versions(run_id))
        known_rows = match_cases([PlayedCase(key, "") for key in row_by_key], keys)
        for index, key in enumerate(keys):
            known_row = known_rows.get(key.place)
            row = row_by_key[known_row.key] if known_row else len(rows)
            if known_row is None:
                rows.append([None] * len(run_ids))
                row_by_key[key] = row
            rows[row][at] = index
    return CaseLayout(run_ids, tuple(map(tuple, rows)))


@dataclass(frozen=True, slots=True)
class ComparedPair:
    """Two runs case by case, with the index of each case in its run by its place."""

    change: RunChange
    indexes: tuple[Mapping[CasePosition, int], Mapping[CasePosition, int]]


def compared_pair(runs: RunStore, a: RunSummary, b: RunSummary) -> ComparedPair:
    """The second run against the first, case by case; computed once for the trials that both have."""
    return _compared_pair(runs, *((each.id, each.counts, each.n_confirming_todo, each.duration_ms) for each in (a, b)))


@lru_cache(maxsize=16)
def _compared_pair(runs: RunStore, a: tuple[Any, ...], b: tuple[Any, ...]) -> ComparedPair:
    sides = [(runs.summary(run_id), runs.case_outcomes(run_id)) for run_id, *_ in (a, b)]
    change = change_of(runs, *sides)
    before, after = ({place: row.case_index for place, row in by_place(rows).items()} for _, rows in sides)
    return ComparedPair(change, (before, after))


def rows_of_changes(layout: CaseLayout, pair: ComparedPair) -> list[tuple[int, CaseChange]]:
    """The row of each case of a comparison, broken ones first."""
    row_of: list[Mapping[int, int] | None] = [None, None]
    if layout.places is not None:
        row_of = [
            {index: row for row, places in enumerate(layout.places) if (index := places[at]) is not None}
            for at in (0, 1)
        ]
    rows = []
    for each in pair.change.cases:
        at, case = (1, each.after) if each.after else (0, each.before)
        index = pair.indexes[at][case.key.place] if case else 0
        own_rows = row_of[at]
        rows.append((index if own_rows is None else own_rows[index], each))
    return rows


@dataclass(frozen=True, slots=True)
class TableRows:
    """The runs of a table that are there, some of its rows, and the cases of a comparison of two by their rows."""

    query: TableQuery
    summaries: Sequence[RunSummary]
    part: TablePart
    changes: Sequence[tuple[int, CaseChange]]
    n_rows: int
    note: str


def table_rows(
    desk: Desk, query: TableQuery, *, most: int, has_means: bool = False, rows: Sequence[int] | None = None
) -> TableRows:
    """The rows that an address asks for, or these `rows` in their order, by their numbers.

    Raises NotFoundError where no run of it is there; UsageError for a cursor.
    """
    runs = desk.store.runs
    summaries = runs.summaries(query.shown_ids)
    if not summaries:
        raise NotFoundError(
            f"the list of runs has no run {query.run_ids[0]}; it was deleted, or belongs to another workspace"
        )
    layout = table_layout(runs, summaries)
    pair = compared_pair(runs, *summaries) if len(summaries) == 2 else None
    changes = rows_of_changes(layout, pair) if pair else []
    sort = query.sort or _own_sort(summaries)
    if sort.order not in OVER_RUNS and len(summaries) > 1:
        sort = replace(sort, run_id=sort.run_id or summaries[0].id)
    if sort.order == "change" and not changes:
        sort = RowSort("file", run_id=summaries[0].id)
    matches, note = _found_cases(desk.store, query, summaries)
    has_means = has_means or len(summaries) == 1 or any(key.startswith("metric.") for key in query.columns)
    n_rows = summaries[0].n_cases if layout.places is None else len(layout.places)
    if rows is not None:
        places = {row: place for place, row in enumerate(row for row in rows if row < n_rows)}
        means = [each.id for each in summaries] if has_means else []
        of_rows = runs.table_part(layout, RowSort("change"), RowFilter(), None, "", most, means, places)
        return TableRows(replace(query, order=sort), summaries, of_rows, changes, n_rows, note)
    kinds = CHANGED if query.show == "changed" else (query.show,)
    part = runs.table_part(
        layout,
        sort,
        query.only,
        matches,
        query.after,
        most,
        [each.id for each in summaries] if has_means else [],
        _ranks(runs, summaries, sort, changes),
        [row for row, change in changes if change.kind in kinds] if query.show else None,
    )
    return TableRows(replace(query, order=sort), summaries, part, changes, n_rows, note)


def read_table(
    desk: Desk,
    query: TableQuery,
    *,
    in_flight: Collection[TrialKey] = frozenset(),
    most: int = PAGE_SIZE,
    titles: Mapping[int, str] = NO_TITLES,
    marks: Mapping[int, str] = NO_TITLES,
    rows: Sequence[int] | None = None,
) -> CaseTable:
    """The table that an address asks for, or `rows` of it. `titles` and `marks` are those of runs with others.

    Raises as `table_rows`.
    """
    runs, shown_ids = desk.store.runs, query.shown_ids
    table_part = table_rows(desk, query, most=most, rows=rows)
    query, summaries, part, changes = table_part.query, table_part.summaries, table_part.part, table_part.changes
    letters = dict(zip(query.run_ids, LETTERS, strict=False))
    places = {each.id: at for at, each in enumerate(summaries)}
    all_summaries = runs.summaries(query.run_ids) if query.hidden else summaries
    facts = differing_facts(runs, all_summaries)
    facts_at = {each.id: at for at, each in enumerate(all_summaries)}
    words_by_run = _shown_words(runs, summaries, part.rows)
    groups, columns = [], []
    for at, run_id in enumerate(shown_ids):
        if run_id not in places:
            groups.append(TableGroup(run_id, letters[run_id], titles.get(run_id, f"Run {run_id}"), None))
            columns.append(RowColumn("trials", "Deleted", lambda _: Cell("text", ""), Cell("text", ""), group=at))
            continue
        place = places[run_id]
        summary = summaries[place]
        group = _group(runs, query, letters[run_id], summary, facts, facts_at.get(run_id, len(all_summaries)))
        groups.append(replace(group, title=titles.get(run_id, group.title), mark=marks.get(run_id, group.mark)))
        columns += _run_columns(runs, query, summaries, place, at, words_by_run[run_id], in_flight)
    columns += _row_columns(query, changes, summaries) if len(summaries) > 1 else []
    visible_columns = _with_one_direction([each for each in columns if _is_chosen(each, query, len(summaries))])
    groups = [
        replace(group, n_columns=sum(each.group == at for each in visible_columns)) for at, group in enumerate(groups)
    ]
    return CaseTable(
        query=query,
        groups=groups,
        columns=visible_columns,
        rows=[_line(runs, row, visible_columns, summaries, changes) for row in part.rows],
        n_rows=table_part.n_rows,
        n_fitting=part.n_fitting,
        more_href=query.href(after=part.cursor) if part.cursor else "",
        filters=_filters(query, summaries, changes),
        sorts=_sorts(query, summaries),
        selects=_selects(desk.store, query, summaries, groups),
        column_choices=_column_choices(query, columns, visible_columns),
        views=_views(desk.store, query, summaries[0].config.evalset_id),
        evalset_id=summaries[0].config.evalset_id,
        search_note=table_part.note,
        has_total=not query.has_filter,
        dash_sentence=_dash_sentence(summaries, part),
        facts=facts,
        summaries=all_summaries,
        letters=letters,
        hidden=[
            Choice(str(each), titles.get(each, f"run {each}"), href=_shown_href(query, each))
            for each in query.hidden
            if each in query.run_ids
        ],
    )


def _shown_words(
    runs: RunStore, summaries: Sequence[RunSummary], rows: Sequence[TableRow]
) -> Mapping[int, Mapping[TrialKey, str]]:
    """The words of the trials that the rows show: all of one run, of several the first of each cell."""
    cells = {each.id: [case for row in rows if (case := row.cases[at])] for at, each in enumerate(summaries)}
    if len(summaries) == 1:
        return runs.first_divergences({run_id: [case.case_index for case in own] for run_id, own in cells.items()})
    return runs.divergence_words(
        {
            run_id: [
                (case.case_index, first_problem(case.verdicts))
                for case in own
                if case.counts.passed < len(case.verdicts)
            ]
            for run_id, own in cells.items()
        }
    )


def _dash_sentence(summaries: Sequence[RunSummary], part: TablePart) -> str:
    if len(summaries) > 1:
        return ""
    return dash_sentence(summaries[0], [row.case for row in part.rows], columns_k(summaries[0].n_least))


def _ranks(
    runs: RunStore, summaries: Sequence[RunSummary], sort: RowSort, changes: Sequence[tuple[int, CaseChange]]
) -> Mapping[int, int] | None:
    """The place of each row in an order that compares the runs; None for an order of one run."""
    if sort.order == "change":
        return {row: rank for rank, (row, _) in enumerate(changes)}
    if sort.order != "spread":
        return None
    marks = tuple((each.id, each.n_cases, each.counts.planned) for each in summaries)
    since = tuple((each.counts, each.duration_ms, each.n_confirming_todo) for each in summaries)
    return _spread_ranks(runs, marks, since, is_reversed=sort.is_reversed)


@lru_cache(maxsize=16)
def _spread_ranks(
    runs: RunStore, marks: tuple[tuple[int, int, int], ...], _: tuple[Any, ...], *, is_reversed: bool
) -> Mapping[int, int]:
    """The place of each row in the order of its spread; kept as long as no trial ended."""
    return runs.ranks_by_spread(_layout(runs, marks), is_reversed=is_reversed)


def _own_sort(summaries: Sequence[RunSummary]) -> RowSort:
    """The order of a table whose address names none: the largest differences first."""
    first = summaries[0]
    if len(summaries) == 1:
        return RowSort("file" if first.status in LIVE else "worst")
    if len(summaries) == 2:
        return RowSort("change")
    return RowSort("spread") if first.n_cases * len(summaries) <= MOST_SPREAD else RowSort("worst")


def _found_cases(store: Store, query: TableQuery, summaries: Sequence[RunSummary]) -> tuple[FoundCases | None, str]:
    """The cases of a search, and which of them are not searched."""
    if not query.text:
        return None, ""
    search, run_ids = store.search, [each.id for each in summaries]
    try:
        matches = _with_ids(store.runs, summaries, search.cases(run_ids, query.text, MOST_FOUND))
        n_behind = 0 if search.refusal else search.n_behind(run_ids)
    except WorkspaceError as error:
        return FoundCases({}, text=query.text), f"Only ids are searched: {error}"
    if search.refusal:
        return matches, f"Only ids are searched. {search.refusal}"
    if n_behind:
        return matches, f"The texts of these trials are not all searched yet; {WHEN_INDEXED}."
    return matches, f"More than {MOST_FOUND:,} cases hold these words; add a word." if matches.is_cut else ""


def _with_ids(runs: RunStore, summaries: Sequence[RunSummary], matches: FoundCases) -> FoundCases:
    """The cases of a search with those whose id holds its text; unchanged where these are so many that SQL finds them.

    A pass over the ids in memory takes a tenth of the time of one in SQL.
    """
    text = matches.text.lower()
    cases_by_run = {}
    for summary in summaries:
        ids = _folded_ids(runs, summary.id, summary.n_cases, summary.counts.planned)
        named = [index for index, case_id in ids if text in case_id]
        if len(named) > MOST_NAMED:
            return matches
        cases_by_run[summary.id] = sorted({*matches.cases_by_run.get(summary.id, ()), *named})
    return replace(matches, cases_by_run=cases_by_run, has_ids=True)


@lru_cache(maxsize=32)
def _folded_ids(runs: RunStore, run_id: int, *_: int) -> Sequence[tuple[int, str]]:
    """The index of each case and its id in lower case; kept as long as the run gets or loses no case."""
    return [(index, case_id.lower()) for index, case_id in runs.case_ids(run_id).items()]


def differing_facts(runs: RunStore, summaries: Sequence[RunSummary]) -> Mapping[str, Sequence[str]]:
    """The options that differ between runs, with the words of each run; empty where a run does not have it.

    Of a model it is the one that was asked, without the agent's own.
    """
    models = [each.config.model or each.config.agent_model or "" for each in summaries]
    facts = [
        _facts(runs, each.id, _marks_of_facts(each)) | {"Model": model}
        for each, model in zip(summaries, models, strict=True)
    ]
    names = dict.fromkeys(name for own in facts for name in own)
    texts = {name: [own.get(name, "") for own in facts] for name in names}
    return {name: of_runs for name, of_runs in texts.items() if len(set(of_runs)) > 1}


def _marks_of_facts(summary: RunSummary) -> tuple[Any, ...]:
    config = summary.config
    of_set = (config.evalset_id, config.evalset_name, config.evalset_path, config.evalset_version)
    return summary.counts, summary.n_cases, summary.note, summary.shared_state, summary.status, of_set


@lru_cache(maxsize=512)
def _facts(runs: RunStore, run_id: int, _: tuple[Any, ...]) -> dict[str, str]:
    """The configuration of a run in words; kept as long as no trial ended and its eval set has the same name."""
    return facts_of(runs.summary(run_id))


def _group(
    runs: RunStore,
    query: TableQuery,
    letter: str,
    summary: RunSummary,
    facts: Mapping[str, Sequence[str]],
    at: int,
) -> TableGroup:
    interval, times = _measures(runs, summary.id, (summary.counts, summary.duration_ms, summary.n_confirming_todo))
    others = [run_id for run_id in query.run_ids if run_id != summary.id]
    cost = known_cost(summary, summary)
    n_done = summary.counts.done
    return TableGroup(
        summary.id,
        letter,
        run_title(summary),
        summary,
        chips=[Chip(name, texts[at]) for name, texts in facts.items() if at < len(texts) and texts[at]][:MAX_CHIPS],
        mark=_mark(summary),
        rate=summary.counts.rate,
        low=interval.low if interval else 0.0,
        high=interval.high if interval else 1.0,
        doubt=doubt_cell(summary.counts.scored, interval),
        cost=cost.dollars / n_done if cost.dollars is not None and n_done else None,
        times=times,
        baseline_href=query.baseline_href(summary.id) if summary.id != query.run_ids[0] else "",
        hide_href=query.href(hide=",".join(map(str, (*query.hidden, summary.id)))) if len(others) > 1 else "",
    )


def _mark(summary: RunSummary) -> str:
    """Why the trials of a run are no fresh evidence of its agent."""
    if is_imported(summary.config):
        return "imported"
    return "replayed" if repeats_recorded(summary.config) else ""


@lru_cache(maxsize=512)
def _measures(runs: RunStore, run_id: int, _: tuple[Any, ...]) -> tuple[Interval | None, tuple[float | None, ...]]:
    """The interval of the pass rate and the quantiles of times; kept as long as no trial ended."""
    return StoredRuns(runs).interval(runs.summary(run_id)), tuple(runs.time_quantiles(run_id, QUANTILES))


def _run_columns(
    runs: RunStore,
    query: TableQuery,
    summaries: Sequence[RunSummary],
    place: int,
    at: int,
    words: Mapping[TrialKey, str],
    in_flight: Collection[TrialKey],
) -> list[RowColumn]:
    """The columns of one run: those of its own page, or beside others its squares with the number of passes first."""
    summary, is_alone = summaries[place], len(summaries) == 1
    if is_alone:
        metrics = metric_rows_of(runs, summary)
        outcomes = runs.outcome_counts(summary.id)
        curves, point = reliability(
            outcomes, summary, columns_k(summary.n_least), equal=StoredRuns(runs).equal_counts(summary)
        )
        own = columns_of(summary, metrics, curves, point, in_flight, words)
    else:
        own = plain_columns(summary)
    columns = []
    for column in own:
        is_visible = column.key in query.columns if query.columns else is_alone
        sort = RowSort(column.order, column.metric, None if is_alone else summary.id) if column.order else None
        columns.append(
            RowColumn(
                column.key,
                column.title,
                partial(_cell_of, column, place),
                column.total_cell,
                column.sub,
                at,
                query.sort_href(sort) if sort and is_visible else "",
                _sorted(query, sort),
                is_extra=not is_alone,
            )
        )
    if is_alone:
        return columns
    squares = partial(_squares_cell, summary.id, place, words)
    sort = RowSort("worst", run_id=summary.id)
    total = Cell("squares", SquaresCell("", "", "", passed_cell(summary.counts), "", ""))
    return [
        RowColumn("trials", "Trials", squares, total, "", at, query.sort_href(sort), _sorted(query, sort)),
        *columns,
    ]


def _cell_of(column: Column, place: int, row: TableRow) -> Cell:
    case = row.cases[place]
    if case is not None:
        return column.cell(case)
    return Cell("text", "") if column.kind in ("text", "rate", "cost") else Cell(column.kind, None)


def _squares_cell(run_id: int, place: int, words: Mapping[TrialKey, str], row: TableRow) -> Cell:
    case, first = row.cases[place], row.cases[0]
    if case is None:
        return NO_SQUARES
    verdicts, n_passed = case.verdicts, case.counts.passed
    way = ""
    if place and first is not None and len(first.verdicts) == len(verdicts):
        difference = n_passed - first.counts.passed
        way = "better" if difference >= TOLD else "worse" if difference <= -TOLD else ""
    key = case.case_index, first_problem(verdicts)
    return _squares(run_id, key, verdicts, words.get(key, ""), n_passed, way)


NO_SQUARES = Cell("squares", None)


@lru_cache(maxsize=8_000)
def _squares(run_id: int, key: TrialKey, verdicts: str, words: str, n_passed: int, way: str) -> Cell:
    """The cell of a case in a run, whose link leads to the trial `key`; a page of many runs has thousands."""
    more = f"+{len(verdicts) - MAX_SQUARES}" if len(verdicts) > MAX_SQUARES else ""
    letters = verdicts[:MAX_SQUARES]
    return Cell("squares", SquaresCell(trial_href(run_id, key), letters, words, str(n_passed), way, more))


@dataclass(frozen=True, slots=True)
class SquaresCell:
    """The trials of a case in one run: a letter for each, and the number of passes.

    `href` leads to the first trial that did not pass, `title` has the words of its first divergence. `way` says whether
    clearly more or fewer pass than in the first run, `more` how many trials are not drawn.
    """

    href: str
    letters: str
    title: str
    passed: str
    way: str
    more: str

    @property
    def label(self) -> str:
        """The cell in words: `3 of 5 passed`."""
        return passed_words(int(self.passed), len(self.letters) + int(self.more[1:] or 0))


@dataclass(frozen=True, slots=True)
class ChangeCell:
    """The change of a case between two runs; `pair_href` shows a trial of each side by side, where both have it."""

    change: CaseChange
    pair_href: str


@dataclass(frozen=True, slots=True)
class Dumbbell:
    """The pass rates of a case in two runs, 0 to 1, and the 95 % CI of the later one."""

    before: float
    after: float
    low: float
    high: float

    @property
    def words(self) -> str:
        """Both rates, and the interval."""
        return (
            f"A {100 * self.before:.0f} %, B {100 * self.after:.0f} %; "
            f"{CI} of B {100 * self.low:.0f}–{100 * self.high:.0f} %"
        )

    @property
    def way(self) -> str:
        """Whether B passes more often."""
        return "better" if self.after > self.before else "worse" if self.after < self.before else ""


def _row_columns(
    query: TableQuery, changes: Sequence[tuple[int, CaseChange]], summaries: Sequence[RunSummary]
) -> list[RowColumn]:
    """The columns over all runs: how far apart they are, and of two the change and its dumbbell."""
    spread = RowSort("spread")
    of_spread = (query.sort_href(spread), _sorted(query, spread))
    if len(summaries) > 2:
        return [RowColumn("spread", "Spread", _spread_cell, Cell("text", ""), "points", None, *of_spread)]
    by_row, change = dict(changes), RowSort("change")

    def change_cell(row: TableRow) -> Cell:
        each = by_row.get(row.row)
        keys = [(case.case_index, first_problem(case.verdicts)) if case else None for case in row.cases]
        (a, b), (a_key, b_key) = summaries, keys
        pair = pair_href((a.id, a_key), (b.id, b_key)) if a_key and b_key else ""
        return Cell("change", ChangeCell(each, pair) if each else None)

    def points_cell(row: TableRow) -> Cell:
        each = by_row.get(row.row)
        points = None if each is None else each.points
        text = "" if points is None else f"{points:+.0f}".replace("-", "−").replace("+0", "0")
        return Cell("text", text, "B − A")

    return [
        RowColumn("dumbbell", "A to B", _dumbbell_cell, Cell("dumbbell", None), CI, None, *of_spread),
        RowColumn("points", "B − A", points_cell, Cell("text", ""), "points", None, *of_spread),
        RowColumn(
            "change",
            "Change",
            change_cell,
            Cell("change", None),
            "",
            None,
            query.sort_href(change),
            _sorted(query, change),
        ),
    ]


def _dumbbell_cell(row: TableRow) -> Cell:
    counts = [case.counts for case in row.cases if case is not None and case.counts.scored]
    if len(counts) < 2:
        return Cell("dumbbell", None)
    before, after = counts
    interval = wilson(after.passed, after.scored)
    rates = before.passed / before.scored, after.passed / after.scored
    return Cell("dumbbell", Dumbbell(rates[0], rates[1], interval.low, interval.high))


def _spread_cell(row: TableRow) -> Cell:
    """The difference of the highest and the lowest pass rate in points."""
    counts = [case.counts for case in row.cases if case is not None]
    rates = [each.passed / n for each in counts if (n := each.scored)]
    return Cell("text", f"{100 * (max(rates) - min(rates)):.0f}" if len(rates) > 1 else "")


def _line(
    runs: RunStore,
    row: TableRow,
    columns: Sequence[RowColumn],
    summaries: Sequence[RunSummary],
    changes: Sequence[object],
) -> MatrixRow:
    at = next(at for at, case in enumerate(row.cases) if case is not None)
    case = row.case
    if changes and row.cases[-1] is not None:
        at, case = len(row.cases) - 1, row.cases[-1]
    return MatrixRow(
        row.row,
        case.case_id,
        case_href(summaries[at].id, case),
        tuple(column.of_row(row) for column in columns),
        first_message(runs, summaries[at].id, case),
    )


def _sorted(query: TableQuery, sort: RowSort | None) -> str:
    """The direction in which a head is sorted, as `aria-sort` has it; empty where it is not."""
    now = query.order
    if sort is None or now is None or replace(now, is_reversed=False) != sort:
        return ""
    is_rising = sort.order in ("worst", "id", "metric", "file")
    return "ascending" if is_rising != now.is_reversed else "descending"


def _with_one_direction(columns: Sequence[RowColumn]) -> list[RowColumn]:
    """The columns with the direction at the first head of the order alone: several heads may give it."""
    first = next((at for at, column in enumerate(columns) if column.direction), None)
    return [column if at == first else replace(column, direction="") for at, column in enumerate(columns)]


def _is_chosen(column: RowColumn, query: TableQuery, n_runs: int) -> bool:
    if query.columns:
        return column.key in query.columns
    return n_runs == 1 or not column.is_extra


def _filters(
    query: TableQuery, summaries: Sequence[RunSummary], changes: Sequence[tuple[int, CaseChange]]
) -> list[Filter]:
    """Filters by one click: of one run by verdict, of two by kind of change, of more by verdict in any."""
    nothing = query.href(only=None, disagree=None, show=None, **{"in": None})
    is_all = query.only.verdict is None and not query.only.disagree and not query.show
    filters = [Filter("All", None, "", nothing, is_all)]
    if len(summaries) > 1:
        filters.append(Filter("Disagree", None, "", query.disagree_href, query.only.disagree))
    if changes:
        counts = Counter(change.kind for _, change in changes)
        n_changed = sum(counts[kind] for kind in CHANGED)
        filters.append(Filter("Changed", n_changed, "", query.href(show="changed"), query.show == "changed"))
        filters += [
            Filter(kind, counts[kind], BADGES.get(kind, ""), query.href(show=kind), query.show == kind)
            for kind in KINDS
            if counts[kind] or query.show == kind
        ]
        return filters
    return filters + [
        Filter(
            verdict,
            None,
            "" if verdict == "flaky" else verdict,
            query.href(only=verdict),
            query.only.verdict == verdict,
        )
        for verdict in VERDICTS
    ]


SORT_TITLES: Mapping[RowOrder, str] = {
    "change": "Change",
    "spread": "Spread",
    "worst": "Worst",
    "flaky": "Flakiest",
    "slow": "Slowest",
    "cost": "Most expensive",
    "tokens": "Most tokens",
    "id": "Case id",
    "file": "File order",
}


def _sorts(query: TableQuery, summaries: Sequence[RunSummary]) -> list[Filter]:
    """The orders to choose from; those of a single run are of the first one unless a head chooses another."""
    now, n = query.order, len(summaries)
    sorts = []
    for order, title in SORT_TITLES.items():
        if (order == "change" and n != 2) or (order == "spread" and n < 2):
            continue
        if order in ("slow", "cost", "tokens") and not is_measured(summaries[0]):
            continue
        sorts.append(Filter(title, None, "", query.href(sort=order), now is not None and now.order == order))
    return sorts


def _selects(
    store: Store, query: TableQuery, summaries: Sequence[RunSummary], groups: Sequence[TableGroup]
) -> dict[str, Sequence[Choice]]:
    """The values of each filter that is chosen from a list; a filter without a value is left out."""
    names = {each.run_id: f"{each.letter}: {each.title}" for each in groups if each.summary and len(summaries) > 1}
    run_ids = tuple(each.id for each in summaries)
    marks = tuple((each.counts, each.n_duplicates) for each in summaries)
    tags, tools, errors = _facets(store.runs, run_ids, marks)
    metrics = dict.fromkeys(
        each.metric for summary in summaries for each in summary.config.criteria if each.threshold is not None
    )
    only = query.only
    modes = {str(mode.id): mode.name for mode in store.failures.modes() if mode.is_active or mode.id == only.mode}
    selects = {
        "in": [Choice(str(run_id), name, None, run_id == only.run_id) for run_id, name in names.items()],
        "tag": [Choice(tag, tag, n, tag == only.tag) for tag, n in tags],
        "tool": [Choice(tool, tool, n, tool == only.tool) for tool, n in tools],
        "error": [Choice(kind, kind.replace("_", " "), n, kind == only.error) for kind, n in errors],
        "kind": [Choice(value, name, None, value == str(only.mode or "")) for value, name in modes.items()],
        "below": [Choice(metric, short_title(metric), None, metric == only.below) for metric in metrics],
    }
    return {name: choices[:MAX_OPTIONS] for name, choices in selects.items() if choices}


@lru_cache(maxsize=64)
def _facets(
    runs: RunStore, run_ids: tuple[int, ...], _: tuple[Any, ...]
) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """Tags and tools with their cases, errors with their trials; kept as long as no trial ended."""
    errors: Counter[str] = Counter()
    for run_id in run_ids:
        for group in runs.error_groups(run_id):
            errors[group.kind] += group.n
    tags, tools = (tuple(runs.facet_counts(run_ids, kind).items()) for kind in ("tag", "tool"))
    return tags, tools, tuple(errors.most_common())


def _column_choices(
    query: TableQuery, columns: Sequence[RowColumn], visible_columns: Sequence[RowColumn]
) -> list[Choice]:
    titles = {column.key: column.title for column in columns}
    keys = list(dict.fromkeys(column.key for column in visible_columns))
    choices = []
    for key, title in titles.items():
        others = [each for each in titles if (each in keys) != (each == key)]
        choices.append(Choice(key, title, None, key in keys, query.href(columns=",".join(others))))
    return choices


def _views(store: Store, query: TableQuery, evalset_id: str) -> list[SavedView]:
    own = dict(parse_qsl(query.view_text()))
    views = []
    for view in store.views.of_evalset(evalset_id):
        parts = dict(parse_qsl(view.address))
        base = TableQuery(query.base, query.run_ids, query.names_runs)
        views.append(SavedView(view.id, view.name, base.href(**parts), parts == own))
    return views


def _shown_href(query: TableQuery, run_id: int) -> str:
    return query.href(hide=",".join(str(each) for each in query.hidden if each != run_id) or None)
