"""Two runs compared by case id."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from random import Random

import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.model.comparison import Comparison, Sample
from evaldesk.statistics.comparison import benjamini_hochberg, compare_means, compare_scores, holm
from evaldesk.statistics.exact_tests import fisher, mcnemar

BEFORE = {"a": 0.8, "b": 0.8, "c": 0.4, "d": 1.0, "e": 0.0, "f": 0.2}
AFTER = {"f": 0.0, "a": 1.0, "b": 0.8, "c": 0.6, "d": 1.0, "e": 0.4}

MANY = [str(at) for at in range(40)]


def compared(before: Mapping[str, float], after: Mapping[str, float]) -> Comparison:
    found = compare_scores(before, after)
    assert found
    return found


def test_cases_are_paired_by_id_and_the_others_counted() -> None:
    found = compared({**BEFORE, "old": 1.0}, {**AFTER, "new": 0.0, "newer": 0.0})

    assert (found.n_cases, found.n_only_before, found.n_only_after) == (6, 1, 2)
    assert (found.n_better, found.n_worse) == (3, 1)
    assert found.difference == pytest.approx(0.1)
    assert (found.before, found.after) == pytest.approx((3.2 / 6, 3.8 / 6))
    assert not found.is_distinguishable


def drawn(random: Random, n_cases: int, rate: float, n: int) -> dict[str, Sample]:
    """Cases of an agent that passes `rate` of their trials, each with `n` of them."""
    passed = [sum(random.random() < rate for _ in range(n)) for _ in range(n_cases)]
    return {str(at): Sample.of_sums(n, each, each) for at, each in enumerate(passed)}


@pytest.mark.parametrize("ns", [(1, 5), (1, 20), (20, 1), (5, 20)])
@pytest.mark.parametrize("n_cases", [5, 10, 20, 40])
def test_an_agent_that_did_not_change_is_seldom_told_apart_whatever_the_numbers_of_trials(
    n_cases: int, ns: tuple[int, int]
) -> None:
    random = Random(n_cases)
    pairs = [[drawn(random, n_cases, 0.9, n) for n in ns] for _ in range(60)]

    found = [compare_means(*pair) for pair in pairs]

    assert sum(each is not None and each.is_distinguishable for each in found) <= 6


def test_a_drop_is_still_found_with_other_numbers_of_trials() -> None:
    random = Random(1)

    found = compare_means(drawn(random, 40, 0.95, 1), drawn(random, 40, 0.5, 20))

    assert found is not None
    assert found.is_distinguishable
    assert found.difference < 0


def test_with_one_trial_before_a_case_that_passed_19_of_20_did_not_surely_drop() -> None:
    before = {str(at): Sample.of_sums(1, 1, 1) for at in range(10)}
    after = dict.fromkeys(before, Sample.of_sums(20, 19, 19))
    error = (20 / 21 * 1 / 20 * (1 + 1 / 20) / 10) ** 0.5

    found = compare_means(before, after)

    assert found is not None
    assert found.error == pytest.approx(error)
    expected = scipy.stats.t(9, -0.05, error)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx(expected.interval(0.95))
    assert found.p == pytest.approx(2 * expected.sf(0))
    assert not found.is_distinguishable


def test_with_as_many_trials_in_both_runs_shares_are_compared_as_scores() -> None:
    drawn_pair = [drawn(Random(seed), 12, rate, 5) for seed, rate in ((1, 0.9), (2, 0.6))]
    alike = [dict.fromkeys("abcdef", Sample.of_sums(2, passed, passed)) for passed in (2, 1)]

    nothing: list[dict[str, Sample]] = [{}, {}]
    for pair in (drawn_pair, alike, nothing):
        means = [{key: sample.mean for key, sample in side.items()} for side in pair]
        assert compare_means(*pair) == compare_scores(*means)


def test_the_interval_of_the_difference_is_that_of_scipy() -> None:
    expected = scipy.stats.ttest_rel([AFTER[key] for key in BEFORE], list(BEFORE.values())).confidence_interval()

    found = compared(BEFORE, AFTER)

    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((expected.low, expected.high))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(-5, 5), min_size=1, max_size=8))
def test_few_cases_are_tested_by_every_pattern_of_signs(fifths: list[int]) -> None:
    sums = [
        sum(sign * d for sign, d in zip(signs, fifths, strict=True)) for signs in product((1, -1), repeat=len(fifths))
    ]

    found = compared({str(at): 0.0 for at in range(len(fifths))}, {str(at): d / 5 for at, d in enumerate(fifths)})

    assert found.p == pytest.approx(sum(abs(total) >= abs(sum(fifths)) for total in sums) / len(sums))
    assert found.test == "sign flip"


def test_every_pattern_counts_also_where_they_are_half_a_billion() -> None:
    after = {str(at): 0.2 for at in range(24)} | {str(at): -0.2 for at in range(24, 29)}

    found = compared(dict.fromkeys(after, 0.0), after)

    assert found.test == "sign flip"
    assert found.p == pytest.approx(float(scipy.stats.binomtest(5, 29).pvalue))


@settings(deadline=None, max_examples=40)
@given(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 6), st.integers(0, 6)))
def test_two_rates_are_told_apart_as_scipy_does(passed_and_failed: tuple[int, int, int, int]) -> None:
    a, b, c, d = passed_and_failed

    assert fisher(a, a + b, c, c + d) == pytest.approx(float(scipy.stats.fisher_exact([[a, b], [c, d]]).pvalue))


@pytest.mark.parametrize(("n_cases", "test"), [(29, "sign flip"), (30, "t")])
def test_thirty_cases_are_many(n_cases: int, test: str) -> None:
    after = {str(at): float(at in (3, 5, 8)) for at in range(n_cases)}

    assert compared(dict.fromkeys(after, 0.0), after).test == test


def test_runs_without_a_common_case_are_not_compared() -> None:
    assert compare_scores({}, {}) is None
    assert compare_scores({"a": 0.0}, {"b": 1.0}) is None


def test_many_cases_are_tested_by_students_t() -> None:
    before = {str(at): at % 3 / 10 for at in range(40)}
    after = {str(at): at % 5 / 10 for at in range(40)}
    expected = scipy.stats.ttest_rel(list(after.values()), list(before.values()))

    found = compared(before, after)

    assert found.p == pytest.approx(float(expected.pvalue))
    assert found.test == "t"
    assert found.is_distinguishable
    assert type(found.p) is float


@pytest.mark.parametrize(
    ("before", "after", "p", "is_distinguishable"),
    [
        pytest.param({"a": 0.0}, {"a": 1.0}, 1.0, False, id="one-case"),
        pytest.param(BEFORE, BEFORE, 1.0, False, id="the-same-scores"),
        pytest.param(dict.fromkeys("abcdef", 0.1), dict.fromkeys("abcdef", 0.3), 2 / 64, True, id="all-by-the-same"),
        pytest.param(dict.fromkeys(MANY, 0.1), dict.fromkeys(MANY, 0.3), 2 / 2**40, True, id="many-alike"),
        pytest.param(dict.fromkeys("abcde", 0.1), dict.fromkeys("abcde", 0.3), 2 / 32, False, id="five-are-too-few"),
    ],
)
def test_comparisons_at_the_edge(
    before: dict[str, float], after: dict[str, float], p: float, is_distinguishable: bool
) -> None:
    found = compared(before, after)

    assert found.interval is None
    assert (found.p, found.is_distinguishable) == (p, is_distinguishable)


@pytest.mark.parametrize(
    ("n_fixed", "n_broken", "p"), [(0, 0, 1.0), (3, 3, 1.0), (6, 0, 0.03125), (0, 5, 0.0625), (10, 2, 0.03857421875)]
)
def test_flips_one_way_are_weighed_against_the_other(n_fixed: int, n_broken: int, p: float) -> None:
    assert mcnemar(n_fixed, n_broken) == pytest.approx(p)
    assert n_fixed + n_broken == 0 or p == pytest.approx(scipy.stats.binomtest(n_fixed, n_fixed + n_broken).pvalue)


def test_many_tests_are_corrected() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert benjamini_hochberg([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.04, 0.04))
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert (holm([]), benjamini_hochberg([])) == ((), ())
    assert {type(p) for p in benjamini_hochberg([0.01, 0.5])} == {float}


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_a_correction_never_lowers_p(ps: list[float]) -> None:
    for p, by_bh, by_holm in zip(ps, benjamini_hochberg(ps), holm(ps), strict=True):
        assert p - 1e-12 <= by_bh <= by_holm + 1e-12 <= 1 + 2e-12
    expected = scipy.stats.false_discovery_control(ps) if ps else []
    assert list(benjamini_hochberg(ps)) == pytest.approx(list(expected))
