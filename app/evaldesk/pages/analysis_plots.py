"""The plots of an analysis of several runs: differences against the first one, and cost against quality."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10

from evaldesk.model.conclusion import Interval
from evaldesk.model.experiment import Analysis, Difference, VariantDifference
from evaldesk.wording.experiments import variant_difference_words
from evaldesk.wording.words import cost_words

WIDTH, LEFT, RIGHT = 360, 28, 88
ROW = 28
HIGH, TOP, BOTTOM = 230, 10, 40


@dataclass(frozen=True, slots=True)
class ForestRow:
    """A difference: its variant by letter, its place from above, its ends as x, and its words.

    `low` and `high` hold for this difference alone, `family_low` and `family_high` for all at once.
    """

    letter: str
    y: int
    x: float
    low: float
    high: float
    family_low: float
    family_high: float
    points: str
    name: str
    words: str
    word: Difference


@dataclass(frozen=True, slots=True)
class Forest:
    """Differences of pass rates in points, the baseline at `zero`."""

    baseline: str
    rows: Sequence[ForestRow]
    zero: float
    ticks: Sequence[tuple[float, str]]
    height: int


@dataclass(frozen=True, slots=True)
class ScatterPoint:
    """A variant by its cost of a trial and its pass rate, with the ends of both intervals.

    It `is_hollow` where another is no dearer and no worse by points alone, which may be chance.
    """

    letter: str
    x: float
    y: float
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    is_hollow: bool
    words: str


@dataclass(frozen=True, slots=True)
class Scatter:
    """Cost of a trial, on a logarithmic axis, against the pass rate."""

    points: Sequence[ScatterPoint]
    levels: Sequence[tuple[float, str]]
    ticks: Sequence[tuple[float, str]]
    note: str


def forest_of(analysis: Analysis, letters: Mapping[str, str]) -> Forest | None:
    """The differences against the baseline, best first; None where none has a value."""
    return forest_of_differences(
        best_first(analysis.differences), letters.get(analysis.baseline, analysis.baseline), letters
    )


def best_first(differences: Iterable[VariantDifference]) -> list[VariantDifference]:
    """The differences from the largest to the smallest, then those without a value."""
    return sorted(differences, key=lambda each: inf if each.value is None else -each.value)


def forest_of_differences(
    differences: Sequence[VariantDifference], baseline: str, letters: Mapping[str, str]
) -> Forest | None:
    """Differences that are adjusted together, in order; None where none has a value."""
    shown_differences = [each for each in differences if each.value is not None]
    if not shown_differences:
        return None
    ends = [0.0]
    for each in shown_differences:
        family = each.family_interval or each.interval
        ends += [each.value or 0.0, *((family.low, family.high) if family else ())]
    step = _step(100 * (max(ends) - min(ends)))
    least, most = step * floor(100 * min(ends) / step), step * ceil(100 * max(ends) / step)
    span = max(most - least, step)

    def place(points: float) -> float:
        return round(LEFT + (points - least) / span * (WIDTH - LEFT - RIGHT), 1)

    rows = []
    for number, each in enumerate(shown_differences):
        value = 100 * (each.value or 0.0)
        own = each.interval or Interval(value / 100, value / 100)
        family = each.family_interval or own
        rows.append(
            ForestRow(
                letters.get(each.variant, "?"),
                14 + number * ROW,
                place(value),
                place(100 * own.low),
                place(100 * own.high),
                place(100 * family.low),
                place(100 * family.high),
                _signed(value),
                each.variant,
                variant_difference_words(each),
                each.word,
            )
        )
    count = round(span / step)
    ticks = [(place(least + at * step), _signed(least + at * step)) for at in range(count + 1)]
    return Forest(baseline, rows, place(0.0), ticks, 14 + len(rows) * ROW + 16)


def _signed(points: float) -> str:
    """`+12`, `−3` or `0`."""
    number = round(points)
    return f"{number:+d}".replace("-", "−") if number else "0"


def _step(span: float) -> float:
    return next((step for step in (1, 2, 5, 10, 20, 25) if span / step <= 6), 50)


def scatter_of(analysis: Analysis, letters: Mapping[str, str], costs: Mapping[str, Interval | None]) -> Scatter | None:
    """Cost against quality of the variants whose cost is known; None for fewer than two. `costs` are intervals."""
    rates = [each for each in analysis.rates if each.rate is not None and each.cost and each.cost > 0]
    if len(rates) < 2:
        return None
    ends = [each.cost or 0.0 for each in rates]
    for each in rates:
        interval = costs.get(each.variant)
        if interval:
            ends += [end for end in (interval.low, interval.high) if end > 0]
    least, most = log10(min(ends)), log10(max(ends))
    least, most = least - 0.1, max(most + 0.1, least + 0.3)

    def across(cost: float) -> float:
        return round(44 + (log10(max(cost, 10**least)) - least) / (most - least) * (WIDTH - 60), 1)

    lows = [each.interval.low if each.interval else each.rate or 0.0 for each in rates]
    bottom = floor(10 * min(lows)) / 10

    def up(rate: float) -> float:
        return round(TOP + (1 - rate) / max(1 - bottom, 0.1) * (HIGH - TOP - BOTTOM), 1)

    points = []
    for each in rates:
        rate, cost = each.rate or 0.0, each.cost or 0.0
        interval, of_cost = each.interval or Interval(rate, rate), costs.get(each.variant) or Interval(cost, cost)
        points.append(
            ScatterPoint(
                letters.get(each.variant, "?"),
                across(cost),
                up(rate),
                across(of_cost.low),
                across(of_cost.high),
                up(interval.low),
                up(interval.high),
                each.is_dominated_by_points,
                f"{each.variant}: {100 * rate:.0f} % at {cost_words(cost)} a trial",
            )
        )
    n_levels = round((1 - bottom) * 10)
    every = 1 if n_levels <= 5 else 2
    levels = [(up(1 - at / 10), f"{100 - 10 * at} %") for at in range(0, n_levels + 1, every)]
    exponents = range(floor(least), ceil(most) + 1)
    costs_on_axis = [digit * 10.0**exponent for exponent in exponents for digit in (1, 2, 5)]
    ticks = [(across(cost), cost_words(cost)) for cost in costs_on_axis if least <= log10(cost) <= most]
    dominated = [each.variant for each in rates if each.dominated_by]
    note = (
        f"Dominated beyond doubt: {', '.join(dominated)}."
        if dominated
        else "No variant is dominated: none is both dearer and worse beyond doubt."
    )
    return Scatter(points, levels, ticks[:: max(1, len(ticks) // 4)], note)
