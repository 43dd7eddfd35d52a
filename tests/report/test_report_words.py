"""Words for doubt."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaldesk.model.conclusion import Counts, Interval
from evaldesk.statistics.intervals import CaseCounts, rate_interval, wilson
from evaldesk.wording.words import (
    basis_sentence,
    basis_why,
    curve_note,
    errors_sentence,
    interval_words,
    needs_words,
    passed_sentence,
    score_words,
    undefined_words,
)

MOCK = [(3, 1, 1), (5, 2, 1), (4, 2, 1), (4, 3, 1), (5, 4, 1), (5, 5, 4), (4, 4, 2), (1, 1, 1)]


@pytest.mark.parametrize(
    ("n_passed", "n_scored", "interval", "said"),
    [
        (41, 50, rate_interval(MOCK), "41 of 50 passed; 95 % CI 66–98 %"),
        (60, 60, wilson(60, 60), "60 of 60 passed; 95 % CI 94–100 %"),
        (3, 4, wilson(3, 4), "3 of 4 passed; too few trials for a rate"),
        (4, 5, wilson(4, 5), "4 of 5 passed; 95 % CI 38–96 %"),
        (0, 0, None, "No scored trials"),
        (1200, 1500, None, "1,200 of 1,500 passed"),
    ],
)
def test_the_answer_counts_first(n_passed: int, n_scored: int, interval: Interval | None, said: str) -> None:
    counts = Counts(n_scored, n_passed, n_scored - n_passed)

    assert passed_sentence(counts, interval) == said


@pytest.mark.parametrize(
    ("interval", "said"),
    [
        (Interval(0.657, 0.983), "66–98 %"),
        (Interval(0.996, 1.0), "99.6–100.0 %"),
        (Interval(0.0, 1.0), "0–100 %"),
    ],
)
def test_an_interval_has_no_more_digits_than_it_needs(interval: Interval, said: str) -> None:
    assert interval_words(interval) == said


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (MOCK, "Interval over 12 cases, clustered by case."),
        ([(1, 1, 20), (1, 0, 5)], "Interval over 25 cases, one trial each."),
        ([(1, 1, 5)], "Interval over 5 cases, one trial each. Rough: fewer than 10 cases."),
        ([(5, 2, 1)], "Interval over 5 trials of one case; it says nothing about other cases."),
        ([(1, 1, 3)], "A rate needs 5 scored trials."),
        ([(0, 0, 3)], ""),
    ],
)
def test_the_interval_says_what_it_is_over(counts: list[CaseCounts], said: str) -> None:
    assert basis_sentence(counts, rate_interval(counts)) == said


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        (
            MOCK,
            "50 independent trials would give 69–90 %. "
            "Trials of the same case are correlated, so more cases narrow the interval more than more trials.",
        ),
        ([(1, 1, 20), (1, 0, 5)], ""),
        ([(5, 2, 1)], ""),
        ([(1, 1, 3)], ""),
        ([(0, 0, 3)], ""),
    ],
)
def test_a_clustered_interval_says_why_it_is_wider(counts: list[CaseCounts], said: str) -> None:
    assert basis_why(counts, rate_interval(counts)) == said


def test_errors_say_on_which_side_they_are_counted() -> None:
    counts = Counts(52, 41, 9, 2)

    assert errors_sentence(counts) == "Errors do not count as failures. With them: 41 of 52."
    assert errors_sentence(replace(counts, errors_are_failures=True)) == (
        "Errors count as failures. Without them: 41 of 50."
    )
    assert errors_sentence(Counts(50, 41, 9)) == ""


def test_an_undefined_number_has_its_reason() -> None:
    assert undefined_words(3, 1) == "pass@3 needs 3 scored trials; this case has 1."
    assert undefined_words(1, 0) == "No trial of this case was scored."


def test_a_point_on_fewer_cases_says_so() -> None:
    assert curve_note(6, 12, 5) == "6 of 12 cases have 5 scored trials; the others are left out of these rows."
    assert curve_note(12, 12, 1) == ""


@pytest.mark.parametrize(
    ("threshold", "metric", "said"),
    [
        (0.8, "response_match_score", "at least 0.80"),
        (0.995, "response_match_score", "at least 0.995"),
        (3.0, "turn_count", "at most 3.00"),
        (1500.0, "turn_count", "at most 1,500"),
        (None, "turn_count", "no threshold"),
    ],
)
def test_a_threshold_says_which_side_is_good(threshold: float | None, metric: str, said: str) -> None:
    assert needs_words(metric, threshold) == said


@pytest.mark.parametrize(
    ("value", "threshold", "is_higher_better", "said"),
    [
        (0.7996, 0.8, True, "<0.80"),
        (0.8, 0.8, True, "0.80"),
        (3.001, 3.0, False, ">3.00"),
        (2.999, 3.0, False, "3.00"),
        (0.5, None, True, "0.50"),
        (1234.4, None, False, "1,234"),
        (0.994, 0.995, True, "0.994"),
        (0.99499, 0.995, True, "<0.995"),
        (0.9, 0.995, True, "0.90"),
        (1204.3, 1204.25, False, "1,204.30"),
    ],
)
def test_a_score_that_misses_never_reads_as_if_it_kept_to_it(
    value: float, threshold: float | None, is_higher_better: bool, said: str
) -> None:
    assert score_words(value, threshold, is_higher_better=is_higher_better) == said
