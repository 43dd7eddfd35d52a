"""Intervals of metrics whose values have no bounds, such as tokens and rewards."""

from __future__ import annotations

import math

from evaldesk.report import mean_interval


def test_equal_values_without_bounds_give_a_number() -> None:
    interval = mean_interval(mean=5.0, n=4, n_cases=2, squares=0.0, cluster_squares=0.0, low=-math.inf, high=math.inf)

    assert interval
    assert (interval.low, interval.high) == (5.0, 5.0)
