"""Intervals of pass@k and pass^k, and the curve they are drawn along."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from math import fsum
from random import Random
from statistics import fmean

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.model.stored import MetricRow
from evaldesk.statistics.intervals import (
    MAX_KINDS,
    CaseCounts,
    _binomial,
    expanded_level,
    pass_at_k,
    pass_curve,
    pass_hat_k,
    point_at,
    rate_interval,
    score_interval,
    speaks_by_sums,
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


def scored(cases: Sequence[Sequence[float]]) -> MetricRow:
    """The scores of a metric by case, as the store adds them up."""
    values = [value for case in cases for value in case]
    mean = fmean(values)
    apart = [fsum(case) - len(case) * mean for case in cases]
    kinds = tuple((*kind, times) for kind, times in sorted(Counter((len(case), fsum(case)) for case in cases).items()))
    squares, cubes, fourths = (fsum(each**power for each in apart) for power in (2, 3, 4))
    return MetricRow(
        metric="m",
        threshold=None,
        n=len(values),
        n_passed=0,
        n_cases=len(cases),
        mean=mean,
        low=min(values),
        high=max(values),
        squares=fsum((value - mean) ** 2 for value in values),
        cluster_squares=squares,
        cluster_cubes=cubes,
        cluster_fourths=fourths,
        kinds=() if speaks_by_sums(len(cases), squares, cubes) or len(kinds) > MAX_KINDS else kinds,
    )


def cases_of(draw: Callable[[], float], n_cases: int) -> list[list[float]]:
    """Cases that score alike in their trials, of which they have 2 or 3."""
    return [[draw()] * (2 + at % 2) for at in range(n_cases)]


@pytest.mark.parametrize("n_cases", [12, 40, 90, 400])
@pytest.mark.parametrize("name", ["even", "lopsided", "rare"])
def test_the_interval_of_a_mean_score_is_that_of_drawing_its_cases_again(name: str, n_cases: int) -> None:
    chance = Random(n_cases)
    shapes: dict[str, Callable[[], float]] = {
        "even": lambda: chance.uniform(2, 8),
        "lopsided": lambda: chance.expovariate(1 / 3) + 4,
        "rare": lambda: 9.0 if chance.random() < 0.1 else 5.0,
    }
    cases = [[5.0, 9.0], *cases_of(shapes[name], n_cases - 1)]
    sums, ns = np.array([sum(case) for case in cases]), np.array([len(case) for case in cases])
    drawn = scipy.stats.bootstrap(
        (sums, ns),
        lambda totals, each, axis: totals.sum(axis) / each.sum(axis),
        paired=True,
        vectorized=True,
        confidence_level=1 - 2 * expanded_level(n_cases),
        method="percentile",
        n_resamples=9999,
        rng=np.random.default_rng(1),
    ).confidence_interval

    found = score_interval(scored(cases), 0, 100)

    assert found is not None
    slack = 0.09 * (drawn.high - drawn.low)
    assert (found.low, found.high) == pytest.approx((drawn.low, drawn.high), abs=slack)


@pytest.mark.long
@pytest.mark.parametrize("n_cases", [5, 20, 60])
@pytest.mark.parametrize("name", ["share", "steps", "few wrong"])
def test_about_19_of_20_intervals_hold_the_mean_score(name: str, n_cases: int) -> None:
    chance = Random(n_cases)
    draw, mean = {
        "share": (lambda: chance.betavariate(5, 2), 5 / 7),
        "steps": (lambda: chance.choice([0.0, 0.5, 1.0, 1.0, 1.0]), 0.7),
        "few wrong": (lambda: float(chance.random() < 0.9), 0.9),
    }[name]
    n_runs, n_held = 200, 0

    for _ in range(n_runs):
        found = score_interval(scored(cases_of(draw, n_cases)), 0.0, 1.0)
        n_held += found is not None and found.low <= mean <= found.high

    assert n_held / n_runs >= 0.9


def test_a_mean_score_of_one_case_is_judged_by_its_trials_and_of_one_value_by_none() -> None:
    one = score_interval(scored([[0.2, 0.8, 0.5, 0.5]]), 0.0, 1.0)

    assert one is not None
    assert one.low < 0.5 < one.high
    assert score_interval(scored([[0.5]]), 0.0, 1.0) is None
    assert score_interval(scored([[3.0]] * 8), 0.0, math.inf) is None


@pytest.mark.parametrize("n_cases", [1, 2, 5, 60, 500])
def test_a_perfect_mean_score_is_no_certainty(n_cases: int) -> None:
    found = score_interval(scored([[1.0, 1.0]] * n_cases), 0.0, 1.0)

    assert found is not None
    assert found.low < found.high == 1.0


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=3), min_size=2, max_size=70))
def test_the_interval_of_a_mean_score_holds_it_and_is_the_same_each_time(cases: list[list[float]]) -> None:
    row = scored(cases)

    found = score_interval(row, 0.0, 1.0)

    assert found is not None
    assert 0 <= found.low <= row.mean <= found.high <= 1
    assert found == score_interval(row, 0.0, 1.0)


@given(st.integers(1, 9), st.lists(st.integers(0, 9), min_size=2, max_size=40))
def test_pass_at_1_of_equally_many_trials_has_the_interval_of_the_pass_rate(n: int, passed: list[int]) -> None:
    cases = counted([(n, min(c, n)) for c in passed])

    rate, point = rate_interval(cases), point_at(cases, 1)

    assert rate
    for found in (point.at_interval, point.hat_interval, sure_curve(cases)[0].at_interval):
        assert found
        assert (found.low, found.high) == pytest.approx((rate.low, rate.high))


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

    assert [(point.k, point.n_cases) for point in points] == [(k, 6) for k in range(1, 10)]


def test_a_case_that_lost_trials_counts_up_to_those_it_has() -> None:
    cases = counted([(5, 5), (5, 5), (4, 0)])

    assert [point_at(cases, k).pass_hat_k for k in (1, 4, 5)] == [pytest.approx(2 / 3), pytest.approx(2 / 3), 1.0]
    assert [point_at(cases, k).n_cases for k in (1, 4, 5, 6)] == [3, 3, 2, 0]


def test_a_case_with_less_than_half_of_the_trials_does_not_end_the_curve() -> None:
    points = pass_curve(counted([(5, 4), (5, 4), (2, 0)]))

    assert [(point.k, point.n_cases) for point in points] == [(k, 2) for k in range(1, 6)]


def test_the_curve_ends_where_most_cases_have_no_more_trials() -> None:
    cases = counted([(10, 9), *[(4, 3)] * 5])

    assert [point.k for point in pass_curve(cases)] == [1, 2, 3, 4]
    assert point_at(cases, 5).pass_hat_k is None
    assert point_at(cases, 5).n_cases == 1


def test_cases_without_a_failure_are_no_certainty() -> None:
    point = point_at(counted([(5, 5)] * 10), 3)

    assert point.hat_interval is not None
    assert (round(point.hat_interval.low, 2), point.hat_interval.high) == (0.72, 1.0)


def test_cases_that_nearly_all_pass_are_no_certainty() -> None:
    points = sure_curve(counted([*[(20, 20)] * 5, (20, 15)]))

    fourth, sixth = points[3].at_interval, points[5].at_interval

    assert fourth is not None
    assert sixth is not None
    assert [round(point.pass_at_k or 0, 4) for point in (points[3], points[5])] == [0.9998, 1.0]
    assert (round(fourth.low, 2), fourth.high) == (round(sixth.low, 2), sixth.high) == (0.72, 1.0)


@settings(deadline=None, max_examples=30)
@given(outcomes)
def test_the_ends_of_the_intervals_rise_with_k_for_pass_at_k_and_fall_for_pass_hat_k(
    cases: list[tuple[int, int]],
) -> None:
    for earlier, later in itertools.pairwise(sure_curve(counted(cases))):
        if earlier.at_interval and later.at_interval and earlier.hat_interval and later.hat_interval:
            assert earlier.at_interval.low <= later.at_interval.low + 1e-12
            assert earlier.at_interval.high <= later.at_interval.high + 1e-12
            assert earlier.hat_interval.low >= later.hat_interval.low - 1e-12
            assert earlier.hat_interval.high >= later.hat_interval.high - 1e-12


@settings(deadline=None, max_examples=30)
@given(outcomes)
def test_a_point_of_the_curve_has_the_interval_that_the_curve_shows(cases: list[tuple[int, int]]) -> None:
    for point in sure_curve(counted(cases)):
        assert point_at(counted(cases), point.k) == point


@pytest.mark.long
def test_the_interval_of_pass_at_k_of_few_cases_holds_the_true_value() -> None:
    chance, n_runs, n, k = Random(7), 300, 20, 4
    rates, weights = (1.0, 0.75, 0.0), (0.75, 0.15, 0.1)
    true = sum(weight * (1 - (1 - rate) ** k) for rate, weight in zip(rates, weights, strict=True))
    n_held = 0

    for _ in range(n_runs):
        cases = [(n, sum(chance.random() < rate for _ in range(n))) for rate in chance.choices(rates, weights, k=6)]
        interval = point_at(counted(cases), k).at_interval
        n_held += interval is not None and interval.low <= true <= interval.high

    assert n_held / n_runs > 0.93


def test_the_same_run_has_the_same_interval_each_time() -> None:
    cases = counted([(4, at % 5) for at in range(20)])

    assert sure_curve(cases) == sure_curve(list(reversed(cases)))


@pytest.mark.parametrize(("n", "p"), [(5, 0.3), (1, 0.5), (12, 1 / 3), (4, 0.0), (4, 1.0)])
def test_draws_are_binomial(n: int, p: float) -> None:
    chance = Random(2)

    seen = Counter(_binomial(chance, n, p) for _ in range(4000))

    for value in range(n + 1):
        assert seen[value] / 4000 == pytest.approx(float(scipy.stats.binom.pmf(value, n, p)), abs=0.03)
