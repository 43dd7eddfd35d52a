"""How often a gate holds, against known answers, enumeration and simulation."""

from __future__ import annotations

from itertools import combinations, product
from math import prod
from random import Random

import pytest
import scipy
from tests.golden_values import golden

from evaldesk.statistics.chances.gates import (
    binomial,
    chance_of_at_least,
    curve_holds,
    every_case_holds,
    likely_drops,
    more_than,
    needed_passes,
    pass_rate_holds,
    regressed_by_chance,
    regressed_in_draws,
    still_regressed,
    trials_to_tell,
)
from evaldesk.statistics.comparison import holm
from evaldesk.statistics.exact_tests import fisher_drop
from evaldesk.statistics.intervals import pass_at_k, pass_hat_k


def alike(rates: list[tuple[float, int]], n: int) -> list[tuple[float, int, int]]:
    """Cases with `n` trials each."""
    return [(p, n, n_cases) for p, n_cases in rates]


DECISIONS = golden("decisions")


def test_the_rule_of_a_case_has_the_known_chances() -> None:
    for row in DECISIONS["case_rule"]:
        needed = needed_passes(row["n"], row["threshold"])
        assert needed == row["need"]
        assert chance_of_at_least(needed, row["n"], row["p"]) == pytest.approx(row["pass_"], abs=1e-12)


def test_no_change_fails_as_often_as_is_known() -> None:
    for row in DECISIONS["no_change_baseline"]:
        found = more_than(row["allowed"], [(regressed_by_chance(row["p"], row["n"], row["threshold"]), row["cases"])])
        assert found == pytest.approx(row["false_alarm"], abs=1e-10)


@pytest.mark.parametrize(
    ("n", "needed", "fresh", "false_alarm", "n_more"),
    [(1, 3, 5, 0.0152957515, 9), (1, 1, 1, 0.1654101672, 1.8), (5, 3, 5, 0.0405941030, 24.18)],
)
def test_confirming_has_the_known_false_alarms_and_costs(
    n: int, needed: int, fresh: int, false_alarm: float, n_more: float
) -> None:
    seeming = regressed_by_chance(0.9, n, 1.0)

    found = more_than(0, [(still_regressed(seeming, 0.9, needed, fresh), 20)])

    assert found == pytest.approx(false_alarm, abs=1e-9)
    assert 20 * seeming * fresh == pytest.approx(n_more, abs=0.01)


def test_draws_from_one_run_have_the_known_chances() -> None:
    for row in DECISIONS["aa_case"]:
        found = regressed_in_draws(row["n"], row["c"], row["m"], row["threshold"])
        assert found == pytest.approx(row["value"], abs=1e-12)


@pytest.mark.parametrize(
    ("threshold", "at_least_one", "expected"), [(1.0, 0.9623413923, 2.4484126984), (0.6, 0.5, 0.5)]
)
def test_draws_of_a_whole_run_have_the_known_chances(threshold: float, at_least_one: float, expected: float) -> None:
    suite = [(10, 10, 12), (10, 9, 4), (10, 8, 2), (10, 5, 1), (10, 0, 1)]
    chances = [(regressed_in_draws(n, c, 5, threshold) or 0.0, times) for n, c, times in suite]

    assert more_than(0, chances) == pytest.approx(at_least_one, abs=1e-9)
    assert sum(chance * times for chance, times in chances) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("rates", "n", "least", "holds"),
    [
        ([(0.9, 20)], 5, 0.9, 0.583155512266493),
        ([(1.0, 18), (0.5, 2)], 5, 0.95, 0.623046875),
        ([(0.9, 20)], 1, 0.9, 0.6769268051894668),
        ([(0.95, 20)], 5, 0.9, 0.9885275899325136),
        ([(0.99, 49), (0.0, 1)], 10, 0.9, 0.9999999999999977),
        ([(0.8, 20)], 1, 0.9, 0.2060847),
    ],
)
def test_a_pass_rate_holds_as_often_as_is_known(
    rates: list[tuple[float, int]], n: int, least: float, holds: float
) -> None:
    assert pass_rate_holds(alike(rates, n), least) == pytest.approx(holds, abs=1e-7)


@pytest.mark.parametrize("n_cases", [1, 3])
def test_a_pass_rate_of_0_always_holds(n_cases: int) -> None:
    assert pass_rate_holds([(0.2, 1, n_cases)], 0.0) == pytest.approx(1.0, abs=1e-12)


def test_every_case_holds_as_often_as_is_known() -> None:
    assert every_case_holds([(0.9, 5, 20)], 0.8) == pytest.approx(0.1827938031412104, abs=1e-12)
    assert every_case_holds([(0.99, 10, 49), (0.0, 10, 1)], 0.8) == 0.0


def test_the_chance_of_a_draw_is_that_of_all_draws() -> None:
    for scored, m in [(2, 1), (4, 2), (5, 2), (6, 3), (8, 3)]:
        for passed, threshold in product(range(scored + 1), (1.0, 0.6, 0.5, 0.3)):
            trials = [index < passed for index in range(scored)]
            needed, seen = needed_passes(m, threshold), []
            for first in combinations(range(scored), m):
                rest = [index for index in range(scored) if index not in first]
                for second in combinations(rest, m):
                    held = sum(trials[index] for index in first) >= needed
                    seen.append(held and sum(trials[index] for index in second) < needed)
            assert regressed_in_draws(scored, passed, m, threshold) == pytest.approx(sum(seen) / len(seen))


def test_two_runs_are_not_drawn_from_fewer_trials_than_both_have() -> None:
    assert regressed_in_draws(5, 3, 3, 1.0) is None
    assert regressed_in_draws(6, 3, 3, 1.0) == pytest.approx(1 / 20)


@pytest.mark.parametrize("n", [1, 2, 999, 1000, 1001, 5000])
@pytest.mark.parametrize("p", [0.0, 0.01, 0.5, 0.93, 1.0])
def test_passes_of_few_and_of_many_trials_are_binomial(n: int, p: float) -> None:
    for passes in {-1, 0, 1, int(n * p), int(n * p) + 1, n - 1, n, n + 1}:
        expected = scipy.stats.binom
        assert binomial(n, p, passes) == pytest.approx(float(expected.pmf(passes, n, p)), rel=1e-9, abs=1e-300)
        assert chance_of_at_least(passes, n, p) == pytest.approx(float(expected.sf(passes - 1, n, p)), rel=1e-9)


@pytest.mark.parametrize("percent", [7, 14, 28, 29, 55, 56, 57, 58, 100])
def test_a_share_that_is_reached_exactly_holds_whatever_its_binary_digits(percent: int) -> None:
    kinds, expected = [(0.2, 10, 5), (0.7, 10, 5)], 0.0
    for passed in range(51):
        of_other = scipy.stats.binom.sf(percent - passed - 1, 50, 0.7)
        expected += float(scipy.stats.binom.pmf(passed, 50, 0.2) * of_other)

    assert pass_rate_holds(kinds, percent / 100) == pytest.approx(expected, rel=1e-9)
    for is_hat in (False, True):
        assert curve_holds(kinds, 1, percent / 100, is_hat=is_hat) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("is_hat", [False, True], ids=["at", "hat"])
@pytest.mark.parametrize("least", [0.0, 0.4, 0.7, 1.0])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_curve_holds_as_often_as_all_outcomes_say(is_hat: bool, least: float, k: int) -> None:
    n, chances = 3, (0.9, 0.9, 0.4)
    one = pass_hat_k if is_hat else pass_at_k
    total = 0.0
    for passed in product(range(n + 1), repeat=3):
        mean = sum(one(n, c, k) or 0.0 for c in passed) / 3
        if mean >= least - 1e-9:
            exact = [
                chance_of_at_least(c, n, p) - chance_of_at_least(c + 1, n, p)
                for c, p in zip(passed, chances, strict=True)
            ]
            total += prod(exact)

    for n_more in (0, 4):  # the curve is over the trials that every case has
        found = curve_holds([(0.9, n, 2), (0.4, n + n_more, 1)], k, least, is_hat=is_hat)
        assert found == pytest.approx(total, abs=1e-12)


def test_a_curve_beyond_the_trials_is_undefined() -> None:
    assert curve_holds([(0.9, 5, 20)], 8, 0.5, is_hat=True) is None
    assert curve_holds([(0.9, 5, 20), (0.9, 9, 1)], 6, 0.5, is_hat=True) is None


def test_a_curve_of_too_many_values_is_left_out_at_once() -> None:
    assert curve_holds([(0.9, 1000, 20)], 10, 0.5, is_hat=False) is None
    assert curve_holds([(0.9, 300, 2), (0.8, 300, 2), (0.7, 300, 2)], 10, 0.5, is_hat=False) is None


def test_more_than_counts_independent_events() -> None:
    chances = [0.1, 0.1, 0.5, 0.0, 1.0]
    for allowed in range(6):
        total = sum(
            prod(p if happened else 1 - p for p, happened in zip(chances, outcome, strict=True))
            for outcome in product((0, 1), repeat=5)
            if sum(outcome) > allowed
        )
        grouped = [(0.1, 2), (0.5, 1), (0.0, 1), (1.0, 1)]
        assert more_than(allowed, grouped) == pytest.approx(total, abs=1e-12)


def test_the_formula_of_no_change_agrees_with_simulated_builds() -> None:
    chance, n, needed, n_cases, n_builds = Random(7), 3, 2, 10, 4_000

    def passes(p: float) -> bool:
        return sum(chance.random() < p for _ in range(n)) >= needed

    failed = sum(any(passes(0.7) and not passes(0.7) for _ in range(n_cases)) for _ in range(n_builds))

    expected = more_than(0, [(regressed_by_chance(0.7, n, 0.6), n_cases)])
    assert failed / n_builds == pytest.approx(expected, abs=0.03)


def test_ten_thousand_cases_are_computed() -> None:
    kinds = [(0.2 * step, 5, 2_000) for step in range(6)]

    assert pass_rate_holds(kinds, 0.49) > 0.99
    assert pass_rate_holds(kinds, 0.51) < 0.01


def test_a_likely_drop_is_found_as_often_as_is_known() -> None:
    for row in DECISIONS["likely_rule"]:
        n_cases, n = row["cases"], row["n"]

        def finds(before: float, now: float, n_cases: int = n_cases, n: int = n) -> float:
            """By the bar of the smallest p value, as if only this case were in doubt."""
            found = likely_drops([(before, now, n, 1), (1.0, 1.0, n, n_cases - 1)], 0)
            assert found is not None
            return found

        unchanged = likely_drops([(0.9, 0.9, n, n_cases)], 0)
        assert unchanged == pytest.approx(row["false_alarm_p90"], rel=1e-6, abs=1e-15)
        assert finds(1.0, 0.0) == pytest.approx(row["finds_1_to_0"], abs=1e-9)
        assert finds(0.95, 0.3) == pytest.approx(row["finds_95_to_30"], abs=1e-9)
        assert finds(0.9, 0.5) == pytest.approx(row["finds_90_to_50"], abs=1e-9)


@pytest.mark.parametrize(("n", "chance"), [(6, 0.0000106), (10, 0.0000637), (20, 0.0010491)])
def test_an_unchanged_agent_rarely_has_a_likely_drop(n: int, chance: float) -> None:
    assert likely_drops([(0.9, 0.9, n, 20)], 0) == pytest.approx(chance, abs=1e-7)


def test_the_trials_that_can_tell_are_the_fewest() -> None:
    assert [trials_to_tell(n_cases) for n_cases in (1, 6, 20)] == [4, 5, 6]
    assert fisher_drop(5, 5, 0, 5) == pytest.approx(0.00397, abs=1e-5)


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_the_formula_of_likely_drops_agrees_with_simulated_builds(allowed: int) -> None:
    chance, n, cases, n_builds = Random(11), 8, [(0.95, 0.3, 8, 2), (0.9, 0.5, 8, 2)], 4_000
    failed = 0

    for _ in range(n_builds):
        sides = [(before, now) for before, now, _, times in cases for _ in range(times)]
        passed = [[sum(chance.random() < p for _ in range(n)) for p in pair] for pair in sides]
        failed += sum(p < 0.05 for p in holm([fisher_drop(a, n, b, n) for a, b in passed])) > allowed

    assert failed / n_builds == pytest.approx(likely_drops(cases, allowed), abs=0.03)


@pytest.mark.parametrize("allowed", [0, 1, 2, 3])
def test_likely_drops_of_cases_with_different_trials_are_as_often_as_all_outcomes_say(allowed: int) -> None:
    tested, single = [(0.9, 0.1, 4, 1), (0.8, 0.2, 6, 1)], (1.0, 0.0, 1, 2)
    total = 0.0
    for passed in product(*(product(range(n + 1), repeat=2) for *_, n, _ in tested)):
        drops = [fisher_drop(a, n, b, n) for (a, b), (*_, n, _) in zip(passed, tested, strict=True)]
        if sum(p < 0.05 for p in holm(drops)) > allowed:
            of_case = zip(passed, tested, strict=True)
            total += prod(binomial(n, p, a) * binomial(n, q, b) for (a, b), (p, q, n, _) in of_case)

    assert likely_drops([*tested, single], allowed) == pytest.approx(total, abs=1e-12)


def test_likely_drops_beyond_three_are_left_out_where_more_cases_are_tested() -> None:
    found = [likely_drops([(1.0, 0.0, 6, n_cases)], allowed) for n_cases, allowed in ((4, 3), (5, 4), (4, 4))]

    assert found == [pytest.approx(1.0), None, 0.0]
