"""Words about review queues that more than one of their pages says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.errors import NotFoundError
from evaldesk.model.queues import QUEUE_KINDS, Queue, QueueItem, QueueKind
from evaldesk.model.stored import RunSummary

SAID: Mapping[str, str] = {"passed": "pass", "failed": "fail", "unsure": "unsure"}
DECIDED = ("passed", "failed")


def runs_of(desk: Desk, queue: Queue) -> dict[int, RunSummary]:
    """The runs of a queue that are still there."""
    found = {}
    for run_id in queue.run_ids:
        with suppress(NotFoundError):
            found[run_id] = desk.store.runs.summary(run_id)
    return found


def queue_title(queue: Queue, runs: Mapping[int, RunSummary]) -> str:
    """`Run 61, trips`; of several runs their numbers."""
    ids = queue.run_ids
    if len(ids) == 1:
        return run_title(runs[ids[0]]) if ids[0] in runs else f"Run {ids[0]}"
    return f"Runs {', '.join(map(str, ids))}"


def queue_words(queue: Queue) -> str:
    """`10 of 40 failed, 10 of 157 passed trials`."""
    n: Counter[QueueKind] = Counter()
    n_all: Counter[QueueKind] = Counter()
    for each in queue.strata:
        n[each.kind] += each.n
        n_all[each.kind] += each.n_all
    found = [f"{n[kind]:,} of {n_all[kind]:,} {QUEUE_KINDS[kind][0]}" for kind in queue.kinds if n_all[kind]]
    return f"{', '.join(found)}, drawn at random" if found else ""


def trial_name(item: QueueItem) -> str:
    """`norway_with_children, trial 2`."""
    return f"{item.case_id}, trial {item.key[1] + 1}"
