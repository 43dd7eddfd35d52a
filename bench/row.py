"""One line of the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A figure; `budget` is DESIGN's target in the same unit, None where there is none.

    `cpu_s`: processor time that was spent to take it, over all processes of ours; `load`: how many processes of the
    machine wanted a processor when it was taken. `make bench` fills in those that a measure leaves out.
    """

    what: str
    value: float
    unit: str
    budget: float | None = None
    cpu_s: float | None = None
    load: float | None = None


def rounded(value: float, digits: int = 3) -> float:
    """`value` to so many significant digits."""
    return float(f"{value:.{digits}g}")
