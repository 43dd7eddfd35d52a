"""Where a true number probably lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """Where the true value probably lies, 95 %."""

    low: float
    high: float
