"""The block "Changed between these runs" of a comparison and of a trend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from evaldesk.desk.runs.run_changes import RunDifference, differences
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store

MAX_STEPS = 50


@dataclass(frozen=True, slots=True)
class RunChanges:
    """The changes of cases, criteria and gates from one run to a later one."""

    before: int
    after: int
    changes: Sequence[RunDifference]


def changes_between(store: Store, runs: Sequence[RunSummary]) -> tuple[RunChanges, ...]:
    """The changes from each run to the next, in the order of `runs`; steps without a change are left out.

    Only the last MAX_STEPS steps are read.
    """
    steps = (
        RunChanges(before.id, after.id, differences(store, before, after))
        for before, after in pairwise(runs[-MAX_STEPS - 1 :])
    )
    return tuple(step for step in steps if step.changes)
