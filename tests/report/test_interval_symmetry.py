"""Intervals move with their values: mirrored, scaled and grouped in another way they are the same intervals."""

from __future__ import annotations

from collections import Counter
from math import fsum, inf, sqrt
from random import Random
from statistics import NormalDist, fmean, pvariance
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.model.conclusion import Interval
from evaldesk.model.stored import MetricRow
from evaldesk.statistics.intervals import (
    MAX_KINDS,
    N_DRAWS,
    CaseCounts,
    _few_draws,
    case_draws,
    case_rate_interval,
    curve_ks,
    curve_rows,
    expanded_level,
    mean_interval,
    rate_interval,
    score_interval,
    speaks_by_sums,
    t_95,
    weighed_alike,
    wilson,
)

counts = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(1, 4)).map(lambda row: (row[0], min(row[:2]), row[2])),
    min_size=1,
    max_size=8,
)
RANGES = [(0.0, 1.0), (0.0, 5.0), (-2.0, 3.0)]


def near(interval: Interval | None) -> Any:
    return None if interval is None else pytest.approx((interval.low, interval.high), abs=1e-9)


def ends(interval: Interval | None) -> tuple[float, float] | None:
    return None if interval is None else (interval.low, interval.high)


def mirrored(interval: Interval | None, low: float = 0.0, high: float = 1.0) -> Interval | None:
    return interval and Interval(low + high - interval.high, low + high - interval.low)


@given(counts)
def test_failures_have_the_mirrored_interval_of_passes(rows: list[CaseCounts]) -> None:
    failures = [(n, n - c, times) for n, c, times in rows]

    for interval in (rate_interval, case_rate_interval):
        assert ends(interval(failures)) == near(mirrored(interval(rows)))


@given(counts)
def test_equal_cases_are_counted_together_or_one_by_one(rows: list[CaseCounts]) -> None:
    one_by_one = [(n, c, 1) for n, c, times in rows for _ in range(times)] + [(0, 0, 3)]

    for interval in (rate_interval, case_rate_interval):
        assert ends(interval(one_by_one)) == near(interval(rows))


def test_single_trials_and_single_cases_have_the_interval_of_wilson() -> None:
    for interval in (rate_interval, case_rate_interval):
        assert interval([(9, 4, 1)]) == wilson(4, 9)
    assert rate_interval([(1, 1, 3), (1, 0, 5)]) == wilson(3, 8)


@pytest.mark.parametrize(("low", "high"), RANGES, ids=str)
@pytest.mark.parametrize("place", [0.02, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("n_cases", [1, 2, 12])
def test_a_mean_has_the_interval_of_its_share_of_the_range(low: float, high: float, place: float, n_cases: int) -> None:
    width, spread = high - low, place * (1 - place)
    sums = {"n": 24, "n_cases": n_cases, "squares": 24 * spread, "cluster_squares": 60 * spread}
    scaled = {name: value * width**2 if "squares" in name else value for name, value in sums.items()}

    share = mean_interval(mean=place, **sums)  # type: ignore[arg-type]
    found = mean_interval(mean=low + place * width, **scaled, low=low, high=high)  # type: ignore[arg-type]
    other = mean_interval(mean=high - place * width, **scaled, low=low, high=high)  # type: ignore[arg-type]

    assert share
    assert 0 <= share.low < place < share.high <= 1
    assert ends(found) == near(Interval(low + share.low * width, low + share.high * width))
    assert ends(other) == near(mirrored(found, low, high))


def test_a_mean_without_a_range_has_the_interval_of_student() -> None:
    sums = {"n": 20, "n_cases": 5, "squares": 7.0, "cluster_squares": 12.0}

    found = mean_interval(mean=3.0, **sums, low=-inf, high=inf)  # type: ignore[arg-type]

    half = t_95(4) * sqrt(5 / 4 * 12) / 20
    assert ends(found) == pytest.approx((3 - half, 3 + half))
    assert mean_interval(mean=3.0, n=1, n_cases=1, squares=0.0, cluster_squares=0.0) is None
    assert mean_interval(mean=0.5, n=2, n_cases=1, squares=0.5, cluster_squares=0.0) is not None


def test_equal_values_leave_room_for_as_many_unrelated_cases() -> None:
    found = mean_interval(mean=4.0, n=12, n_cases=6, squares=0.0, cluster_squares=0.0, low=0.0, high=5.0)

    assert ends(found) == near(Interval(5 * wilson(4.8, 6).low, 5 * wilson(4.8, 6).high))


def sums_of(cases: list[float]) -> MetricRow:
    """The sums of many cases of one trial, without the cases themselves."""
    mean = fmean(cases)
    squares, cubes, fourths = (fsum((value - mean) ** power for value in cases) for power in (2, 3, 4))
    n = len(cases)
    return MetricRow("m", None, n, 0, n, mean, min(cases), max(cases), squares, squares, cubes, fourths, ())


@pytest.mark.parametrize("power", [1, 2, 5], ids=["even", "lopsided", "very lopsided"])
def test_sums_over_many_cases_give_mirrored_and_scaled_intervals(power: int) -> None:
    chance = Random(power)
    cases = [chance.random() ** power for _ in range(80)]

    found = score_interval(sums_of(cases), 0.0, 1.0)

    assert found
    assert found.low < fmean(cases) < found.high
    assert ends(score_interval(sums_of([1 - each for each in cases]), 0.0, 1.0)) == near(mirrored(found))
    scaled = score_interval(sums_of([5 * each - 2 for each in cases]), -2.0, 3.0)
    assert ends(scaled) == near(Interval(5 * found.low - 2, 5 * found.high - 2))


def test_many_even_cases_speak_by_their_sums() -> None:
    assert not speaks_by_sums(MAX_KINDS, 4.0, 0.0)
    assert speaks_by_sums(MAX_KINDS + 1, 4.0, 2.4)
    assert speaks_by_sums(MAX_KINDS + 1, 4.0, -2.4)
    assert not speaks_by_sums(MAX_KINDS + 1, 4.0, 2.5)
    assert not speaks_by_sums(MAX_KINDS + 1, 4.0, -2.5)


@pytest.mark.parametrize("cases", [[[0.0, 1.0], [0.5], [0.2, 0.2, 0.8]], [[0.1], [0.1], [0.9], [0.4, 0.6]]], ids=str)
def test_cases_that_weigh_the_same_have_the_sums_around_their_own_mean(cases: list[list[float]]) -> None:
    values, means = [value for case in cases for value in case], [fmean(case) for case in cases]
    n, mean, each = len(values), fmean(means), len(values) / len(cases)
    squares = fsum((value - fmean(values)) ** 2 for value in values)
    row = MetricRow("m", None, n, 0, len(cases), fmean(values), 0.0, 1.0, squares, 0.0)

    found = weighed_alike(row, means)

    assert found.mean == pytest.approx(mean)
    assert found.squares == pytest.approx(fsum((value - mean) ** 2 for value in values))
    powers = (found.cluster_squares, found.cluster_cubes, found.cluster_fourths)
    assert powers == pytest.approx(tuple(fsum((each * (own - mean)) ** k for own in means) for k in (2, 3, 4)))
    assert found.kinds == tuple((1, own, times) for own, times in sorted(Counter(means).items()))
    assert len(weighed_alike(row, [at / 60 for at in range(MAX_KINDS)]).kinds) == MAX_KINDS
    assert weighed_alike(row, [at / 60 for at in range(MAX_KINDS + 1)]).kinds == ()


@pytest.mark.parametrize(
    ("last", "beyond"), [(0, []), (1, []), (20, []), (21, [21]), (32, [32]), (64, [32, 64]), (100, [32, 64, 100])]
)
def test_a_curve_has_each_k_up_to_20_then_powers_of_two_and_the_last(last: int, beyond: list[int]) -> None:
    assert curve_ks(last) == [*range(1, min(last, 20) + 1), *beyond]


@given(st.lists(st.integers(0, 12), max_size=9))
def test_a_curve_ends_at_the_fewest_trials_but_for_cases_with_less_than_half_of_most(n_each: list[int]) -> None:
    scored = sorted(n for n in n_each if n)
    of_most = max((n for n in scored if 2 * sum(each >= n for each in scored) > len(scored)), default=0)
    last = min((n for n in scored if 2 * n >= of_most), default=0)

    rows, found = curve_rows([(n, 0, 1) for n in n_each])

    assert found == last
    assert [n for n, _, times in rows for _ in range(times)] == [n for n in scored if n >= last]


@pytest.mark.parametrize("draw", [case_draws, _few_draws])
def test_cases_are_drawn_again_as_often_as_there_are(draw: Any) -> None:
    times = (1, 4, 10)
    drawn = draw(times)

    assert len(drawn) == N_DRAWS
    assert {sum(each) for each in drawn} == {15}
    for n, column in zip(times, zip(*drawn, strict=True), strict=True):
        share = n / 15
        assert fmean(column) == pytest.approx(n, abs=4 * sqrt(n * (1 - share) / N_DRAWS))
        assert pvariance(column) == pytest.approx(n * (1 - share), rel=0.2)


@pytest.mark.parametrize("n_cases", [2, 5, 40])
def test_the_draws_below_an_interval_make_it_as_wide_as_that_of_student(n_cases: int) -> None:
    z = -NormalDist().inv_cdf(expanded_level(n_cases))

    assert z * sqrt((n_cases - 1) / n_cases) == pytest.approx(t_95(n_cases - 1), rel=1e-6)
