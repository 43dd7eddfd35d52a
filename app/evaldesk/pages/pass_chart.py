"""The curves of pass@k and pass^k as a drawing: coordinates for SVG, in units of its view box."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaldesk.model.conclusion import counted
from evaldesk.statistics.intervals import CurvePoint

WIDTH, HEIGHT = 440, 272
LEFT, RIGHT, TOP, BOTTOM = 40, 428, 36, 232
MAX_MARKS = 40
LOG_BEYOND = 20
TICK_WIDTH = 16.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One point of a curve, with its text."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve, the first or the second series; `lines` are runs of defined neighbours, as `x,y x,y`."""

    series: int
    lines: Sequence[str]
    marks: Sequence[Mark]


@dataclass(frozen=True, slots=True)
class PassChart:
    """Both curves, the ticks of k as (x, k), and those of the probability as (y, text)."""

    curves: Sequence[Curve]
    ks: Sequence[tuple[float, int]]
    levels: Sequence[tuple[float, str]]


# Plotly would be a task of 800 ms at each visit: decision 064.
def pass_chart(points: Sequence[CurvePoint]) -> PassChart:
    """The drawing of at least two points. The k axis is logarithmic beyond 20, as in the interactive chart."""
    ks = [point.k for point in points]
    place = _places(min(ks), max(ks))
    return PassChart(
        curves=(
            _curve(1, "at least one of k passes", points, place, lambda point: point.pass_at_k),
            _curve(2, "all k pass", points, place, lambda point: point.pass_hat_k),
        ),
        ks=_ticks([(place(k), k) for k in ks if max(ks) <= LOG_BEYOND or k & (k - 1) == 0 or k == max(ks)]),
        levels=[(_height(level / 4), f"{level / 4:.2f}") for level in range(5)],
    )


def _curve(
    series: int,
    meaning: str,
    points: Sequence[CurvePoint],
    place: Callable[[int], float],
    value: Callable[[CurvePoint], float | None],
) -> Curve:
    lines: list[list[str]] = [[]]
    marks = []
    for point in points:
        rate = value(point)
        if rate is None:
            lines.append([])
            continue
        x, y = place(point.k), _height(rate)
        lines[-1].append(f"{x:g},{y:g}")
        cases = counted(point.n_cases, "case")
        marks.append(Mark(x, y, f"k {point.k}: {rate:.2f}, {meaning}, {cases}"))
    step = math.ceil(len(marks) / MAX_MARKS) or 1
    return Curve(series, [" ".join(line) for line in lines if len(line) > 1], marks[::step])


def _places(first: int, last: int) -> Callable[[int], float]:
    scale: Callable[[float], float] = math.log if last > LOG_BEYOND else float
    start, end = scale(first), scale(last)
    return lambda k: round(LEFT + 12 + (RIGHT - LEFT - 24) * (scale(k) - start) / (end - start), 1)


def _height(value: float) -> float:
    return round(BOTTOM - (BOTTOM - TOP) * value, 1)


def _ticks(ticks: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The ticks that fit, always with the last."""
    fitting_ticks: list[tuple[float, int]] = []
    for tick in reversed(ticks):
        if not fitting_ticks or fitting_ticks[-1][0] - tick[0] >= TICK_WIDTH:
            fitting_ticks.append(tick)
    return fitting_ticks[::-1]
