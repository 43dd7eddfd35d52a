"""The pass rate of a run whose cases have different numbers of trials: each case weighs the same."""

from __future__ import annotations

from math import fsum
from random import Random

import pytest

from evaldesk.model import Counts
from evaldesk.model.stored import MetricRow
from evaldesk.statistics.allocation import allocate_trials, variance_of
from evaldesk.statistics.intervals import (
    CaseCounts,
    case_rate_interval,
    rate_interval,
    score_interval,
    weighed_alike,
    wilson,
)


def played(rate: float, n: int, chance: Random) -> int:
    return sum(chance.random() < rate for _ in range(n))


def test_the_rate_is_the_mean_of_the_rates_of_the_cases() -> None:
    counts = Counts(14, 11, 3).of_cases([(2, 2, 1), (2, 1, 1), (10, 8, 1)])

    assert counts.rate == pytest.approx((1 + 0.5 + 0.8) / 3)
    assert Counts.total_of_cases([Counts(2, 2), Counts(2, 1, 1), Counts(10, 8, 2)]) == counts


def test_cases_with_equal_numbers_have_the_rate_of_their_trials() -> None:
    found = Counts.total_of_cases([Counts(5, 5), Counts(5, 1, 4)])

    assert (found.case_rate, found.rate) == (None, 0.6)


def test_a_case_without_a_scored_trial_is_in_no_rate() -> None:
    found = Counts.total_of_cases([Counts(2, 0, 0, 2), Counts(5, 4, 1)])

    assert found.rate == pytest.approx(0.8)
    assert Counts.total_of_cases([Counts(1, 0, 0, 1), Counts(2, 0, 0, 0, 2)]).rate is None


def test_the_interval_is_that_of_equal_numbers_where_they_are_equal() -> None:
    rows: list[CaseCounts] = [(5, 5, 6), (5, 3, 3), (5, 0, 2)]

    assert case_rate_interval(rows) == pytest.approx(rate_interval(rows))


def test_one_case_is_judged_by_its_trials_and_none_by_nothing() -> None:
    assert case_rate_interval([(10, 8, 1), (0, 0, 3)]) == wilson(8, 10)
    assert case_rate_interval([(0, 0, 3)]) is None


@pytest.mark.long
@pytest.mark.parametrize("shape", [(1.0, 1.0), (4.0, 1.0), (8.0, 2.0)], ids=["uniform", "mostly right", "alike"])
def test_the_interval_covers_the_rate_of_cases_like_these(shape: tuple[float, float]) -> None:
    """An earlier run of 3 trials a case decides where the trials go; 95 of 100 intervals hold the true mean."""
    chance, true = Random(5), shape[0] / (shape[0] + shape[1])
    n_builds, n_cases = 1_500, 30
    n_held, means, pooled = 0, [], []
    for _ in range(n_builds):
        rates = [chance.betavariate(*shape) for _ in range(n_cases)]
        weights = [variance_of(played(rate, 3, chance), 3) for rate in rates]
        n_each = allocate_trials(weights, [1.0] * n_cases, 5.0 * n_cases)
        rows = [(n, played(rate, n, chance), 1) for n, rate in zip(n_each, rates, strict=True)]
        interval = case_rate_interval(rows)
        assert interval is not None
        n_held += interval.low <= true <= interval.high
        means.append(fsum(passed / n for n, passed, _ in rows) / n_cases)
        pooled.append(sum(passed for _, passed, _ in rows) / sum(n for n, _, _ in rows))

    assert 0.93 <= n_held / n_builds <= 0.98
    assert fsum(means) / n_builds == pytest.approx(true, abs=0.004)
    if shape == (4.0, 1.0):  # uncertain cases have more trials, so counting trials alike is wrong
        assert fsum(pooled) / n_builds < true - 0.01


def test_trials_that_go_where_it_is_uncertain_make_the_rate_surer() -> None:
    chance = Random(7)
    rates = [1.0] * 12 + [0.5] * 6 + [0.0] * 2
    true = fsum(rates) / len(rates)
    weights = [variance_of(played(rate, 10, chance), 10) for rate in rates]
    errors = {}
    for name, shares in (("even", [1.0] * 20), ("uncertain", weights)):
        n_each = allocate_trials(shares, [1.0] * 20, 100)
        runs = [[played(p, n, chance) / n for p, n in zip(rates, n_each, strict=True)] for _ in range(1_500)]
        errors[name] = fsum((fsum(run) / 20 - true) ** 2 for run in runs) / len(runs)

    assert errors["uncertain"] < 0.75 * errors["even"]


def test_a_mean_score_weighs_each_case_the_same() -> None:
    totals = [(2, 2.0), (2, 1.0), (10, 2.0)]
    row = MetricRow("m", 0.8, 14, 3, 3, 5 / 14, 0.0, 1.0, 1.0, 1.0)

    found = weighed_alike(row, [total / n for n, total in totals])

    assert found.mean == pytest.approx((1 + 0.5 + 0.2) / 3)
    interval = score_interval(found, 0.0, 1.0)
    alone = score_interval(weighed_alike(row, [1.0, 0.5, 0.2]), 0.0, 1.0)
    assert interval == alone
    assert interval is not None
    assert interval.low < found.mean < interval.high
