"""The drawing of pass@k and pass^k: every defined point is where its value is, and nothing leaves the box."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.options_of_a_run import config_with, run_of

from evaldesk.desk.runs.gates.conclusion import RunNumbers, conclude
from evaldesk.model import Counts, Gates
from evaldesk.pages.pass_chart import BOTTOM, HEIGHT, LEFT, MAX_MARKS, RIGHT, TICK_WIDTH, TOP, WIDTH, pass_chart
from evaldesk.pages.reports.markdown import SummaryPart, markdown_summary
from evaldesk.pages.runs.view import Reliability, reliability
from evaldesk.statistics.intervals import CurvePoint, pass_curve
from evaldesk.web.render import environment

VALUE = st.none() | st.floats(0, 1)
POINTS = st.lists(st.tuples(VALUE, VALUE, st.integers(0, 3000)), min_size=2, max_size=300).map(
    lambda rows: [CurvePoint(k, *row) for k, row in enumerate(rows, start=1)]
)


@given(POINTS)
def test_points_stand_where_their_values_are(points: list[CurvePoint]) -> None:
    chart = pass_chart(points)

    for curve, values in zip(
        chart.curves, ([p.pass_at_k for p in points], [p.pass_hat_k for p in points]), strict=True
    ):
        drawn = [tuple(map(float, pair.split(","))) for line in curve.lines for pair in line.split(" ")]
        assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for x, y in drawn)
        assert len(curve.marks) <= MAX_MARKS
        defined = [value for value in values if value is not None]
        heights = [(BOTTOM - mark.y) / (BOTTOM - TOP) for mark in curve.marks]
        step = max(1, math.ceil(len(defined) / MAX_MARKS))
        assert all(abs(a - b) < 0.001 for a, b in zip(heights, defined[::step], strict=True))
        assert all(f"{value:.2f}" in mark.text for value, mark in zip(defined[::step], curve.marks, strict=True))


@given(POINTS)
def test_lines_join_neighbours_only(points: list[CurvePoint]) -> None:
    values = [point.pass_at_k for point in points]
    neighbours = sum(a is not None and b is not None for a, b in itertools.pairwise(values))

    assert sum(line.count(" ") for line in pass_chart(points).curves[0].lines) == neighbours


@given(POINTS)
def test_ticks_name_the_ends_and_have_room(points: list[CurvePoint]) -> None:
    chart = pass_chart(points)
    xs = [x for x, _ in chart.ks]

    assert chart.ks[-1][1] == points[-1].k
    assert xs == sorted(set(xs))
    assert all(0 < x < WIDTH for x in xs)
    assert all(b - a >= TICK_WIDTH for a, b in itertools.pairwise(xs))
    assert [text for _, text in chart.levels] == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert all(0 < y < HEIGHT for y, _ in chart.levels)


@pytest.mark.parametrize(
    ("n", "shown", "folded"),
    [
        (1, [1], []),
        (5, [1, 2, 3, 4, 5], []),
        (7, [1, 2, 3, 5, 7], [4, 6]),
        (20, [1, 2, 3, 5, 10, 20], [4, 6, 7, 8, 9, *range(11, 20)]),
        (50, [1, 2, 3, 5, 10, 50], [4, 6, 7, 8, 9, *range(11, 21), 32]),
    ],
)
def test_the_table_shows_few_values_of_k_and_folds_the_rest(n: int, shown: list[int], folded: list[int]) -> None:
    found = Reliability(None, "", "", "", pass_curve([(n, n // 2, 4)]), None, None, "", "")

    table: Any = getattr(environment().get_template("runs/parts.html").module, "curve_table")  # noqa: B009 - a macro
    page = str(table(found, 4))

    assert [point.k for point in found.table_points] == shown
    assert [point.k for point in found.folded] == folded
    assert page.count('<th scope="row"') == len(shown) + len(folded)
    numbers = RunNumbers(Counts(4 * n, n // 2 * 4, 4 * n - n // 2 * 4), ((n, n // 2, 4),))
    summary = markdown_summary([SummaryPart("", numbers, {})], conclude(Gates(), numbers))
    assert [int(k) for k in re.findall(r"^\| (\d+) \|", summary, re.MULTILINE)] == (shown if n > 1 else [])
    assert (f"{len(folded)} more values of k" in page) == bool(folded)


def test_a_lost_trial_shortens_the_curve_and_the_page_says_so() -> None:
    run = replace(run_of(config_with(n=5)), counts=Counts(10, 9, 0, errored=1))

    found, point = reliability([(5, 5, 1), (4, 4, 1)], run, 5)

    assert [each.k for each in found.points] == [1, 2, 3, 4]
    assert found.note == "The rows end at k = 4, the fewest scored trials of a case."
    assert (point.k, point.n_cases, point.pass_hat_k) == (5, 1, None)
