"""Intervals of pass@k and pass^k, and the curve they are drawn along."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from statistics import fmean

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.statistics.intervals import (
    CaseCounts,
    _binomial,
    expanded_level,
    mean_interval,
    pass_at_k,
    pass_curve,
    pass_hat_k,
    point_at,
    rate_interval,
    sure_curve,
)

outcomes = st.lists(st.integers(0, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))), max_size=15)


def counted(cases: list[tuple[int, int]]) -> list[CaseCounts]:
    return [(n, c, 1) for n, c in cases]


@pytest.mark.parametrize("n_cases", [12, 40, 300])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_interval_is_that_of_scipy(n_cases: int, k: int) -> None:
    chance = Random(n_cases)
    cases = [(8, chance.randint(2, 7)) for _ in range(n_cases)]
    point = point_at(counted(cases), k)

    for value, found in ((pass_at_k, point.at_interval), (pass_hat_k, point.hat_interval)):
        values = [value(n, c, k) or 0.0 for n, c in cases]
        level = 1 - 2 * expanded_level(n_cases)
        drawn = scipy.stats.bootstrap(
            (values,),
            np.mean,
            confidence_level=level,
            method="percentile",
            n_resamples=9999,
            rng=np.random.default_rng(1),
        ).confidence_interval
        spread = drawn.high - drawn.low
        assert found is not None
        slack = 0.12 * spread + 0.005
        assert found.low <= drawn.low + slack
        assert found.high >= drawn.high - slack
        if 0.1 < drawn.low < drawn.high < 0.9:
            assert (found.low, found.high) == pytest.approx((drawn.low, drawn.high), abs=slack)
        assert found.low <= fmean(values) <= found.high


def test_the_interval_of_a_mean_score_is_that_of_drawing_the_cases_again() -> None:
    values = [0.2 + 0.6 * (at * 37 % 61) / 61 for at in range(61)]
    mean = fmean(values)
    squares = sum((value - mean) ** 2 for value in values)
    drawn = scipy.stats.bootstrap((values,), np.mean, n_resamples=9999, rng=np.random.default_rng(1))

    found = mean_interval(mean=mean, n=61, n_cases=61, squares=squares, cluster_squares=squares)

    assert found is not None
    assert (found.low, found.high) == pytest.approx(tuple(drawn.confidence_interval), abs=0.006)


def test_pass_at_1_of_equally_many_trials_is_as_sure_as_the_pass_rate() -> None:
    chance = Random(5)
    cases = counted([(5, chance.randint(1, 5)) for _ in range(30)])

    rate, point = rate_interval(cases), point_at(cases, 1)

    assert rate
    assert point.at_interval
    assert (point.at_interval.low, point.at_interval.high) == pytest.approx((rate.low, rate.high), abs=0.02)


@settings(deadline=None, max_examples=30)
@given(outcomes)
def test_the_curve_is_over_the_same_cases_at_every_k(cases: list[tuple[int, int]]) -> None:
    points = sure_curve(counted(cases))

    assert len({point.n_cases for point in points}) <= 1
    for earlier, later in itertools.pairwise(points):
        assert (later.pass_hat_k or 0) <= (earlier.pass_hat_k or 0) + 1e-12
        assert (later.pass_at_k or 0) >= (earlier.pass_at_k or 0) - 1e-12
    n_scored = sum(n > 0 for n, _ in cases)
    assert not points or 2 * points[0].n_cases > n_scored
    for point in points:
        for value, interval in ((point.pass_at_k, point.at_interval), (point.pass_hat_k, point.hat_interval)):
            assert (interval is None) == (point.n_cases < 2)
            assert interval is None or 0 <= interval.low <= (value or 0) <= interval.high <= 1


def test_pass_hat_10_is_never_above_pass_hat_9_because_a_case_drops_out() -> None:
    points = pass_curve(counted([*[(10, 9)] * 5, (9, 1)]))

    assert [point.n_cases for point in points] == [5] * 10
    assert points[9].pass_hat_k is not None
    assert points[8].pass_hat_k is not None
    assert points[9].pass_hat_k <= points[8].pass_hat_k


def test_the_curve_ends_where_most_cases_have_no_more_trials() -> None:
    cases = counted([(10, 9), *[(4, 3)] * 5])

    assert [point.k for point in pass_curve(cases)] == [1, 2, 3, 4]
    assert point_at(cases, 5).pass_hat_k is None
    assert point_at(cases, 5).n_cases == 1


def test_cases_without_a_failure_are_no_certainty() -> None:
    point = point_at(counted([(5, 5)] * 10), 3)

    assert point.hat_interval is not None
    assert (round(point.hat_interval.low, 2), point.hat_interval.high) == (0.72, 1.0)


def test_the_same_run_has_the_same_interval_each_time() -> None:
    cases = counted([(4, at % 5) for at in range(20)])

    assert sure_curve(cases) == sure_curve(list(reversed(cases)))


@pytest.mark.parametrize(("n", "p"), [(5, 0.3), (1, 0.5), (12, 1 / 3), (4, 0.0), (4, 1.0)])
def test_draws_are_binomial(n: int, p: float) -> None:
    chance = Random(2)

    seen = Counter(_binomial(chance, n, p) for _ in range(4000))

    for value in range(n + 1):
        assert seen[value] / 4000 == pytest.approx(float(scipy.stats.binom.pmf(value, n, p)), abs=0.03)
