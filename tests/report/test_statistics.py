"""Noise, flakiness, exact intervals, sample size and judges, by a small table of our own."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.anytime import anytime_interval
from evaldesk.statistics.intervals import (
    failure_bound,
    fewest_passes,
    g_pass_at_k,
    pass_at_k,
    pass_hat_k,
    wilson,
)
from evaldesk.statistics.judge_rate import CorrectedRate, correct_rate
from evaldesk.statistics.noise import (
    Flakiness,
    NoiseSplit,
    chance_to_see,
    disagreement,
    flakiness,
    smallest_gap,
    split_pass_noise,
)


def test_g_pass_at_k_lies_between_pass_at_k_and_pass_hat_k() -> None:
    assert g_pass_at_k(8, 6, 4, 0.75) == pytest.approx(55 / 70)
    assert g_pass_at_k(5, 2, 2, 1.0) == pytest.approx(pass_hat_k(5, 2, 2))
    assert g_pass_at_k(5, 2, 2, 0.5) == pytest.approx(pass_at_k(5, 2, 2))


@pytest.mark.parametrize(
    ("n", "c", "k", "share"),
    [(3, 3, 5, 0.5), (5, 6, 2, 0.5), (5, 2, 0, 0.5), (0, 0, 1, 0.5), (5, 2, 2, 0.0), (5, 2, 2, 1.1)],
)
def test_an_undefined_g_pass_at_k_is_none(n: int, c: int, k: int, share: float) -> None:
    assert g_pass_at_k(n, c, k, share) is None


def test_a_share_of_trials_is_not_rounded_up_by_its_binary_digits() -> None:
    assert 0.7 * 10 >= 7
    assert [fewest_passes(10, share / 10) for share in range(1, 11)] == list(range(1, 11))
    assert (fewest_passes(4, 0.6), fewest_passes(4, 0.01)) == (3, 1)


def test_thirty_trials_without_a_failure_still_allow_a_tenth() -> None:
    assert failure_bound(30) == pytest.approx(0.09503385285530419)
    assert failure_bound(0) == 1.0


@settings(deadline=None)  # scipy is imported in the first example
@given(st.integers(1, 400), st.data())
def test_promises_that_hold_longer_are_wider(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))

    plain, anytime = wilson(c, n), anytime_interval(c, n)

    assert 0 <= anytime.low <= c / n <= anytime.high <= 1
    assert anytime.high - anytime.low > plain.high - plain.low
    assert anytime.high == pytest.approx(1 - anytime_interval(n - c, n).low)


def test_anytime_intervals_at_the_edge() -> None:
    assert anytime_interval(0, 0) == Interval(0.0, 1.0)
    assert anytime_interval(0, 5).low == 0.0
    assert anytime_interval(5, 5).high == 1.0
    assert type(anytime_interval(45, 50).low) is float


def split_noise(cases: Sequence[Sequence[int]]) -> NoiseSplit | None:
    """Trials case by case, 1 for a passed one."""
    return split_pass_noise([(len(case), sum(case), 1) for case in cases])


def test_noise_is_split_within_and_between_cases() -> None:
    split = split_noise([[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]])

    assert split is not None
    assert split.within_cases == pytest.approx(1 / 9)
    assert split.between_cases == pytest.approx(1 / 4 - 1 / 36)
    assert split.within_share == pytest.approx(1 / 3)
    assert split.error(3, 4) == pytest.approx(math.sqrt(1 / 12))


def test_cases_with_different_numbers_of_trials_are_split_too() -> None:
    one_by_one = split_noise([[1, 0], [1, 0], [1, 1, 0], [0]])
    counted = split_pass_noise([(2, 1, 2), (3, 2, 1), (1, 0, 1), (0, 0, 5)])

    assert one_by_one == counted
    assert counted is not None
    assert (counted.n_cases, counted.n_trials) == (4, 2.0)


def test_noise_that_cannot_be_split_is_none() -> None:
    assert split_noise([]) is None
    assert split_noise([[1, 0, 1]]) is None
    assert split_noise([[1], [0], [1]]) is None
    even = split_noise([[1, 1], [1, 1]])
    assert even is not None
    assert even.within_share is None


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=5), min_size=2, max_size=6))
def test_variances_are_never_negative(scores: list[list[int]]) -> None:
    split = split_noise(scores)

    assert (split is None) == all(len(case) == 1 for case in scores)
    if split:
        assert split.within_cases >= 0
        assert split.between_cases >= 0
        assert split.error(10, 5) <= split.error(10, 1)


def test_flaky_cases_are_counted_among_those_with_two_trials() -> None:
    assert flakiness([(5, 3, 2), (5, 5, 6), (1, 1, 3), (0, 0, 4)]) == Flakiness(2, 8, 3, 0.15)
    assert flakiness([(1, 1, 3)]) == Flakiness(0, 0, 3, None)
    assert flakiness([(5, c, 1) for c in range(6)]).n_flaky == 4
    assert (disagreement(1, 1), disagreement(5, 5), disagreement(2, 1)) == (None, 0.0, 1.0)


def test_five_trials_see_a_one_in_ten_failure_two_times_in_five() -> None:
    assert chance_to_see(0.1, 5) == pytest.approx(0.40951)
    assert (chance_to_see(0.1, 0), chance_to_see(1.0, 1), chance_to_see(1.0, 0)) == (0.0, 1.0, 0.0)
    assert chance_to_see(0.1, 21) < 0.9 < chance_to_see(0.1, 22)


@pytest.mark.parametrize(("n_cases", "points"), [(10, 37), (20, 26), (50, 17), (100, 12), (300, 7), (1000, 4)])
def test_the_smallest_gap_of_five_trials_a_case(n_cases: int, points: int) -> None:
    gap = smallest_gap(n_cases, 5)

    assert gap is not None
    assert round(100 * gap) == points


def test_nothing_is_seen_without_trials() -> None:
    assert smallest_gap(0, 5) is None
    assert smallest_gap(5, 0) is None


@pytest.mark.parametrize(
    ("judged", "sensitivity", "specificity", "expected"),
    [
        pytest.param(0.78, 0.9, 0.85, 0.84, id="inside"),
        pytest.param(0.95, 0.9, 0.6, 1.0, id="above-1"),
        pytest.param(0.1, 0.9, 0.6, 0.0, id="below-0"),
        pytest.param(0.4, 1.0, 1.0, 0.4, id="a-perfect-judge"),
        pytest.param(0.5, 0.5, 0.5, None, id="no-skill"),
        pytest.param(0.5, 0.3, 0.7, None, id="no-skill-but-for-rounding"),
        pytest.param(0.5, 0.2, 0.3, None, id="worse-than-chance"),
    ],
)
def test_a_judge_is_corrected_by_its_errors(
    judged: float, sensitivity: float, specificity: float, expected: float | None
) -> None:
    found = correct_rate(judged, sensitivity, specificity)

    assert (found and found.corrected) == pytest.approx(expected)


def test_a_clipped_rate_says_so() -> None:
    assert CorrectedRate(0.95, 1.0, 1.1).is_clipped
    assert not CorrectedRate(0.78, 0.84, 0.84).is_clipped
