"""The budget of a day for runs of coding agents; beside them, so that their server starts without a desk."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from evaldesk.errors import UsageError

MARK = "Started through the door for coding agents."
"""The note of runs of coding agents, which no client can change; the day's budget counts them by it."""
_BUDGET = re.compile(r"(?P<amount>\d{1,9}(?:\.\d{1,6})?)\s*usd/day", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Budget:
    """The most that runs of coding agents may cost in a day of UTC, in US dollars.

    `clock` tells the day; without one it is the clock of the store, which dates the runs.
    """

    usd: float
    clock: Callable[[], datetime] | None = None

    @classmethod
    def read(cls, text: str) -> Budget:
        """The budget in a text such as `5usd/day`. Raises UsageError."""
        match = _BUDGET.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"--budget {text}: write the dollars of a day, such as 5usd/day")
        return cls(float(match["amount"]))
