"""The block "Changed between these runs" of a comparison and of a trend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.run_changes import RunDifference, differences
from evaldesk.model.set_trend import TrendRun
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store

MOST_RUNS = 50
"""The newest runs of a trend, between which changes are looked for."""
MOST_STEPS = 10
MOST_CASES_READ = 100_000


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The changes of cases, criteria and gates from one run to a later one."""

    before: int
    after: int
    changes: Sequence[RunDifference]


def changes_between(store: Store, before: RunSummary, after: RunSummary) -> tuple[RunChanges, ...]:
    """The changes from one run to another; empty without any."""
    changes = differences(store, before, after)
    return (RunChanges(before.id, after.id, changes),) if changes else ()


def changes_of_columns(store: Store, summaries: Sequence[RunSummary]) -> tuple[RunChanges, ...]:
    """The changes from the first of some runs to each other one; of large sets only the first ones."""
    first, *others = summaries
    changes: list[RunChanges] = []
    n_cases = 0
    for run in others:
        conditions = [
            (each.config.set_version, each.n_cases, each.config.criteria, each.config.gates, each.config.without)
            for each in (first, run)
        ]
        if conditions[0] == conditions[1] and run.config.set_version and first.config.left_out == run.config.left_out:
            continue
        n_cases += first.n_cases + run.n_cases
        if changes and n_cases > MOST_CASES_READ:
            break
        changes.extend(changes_between(store, first, run))
    return tuple(changes)


def changes_of_trend(desk: Desk, runs: Sequence[TrendRun]) -> tuple[RunChanges, ...]:
    """The changes from each run of a trend to the next, the newest first.

    There are at most MOST_STEPS, of large sets fewer. A renamed case is no change, as in the line of the trend.
    """
    summaries = {run.id: run for run in desk.store.runs.summaries([run.id for run in runs[-MOST_RUNS:]])}
    changes: list[RunChanges] = []
    n_cases = 0
    for later, earlier in pairwise(runs[: -MOST_RUNS - 1 : -1]):
        before, after = summaries.get(earlier.id), summaries.get(later.id)
        if before is None or after is None:
            continue
        bars = [(run.config.gates, set(run.config.left_out), run.config.without) for run in (before, after)]
        if later.line == earlier.line and bars[0] == bars[1]:
            continue
        n_cases += before.n_cases + after.n_cases
        if len(changes) == MOST_STEPS or (changes and n_cases > MOST_CASES_READ):
            break
        changes.extend(changes_between(desk.store, before, after))
    return tuple(changes)
