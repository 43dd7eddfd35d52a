"""Change points of pass rates: the golden series, false alarms, and several changes of one series."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.statistics.change_points import FEWEST_RUNS, LEVEL, best_split, change_points

SERIES = golden("sets")["change_points"]


@pytest.mark.parametrize("row", SERIES, ids=[str(row["word"]) + str(at) for at, row in enumerate(SERIES)])
def test_a_series_has_the_golden_split(row: dict[str, Any]) -> None:
    split = best_split(row["series"])

    assert split is not None
    assert split.n_before == row["runs_before"]
    assert split.statistic == pytest.approx(row["statistic"], abs=1e-12)
    assert split.p == pytest.approx(row["p"], abs=1e-12)
    assert split.step_squares == pytest.approx(row["sse_step"], abs=1e-12)
    assert split.line_squares == pytest.approx(row["sse_line"], abs=1e-12)


@pytest.mark.parametrize("row", SERIES, ids=[str(row["word"]) + str(at) for at, row in enumerate(SERIES)])
def test_a_change_is_told_only_where_a_test_supports_it(row: dict[str, Any]) -> None:
    points = change_points(row["series"])

    assert [point.word for point in points] == ([] if row["word"] == "none" else [row["word"]])
    assert [point.at + 1 for point in points] == ([] if row["word"] == "none" else [row["runs_before"]])


def test_too_few_runs_have_no_change_point() -> None:
    assert best_split([0.9] * (FEWEST_RUNS - 1)) is None
    assert change_points([0.9, 0.1] * 3) == []
    assert change_points([]) == []


def test_false_alarms_are_within_the_level_and_a_fall_is_found() -> None:
    n_series, chance = 300, random.Random(11)

    def rate(p: float) -> float:
        return sum(chance.random() < p for _ in range(100)) / 100

    alarms = sum(bool(change_points([rate(0.9) for _ in range(20)])) for _ in range(n_series))
    hits = sum(bool(change_points([rate(0.9 if at < 12 else 0.75) for at in range(20)])) for _ in range(40))

    assert alarms / n_series <= LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / n_series)
    assert hits == 40


def test_several_changes_are_found_in_the_longer_part_and_at_most_three() -> None:
    rates = [0.9 + 0.001 * (at % 3) for at in range(20)] + [0.6 + 0.001 * (at % 3) for at in range(20)]
    rates += [0.3 + 0.001 * (at % 3) for at in range(10)]

    points = change_points(rates)

    assert {point.at for point in points} <= {19, 39}
    assert len(points) == 2
    assert len(change_points([level for level in (0.9, 0.7, 0.5, 0.3, 0.1) for _ in range(12)])) <= 3


def test_the_answer_is_the_same_each_time() -> None:
    rates = [random.Random(3).random() for _ in range(5)] * 4

    assert best_split(rates) == best_split(list(rates))
