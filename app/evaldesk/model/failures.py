"""Failures that people read: findings, the modes they belong to, and the trials that were read."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

FindingSource: TypeAlias = Literal["person", "signature", "model"]
FindingStatus: TypeAlias = Literal["counted", "proposed", "rejected"]
ModeLife: TypeAlias = Literal["open", "fixed", "reopened"]


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
    """A finding that is not stored yet."""

    run_id: int
    case_index: int
    trial_index: int
    note: str = ""
    mode_id: int | None = None
    anchor: Anchor = Anchor()
    signature: str = ""


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
        """Tells the texts of the mode from those that it had or will have."""
        texts = "\0".join((self.name, self.definition, self.example_yes, self.example_no))
        return hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()[:16]

    @property
    def is_active(self) -> bool:
        """Whether findings can still be given to it."""
        return self.retired_at is None and self.merged_into is None

    @property
    def life(self) -> ModeLife:
        """Open until a person says that a run shows it fixed; reopened when a later run shows it again."""
        return "reopened" if self.reopened_in is not None else "fixed" if self.fixed_in is not None else "open"

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


@dataclass(frozen=True, slots=True)
class UndoneStep:
    """The step that was taken back: `kind` is the verb, `words` its sentence."""

    kind: str
    words: str
