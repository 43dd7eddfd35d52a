"""The page of proposals: the open ones, and one of them with its lines, its words and its effect."""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.client_proposals import ClientProposalDesk, ProposalEffect, content_of, draft_version
from evaldesk.desk.desk import Desk
from evaldesk.errors import EvaldeskError
from evaldesk.formats import case_to_json
from evaldesk.model.conclusion import counted
from evaldesk.model.proposals import Proposal
from evaldesk.pages.door.proposals import TITLES
from evaldesk.pages.runs.view import trial_href

MAX_LINES = 400


@dataclass(frozen=True, slots=True)
class ProposalLine:
    """A proposal in the list."""

    id: int
    name: str
    words: str


@dataclass(frozen=True, slots=True)
class ProposalPage:
    """The open proposals and the chosen one; `lines` are those of its case with the signs of a diff."""

    open_lines: Sequence[ProposalLine]
    proposal: Proposal | None
    title: str = ""
    lines: Sequence[tuple[str, str]] = ()
    n_cut: int = 0
    texts: Sequence[tuple[str, str]] = ()
    effect: ProposalEffect | None = None
    href: str = ""
    author: str = ""
    seen: str = ""
    """The version of its content, which an acceptance names."""

    @property
    def effect_sentence(self) -> str:
        """`2 trials would turn green because the test changes, not the agent`."""
        if self.effect is None:
            return ""
        before, after = self.effect.effect.before.passed, self.effect.effect.after.passed
        if after == before:
            return "As many trials would pass as before"
        way = "turn green" if after > before else "no longer pass"
        return f"{counted(abs(after - before), 'trial')} would {way} because the test changes, not the agent"


def read_proposals(desk: Desk, proposal_id: int | None = None) -> ProposalPage:
    """The page of the open proposals, and of one by its number, else of the oldest. Raises NotFoundError."""
    proposals = ClientProposalDesk(desk)
    open_proposals = proposals.list()[::-1]
    lines = [ProposalLine(each.id, each.draft.case_id, TITLES[each.draft.kind]) for each in open_proposals]
    if proposal_id is None and not open_proposals:
        return ProposalPage((), None)
    proposal = open_proposals[0] if proposal_id is None else proposals.get(proposal_id)
    draft = proposal.draft
    diff: list[tuple[str, str]] = []
    texts: list[tuple[str, str]] = []
    if draft.kind in ("finding", "kind"):
        texts = [(name.replace("_", " "), str(text)) for name, text in content_of(draft).items() if text]
    else:
        diff = _diff(desk, proposal)
    return ProposalPage(
        lines,
        proposal,
        TITLES[draft.kind],
        diff[:MAX_LINES],
        max(0, len(diff) - MAX_LINES),
        texts,
        proposals.effect(proposal),
        _href(desk, proposal),
        desk.person.name(),
        draft_version(draft),
    )


def _diff(desk: Desk, proposal: Proposal) -> list[tuple[str, str]]:
    """The lines of the case as its eval set has it now and as it would be, a few equal ones around each change."""
    after = json.dumps(content_of(proposal.draft), indent=2, ensure_ascii=False).splitlines()
    before: list[str] = []
    if proposal.draft.kind != "case":
        try:
            case = case_to_json(ClientProposalDesk(desk).current(proposal.draft))
            before = json.dumps(case, indent=2, ensure_ascii=False).splitlines()
        except EvaldeskError:  # the case is gone
            before = []
    rows = difflib.unified_diff(before, after, lineterm="", n=3)
    return [(row[:1].strip(), row[1:]) for row in rows if not row.startswith(("---", "+++", "@@"))]


def _href(desk: Desk, proposal: Proposal) -> str:
    draft = proposal.draft
    if draft.run is not None and draft.trial is not None:
        return trial_href(draft.run, draft.trial)
    return f"/evalsets/{draft.evalset_id}" if draft.evalset_id else "/failures"
