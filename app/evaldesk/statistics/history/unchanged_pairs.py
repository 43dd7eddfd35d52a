"""How often a gate failed runs of an unchanged agent against each other: false alarms measured, not computed.

(reference/forecasts.md 7)
"""

from __future__ import annotations

from dataclasses import replace

from evaldesk.model.forecast import UnchangedPairs
from evaldesk.statistics.intervals import wilson

FEWEST_RUNS = 6
FEWEST_COMPARED = 20
"""Runs from which on the measured share is set beside the computed one."""


def unchanged_pairs(n_runs: int, n_failed: int) -> UnchangedPairs:
    """The pairs with the interval of their share: each run counts once, since its pairs are not independent."""
    pairs = UnchangedPairs(n_runs, n_failed)
    return replace(pairs, interval=wilson(pairs.share * n_runs, n_runs)) if n_runs >= FEWEST_RUNS else pairs
