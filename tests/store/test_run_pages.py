"""What a run page asks: rows in order, filters, pages, metrics, outcomes, where the keys lead."""

from __future__ import annotations

import base64
import statistics
from collections.abc import Callable, Iterator
from typing import get_args

import pytest
from sqlalchemy import Engine, event

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import Criterion, TrialResult, Usage, Verdict
from evaldesk.model.stored import CaseFilter, CaseRow, CaseSort, Neighbours
from evaldesk.store import Store

Plan = Callable[..., int]
End = Callable[..., TrialResult]

LETTERS: dict[str, Verdict] = {"p": "passed", "f": "failed", "e": "errored", "u": "unscored"}


@pytest.fixture
def play(store: Store, plan: Plan, end: End) -> Callable[..., int]:
    """A run whose cases end as their strips say."""

    def play_strips(*strips: str, cost: float = 0.5, **config: object) -> int:
        run = plan(n_cases=len(strips), n=len(strips[0]), **config)
        for index, verdicts in enumerate(strips):
            usage = Usage("m", cost=cost * (index % 3))
            store.runs.record(
                [
                    end(run, index, trial, LETTERS[letter], usages=(usage,), duration_ms=100.0 * (index % 4))
                    for trial, letter in enumerate(verdicts)
                    if letter != "."
                ]
            )
        return run

    return play_strips


VERDICTS = ("pppp", "pffp", "ffff", "eeee", "....", "uuuu", "pefp", "fffe", "pppf")


def test_the_worst_cases_come_first(store: Store, play: Callable[..., int]) -> None:
    run = play(*VERDICTS)

    rows = store.runs.case_rows(run)

    assert [row.verdicts for row in rows] == [
        *("eeee", "fffe", "ffff", "pffp", "pefp", "pppf", "pppp", "uuuu", "...."),
    ]


def test_one_error_is_as_bad_as_one_failure(store: Store, play: Callable[..., int]) -> None:
    run = play("u", "e", "f", "p")

    assert [row.verdicts for row in store.runs.case_rows(run)] == ["e", "f", "p", "u"]


def test_flaky_cases_come_first_when_asked(store: Store, play: Callable[..., int]) -> None:
    run = play("pppp", "pppf", "ppff", "ffff")

    rows = store.runs.case_rows(run, sort="flaky")

    assert [row.verdicts for row in rows] == ["ppff", "pppf", "pppp", "ffff"]


@pytest.mark.parametrize(
    ("sort", "expected"),
    [("slow", [3, 2, 1, 0, 4]), ("cost", [2, 1, 4, 0, 3]), ("file", [0, 1, 2, 3, 4])],
    ids=["slow", "cost", "file"],
)
def test_cases_sort_by_time_cost_and_place(
    store: Store, play: Callable[..., int], sort: CaseSort, expected: list[int]
) -> None:
    run = play("p", "p", "p", "p", "p")

    rows = store.runs.case_rows(run, sort=sort)

    assert [row.case_index for row in rows] == expected


def test_the_middle_time_is_that_of_the_trials_whose_time_is_known(store: Store, play: Callable[..., int]) -> None:
    assert store.runs.median_ms(play("pp")) is None
    assert store.runs.median_ms(play("pp", "ff", "p.", "e.", "..")) == 150.0


@pytest.mark.parametrize("sort", get_args(CaseSort))
def test_pages_follow_each_other_without_gap_or_overlap(store: Store, play: Callable[..., int], sort: CaseSort) -> None:
    run = play(*VERDICTS, *VERDICTS)
    filters: tuple[CaseFilter | None, ...] = (None, *get_args(CaseFilter))

    pages = {only: [*_pages(store, run, sort, only)] for only in filters}

    assert pages == {only: store.runs.case_rows(run, sort=sort, only=only) for only in filters}


def _pages(store: Store, run: int, sort: CaseSort, only: CaseFilter | None) -> Iterator[CaseRow]:
    after = ""
    while page := store.runs.case_rows(run, sort=sort, only=only, after=after, limit=2):
        yield from page
        after = page[-1].cursor


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("failed", ["pffp", "ffff", "pefp", "fffe", "pppf"]),
        ("errored", ["eeee", "pefp", "fffe"]),
        ("unscored", ["uuuu"]),
        ("flaky", ["pffp", "pefp", "pppf"]),
        ("passed", ["pppp", "pppf"]),
    ],
    ids=get_args(CaseFilter),
)
def test_filters_show_what_their_count_says(
    store: Store, play: Callable[..., int], only: CaseFilter, expected: list[str]
) -> None:
    run = play(*VERDICTS, pass_threshold=0.75)

    rows = store.runs.case_rows(run, sort="file", only=only)

    assert [row.verdicts for row in rows] == expected
    assert store.runs.case_counts(run)[only] == len(expected)


def test_errors_count_as_failures_where_the_run_says_so(store: Store, play: Callable[..., int]) -> None:
    strict, lenient = play("pe", "pp", errors_are_failures=True), play("pe", "pp")

    assert store.runs.outcome_counts(strict) == [(2, 1, 1), (2, 2, 1)]
    assert store.runs.outcome_counts(lenient) == [(1, 1, 1), (2, 2, 1)]
    assert (store.runs.summary(strict).n_scored, store.runs.summary(lenient).n_scored) == (4, 3)
    assert [len(store.runs.case_rows(run, only="passed")) for run in (strict, lenient)] == [1, 2]


def test_cases_with_the_same_outcome_are_counted_together(store: Store, play: Callable[..., int]) -> None:
    run = play("ppf", "pfp", "fff", "eeu", "...")

    assert store.runs.outcome_counts(run) == [(0, 0, 2), (3, 0, 1), (3, 2, 2)]


@pytest.mark.parametrize(
    "cursor",
    ["x", "!!", "é", base64.urlsafe_b64encode(b'["worst", "1; DROP TABLE run", 0, 0]').decode(), "W10"],
)
def test_a_cursor_that_is_none_is_refused(store: Store, play: Callable[..., int], cursor: str) -> None:
    run = play("p", "f")

    with pytest.raises(UsageError, match="start again"):
        store.runs.case_rows(run, after=cursor)


def test_a_cursor_of_another_order_is_refused(store: Store, play: Callable[..., int]) -> None:
    run = play("p", "f")
    cursor = store.runs.case_rows(run, sort="file")[0].cursor

    with pytest.raises(UsageError, match="another order"):
        store.runs.case_rows(run, sort="worst", after=cursor)


def test_orders_and_filters_that_do_not_exist_are_named(store: Store, play: Callable[..., int]) -> None:
    run = play("p")

    with pytest.raises(UsageError, match="'size'; there are: worst, flaky"):
        store.runs.case_rows(run, sort="size")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'odd'; there are: failed"):
        store.runs.case_rows(run, only="odd")  # type: ignore[arg-type]


def test_metric_rows_agree_with_the_textbook(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=3, n=3, criteria=(Criterion("match", 0.8), Criterion("judge")))
    values = [[0.1, 0.9, 0.4], [0.7, 0.7], [1.0, 0.0, 0.3]]
    store.runs.record(
        [
            end(run, case, trial, values={"match": value, "extra": 0.3})
            for case, found in enumerate(values)
            for trial, value in enumerate(found)
        ]
    )

    match, extra = store.runs.metric_rows(run)

    every = [value for found in values for value in found]
    mean = statistics.fmean(every)
    assert (match.metric, match.threshold, match.n, match.n_cases, match.n_passed) == ("match", 0.8, 8, 3, 4)
    assert (match.low, match.high) == (0.0, 1.0)
    assert match.mean == pytest.approx(mean)
    assert match.std == pytest.approx(statistics.pstdev(every))
    assert match.cluster_squares == pytest.approx(sum((sum(found) - len(found) * mean) ** 2 for found in values))
    assert (extra.metric, extra.threshold, extra.std) == ("extra", None, 0.0)


def test_one_value_does_not_deviate(store: Store, plan: Plan, end: End) -> None:
    run = plan(n_cases=1, n=1)
    store.runs.record([end(run, 0, 0)])

    assert store.runs.metric_rows(run)[0].std == 0.0


def test_a_run_without_results_has_rows_and_no_metrics(store: Store, plan: Plan) -> None:
    run = plan(n_cases=2)

    assert [(row.verdicts, row.mean_ms, row.means) for row in store.runs.case_rows(run)] == [("..", None, {})] * 2
    assert store.runs.metric_rows(run) == []
    assert store.runs.outcome_counts(run) == [(0, 0, 2)]


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ((0, 0), Neighbours(None, (0, 1), None, (1, 1))),
        ((1, 1), Neighbours((1, 0), (1, 2), None, (1, 2))),
        ((1, 2), Neighbours((1, 1), None, (1, 1), (3, 0))),
        ((3, 0), Neighbours(None, (3, 1), (1, 2), (3, 2))),
        ((3, 2), Neighbours((3, 1), None, (3, 0), None)),
    ],
    ids=["first", "mismatch", "last of case", "first of case", "last"],
)
def test_the_keys_lead_to_trials_and_mismatches(
    store: Store, play: Callable[..., int], at: tuple[int, int], expected: Neighbours
) -> None:
    run = play("ppp", "pfe", "p..", "u.f")

    assert store.runs.neighbours(run, *at) == expected


@pytest.mark.parametrize("at", [(0, 5), (0, -1), (9, 0)], ids=str)
def test_a_trial_out_of_range_has_no_neighbours(store: Store, play: Callable[..., int], at: tuple[int, int]) -> None:
    run = play("pp")

    with pytest.raises(NotFoundError, match="has no trial"):
        store.runs.neighbours(run, *at)


def test_one_case_reads_as_it_does_in_its_page(store: Store, play: Callable[..., int]) -> None:
    run = play("pp", "pf")

    assert store.runs.case_row(run, 1) == store.runs.case_rows(run, sort="file")[1]
    with pytest.raises(NotFoundError, match="no case 9"):
        store.runs.case_row(run, 9)


def test_a_run_page_never_reads_trials(store: Store, play: Callable[..., int]) -> None:
    run = play(*VERDICTS)
    statements: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    store.runs.summary(run)
    store.runs.case_rows(run)
    store.runs.case_counts(run)
    store.runs.metric_rows(run)
    store.runs.outcome_counts(run)
    store.runs.error_groups(run)
    store.runs.neighbours(run, 0, 0)
    event.remove(Engine, "before_cursor_execute", note)

    read = " ".join(statements).replace("trial_index", "")
    assert "FROM run_case" in read
    assert not [table for table in ("trial", "score ", "transcript", "case_snapshot") if f"FROM {table}" in read]
