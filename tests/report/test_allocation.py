"""How a budget is spread over cases: exactly, best, and the same every time."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from evaldesk.statistics.allocation import allocate_trials, variance_of


def doubt(weights: list[float], n_each: tuple[int, ...]) -> float:
    """What the allocation makes least: the variance of the mean of the rates, times the squared number of cases."""
    return sum(weight / n for weight, n in zip(weights, n_each, strict=True))


def test_no_other_allocation_of_the_same_trials_has_less_doubt() -> None:
    chance = Random(1)
    for _ in range(150):
        n_cases, least = chance.randint(1, 4), chance.randint(1, 2)
        budget = least * n_cases + chance.randint(0, 7)
        weights = [chance.choice([0.02, 0.1, 0.2, 0.25]) for _ in range(n_cases)]

        found = allocate_trials(weights, [1.0] * n_cases, budget, least=least)

        others = (each for each in product(range(least, budget + 1), repeat=n_cases) if sum(each) == budget)
        assert sum(found) == budget
        assert doubt(weights, found) == pytest.approx(min(doubt(weights, each) for each in others))


def test_trials_are_in_proportion_to_the_root_of_weight_by_cost() -> None:
    weights, costs = [0.25, 0.16, 0.09, 0.01], [1.0, 4.0, 1.0, 1.0]

    found = allocate_trials(weights, costs, 3_000.0)

    shares = [(weight / cost) ** 0.5 for weight, cost in zip(weights, costs, strict=True)]
    unit = 3_000.0 / sum(share * cost for share, cost in zip(shares, costs, strict=True))
    assert found == pytest.approx([share * unit for share in shares], abs=1)


def test_money_is_never_overspent_and_what_is_left_buys_no_other_trial() -> None:
    chance = Random(2)
    for _ in range(200):
        n_cases = chance.randint(1, 8)
        costs = [chance.uniform(0.001, 0.2) for _ in range(n_cases)]
        weights = [chance.uniform(0.01, 0.25) for _ in range(n_cases)]
        budget = sum(costs) + chance.uniform(0, 3)

        found = allocate_trials(weights, costs, budget)

        spent = sum(cost * n for cost, n in zip(costs, found, strict=True))
        assert spent <= budget + 1e-6
        assert budget - spent < min(costs) + 1e-6


@pytest.mark.parametrize(
    ("budget", "least", "n_each"),
    [(10, 1, (3, 3, 2, 2)), (8, 1, (2, 2, 2, 2)), (4, 1, (1, 1, 1, 1)), (9, 2, (3, 2, 2, 2)), (3, 1, (1, 1, 1, 1))],
)
def test_equal_cases_differ_by_one_trial_at_most(budget: int, least: int, n_each: tuple[int, ...]) -> None:
    assert allocate_trials([1.0] * 4, [1.0] * 4, budget, least=least) == n_each


def test_no_case_has_fewer_than_the_least_or_more_than_the_most() -> None:
    assert allocate_trials([0.25, 1e-9], [1.0, 1.0], 50, least=3, most=40) == (40, 10)
    assert allocate_trials([0.25, 1e-9], [1.0, 1.0], 500, least=3, most=40) == (40, 40)
    assert allocate_trials([0.25, 1e-9], [1.0, 1.0], 30, least=3, most=40) == (27, 3)


@pytest.mark.parametrize(
    ("passed", "scored", "variance"),
    [(0, 0, 1 / 8), (1, 1, 1.5 * 0.5 / 6), (5, 5, 5.5 * 0.5 / 42), (0, 5, 5.5 * 0.5 / 42), (3, 6, 3.5 * 3.5 / 56)],
)
def test_a_case_is_as_uncertain_as_its_trials_leave_it(passed: int, scored: int, variance: float) -> None:
    assert variance_of(passed, scored) == pytest.approx(variance)


def test_more_trials_on_one_side_leave_less_uncertainty() -> None:
    always = [variance_of(n, n) for n in range(20)]

    assert always == sorted(always, reverse=True)
    assert variance_of(50, 100) > variance_of(0, 0) > variance_of(100, 100)
