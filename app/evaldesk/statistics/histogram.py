"""How scores are spread: counts in bins of equal width."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

MAX_WHOLE = 20


@dataclass(frozen=True, slots=True)
class Bin:
    """`n` scores from `low` up to, but for the last bin without, `high`; a single value where both are the same."""

    low: float
    high: float
    n: int


def histogram(scores: Iterable[tuple[float, int]], low: float, high: float, n_bins: int = 10) -> tuple[Bin, ...]:
    """The scores, each with its count, in bins between `low` and `high`, the ends of the possible range.

    Where `high` is infinite the bins end with the highest score. Few whole numbers, such as counts, have a bin each.
    """
    rows = [(value, n) for value, n in scores if isfinite(value) and n > 0]
    if not rows:
        return ()
    least, most = min(value for value, _ in rows), max(value for value, _ in rows)
    if not isfinite(low) or not isfinite(high):
        low, high = least, most
        start = min(0.0, least)
        if all(value == int(value) for value, _ in rows) and most - start <= MAX_WHOLE:
            return _whole_number_bins(rows, int(start), int(most))
    low, high = min(low, least), max(high, most)
    if low == high:
        return (Bin(low, high, sum(n for _, n in rows)),)
    counts = [0] * n_bins
    for value, n in rows:
        counts[min(n_bins - 1, _place(value, low, high, n_bins))] += n
    edges = [low + at * (high - low) / n_bins for at in range(n_bins + 1)]
    return tuple(Bin(edges[at], edges[at + 1], n) for at, n in enumerate(counts))


def _whole_number_bins(rows: Iterable[tuple[float, int]], least: int, most: int) -> tuple[Bin, ...]:
    counts = dict.fromkeys(range(least, most + 1), 0)
    for value, n in rows:
        counts[int(value)] += n
    return tuple(Bin(float(value), float(value), n) for value, n in counts.items())


def _place(value: float, low: float, high: float, n_bins: int) -> int:
    """The bin of a value; 0.3 of 0 to 1 begins the fourth of ten, though 0.3 / 0.1 is just below 3."""
    return int((value - low) / (high - low) * n_bins + 1e-9)
