"""One line of the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A figure; `budget` is DESIGN's target in the same unit, None where there is none."""

    what: str
    value: float
    unit: str
    budget: float | None = None


def rounded(value: float, digits: int = 3) -> float:
    """`value` to so many significant digits."""
    return float(f"{value:.{digits}g}")
