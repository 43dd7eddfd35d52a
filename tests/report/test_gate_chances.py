"""How often a gate holds, against known answers for given rates, and enumeration."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest
import scipy
from tests.golden_values import golden

from evaldesk.statistics.history.draws import assumed_rates
from evaldesk.statistics.history.gates import (
    case_fails,
    case_holds,
    curve_fails,
    more_than,
    needed_passes,
    rate_fails,
    regression_chances,
    regressions_fail,
)
from evaldesk.statistics.history.sums import normal_at_most, pass_chances
from evaldesk.statistics.intervals import pass_at_k, pass_hat_k

DECISIONS = golden("decisions")


def test_the_rule_of_a_case_has_the_known_chances() -> None:
    for row in DECISIONS["case_rule"]:
        assert needed_passes(row["n"], row["threshold"]) == row["need"]
        (found,) = case_holds(row["n"], row["threshold"], np.array([row["p"]]))
        assert found == pytest.approx(row["pass_"], abs=1e-12)


def test_no_change_fails_as_often_as_is_known() -> None:
    for row in DECISIONS["no_change_baseline"]:
        draws = assumed_rates([row["p"]] * row["cases"])
        (found,) = regressions_fail(draws, [row["n"]] * row["cases"], row["threshold"], row["allowed"])
        assert found == pytest.approx(row["false_alarm"], abs=1e-10)


@pytest.mark.parametrize(
    ("n", "needed", "fresh", "false_alarm", "n_more"),
    [(1, 3, 5, 0.0152957515, 9), (1, 1, 1, 0.1654101672, 1.8), (5, 3, 5, 0.0405941030, 24.18)],
)
def test_confirming_has_the_known_false_alarms_and_costs(
    n: int, needed: int, fresh: int, false_alarm: float, n_more: float
) -> None:
    draws, n_each = assumed_rates([0.9] * 20), [n] * 20

    (found,) = regressions_fail(draws, n_each, 1.0, 0, confirm=(needed, fresh))

    assert found == pytest.approx(false_alarm, abs=1e-9)
    assert fresh * regression_chances(draws, n_each, 1.0).sum() == pytest.approx(n_more, abs=0.01)


@pytest.mark.parametrize(
    ("rates", "n", "least", "holds"),
    [
        ([(0.9, 20)], 5, 0.9, 0.583155512266493),
        ([(1.0, 18), (0.5, 2)], 5, 0.95, 0.623046875),
        ([(0.9, 20)], 1, 0.9, 0.6769268051894668),
        ([(0.95, 20)], 5, 0.9, 0.9885275899325136),
        ([(0.8, 20)], 1, 0.9, 0.2060847),
    ],
)
def test_a_pass_rate_holds_as_often_as_is_known(
    rates: list[tuple[float, int]], n: int, least: float, holds: float
) -> None:
    draws = assumed_rates([p for p, times in rates for _ in range(times)])

    assert 1 - rate_fails(draws, [n] * draws.n_cases, least)[0] == pytest.approx(holds, abs=1e-7)


@pytest.mark.parametrize(("p", "n", "n_cases"), [(0.9, 5, 200), (0.97, 10, 60), (0.5, 3, 400)])
def test_many_trials_by_the_normal_are_off_by_little(p: float, n: int, n_cases: int) -> None:
    draws = assumed_rates([p] * n_cases)

    for percent in (40, 45, 50, 55, 88, 90, 92, 96, 97, 98):
        (found,) = rate_fails(draws, [n] * n_cases, percent / 100)
        exact = scipy.stats.binom.cdf(needed_passes(n * n_cases, percent / 100) - 1, n * n_cases, p)
        assert found == pytest.approx(float(exact), abs=0.0014)


def test_every_case_holds_as_often_as_is_known() -> None:
    assert 1 - case_fails(assumed_rates([0.9] * 20), [5] * 20, 0.8)[0] == pytest.approx(0.1827938031412104, abs=1e-12)
    assert case_fails(assumed_rates([*[0.99] * 49, 0.0]), [10] * 50, 0.8)[0] == 1.0


@pytest.mark.parametrize("percent", [7, 14, 28, 29, 55, 56, 57, 58, 100])
def test_a_share_that_is_reached_exactly_holds_whatever_its_binary_digits(percent: int) -> None:
    draws, expected = assumed_rates([0.2] * 5 + [0.7] * 5), 0.0
    for passed in range(51):
        of_other = scipy.stats.binom.sf(percent - passed - 1, 50, 0.7)
        expected += float(scipy.stats.binom.pmf(passed, 50, 0.2) * of_other)

    assert 1 - rate_fails(draws, [10] * 10, percent / 100)[0] == pytest.approx(expected, abs=1e-9)
    for is_hat in (False, True):
        found = curve_fails(draws, 10, 1, percent / 100, is_hat=is_hat)
        assert 1 - found[0] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("is_hat", [False, True], ids=["at", "hat"])
@pytest.mark.parametrize("least", [0.0, 0.4, 0.7, 1.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_curve_holds_as_often_as_all_outcomes_say(is_hat: bool, least: float, k: int) -> None:
    n, rates = 3, (0.9, 0.9, 0.4)
    one, total = pass_hat_k if is_hat else pass_at_k, 0.0
    for passed in product(range(n + 1), repeat=3):
        if sum(one(n, c, k) or 0.0 for c in passed) / 3 >= least - 1e-9:
            total += prod(pass_chances(n, np.array([p]))[0, c] for c, p in zip(passed, rates, strict=True))

    assert 1 - curve_fails(assumed_rates(rates), n, k, least, is_hat=is_hat)[0] == pytest.approx(total, abs=1e-9)


@pytest.mark.parametrize("allowed", [0, 1, 2, 4, 5, 6])
def test_more_events_than_are_allowed_happen_as_often_as_all_outcomes_say(allowed: int) -> None:
    events = [0.1, 0.1, 0.5, 0.0, 1.0]
    total = sum(
        prod(p if happened else 1 - p for p, happened in zip(events, outcome, strict=True))
        for outcome in product((False, True), repeat=len(events))
        if sum(outcome) > allowed
    )

    assert more_than(allowed, np.array([events]))[0] == pytest.approx(total, abs=1e-12)


def test_a_worse_agent_regresses_more_often_against_a_stored_baseline() -> None:
    draws, n_each = assumed_rates([0.9, 0.9, 0.5]), [2] * 3

    same, worse = (
        regressions_fail(draws, n_each, 1.0, 0, passed_before=[True, True, False], worse=drop)[0] for drop in (0.0, 0.2)
    )

    assert same == pytest.approx(1 - 0.81**2)
    assert worse == pytest.approx(1 - 0.49**2)


def test_the_normal_is_that_of_scipy() -> None:
    z = np.linspace(-5, 5, 41)

    assert normal_at_most(z) == pytest.approx(scipy.stats.norm.cdf(z), abs=2e-7)
