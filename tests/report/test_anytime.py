"""Answers that stay valid while one looks: the known values, and how often chance alone refutes the truth."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.anytime import anytime_interval, difference_interval, sign_evidence
from evaldesk.statistics.intervals import wilson

SUITES = {
    "eight clean wins of n=1": [1.0] * 8,
    "40 cases: +1 +0.2 0 -0.2 in turn": [1.0, 0.2, 0.0, -0.2] * 10,
}


DECISIONS = golden("decisions")


def test_wins_and_losses_have_the_known_evidence() -> None:
    for row in DECISIONS["sign_evalue"]:
        found = sign_evidence(row["wins"], row["losses"])
        assert found == pytest.approx(row["e"], rel=1e-12)
        assert (found >= 20) is row["stop"]


def test_differences_have_the_known_intervals() -> None:
    for row in DECISIONS["betting_difference"]:
        differences = SUITES[row["name"]]
        found = difference_interval(differences)
        assert [found.low, found.high] == pytest.approx(row["own"], abs=0.001)
        excluded = [n for n in range(1, len(differences) + 1) if difference_interval(differences[:n]).low > 0]
        assert (excluded[0] if excluded else None) == row["first_excludes_zero"]


@pytest.mark.parametrize(
    ("differences", "low", "high"), [([0.2] * 60, 0.065, 0.290), ([0.0] * 30, -0.207, 0.207), ([], -1, 1)]
)
def test_differences_that_are_all_the_same(differences: list[float], low: float, high: float) -> None:
    found = difference_interval(differences)

    assert [found.low, found.high] == pytest.approx([low, high], abs=0.001)


def test_losses_mirror_wins() -> None:
    wins = [1.0, 0.5, 0.0, 0.25, -0.5, 1.0] * 5
    found, mirrored = difference_interval(wins), difference_interval([-each for each in wins])

    assert mirrored.low == pytest.approx(-found.high)
    assert mirrored.high == pytest.approx(-found.low)


def test_clean_runs_stop_where_it_is_known() -> None:
    for row in DECISIONS["anytime_first_stop"]:
        bar = row["bar"]
        assert next(n for n in range(1, 200) if anytime_interval(n, n).low >= bar) == row["all_pass_stop_at"]
        assert next(n for n in range(1, 200) if anytime_interval(0, n).high < bar) == row["all_fail_stop_at"]


def test_looking_after_every_trial_rarely_refutes_the_truth_and_with_a_fixed_test_often() -> None:
    chance, n_runs, n, rate = Random(7), 400, 150, 0.7
    n_wrong = n_wrong_fixed = 0

    @cache
    def holds(interval: Callable[[int, int], Interval], n_passed: int, n_trials: int) -> bool:
        return _holds(interval(n_passed, n_trials), rate)

    for _ in range(n_runs):
        passes = list(accumulate(chance.random() < rate for _ in range(n)))
        n_wrong += any(not holds(anytime_interval, c, i) for i, c in enumerate(passes, 1))
        n_wrong_fixed += any(not holds(wilson, c, i) for i, c in enumerate(passes, 1))

    assert n_wrong / n_runs <= 0.05 + 3 * (0.05 * 0.95 / n_runs) ** 0.5
    assert n_wrong_fixed / n_runs > 0.12


def test_looking_after_every_case_rarely_sees_a_difference_that_is_none() -> None:
    chance, n_runs, n = Random(11), 300, 60
    n_wrong = 0
    for _ in range(n_runs):
        differences = [float(chance.choice((-1, 0, 0, 1))) for _ in range(n)]
        found = difference_interval(differences)  # what was once ruled out stays so: the last look has seen all
        n_wrong += not found.low <= 0 <= found.high

    assert n_wrong / n_runs <= 0.05 + 3 * (0.05 * 0.95 / n_runs) ** 0.5


def _holds(interval: Any, rate: float) -> bool:
    return bool(interval.low <= rate <= interval.high)
