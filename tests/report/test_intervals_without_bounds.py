"""Intervals of means where Student's formula would promise too much: without bounds, and at the end of a range."""

from __future__ import annotations

import math

import pytest

from evaldesk.statistics.intervals import mean_interval, rate_interval


def test_equal_values_without_bounds_promise_nothing_of_the_next() -> None:
    interval = mean_interval(mean=5.0, n=4, n_cases=2, squares=0.0, cluster_squares=0.0, low=-math.inf, high=math.inf)

    assert interval is None


def test_a_range_with_one_end_cuts_the_interval_there() -> None:
    interval = mean_interval(mean=1.0, n=4, n_cases=4, squares=4.0, cluster_squares=4.0, low=0.0, high=math.inf)

    assert interval
    assert interval.low == 0.0
    assert interval.high == pytest.approx(1.0 + 3.182446305284263 * math.sqrt(4 / 3 * 4) / 4)


def test_one_failure_among_cases_that_always_pass_leaves_room_for_more() -> None:
    interval = rate_interval([(5, 5, 19), (5, 4, 1)])

    # Student's alone says 97 to 100 %, though 19 of 20 cases without a failure may be luck.
    assert interval
    assert (round(interval.low, 3), interval.high) == (0.94, 1.0)


def test_a_rate_and_a_mean_of_verdicts_have_the_same_interval() -> None:
    rows = [(5, 5, 8), (5, 2, 1), (5, 4, 1)]
    mean, cluster_squares = 46 / 50, 8 * 0.4**2 + 2.6**2 + 0.6**2

    of_mean = mean_interval(mean=mean, n=50, n_cases=10, squares=0.0, cluster_squares=cluster_squares)

    of_rate = rate_interval(rows)
    assert of_rate
    assert of_mean
    assert (of_mean.low, of_mean.high) == pytest.approx((of_rate.low, of_rate.high))
    assert of_rate.high == 1.0


def test_the_two_ends_of_a_range_are_treated_alike() -> None:
    good, bad = rate_interval([(5, 5, 8), (5, 2, 2)]), rate_interval([(5, 0, 8), (5, 3, 2)])

    assert good
    assert bad
    assert (1 - bad.high, 1 - bad.low) == pytest.approx((good.low, good.high))
