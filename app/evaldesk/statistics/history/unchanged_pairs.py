"""How often a gate failed runs of an unchanged agent against each other: false alarms measured, not computed.

(reference/forecasts.md 7)
"""

from __future__ import annotations

from dataclasses import dataclass

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import wilson

FEWEST_RUNS = 6
FEWEST_COMPARED = 20
"""Runs from which on the measured share is set beside the computed one."""


@dataclass(frozen=True, slots=True)
class UnchangedPairs:
    """All ordered pairs of `n_runs` stored runs of one agent, the first as the baseline: the gate fails `n_failed`."""

    n_runs: int
    n_failed: int

    @property
    def n_pairs(self) -> int:
        """How many pairs there are."""
        return self.n_runs * (self.n_runs - 1)

    @property
    def share(self) -> float:
        """The share of pairs that fail; 0 without any."""
        return self.n_failed / self.n_pairs if self.n_pairs else 0.0

    @property
    def interval(self) -> Interval:
        """Its 95 % interval: each run counts once, since its pairs are not independent."""
        return wilson(self.share * self.n_runs, self.n_runs)

    @property
    def is_measured(self) -> bool:
        """Whether there are enough runs to say a share."""
        return self.n_runs >= FEWEST_RUNS
