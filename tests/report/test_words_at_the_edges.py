"""Words where rounding or a count of one would make them say what is not so."""

from __future__ import annotations

import pytest

from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers, Spent, conclude
from evaldesk.model import Counts, Gates
from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import failure_bound
from evaldesk.statistics.noise import smallest_gap
from evaldesk.wording.comparison import gap_sentence
from evaldesk.wording.noise import g_pass_words, no_failure_sentence
from evaldesk.wording.words import (
    beside_words,
    cost_words,
    counted_words,
    curve_note,
    mean_sentence,
    rate_words,
    share_words,
)


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.084, "8 %"),
        (0.995, "99.5 %"),
        (0.996, "99.6 %"),
        (0.002, "0.2 %"),
        (0.00004, "0.004 %"),
        (1 - 1 / 5_000, "99.98 %"),
    ],
)
def test_a_share_reads_none_or_all_only_where_it_is(rate: float, said: str) -> None:
    assert share_words(rate) == said


@pytest.mark.parametrize(
    ("value", "bound", "said"),
    [
        (0.75, 0.8, "0.75"),
        (0.9996, 1.0, "0.9996"),
        (2 / 3, 0.667, "0.6667"),
        (0.8 - 1e-12, 0.8, "0.8"),
        (1.0, 1.0, "1"),
        (0.300001, 0.3, "0.300001"),
    ],
)
def test_a_value_never_reads_as_the_bound_that_it_missed(value: float, bound: float, said: str) -> None:
    assert beside_words(value, bound) == said


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (0.0, "$0"),
        (0.000012, "$0.000012"),
        (0.0041, "$0.0041"),
        (0.5, "$0.50"),
        (0.0123, "$0.0123"),
        (12.3, "$12.30"),
        (12_345.678, "$12,345.68"),
    ],
)
def test_costs_have_the_digits_that_they_need(cost: float, said: str) -> None:
    assert cost_words(cost) == said


@pytest.mark.parametrize(("n", "said"), [(30, "10 %"), (65, "5 %"), (1_000, "0.3 %"), (100_000, "0.003 %")])
def test_the_failures_that_may_be_hidden_are_rounded_up(n: int, said: str) -> None:
    assert no_failure_sentence(n, failure_bound(n)) == f"0 of {n:,} failed; 95 % upper bound {said}"


@pytest.mark.parametrize(
    ("n_cases", "said"),
    [
        (5, "none with 5 cases × 5 trials; add cases"),
        (6, "at best 48 points, with 6 cases × 5 trials"),
        (10, "about 37 points, with 10 cases × 5 trials"),
    ],
)
def test_few_cases_promise_no_more_than_their_test_can_keep(n_cases: int, said: str) -> None:
    assert gap_sentence(n_cases, 5, smallest_gap(n_cases, 5)) == f"Smallest detectable difference: {said}"


def test_one_of_many_is_said_in_the_singular() -> None:
    assert counted_words(1, 1, "case") == "1 of 1 case"
    assert counted_words(0, 2, "case") == "0 of 2 cases"
    assert g_pass_words(4, 0.25) == "at least 1 of 4 trials passes"
    assert curve_note(1, 3, 1) == "1 of 3 cases has 1 scored trial; the others are left out of these rows."
    assert mean_sentence(0.5, None, 2, 1, "at least 0.80") == "Mean 0.50 of 2. 1 of 2 is at least 0.80."
    assert rate_words(249 / 250, Interval(0.977, 0.999)) == "99.6 %, 95 % CI 98–100 %"


def test_gates_tell_a_near_miss_from_the_bar() -> None:
    run = RunNumbers.of_cases([CaseNumbers("one", Counts(2_001, 1_999, 1, 1))], costs=Spent(0.30004))

    outcomes = conclude(Gates(min_pass_rate=1.0, min_case_pass_rate=1.0, max_cost=0.3), run).gates

    assert [(each.is_held, each.sentence.partition(";")[0]) for each in outcomes] == [
        (False, "pass rate 0.9995 is below 1: 1,999 of 2,000 passed"),
        (False, "1 of 1 case passed less than 1 of its trials: one (1999 of 2000) (1 errored)"),
        (False, "the run cost $0.30004, more than $0.3"),
        (False, "1 of 2,001 trials errored (0.05 %), more than the tolerated 0"),
    ]
