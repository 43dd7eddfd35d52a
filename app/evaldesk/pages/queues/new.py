"""The form for a review queue, and the queues there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.model.queues import QUEUE_KINDS, QueueKind, QueueProgress
from evaldesk.model.stored import RunSummary
from evaldesk.pages.queues.words import queue_title, queue_words, runs_of

N_QUEUES = 10


@dataclass(frozen=True, slots=True)
class KindChoice:
    """A kind of trials that a new queue can be drawn from; `n` is None where it is counted only when it is drawn."""

    kind: QueueKind
    title: str
    words: str
    n: int | None
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class NewQueuePage:
    """The form for a queue, and the queues there are."""

    runs: Sequence[tuple[RunSummary, str]]
    chosen: Sequence[tuple[RunSummary, str]]
    kinds: Sequence[KindChoice]
    n: str
    reader: str
    is_blind: bool
    queues: Sequence[tuple[QueueProgress, str, str]]
    problem: str = ""
    field: str = ""


def new_queue_page(
    desk: Desk,
    run_ids: Sequence[int],
    kinds: Collection[str],
    n: str = "",
    *,
    reader: str = "",
    is_blind: bool = True,
    problem: str = "",
    field: str = "",
) -> NewQueuePage:
    """The form for a queue of these runs, of the newest one without any. Raises NotFoundError."""
    runs = desk.store.runs.list(limit=50)
    chosen = [desk.store.runs.summary(run_id) for run_id in run_ids] or runs[:1]
    who = desk.queues.reader(reader)
    candidates = [desk.queues.candidates(run.id, who) for run in chosen]
    counts = {
        kind: None if kind == "disputed" else sum(len(each.found(kind)) for each in candidates) for kind in QUEUE_KINDS
    }
    wanted = {kind for kind in QUEUE_KINDS if kind in kinds} or {"failed"}
    return NewQueuePage(
        runs=[(run, run_title(run)) for run in runs if run not in chosen],
        chosen=[(run, run_title(run)) for run in chosen],
        kinds=[
            KindChoice(kind, title, words, counts[kind], kind in wanted) for kind, (title, words) in QUEUE_KINDS.items()
        ],
        n=n or "40",
        reader=who,
        is_blind=is_blind,
        queues=[
            (each, queue_title(each.queue, runs_of(desk, each.queue)), queue_words(each.queue))
            for each in desk.store.queues.list(who, N_QUEUES)
        ],
        problem=problem,
        field=field,
    )
