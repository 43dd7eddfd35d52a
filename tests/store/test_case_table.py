"""The rows of the table of cases: filters, orders and pages by SQL equal those that are computed from the cases."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from evaldesk.errors import UsageError
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    ErrorRecord,
    Event,
    Expected,
    RunConfig,
    Score,
    ToolCall,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
    Usage,
    Verdict,
)
from evaldesk.model.case_table import CaseLayout, FoundCases, RowFilter, RowSort, TablePart, TableRow
from evaldesk.model.stored import CaseRow
from evaldesk.store import Store

VERDICTS: tuple[Verdict, ...] = ("passed", "passed", "failed", "errored")
METRIC = "tool_trajectory_avg_score"
CONFIG = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=3, criteria=(Criterion(METRIC, 1.0),))


def cases_of(n: int) -> list[Case]:
    """Cases that expect a roll, each third one with a tag."""
    turn = Turn("roll", Expected((ToolCall("roll", {"sides": 6}),)))
    return [Case(f"case_{n - at:02}", (turn,), tags=("refund",) * (at % 3 == 0)) for at in range(n)]


def played(store: Store, cases: Sequence[Case], seed: int) -> int:
    """A finished run whose trials pass, fail and err by chance; failed ones called another tool."""
    chance, run_id = random.Random(seed), store.runs.create(CONFIG, cases)
    for index in range(len(cases)):
        for at in range(CONFIG.n):
            verdict = chance.choice(VERDICTS)
            name = "roll" if verdict == "passed" else "look"
            calls = TurnRecord("roll", (Event("tool_call", call=ToolCall(name, {"sides": 6})),))
            value = float(verdict == "passed")
            store.runs.record(
                [
                    TrialResult(
                        run_id,
                        index,
                        at,
                        "finished" if verdict != "errored" else "errored",
                        verdict,
                        transcript=Transcript((calls,)),
                        scores=() if verdict == "errored" else (Score(METRIC, value, None, 1.0, value == 1.0, ""),),
                        usages=(Usage(model="m", tokens_in=chance.randrange(900), tokens_out=1, cost=chance.random()),),
                        duration_ms=chance.randrange(1, 900),
                        error=ErrorRecord("timeout", "too slow") if verdict == "errored" else None,
                    )
                ]
            )
    store.runs.set_status(run_id, "finished")
    return run_id


@pytest.fixture
def layouts(store: Store) -> dict[str, CaseLayout]:
    """One run; three with the same cases; and three whose cases are in other orders and partly missing."""
    cases = cases_of(12)
    runs = tuple(played(store, cases, seed) for seed in (1, 2, 3))
    other = played(store, [*reversed(cases[4:])], 4)
    places = tuple((at, 11 - at if at >= 4 else None) for at in range(12))
    return {
        "alone": CaseLayout(runs[:1]),
        "alike": CaseLayout(runs),
        "apart": CaseLayout((runs[0], other), places),
    }


EVERY_ROW = RowFilter()
SORTS = [
    RowSort("worst"),
    RowSort("worst", is_reversed=True),
    RowSort("flaky"),
    RowSort("slow"),
    RowSort("cost"),
    RowSort("tokens", is_reversed=True),
    RowSort("id"),
    RowSort("id", is_reversed=True),
    RowSort("file", is_reversed=True),
    RowSort("metric", METRIC),
    RowSort("metric", METRIC, is_reversed=True),
    RowSort("spread"),
]


def all_rows(store: Store, layout: CaseLayout, sort: RowSort, only: RowFilter = EVERY_ROW, n: int = 100) -> TablePart:
    """Every row, read in parts of `n`."""
    rows: list[TableRow] = []
    after = ""
    while True:
        part = store.runs.table_part(layout, sort, only, None, after, n, layout.run_ids)
        rows += part.rows
        after = part.cursor
        if not after:
            return replace(part, rows=rows)


def value_of(row: TableRow, sort: RowSort, at: int = 0) -> float | str:
    """The value by which a row is ordered, computed from its cases; infinite where there is none."""
    case = row.cases[at]
    if sort.order == "id":
        return str(row.case.case_id)
    if sort.order == "file":
        return float(row.row)
    if sort.order == "spread":
        rates = [each.counts.passed / each.counts.scored for each in row.cases if each and each.counts.scored]
        return -(max(rates) - min(rates)) if rates else 1.0
    if case is None:
        return 9e9
    share = case.counts.passed / case.counts.scored if case.counts.scored else None
    values = {
        "worst": 0.0 if share is None else share,
        "flaky": None if share is None else -share * (1 - share),
        "slow": None if case.mean_ms is None else -case.mean_ms,
        "cost": -case.cost,
        "tokens": -float(case.tokens),
        "metric": case.means.get(METRIC),
    }
    value = values[sort.order]
    return 9e9 if value is None else value


def test_every_order_is_that_of_the_values_of_its_rows(store: Store, layouts: dict[str, CaseLayout]) -> None:
    for name, layout in layouts.items():
        for sort in SORTS:
            if sort.order == "spread" and name == "alone":
                continue
            own = replace(sort, run_id=layout.run_ids[0] if sort.order != "spread" else None)
            values = [value_of(row, sort) for row in all_rows(store, layout, own).rows]
            known = [value for value in values if value != 9e9]
            wanted = sorted(known, reverse=sort.is_reversed)
            assert len(values) == 12, (name, sort)
            assert known == pytest.approx(wanted) if isinstance(known[0], float) else known == wanted, (name, sort)
            assert values[: len(known)] == known, (name, sort)  # rows without a value come last


def test_parts_of_every_size_are_the_whole(store: Store, layouts: dict[str, CaseLayout]) -> None:
    for layout in layouts.values():
        for sort in SORTS:
            if sort.order == "spread" and len(layout.run_ids) == 1:
                continue
            whole = [row.row for row in all_rows(store, layout, sort).rows]
            for n in (1, 5):
                assert [row.row for row in all_rows(store, layout, sort, n=n).rows] == whole, (sort, n)
            assert sorted(whole) == [*range(12)]


FILTERS: dict[str, tuple[RowFilter, Callable[[Sequence[CaseRow]], bool]]] = {
    "failed": (RowFilter("failed"), lambda cases: any(case.counts.failed for case in cases)),
    "errored": (RowFilter("errored"), lambda cases: any(case.counts.errored for case in cases)),
    "passed": (RowFilter("passed"), lambda cases: any(case.counts.passed == case.counts.scored > 0 for case in cases)),
    "flaky": (RowFilter("flaky"), lambda cases: any(0 < case.counts.passed < case.counts.scored for case in cases)),
    "error": (RowFilter(error="timeout"), lambda cases: any(case.counts.errored for case in cases)),
    "tool": (
        RowFilter(tool="look"),
        lambda cases: any(case.counts.failed + case.counts.errored for case in cases),
    ),
    "below": (RowFilter(below=METRIC), lambda cases: any(case.counts.failed for case in cases)),
    "tag": (RowFilter(tag="refund"), lambda cases: (12 - int(cases[0].case_id[-2:])) % 3 == 0),
    "divergence": (
        RowFilter(divergence="roll missing"),
        lambda cases: any(case.counts.failed for case in cases),
    ),
}


def test_every_filter_shows_the_rows_that_meet_it_in_any_run(store: Store, layouts: dict[str, CaseLayout]) -> None:
    for layout in layouts.values():
        rows = all_rows(store, layout, RowSort()).rows
        for name, (only, is_met) in FILTERS.items():
            wanted = [row.row for row in rows if is_met([case for case in row.cases if case])]
            found = all_rows(store, layout, RowSort(), only)
            assert [row.row for row in found.rows] == wanted, name
            assert found.n_fitting == len(wanted)
            assert name == "tag" or len(wanted) > 0


def test_a_filter_may_ask_one_run_alone(store: Store, layouts: dict[str, CaseLayout]) -> None:
    layout = layouts["alike"]
    rows = all_rows(store, layout, RowSort()).rows

    found = all_rows(store, layout, RowSort(), RowFilter("failed", run_id=layout.run_ids[1]))

    assert [row.row for row in found.rows] == [row.row for row in rows if row.cases[1] and row.cases[1].counts.failed]


def test_rows_on_which_runs_disagree_have_different_rates(store: Store, layouts: dict[str, CaseLayout]) -> None:
    for name in ("alike", "apart"):
        rows = all_rows(store, layouts[name], RowSort()).rows
        found = all_rows(store, layouts[name], RowSort(), RowFilter(disagree=True)).rows
        wanted = [
            row.row
            for row in rows
            if len({case.counts.passed / case.counts.scored for case in row.cases if case and case.counts.scored}) > 1
        ]
        assert [row.row for row in found] == wanted
        assert wanted


def test_rows_without_a_value_of_a_metric_follow_the_others_page_by_page(store: Store) -> None:
    run_id = store.runs.create(CONFIG, cases_of(9))
    for index in (1, 4, 6):
        scores = (Score(METRIC, index / 10, None, 1.0, False, ""),)
        store.runs.record([TrialResult(run_id, index, 0, "finished", "failed", scores=scores)])
    rising, falling = ([1, 4, 6, 0, 2, 3, 5, 7, 8], [6, 4, 1, 0, 2, 3, 5, 7, 8])

    for n in (1, 2, 3, 4, 100):
        for is_reversed, wanted in ((False, rising), (True, falling)):
            sort = RowSort("metric", METRIC, is_reversed=is_reversed)
            part = all_rows(store, CaseLayout((run_id,)), sort, n=n)
            assert ([row.row for row in part.rows], part.n_fitting) == (wanted, 9)
    only = RowFilter("failed")
    assert [row.row for row in all_rows(store, CaseLayout((run_id,)), RowSort("metric", METRIC), only, 2).rows] == [
        1,
        4,
        6,
    ]
    tagged = all_rows(store, CaseLayout((run_id,)), RowSort("metric", METRIC), RowFilter(tag="refund"), 2)
    assert ([row.row for row in tagged.rows], tagged.n_fitting) == ([6, 0, 3], 3)


def test_the_words_of_some_trials_are_those_of_all(store: Store, layouts: dict[str, CaseLayout]) -> None:
    run_ids = layouts["alike"].run_ids
    all_words = store.runs.first_divergences({run_id: range(12) for run_id in run_ids})
    keys = {run_id: [(index, at) for index in range(0, 12, 2) for at in (0, 2)] for run_id in run_ids}

    words = store.runs.divergence_words(keys)

    assert words == {
        run_id: {key: all_words[run_id][key] for key in own if key in all_words[run_id]} for run_id, own in keys.items()
    }
    assert any(words.values())


def test_a_search_finds_texts_by_the_index_and_ids_by_their_letters(
    store: Store, layouts: dict[str, CaseLayout]
) -> None:
    for name, layout in layouts.items():
        found = FoundCases({layout.run_ids[0]: (2, 5)}, text="case_01")
        part = store.runs.table_part(layout, RowSort(), RowFilter(), found)
        assert {row.row for row in part.rows} == {2, 5, 11}, name
        with_ids = replace(found, has_ids=True)
        assert {row.row for row in store.runs.table_part(layout, RowSort(), RowFilter(), with_ids).rows} == {2, 5}, name


def test_a_cursor_of_another_order_is_refused(store: Store, layouts: dict[str, CaseLayout]) -> None:
    layout = layouts["alike"]
    cursor = store.runs.table_part(layout, RowSort("cost"), RowFilter(), limit=3).cursor

    for after in (cursor, "nonsense", "W10", "bnVsbA"):
        with pytest.raises(UsageError):
            store.runs.table_part(layout, RowSort("slow"), RowFilter(), after=after)


def test_only_runs_with_the_same_cases_in_the_same_order_are_alike(store: Store) -> None:
    cases = cases_of(3)
    one, two = (store.runs.create(CONFIG, cases) for _ in range(2))
    turned, fewer = store.runs.create(CONFIG, cases[::-1]), store.runs.create(CONFIG, cases[:2])

    assert store.runs.are_alike((one, two))
    assert not store.runs.are_alike((one, turned))
    assert not store.runs.are_alike((one, two, fewer))


def test_first_divergences_are_stored_with_each_trial_and_counted_over_all(store: Store) -> None:
    run_id = played(store, cases_of(12), 1)
    rows = all_rows(store, CaseLayout((run_id,)), RowSort()).rows

    (count,) = store.runs.divergence_counts(run_id)

    assert count.words == "roll missing"
    assert count.n == sum(row.case.counts.failed for row in rows) > 3
    assert count.n_cases == sum(row.case.counts.failed > 0 for row in rows)
    words = store.runs.first_divergences({run_id: range(12)})[run_id]
    assert len(words) == sum(row.case.counts.failed + row.case.counts.errored for row in rows)
    assert set(words.values()) == {"roll missing", "timeout: too slow"}


def test_facets_of_a_run_of_an_earlier_version_are_read_from_its_trials(store: Store) -> None:
    from evaldesk.store.runs.facets import forget_facets

    run_id = played(store, cases_of(12), 1)
    before = (
        store.runs.divergence_counts(run_id),
        *(store.runs.facet_counts((run_id,), kind) for kind in ("tag", "tool")),
    )
    with store._database.writing() as connection:
        forget_facets(connection, run_id)
        connection.exec_driver_sql("UPDATE trial SET divergence = NULL")
    assert store.runs.divergence_counts(run_id) == []

    store.runs.add_facets()

    after = (
        store.runs.divergence_counts(run_id),
        *(store.runs.facet_counts((run_id,), kind) for kind in ("tag", "tool")),
    )
    assert after == before
    assert before[1] == {"refund": 4}
