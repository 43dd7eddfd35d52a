"""What is counted here in whole numbers is what scipy computes, on many random tables. (decision 008)"""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.statistics.anytime import anytime_interval
from evaldesk.statistics.exact_tests import fisher, mcnemar, sign_flips
from evaldesk.statistics.intervals import chance_beyond, wilson

many = settings(deadline=None, max_examples=30)
flips = st.integers(0, 60)


@many
@given(flips, flips)
def test_mcnemar_is_the_binomial_test(n_fixed: int, n_broken: int) -> None:
    expected = scipy.stats.binomtest(n_fixed, n_fixed + n_broken).pvalue if n_fixed + n_broken else 1.0

    assert mcnemar(n_fixed, n_broken) == pytest.approx(float(expected))


def test_mcnemar_counts_the_flips_of_a_large_run_at_once() -> None:
    assert mcnemar(5_000, 4_800) == pytest.approx(float(scipy.stats.binomtest(5_000, 9_800).pvalue))


@many
@given(flips, flips, flips, flips)
def test_fisher_is_that_of_scipy_on_larger_tables(a: int, b: int, c: int, d: int) -> None:
    assert fisher(a, a + b, c, c + d) == pytest.approx(
        float(scipy.stats.fisher_exact([[a, b], [c, d]]).pvalue), rel=1e-6
    )


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(-9, 9), min_size=2, max_size=9))
def test_sign_flips_are_the_exact_permutation_test(differences: list[int]) -> None:
    found = scipy.stats.permutation_test(
        (np.array(differences),), np.sum, vectorized=True, permutation_type="samples", n_resamples=np.inf
    )

    # The two-sided p of scipy is twice the smaller tail; with signs that is every sum as far from 0, at most all.
    assert sign_flips(differences) == pytest.approx(min(1.0, float(found.pvalue)))


@many
@given(st.integers(1, 500), st.data())
def test_intervals_of_one_rate_are_those_of_scipy(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    found, test = wilson(c, n), scipy.stats.binomtest(c, n)

    expected = test.proportion_ci(method="wilson")
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 9, 30, 201])
def test_chances_beyond_a_t_are_those_of_scipy(df: int) -> None:
    for t in (0.0, 0.5, 1.25, 4.0):
        assert chance_beyond(t, df) == pytest.approx(float(2 * scipy.stats.t.sf(t, df)), rel=1e-10)


@many
@given(st.integers(1, 200), st.data())
def test_the_anytime_interval_ends_where_the_evidence_against_a_rate_is_twenty_to_one(
    n: int, data: st.DataObject
) -> None:
    """The evidence is a mixture over all rates, uniform: B(c + 1, n - c + 1) / p^c (1 - p)^(n - c). (Ville)"""
    c = data.draw(st.integers(0, n))
    found = anytime_interval(c, n)

    for rate in (found.low, found.high):
        if 0 < rate < 1:
            evidence = (
                math.log(scipy.special.beta(c + 1, n - c + 1))
                - scipy.special.xlogy(c, rate)
                - scipy.special.xlog1py(n - c, -rate)
            )
            assert float(evidence) == pytest.approx(math.log(20), abs=1e-6)
