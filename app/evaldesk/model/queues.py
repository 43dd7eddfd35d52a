"""Review queues: the kinds of trials that one is drawn from, its trials, and how far a reader has come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from evaldesk.model.stored import Label, TrialKey

QueueKind: TypeAlias = Literal[
    "failed", "errored", "passed", "unscored", "flaky", "disputed", "doubted", "readers", "unlabelled"
]
QUEUE_KINDS: Mapping[QueueKind, tuple[str, str]] = {
    "failed": ("failed", "the metrics failed them"),
    "errored": ("errored", "they did not finish"),
    "passed": ("passed", "the metrics passed them"),
    "unscored": ("unscored", "no criterion gave a verdict"),
    "flaky": ("flaky", "a passed and a failed trial of each flaky case"),
    "disputed": ("judges disagree", "criteria, or the votes of a judge, say different things"),
    "doubted": ("people and metrics disagree", "a label and the verdict differ"),
    "readers": ("readers disagree", "two people labelled them differently"),
    "unlabelled": ("unlabelled", "nobody labelled them yet"),
}
"""The words of each kind, and which trials it has."""
VERDICT_KINDS: Mapping[str, QueueKind] = {"f": "failed", "e": "errored", "p": "passed", "u": "unscored"}
"""The kinds that together are every trial that was played, each in one of them, by the letter of a run's strip."""


@dataclass(frozen=True, slots=True)
class QueueStratum:
    """A stratum of a queue: the trials of a kind in a run, and the number drawn with equal chances."""

    run_id: int
    kind: QueueKind
    n_all: int
    n: int


@dataclass(frozen=True, slots=True)
class Queue:
    """A review queue as it was drawn."""

    id: int
    strata: Sequence[QueueStratum]
    is_blind: bool
    author: str
    created_at: datetime

    @property
    def run_ids(self) -> Sequence[int]:
        """The runs it was drawn from, in their order."""
        return list(dict.fromkeys(each.run_id for each in self.strata))

    @property
    def kinds(self) -> Sequence[QueueKind]:
        """The kinds it was drawn from, in their order."""
        return list(dict.fromkeys(each.kind for each in self.strata))


@dataclass(frozen=True, slots=True)
class QueueDraft:
    """A trial that a new queue has; `labelled_run` is the run that played it, with which its labels stand."""

    run_id: int
    key: TrialKey
    labelled_run: int
    kind: QueueKind


@dataclass(frozen=True, slots=True)
class QueueItem:
    """A trial of a queue for one reader; `place` never changes, `label` is the reader's own.

    It `is_read` once a verdict was given since the queue was drawn; one of before is read again.
    """

    place: int
    run_id: int
    key: TrialKey
    labelled_run: int
    case_id: str
    kind: QueueKind
    trial_verdict: str | None
    label: Label | None
    is_read: bool

    @property
    def verdict(self) -> str:
        """The reader's verdict; empty before it is given."""
        return (self.label.verdict or "") if self.label else ""


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """A queue as one line of a list: the numbers of its trials and of the reader's labels."""

    queue: Queue
    n: int
    n_read: int


@dataclass(frozen=True, slots=True)
class LabelStep:
    """Labels that were given at once; the trials are named by their places in the queue."""

    n: int
    is_blind: bool
    taken_at: datetime


@dataclass(frozen=True, slots=True)
class GivenLabel:
    """A label that is to be given to the trial at `place`; `seen` is when the one was given that the reader saw."""

    place: int
    seen: int
