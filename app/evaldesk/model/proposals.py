"""Changes that a coding agent suggests and a person accepts or refuses, and the edits of cases that a desk made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal, TypeAlias

ProposalKind: TypeAlias = Literal["case", "edit", "expectation", "finding", "kind"]
ProposalStatus: TypeAlias = Literal["open", "accepted", "refused"]
TITLES: Mapping[str, str] = {
    "case": "new case",
    "edit": "edit of a case",
    "expectation": "expectation",
    "finding": "finding",
    "kind": "kind of failure",
}


CLIENT_MARK = "coding agent"
UNKNOWN_CLIENT = f"a {CLIENT_MARK}"


def is_name_of_client(name: str) -> bool:
    """Whether a name is one of a coding agent, which no person takes."""
    folded_name = " ".join(name.casefold().split())
    return folded_name == UNKNOWN_CLIENT or f"{folded_name} ".startswith(f"{CLIENT_MARK} ")


def marked_client(name: str) -> str:
    """`coding agent Codex`: the name that a client gave itself, which may be that of a person."""
    return name if is_name_of_client(name) else f"{CLIENT_MARK} {name}"


REVIEWER_MARK = "reviewer:"
"""Before the stored name of a person who made a proposal; the name of a coding agent begins with its own mark."""


@dataclass(frozen=True, slots=True)
class ProposalDraft:
    """A proposal that is not stored yet.

    `after` is a case as the JSON of its file; of a finding or a kind of failure it has the texts as JSON. `before` is
    the case that would change, as JSON too; older ones have its version only. `trial` has case and trial of a run as
    they count from 0.
    """

    kind: ProposalKind
    after: str
    before: str = ""
    why: str = ""
    evalset_id: str = ""
    case_id: str = ""
    run: int | None = None
    trial: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Proposal:
    """A stored proposal; `n_times` counts equal ones, of all `clients`.

    `undo` is the key of the change that an acceptance made. `reply` is an answer of a person in words, which the coding
    agent reads. `edited` is the content, as `after` has it, where the person who accepted it changed it first.
    """

    id: int
    draft: ProposalDraft
    clients: tuple[str, ...]
    status: ProposalStatus
    n_times: int
    made_at: datetime
    decided_at: datetime | None = None
    decided_by: str = ""
    undo: str = ""
    reply: str = ""
    edited: str = ""

    @property
    def client(self) -> str:
        """`coding agent Codex, coding agent Cursor`: the clients that proposed the same."""
        return ", ".join(self.clients)

    @property
    def accepted_draft(self) -> ProposalDraft:
        """The draft with the content that was, or would be, accepted."""
        return replace(self.draft, after=self.edited) if self.edited else self.draft

    @property
    def deciders(self) -> str:
        """`coding agent Claude Code, accepted by ann`: the authors of an accepted change."""
        return f"{self.client}, {'edited and ' if self.edited else ''}accepted by {self.decided_by}"


IN_QUARANTINE, OUT_OF_QUARANTINE = "in quarantine", "out of quarantine"
"""The version of an edit that took a case out of every gate, or back into them; its content is another edit's."""


@dataclass(frozen=True, slots=True)
class CaseEdit:
    """An edit of a case through a desk or a command: the version of its content from then on, empty once deleted."""

    case_id: str
    version: str
    author: str
    at: datetime
