"""Open proposals at the object that they would change: a case, a trial, an eval set, the failures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.desk import Desk
from evaldesk.model.proposals import TITLES, Proposal
from evaldesk.model.stored import TrialKey

MAX_SHOWN = 10


@dataclass(frozen=True, slots=True)
class WaitingLine:
    """An open proposal in one line."""

    id: int
    title: str
    client: str
    made_at: datetime


@dataclass(frozen=True, slots=True)
class WaitingProposals:
    """The first open proposals of an object, oldest first, and the number of all."""

    lines: Sequence[WaitingLine] = ()
    n: int = 0

    @property
    def clients(self) -> str:
        """The coding agents behind them."""
        return ", ".join(dict.fromkeys(line.client for line in self.lines))


def of_case(desk: Desk, evalset_id: str, case_id: str) -> WaitingProposals:
    """Changes of a case, and findings on trials of it."""
    return _waiting(desk.store.client_proposals.list(evalset_id=evalset_id, case_id=case_id), names_case=False)


def of_evalset(desk: Desk, evalset_id: str) -> WaitingProposals:
    """New cases of an eval set, and changes of its cases."""
    proposals = desk.store.client_proposals.list(evalset_id=evalset_id)
    return _waiting([each for each in proposals if each.draft.kind in ("case", "edit", "expectation")])


def of_trial(desk: Desk, run_id: int, key: TrialKey) -> WaitingProposals:
    """Findings on a trial, and expectations made of its values."""
    proposals = desk.store.client_proposals.list(run=run_id)
    return _waiting([each for each in proposals if each.draft.trial == key], names_case=False)


def of_failures(desk: Desk, run_id: int) -> WaitingProposals:
    """Findings on trials of a run, and kinds of failure."""
    proposals = desk.store.client_proposals.list()
    return _waiting([each for each in proposals if _is_of_failures(each, run_id)])


def _is_of_failures(proposal: Proposal, run_id: int) -> bool:
    draft = proposal.draft
    return draft.kind == "kind" or (draft.kind == "finding" and draft.run == run_id)


def _waiting(proposals: Sequence[Proposal], *, names_case: bool = True) -> WaitingProposals:
    oldest_first = proposals[::-1]
    lines = [
        WaitingLine(
            each.id,
            f"{TITLES.get(each.draft.kind, each.draft.kind)}: {each.draft.case_id}"
            if names_case or each.draft.kind == "kind"
            else TITLES.get(each.draft.kind, each.draft.kind),
            each.client,
            each.made_at,
        )
        for each in oldest_first[:MAX_SHOWN]
    ]
    return WaitingProposals(lines, len(oldest_first))
