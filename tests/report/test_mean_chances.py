"""How often a mean over cases reaches its bar, a difference its margin, and both are too close: against enumeration
and simulation."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import prod, sqrt

import numpy as np
import pytest

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.chances.gates import binomial
from evaldesk.statistics.chances.means import mean_curve, mean_difference, mean_rate, rate_holds
from evaldesk.statistics.comparison import compare_scores
from evaldesk.statistics.intervals import (
    case_rate_interval,
    mean_interval,
    pass_at_k,
    pass_hat_k,
    point_at,
    rate_interval,
    wilson,
)

PAIRS = {
    "one case": ((0.9, 0.6, 3, 1),),
    "two cases of one trial": ((0.8, 0.5, 1, 2),),
    "alike": ((0.9, 0.75, 2, 3),),
    "different": ((0.9, 0.9, 2, 2), (0.5, 0.1, 2, 1)),
    "different trials": ((0.9, 0.7, 1, 1), (0.6, 0.5, 2, 1), (0.4, 0.2, 3, 1)),
    "sure": ((1.0, 1.0, 2, 2), (1.0, 0.0, 2, 1)),
}
MANY = tuple((0.5 + 0.025 * n, 0.45 + 0.025 * n, n, 5) for n in range(1, 21))
"""100 cases of 1 to 20 trials, whose common lattice has more points than can be added up."""


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("pairs", PAIRS.values(), ids=PAIRS)
def test_a_margin_fails_as_often_as_all_outcomes_say(
    pairs: tuple[tuple[float, float, int, int], ...], margin: float
) -> None:
    cases = [(before, now, n) for before, now, n, times in pairs for _ in range(times)]
    total = 0.0
    for passed in product(*(product(range(n + 1), repeat=2) for *_, n in cases)):
        sides = [
            {at: each[side] / n for at, (each, (*_, n)) in enumerate(zip(passed, cases, strict=True))}
            for side in (0, 1)
        ]
        found = compare_scores(*sides)
        assert found
        if found.bounds.high < -margin - 1e-9:
            total += prod(
                binomial(n, before, a) * binomial(n, now, b)
                for (before, now, n), (a, b) in zip(cases, passed, strict=True)
            )

    chances = mean_difference(pairs)

    assert chances.below(-margin - 1e-9) == pytest.approx(total, abs=1e-11)
    assert chances.error == 0


@pytest.mark.parametrize("least", [0.0, 0.5, 0.7, 0.75, 1.0])
def test_a_rate_of_cases_with_different_trials_holds_as_often_as_all_outcomes_say(least: float) -> None:
    kinds = [(0.9, 1, 2), (0.4, 2, 1), (0.7, 3, 1), (0.2, 4, 1)]
    cases = [(p, n) for p, n, times in kinds for _ in range(times)]
    total = sum(
        prod(binomial(n, p, c) for (p, n), c in zip(cases, passed, strict=True))
        for passed in product(*(range(n + 1) for _, n in cases))
        if sum(c / n for (_, n), c in zip(cases, passed, strict=True)) / len(cases) >= least - 1e-9
    )

    low, high = rate_holds(kinds, least)

    assert low == high == pytest.approx(total, abs=1e-11)


def test_the_rate_of_very_different_trials_lies_between_two_chances() -> None:
    kinds = [(now, n, times) for _, now, n, times in MANY]
    n_builds, chance = 20_000, np.random.default_rng(5)
    rates = sum(chance.binomial(n, p, (n_builds, times)).sum(axis=1) / n for p, n, times in kinds) / 100

    for least in (0.66, 0.7, 0.72, 0.75):
        low, high = rate_holds(kinds, least)
        seen = float((rates >= least - 1e-9).mean())
        assert low <= high <= low + 0.005
        assert low - 4 * sqrt(low * (1 - low) / n_builds) <= seen <= high + 4 * sqrt(high * (1 - high) / n_builds)


def test_the_margin_of_very_different_trials_is_off_by_no_more_than_is_told() -> None:
    n_builds, chance = 20_000, np.random.default_rng(6)
    sides = [
        np.concatenate([chance.binomial(n, each[side], (n_builds, times)) / n for *each, n, times in MANY], axis=1)
        for side in (0, 1)
    ]
    differences = sides[1] - sides[0]
    half = 1.9842169515 * differences.std(axis=1, ddof=1) / 10

    found = mean_difference(MANY)

    assert 0 < found.error < 0.02
    for margin in (0.0, 0.02, 0.05):
        seen = float((differences.mean(axis=1) + half < -margin - 1e-9).mean())
        assert found.below(-margin - 1e-9) == pytest.approx(
            seen, abs=found.error + 4 * sqrt(seen * (1 - seen) / n_builds)
        )


def test_a_coarser_lattice_gives_almost_the_same_chances() -> None:
    """200 cases of 20 trials are rounded, 199 of 5 are not; both are known from a normal distribution of the mean."""
    rounded, exact = (mean_difference(((0.9, 0.85, n, 200),)) for n in (20, 5))

    assert exact.error == 0
    assert 0 < rounded.error < 0.001
    for found, n in ((rounded, 20), (exact, 5)):
        spread = sqrt((0.09 + 0.85 * 0.15) / n / 200)
        z = (0.05 - 1.97 * spread) / spread
        normal = float(0.5 * (1 + np.tanh(z * (0.7978845608 + 0.0356774081 * z * z))))
        assert found.below(-1e-9) == pytest.approx(normal, abs=0.02)


@pytest.mark.parametrize("bar", [0.3, 0.5, 0.75, 0.9])
@pytest.mark.parametrize(
    "kinds",
    [
        ((0.9, 5, 4),),
        ((0.9, 2, 2), (0.4, 3, 1)),
        ((0.9, 1, 5), (0.2, 1, 1)),
        ((0.7, 6, 1),),
        ((1.0, 3, 2), (0.5, 3, 2)),
        ((0.0, 3, 2), (0.5, 3, 1)),
    ],
    ids=["alike", "different trials", "one trial", "one case", "sure to pass", "sure to fail"],
)
def test_a_bar_lies_inside_the_interval_of_a_rate_as_often_as_all_outcomes_say(
    kinds: tuple[tuple[float, int, int], ...], bar: float
) -> None:
    cases = [(p, n) for p, n, times in kinds for _ in range(times)]
    interval_of = rate_interval if len({n for _, n in cases}) == 1 else case_rate_interval
    below, above, none = 0.0, 0.0, 0.0
    for passed in product(*(range(n + 1) for _, n in cases)):
        chance = prod(binomial(n, p, c) for (p, n), c in zip(cases, passed, strict=True))
        interval = interval_of([(n, c, 1) for (_, n), c in zip(cases, passed, strict=True)])
        assert interval
        below += chance * (interval.high < bar)
        above += chance * (interval.low >= bar)
        none += chance * (interval.low < bar <= interval.high and not any(passed))

    found = mean_rate(kinds)

    assert found.below(bar) == pytest.approx(below, abs=1e-11)
    assert found.above(bar) == pytest.approx(above, abs=1e-11)
    assert found.none_around(bar) == pytest.approx(none, abs=1e-11)
    assert found.error < 1e-12


def test_the_interval_of_the_rate_of_very_different_trials_is_off_by_no_more_than_is_told() -> None:
    kinds = tuple((now, n, times) for _, now, n, times in MANY)
    n_builds, chance = 20_000, np.random.default_rng(7)
    rates = np.concatenate([chance.binomial(n, p, (n_builds, times)) / n for p, n, times in kinds], axis=1)
    half = 1.9842169515 * rates.std(axis=1, ddof=1) / 10

    found = mean_rate(kinds)

    assert 0 < found.error < 0.02
    for bar in (0.65, 0.7, 0.75):
        for seen, told in (
            (float((rates.mean(axis=1) + half < bar).mean()), found.below(bar)),
            (float((rates.mean(axis=1) - half >= bar).mean()), found.above(bar)),
        ):
            assert told == pytest.approx(seen, abs=found.error + 4 * sqrt(seen * (1 - seen) / n_builds))


@pytest.mark.parametrize(
    ("p", "n", "n_cases", "k", "is_hat", "bar"),
    [(0.75, 5, 20, 3, True, 0.5), (0.9, 5, 8, 3, True, 0.8), (0.65, 3, 40, 2, False, 0.9), (0.8, 4, 3, 2, True, 0.6)],
)
def test_the_interval_of_drawn_cases_is_near_enough_to_what_is_told(
    p: float, n: int, n_cases: int, k: int, is_hat: bool, bar: float
) -> None:
    n_builds, chance = 120, np.random.default_rng(8)
    seen = Counter[str]()
    for passed in chance.binomial(n, p, (n_builds, n_cases)).tolist():
        point = point_at([(n, c, times) for c, times in sorted(Counter(passed).items())], k)
        interval = point.hat_interval if is_hat else point.at_interval
        assert interval
        seen["below" if interval.high < bar else "above" if interval.low >= bar else "inside"] += 1

    found = mean_curve(((p, n, n_cases),), k, is_hat=is_hat)

    for share, told in ((seen["below"] / n_builds, found.below(bar)), (seen["above"] / n_builds, found.above(bar))):
        assert told == pytest.approx(share, abs=found.error + 3 * sqrt(share * (1 - share) / n_builds))


@pytest.mark.parametrize("bar", [0.15, 0.3, 0.45, 0.7, 0.92])
@pytest.mark.parametrize(("p", "is_hat"), [(0.8, True), (0.6, True), (0.4, False), (0.2, False)])
@pytest.mark.parametrize("n_cases", [2, 4])
def test_the_interval_of_a_curve_is_that_of_few_cases_where_it_reaches_an_end(
    n_cases: int, p: float, is_hat: bool, bar: float
) -> None:
    n, k, below, above = 4, 2, 0.0, 0.0
    for passed in product(range(n + 1), repeat=n_cases):
        values = [(pass_hat_k if is_hat else pass_at_k)(n, c, k) or 0.0 for c in passed]
        mean = sum(values) / n_cases
        squares = sum((value - mean) ** 2 for value in values)
        found = mean_interval(mean=mean, n=n_cases, n_cases=n_cases, squares=squares, cluster_squares=squares)
        assert found
        if found.low <= 0 or found.high >= 1:
            whole = wilson(mean * n_cases, n_cases)
            found = Interval(min(found.low, whole.low), max(found.high, whole.high))
        chance = prod(binomial(n, p, c) for c in passed)
        below, above = below + chance * (found.high < bar), above + chance * (found.low >= bar)

    told = mean_curve(((p, n, n_cases),), k, is_hat=is_hat)

    assert (told.below(bar), told.above(bar)) == pytest.approx((below, above), abs=1e-9)
