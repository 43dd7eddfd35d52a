"""Words for two runs compared: the verdict first, then points (1 % of a rate or of a 0-to-1 score), p last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evaldesk.report.comparison import Comparison, Flips
from evaldesk.report.words import FEW_CASES, counted_words, number_words


@dataclass(frozen=True, slots=True)
class Unit:
    """How the difference of one quantity is said: what more of it is called, what less, and amounts in words.

    `say` gives amounts without their sign, told apart from one another where they differ; `nouns` follow the number.
    """

    more: str
    less: str
    say: Callable[..., list[str]]
    nouns: tuple[str, str] = ("", "")

    def amount(self, value: float) -> str:
        """`17 points`."""
        said = self.say(value)[0]
        return f"{said} {self.nouns[0] if said == '1' else self.nouns[1]}".rstrip()

    def way(self, value: float) -> str:
        """What a difference of that sign is called."""
        return self.more if value > 0 else self.less


def comparison_sentence(comparison: Comparison | None, unit: Unit | None = None) -> str:
    """`Better by 17 points; could be 5–29. 12 cases, p 0.027`, or that the runs are not distinguishable.

    In points, 1 % of a rate or of a 0-to-1 score, unless the difference has another unit.
    """
    if comparison is None:
        return "No case has a score in both runs"
    cases = "1 case" if comparison.n_cases == 1 else f"{comparison.n_cases:,} cases"
    return f"{difference_words(comparison, unit)}. {cases}, {p_words(comparison.p)}"


def difference_words(comparison: Comparison, unit: Unit | None = None) -> str:
    """The first half of the sentence: `Better by 17 points; could be 5–29`."""
    unit = unit or POINTS
    difference, interval = comparison.difference, comparison.interval
    if comparison.is_distinguishable:
        by = f"{unit.way(difference).capitalize()} by {unit.amount(difference)}"
        if interval is None:
            return f"{by} in every case"
        near, far = unit.say(*sorted((abs(interval.low), abs(interval.high))))
        return f"{by}; could be {near}–{far}"
    is_moved = abs(difference) > 1e-9
    apart = f"{unit.amount(difference)} {unit.way(difference)}" if is_moved else "no difference in the mean"
    if interval is None:
        return f"Not distinguishable: {apart}"
    could = f"could be {_end(interval.low, unit)} to {_end(interval.high, unit)}"
    doubt = ", but too few cases moved to be sure" if interval.low > 0 or interval.high < 0 else ""
    return f"Not distinguishable: {apart}; {could}{doubt}"


def flips_sentence(flips: Flips) -> str:
    """`8 fixed, 1 broken; p 0.039`, or that this could be chance."""
    if not flips.n_cases:
        return "No case has a verdict in both runs"
    if not flips.fixed and not flips.broken:
        return "No verdict changed"
    chance = "" if flips.is_distinguishable else "not distinguishable from chance, "
    return f"{len(flips.fixed):,} fixed, {len(flips.broken):,} broken; {chance}{p_words(flips.p)}"


def pairing_note(compared: Comparison | Flips) -> str:
    """Said where the runs do not have the same cases; else empty."""
    alone = [(compared.n_only_before, "earlier"), (compared.n_only_after, "later")]
    said = [f"{n:,} only in the {which} run" for n, which in alone if n]
    return f"Left out: {', '.join(said)}." if said else ""


def changes_sentence(n_distinguishable: int, n_compared: int) -> str:
    """`3 of 50 changes stand out after correction for many comparisons`."""
    if not n_compared:
        return "Nothing to compare"
    stand = "stands" if n_distinguishable == 1 else "stand"
    return f"{counted_words(n_distinguishable, n_compared, 'change')} {stand} out after correction for many comparisons"


def gap_sentence(n_cases: int, n_trials: int, gap: float | None) -> str:
    """`With 20 cases × 5 trials you can see differences of about 26 points` and more; `gap` as `smallest_gap`."""
    if gap is None:
        return "Without cases and trials no difference can be seen"
    cases = "1 case" if n_cases == 1 else f"{n_cases:,} cases"
    trials = "1 trial" if n_trials == 1 else f"{n_trials:,} trials"
    if gap > 1:
        return f"With {cases} × {trials} no difference can be told from chance; add cases"
    best = " at best" if n_cases < FEW_CASES else ""
    seen = f"you can see differences of about {points_words(gap)}{best}"
    return f"With {cases} × {trials} {seen}; smaller ones will look like chance"


def points_words(difference: float) -> str:
    """`17 points` for 0.17 or -0.17, with more digits only below one point."""
    return POINTS.amount(difference)


def p_words(p: float) -> str:
    """`p 0.027`, two digits that count; `p < 0.001` below that."""
    if p < 0.001:
        return "p < 0.001"
    return f"p {p:.2f}" if p >= 0.1 else f"p {p:.3f}"


def _end(value: float, unit: Unit) -> str:
    return f"{unit.say(value)[0]} {unit.way(value)}"


def _points(*rates: float) -> list[str]:
    """Rates as points without sign, with just as many digits that none but 0 reads 0 and no two read the same.

    No rate differs by more than 100 points, though the end of an interval may lie beyond.
    """
    rates = tuple(min(abs(rate), 1.0) for rate in rates)
    for digits in (0, 1, 2):
        said = [f"{100 * rate:.{digits}f}" for rate in rates]
        if len(set(said)) == len(said) and all(float(one) for one, rate in zip(said, rates, strict=True) if rate):
            break
    return said


def _numbers(*values: float) -> list[str]:
    return [number_words(abs(value)) for value in values]


def _durations(*ms: float) -> list[str]:
    if all(abs(each) < 1000 for each in ms):
        return [f"{abs(each):.0f} ms" for each in ms]
    return [f"{abs(each) / 1000:.1f} s" for each in ms]


def _dollars(*costs: float) -> list[str]:
    digits = 2 if all(abs(cost) >= 1 for cost in costs if cost) else 4
    return [f"${abs(cost):.{digits}f}" for cost in costs]


POINTS = Unit("better", "worse", _points, ("point", "points"))
SCORES = Unit("better", "worse", _numbers)
FEWER_IS_BETTER = Unit("worse", "better", _numbers)
MILLISECONDS = Unit("slower", "faster", _durations)
DOLLARS = Unit("dearer", "cheaper", _dollars)
