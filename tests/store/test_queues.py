"""Review queues on both engines: labels of a queue, the steps that take them back, and what goes with a run."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.model.failures import FindingDraft
from evaldesk.model.queues import GivenLabel, QueueDraft, QueueStratum
from evaldesk.store import Store
from evaldesk.store.queues import moment_id

N = 4


@pytest.fixture
def run_id(store: Store, plan: Any, end: Any) -> int:
    """A run of four cases whose trials failed."""
    run: int = plan(N, n=1)
    store.runs.record([end(run, at, 0, verdict="failed") for at in range(N)])
    return run


@pytest.fixture
def queue(store: Store, run_id: int, clock: Any) -> int:
    """A queue of these trials."""
    drafts = [QueueDraft(run_id, (at, 0), run_id, "failed") for at in range(N)]
    found = store.queues.create([QueueStratum(run_id, "failed", N, N)], drafts, "jo", is_blind=True)
    clock.move(seconds=1)
    return found


def give(store: Store, queue: int, place: int, verdict: str, reader: str = "jo", note: str | None = "") -> int:
    """A verdict by somebody who sees what stands there."""
    label = store.queues.items(queue, reader)[place - 1].label
    seen = GivenLabel(place, moment_id(label.labelled_at) if label else 0)
    return store.queues.give(queue, [seen], reader, verdict, note, is_blind=False)


def read(store: Store, queue: int, reader: str = "jo") -> list[str]:
    return [item.verdict if item.is_read else "" for item in store.queues.items(queue, reader)]


def test_a_queue_says_what_it_was_drawn_from(store: Store, queue: int, run_id: int) -> None:
    found = store.queues.get(queue)

    assert (found.strata, found.is_blind, found.author) == ([QueueStratum(run_id, "failed", N, N)], True, "jo")
    assert [(item.place, item.case_id, item.trial_verdict) for item in store.queues.items(queue, "jo")] == [
        (at + 1, f"c{at}", "failed") for at in range(N)
    ]


def test_a_trial_leaves_the_kinds_of_a_queue_with_its_run(store: Store, queue: int, run_id: int) -> None:
    store.failures.add(FindingDraft(run_id, 1, 0, "wrong day"), "jo", "dates")
    (mode,) = store.failures.modes()
    assert store.queues.findings(queue, "jo") == {mode.id: {2}}

    store.runs.delete(run_id)

    assert store.queues.findings(queue, "jo") == {}
    store.runs.restore(run_id)
    assert store.queues.findings(queue, "jo") == {mode.id: {2}}


def test_steps_are_taken_back_one_by_one_to_what_was_there(store: Store, queue: int, clock: Any) -> None:
    states = [read(store, queue)]
    for place, verdict in ((1, "failed"), (1, "passed"), (3, "unsure"), (1, "failed")):
        clock.move(seconds=1)
        give(store, queue, place, verdict)
        states.append(read(store, queue))

    for state in states[-2::-1]:
        store.queues.undo(queue, "jo")
        assert read(store, queue) == state

    with pytest.raises(NotFoundError):
        store.queues.undo(queue, "jo")


def test_many_labels_are_one_step(store: Store, queue: int) -> None:
    store.queues.give(queue, [GivenLabel(at + 1, 0) for at in range(N)], "jo", "passed", None, is_blind=True)
    assert [(each.n, each.is_blind) for each in store.queues.steps(queue, "jo")] == [(N, True)]

    assert sorted(store.queues.undo(queue, "jo")) == [1, 2, 3, 4]

    assert read(store, queue) == [""] * N


def test_a_label_that_was_changed_meanwhile_is_not_written_over(store: Store, queue: int, clock: Any) -> None:
    give(store, queue, 1, "failed")
    clock.move(seconds=1)

    with pytest.raises(ConflictError):
        store.queues.give(queue, [GivenLabel(2, 0), GivenLabel(1, 0)], "jo", "passed", None, is_blind=False)

    assert read(store, queue) == ["failed", "", "", ""]


def test_a_step_is_not_taken_back_over_a_later_label(store: Store, queue: int, run_id: int, clock: Any) -> None:
    give(store, queue, 1, "failed")
    clock.move(seconds=1)
    store.labels.put(run_id, (0, 0), None, "jo", "passed", "on the page of the trial")

    with pytest.raises(ConflictError):
        store.queues.undo(queue, "jo")

    assert store.queues.items(queue, "jo")[0].verdict == "passed"


def test_readers_do_not_meet(store: Store, queue: int) -> None:
    give(store, queue, 1, "failed")
    give(store, queue, 1, "passed", "sam")

    store.queues.undo(queue, "sam")

    assert store.queues.verdicts(queue) == {"jo": {1: "failed"}}
    assert [(each.n, each.n_read) for each in store.queues.list("jo")] == [(N, 1)]
    assert [(each.n, each.n_read) for each in store.queues.list("sam")] == [(N, 0)]


def test_a_label_of_before_is_read_again(store: Store, run_id: int, clock: Any) -> None:
    store.labels.put(run_id, (0, 0), None, "jo", "failed", "long ago")
    clock.move(seconds=1)
    draft = QueueDraft(run_id, (0, 0), run_id, "doubted")
    queue = store.queues.create([QueueStratum(run_id, "doubted", 1, 1)], [draft], "jo", is_blind=False)
    clock.move(seconds=1)
    assert read(store, queue) == [""]

    assert give(store, queue, 1, "failed", note=None) == 1

    assert read(store, queue) == ["failed"]
    label = store.queues.items(queue, "jo")[0].label
    assert label is not None
    assert label.note == "long ago"


def test_trials_leave_a_queue_with_their_run(store: Store, queue: int, run_id: int) -> None:
    give(store, queue, 1, "failed")

    store.runs.delete(run_id)

    assert store.queues.items(queue, "jo") == []
    assert store.queues.list("jo") == []
    with pytest.raises(NotFoundError):
        store.queues.give(queue, [GivenLabel(2, 0)], "jo", "failed", None, is_blind=False)
    store.runs.restore(run_id)
    assert read(store, queue)[0] == "failed"
    store.runs.delete(run_id)
    store.runs.remove_deleted()
    assert store.queues.items(queue, "jo") == []
