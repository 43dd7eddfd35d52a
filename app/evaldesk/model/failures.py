"""Failures that people read: findings, the modes they belong to, and the trials that were read."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from evaldesk.model.stored import TrialKey

FindingSource: TypeAlias = Literal["person", "signature", "model"]
FindingStatus: TypeAlias = Literal["counted", "proposed", "rejected"]
ModeLife: TypeAlias = Literal["open", "fixed", "reopened"]

FORMS: Mapping[str, tuple[str, str]] = {
    "json": (".json", "JSON"),
    "jsonl": (".jsonl", "JSON lines"),
    "markdown": (".md", "Markdown"),
}
"""The ending and the title of each format in which findings are given out."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """Where in a trial a finding is: nowhere in particular, a turn, an event of it, or characters of that event.

    `turn` and `event` count from 0. `quote` is the marked text as it was read.
    """

    turn: int | None = None
    event: int | None = None
    start: int | None = None
    end: int | None = None
    quote: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """A note on a trial. Only a `counted` one is in any number; a proposal waits for a person.

    `signature` names the facts that a proposal was made from; trials with the same one fail alike.
    """

    id: int
    run_id: int
    case_index: int
    trial_index: int
    anchor: Anchor
    note: str
    mode_id: int | None
    author: str
    source: FindingSource
    status: FindingStatus
    signature: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class FindingDraft:
    """A finding that is not stored yet; without `created_at` it is made when it is stored."""

    run_id: int
    case_index: int
    trial_index: int
    note: str = ""
    mode_id: int | None = None
    anchor: Anchor = Anchor()
    signature: str = ""
    created_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Mode:
    """A named kind of failure. `fixed_in` and `reopened_in` are runs; `merged_into` is the mode that took it over."""

    id: int
    name: str
    definition: str
    example_yes: str
    example_no: str
    created_at: datetime
    retired_at: datetime | None = None
    merged_into: int | None = None
    fixed_in: int | None = None
    reopened_in: int | None = None

    @property
    def texts_version(self) -> str:
        """The version of the mode's texts: a digest of them."""
        texts = "\0".join((self.name, self.definition, self.example_yes, self.example_no))
        return hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def key(self) -> str:
        """The key of the mode in its judges, independent of its name and unique among workspaces."""
        return hashlib.sha256(f"{self.id} {self.created_at.timestamp()}".encode()).hexdigest()[:16]

    @property
    def is_active(self) -> bool:
        """Whether findings can still be given to it."""
        return self.retired_at is None and self.merged_into is None

    @property
    def life(self) -> ModeLife:
        """Open until a person says that a run shows it fixed; reopened when a later run shows it again."""
        return "reopened" if self.reopened_in is not None else "fixed" if self.fixed_in is not None else "open"

    def life_in(self, run_id: int) -> str:
        """`fixed` or `reopened` in the run that shows it; empty for any other run."""
        return "fixed" if run_id == self.fixed_in else "reopened" if run_id == self.reopened_in else ""

    @property
    def life_words(self) -> str:
        """`fixed in run 55`; `open` and `reopened in run 60` are the other two."""
        run = self.reopened_in if self.reopened_in is not None else self.fixed_in
        return self.life if run is None else f"{self.life} in run {run}"


@dataclass(frozen=True, slots=True)
class TrialReading:
    """A person read a trial: `modes` are those of this reader's counted findings, `is_clear` says nothing is wrong."""

    case_index: int
    trial_index: int
    reader: str
    is_clear: bool
    modes: Sequence[int]
    n_findings: int
    read_at: datetime


TRIALS = 1_000_003
"""More trials than a case of a run has; a prime, because sets of multiples of a power of two are slow."""


def trial_number(key: TrialKey) -> int:
    """A trial of a run as one number; `number // TRIALS` is its case."""
    return key[0] * TRIALS + key[1]


@dataclass(frozen=True, slots=True)
class ReadTrials:
    """The trials of a run that people read, as sets of their numbers, by reader.

    `clear` are those in which a reader found nothing wrong, `doubted` the others, `findings` those with counted
    findings by mode; None are findings without one.
    """

    clear: Mapping[str, frozenset[int]]
    doubted: Mapping[str, frozenset[int]]
    findings: Mapping[str, Mapping[int | None, frozenset[int]]]

    @property
    def read(self) -> frozenset[int]:
        """The trials that anybody read."""
        return frozenset().union(*self.clear.values(), *self.doubted.values())

    def of_reader(self, reader: str) -> frozenset[int]:
        """The trials that one reader read."""
        return self.clear.get(reader, frozenset()) | self.doubted.get(reader, frozenset())

    @property
    def all_clear(self) -> frozenset[int]:
        """The trials in which every reader found nothing wrong."""
        return frozenset().union(*self.clear.values()).difference(*self.doubted.values())

    @property
    def by_mode(self) -> dict[int, frozenset[int]]:
        """The trials with each mode, of any reader."""
        modes = {mode_id for of_reader in self.findings.values() for mode_id in of_reader if mode_id is not None}
        return {mode_id: self.with_mode(mode_id) for mode_id in sorted(modes)}

    def with_mode(self, mode_id: int) -> frozenset[int]:
        """The trials with one mode, of any reader."""
        return frozenset().union(*(each.get(mode_id, ()) for each in self.findings.values()))

    @property
    def trials_without_mode(self) -> frozenset[int]:
        """The trials with findings of a reader, all without a mode."""
        nothing = frozenset[int]()
        parts = []
        for by_mode in self.findings.values():
            with_mode = nothing.union(*(trials for mode_id, trials in by_mode.items() if mode_id is not None))
            parts.append(by_mode.get(None, nothing) - with_mode)
        return nothing.union(*parts)


@dataclass(frozen=True, slots=True)
class ProposedGroup:
    """Proposals with the same facts, words and mode: of each the finding and the number of its trial."""

    signature: str
    note: str
    mode_id: int | None
    findings: Sequence[tuple[int, int]]
    source: FindingSource = "signature"


@dataclass(frozen=True, slots=True)
class Asked:
    """The questions about a run that models answered; dollars are None where the price of one is not known."""

    n: int = 0
    tokens: int = 0
    cost: float | None = 0.0


@dataclass(frozen=True, slots=True)
class UndoneStep:
    """The step that was taken back: `kind` is the verb, `words` its sentence."""

    kind: str
    words: str
