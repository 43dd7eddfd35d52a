"""Scores counted in bins."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.histogram import Bin, histogram
from evaldesk.wording.words import bin_words, mean_sentence


def counts(found: tuple[Bin, ...]) -> list[int]:
    return [each.n for each in found]


def test_shares_lie_in_ten_bins_and_the_last_takes_its_end() -> None:
    found = histogram([(0.0, 2), (0.3, 1), (0.7, 4), (0.95, 1), (1.0, 5)], 0.0, 1.0)

    assert counts(found) == [2, 0, 0, 1, 0, 0, 0, 4, 0, 6]
    assert (found[0].low, found[-1].high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "high", "expected"),
    [
        pytest.param([(1.0, 3), (4.0, 1)], inf, [0, 3, 0, 0, 1], id="counts"),
        pytest.param([(0.5, 1), (2.5, 1)], inf, [1, 0, 0, 0, 0, 0, 0, 0, 0, 1], id="seconds"),
        pytest.param([(1200.0, 2)], inf, [2], id="one-value"),
        pytest.param([(inf, 2)], inf, [], id="nothing-finite"),
        pytest.param([(1.5, 1)], 1.0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 1], id="beyond-the-range"),
        pytest.param([], 1.0, [], id="nothing"),
    ],
)
def test_bins_fit_what_was_seen(values: list[tuple[float, int]], high: float, expected: list[int]) -> None:
    assert counts(histogram(values, 0.0, high)) == expected


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.integers(1, 9)), min_size=1, max_size=20))
def test_no_score_is_lost(values: list[tuple[float, int]]) -> None:
    assert sum(counts(histogram(values, 0.0, 1.0))) == sum(n for _, n in values)


def test_a_bin_says_which_end_belongs_to_it() -> None:
    assert bin_words(Bin(0.8, 0.9, 1), is_last=False) == "0.80 to below 0.90"
    assert bin_words(Bin(0.9, 1.0, 1), is_last=True) == "0.90 to 1.00"
    assert bin_words(Bin(3.0, 3.0, 1), is_last=True) == "3"


def test_a_mean_has_its_doubt_and_what_keeps_to_the_threshold() -> None:
    interval = Interval(0.89, 0.99)

    assert mean_sentence(0.94, interval, 57, 54, "at least 0.50") == (
        "Mean 0.94 of 57; 95 % CI 0.89–0.99. 54 of 57 are at least 0.50."
    )
    assert mean_sentence(1234.0, None, 1, None, "no threshold") == "Mean 1,234 of 1."
