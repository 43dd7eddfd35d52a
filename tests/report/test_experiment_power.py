"""The planner's figures: the difference that a plan finds 4 times in 5 is found so often when it is played."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest
import scipy.stats
from tests.report.test_experiments import trials

from evaldesk.desk.runs.estimate import estimate
from evaldesk.model.history import CaseHistory, SetHistory
from evaldesk.statistics.experiment import analyse
from evaldesk.statistics.history.posterior import posterior_of
from evaldesk.statistics.history.power import (
    GAIN_SPREAD,
    MOST_CASES,
    UNKNOWN_RATES,
    Rates,
    _distance,
    cases_for_difference,
    detectable,
    rates_of,
    smallest_difference,
    trials_for_difference,
)

EVEN_RATES = [0.79] * 10
MIXED_RATES = [0.35, 0.55, 0.7, 0.8, 0.9, 0.95, 1.0, 0.6, 0.85, 0.75]


def as_rates(case_rates: list[float]) -> Rates:
    return tuple((rate, 1 / len(case_rates)) for rate in case_rates)


def step_of(change: float, case_rates: list[float], sign: int) -> float:
    """The step of every case, held within 0 to 1, whose mean is the change."""
    low, high = 0.0, 1.0
    for _ in range(30):
        step = (low + high) / 2
        mean = sum(abs(min(1.0, max(0.0, rate + sign * step)) - rate) for rate in case_rates) / len(case_rates)
        low, high = (step, high) if mean < change else (low, step)
    return high


def share_found(
    random: Random, case_rates: list[float], *, n_cases: int, n: int, n_variants: int, sign: int, n_builds: int
) -> float | None:
    """How often the planned change of one variant has its word, beside others like the baseline."""
    change = detectable(n_cases, n, as_rates(case_rates), n_variants - 1)
    size = change.loss if sign < 0 else change.gain
    if size is None:
        return None
    step = step_of(size, case_rates, sign)
    rates = [case_rates[at % len(case_rates)] for at in range(n_cases)]
    n_found = 0
    for _ in range(n_builds):
        changed = [min(1.0, max(0.0, rate + sign * random.gauss(step, GAIN_SPREAD))) for rate in rates]
        variants = {
            f"v{at}": trials([sum(random.random() < rate for _ in range(n)) for rate in (changed, rates)[at != 1]], n)
            for at in range(n_variants)
        }
        word = next(each.word for each in analyse(variants, "v0").differences if each.variant == "v1")
        n_found += word == ("worse" if sign < 0 else "better")
    return n_found / n_builds


@pytest.mark.parametrize(
    ("case_rates", "n_cases", "n", "n_variants", "sign"),
    [
        pytest.param(EVEN_RATES, 10, 5, 2, -1, id="a loss in 10 cases"),
        pytest.param(MIXED_RATES, 20, 3, 4, -1, id="a loss in 20 mixed cases of 4 variants"),
        pytest.param(MIXED_RATES, 40, 5, 3, 1, id="a gain in 40 mixed cases of 3 variants"),
    ],
)
def test_a_planned_difference_is_found_4_times_in_5(
    case_rates: list[float], n_cases: int, n: int, n_variants: int, sign: int
) -> None:
    share = share_found(Random(5), case_rates, n_cases=n_cases, n=n, n_variants=n_variants, sign=sign, n_builds=150)

    assert share is not None
    assert 0.68 <= share <= 0.95


def test_a_difference_has_no_size_where_not_even_every_case_could_show_it() -> None:
    passes = {f"v{at}": trials([5 if at else 0] * 7, 5) for at in range(9)}

    found = analyse(passes, "v0")

    assert {each.word for each in found.differences} == {"cannot be told"}  # p is 2 in 128, times 8
    assert smallest_difference(7, 5, UNKNOWN_RATES, 8) is None
    assert smallest_difference(7, 5, UNKNOWN_RATES, 1) is not None


@pytest.mark.parametrize(("n_cases", "n"), [(7, 1), (7, 5), (12, 1), (12, 5), (40, 3)])
@pytest.mark.parametrize("trials_of_cases", [[], [(5, 5), (5, 3), (5, 0), (3, 2)]], ids=["unplayed", "played"])
def test_the_plan_of_one_run_names_no_smaller_drop_than_an_experiment_of_two_variants(
    n_cases: int, n: int, trials_of_cases: list[tuple[int, int]]
) -> None:
    history = SetHistory(tuple(CaseHistory(*each) for each in trials_of_cases)) if trials_of_cases else None
    rates = rates_of(posterior_of(trials_of_cases)) if trials_of_cases else UNKNOWN_RATES

    planned = estimate(None, "agent", "set", n_cases=n_cases, n=n, concurrency=1, history=history).difference

    loss = detectable(n_cases, n, rates, 1).loss
    if history or loss is None:
        assert planned == loss
    else:
        assert planned is not None
        assert planned >= loss


def test_a_rate_near_1_leaves_room_for_a_loss_alone() -> None:
    found = detectable(20, 3, ((0.95, 1.0),), 1)

    assert found.gain is None
    assert found.loss is not None
    assert found.either == found.loss


@pytest.mark.parametrize(("n_cases", "n"), [(0, 5), (20, 0)])
def test_nothing_is_found_without_cases_or_trials(n_cases: int, n: int) -> None:
    assert detectable(n_cases, n, UNKNOWN_RATES, 1).either is None


def test_more_cases_or_trials_and_fewer_comparisons_find_smaller_differences() -> None:
    by_cases = [smallest_difference(n_cases, 3, UNKNOWN_RATES, 2) for n_cases in (12, 20, 60, 400, 5_000)]
    by_trials = [smallest_difference(20, n, UNKNOWN_RATES, 2) for n in (1, 3, 5, 12, 13, 40)]
    by_comparisons = [smallest_difference(40, 3, UNKNOWN_RATES, n) for n in (59, 8, 2, 1)]

    for sizes in (by_cases, by_trials, by_comparisons):
        assert all(after < before for before, after in pairwise(size or 9.0 for size in sizes))


@pytest.mark.parametrize(("difference", "n", "n_comparisons"), [(0.05, 3, 1), (0.05, 3, 8), (0.2, 5, 2), (0.3, 1, 1)])
def test_the_cases_for_a_difference_are_the_fewest_that_show_it(difference: float, n: int, n_comparisons: int) -> None:
    n_cases = cases_for_difference(difference, n, UNKNOWN_RATES, n_comparisons)

    assert n_cases is not None
    at_it, below = (smallest_difference(each, n, UNKNOWN_RATES, n_comparisons) for each in (n_cases, n_cases - 1))
    assert at_it is not None
    assert at_it <= difference
    assert below is None or below > difference


def test_the_trials_for_a_difference_are_the_fewest_that_show_it() -> None:
    n = trials_for_difference(0.2, 20, UNKNOWN_RATES, 2)

    assert n is not None
    at_it, below = (smallest_difference(20, each, UNKNOWN_RATES, 2) for each in (n, n - 1))
    assert at_it is not None
    assert below is not None
    assert at_it <= 0.2 < below


def test_no_number_of_trials_makes_up_for_too_few_cases() -> None:
    assert trials_for_difference(0.01, 12, UNKNOWN_RATES, 1) is None
    assert cases_for_difference(0.00001, 1, UNKNOWN_RATES, 59) is None
    assert (cases_for_difference(0.001, 1, UNKNOWN_RATES, 1) or MOST_CASES) <= MOST_CASES


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 8, 0.05 / 59])
@pytest.mark.parametrize("df", [9, 29, 200])
def test_a_distance_in_standard_errors_has_power_80_by_the_noncentral_t(df: int, alpha: float) -> None:
    bound = float(scipy.stats.t.ppf(1 - alpha / 2, df))

    power = 1 - float(scipy.stats.nct.cdf(bound, df, _distance(df, alpha)))

    assert power == pytest.approx(0.8, abs=0.02)


def test_rates_of_a_posterior_have_its_mean_and_its_variance_of_a_trial() -> None:
    posterior = posterior_of([(5, 5), (5, 3), (5, 0), (3, 2)])

    rates = rates_of(posterior)

    assert sum(share for _, share in rates) == pytest.approx(1.0)
    assert sum(share * rate for rate, share in rates) == pytest.approx(
        float(posterior.case_means @ posterior.n_each) / 4
    )
    assert sum(share * rate * (1 - rate) for rate, share in rates) == pytest.approx(
        posterior.trial_variance(), abs=0.002
    )
