"""Proposals for coding agents and for `evaldesk proposals`; a proposal changes nothing."""

from __future__ import annotations

from typing import Any

from evaldesk.desk.client_proposals import ClientProposalDesk, Made, content_of, draft_version
from evaldesk.desk.desk import Desk
from evaldesk.desk.failures import TypedFinding, TypedMode
from evaldesk.errors import UsageError
from evaldesk.model.proposals import UNKNOWN_CLIENT, Proposal
from evaldesk.pages.door.evalsets import find_file
from evaldesk.pages.door.fit import items_page
from evaldesk.pages.door.trials import find_trial


def proposal_page(
    desk: Desk, status: str = "open", name: str = "", cursor: int = 0, limit: int | None = None
) -> dict[str, Any]:
    """A page of the proposals with a status, or of all; `name` is an eval set."""
    evalset_id = find_file(desk, name).id if name else None
    chosen_status: Any = None if status == "all" else status
    items = [proposal_object(each) for each in ClientProposalDesk(desk).list(chosen_status, evalset_id=evalset_id)]
    page = items_page(items[cursor:][:limit], cursor, len(items))
    return {**page, "n_open": desk.store.client_proposals.n_open(), "page": "/proposals"}


def proposal_answer(desk: Desk, proposal: int) -> dict[str, Any]:
    """One proposal with its content, and its effect on stored trials."""
    proposal_row = ClientProposalDesk(desk).get(proposal)
    effect = ClientProposalDesk(desk).effect(proposal_row)
    return proposal_object(proposal_row) | {
        "version": draft_version(proposal_row.draft),
        "content": content_of(proposal_row.draft),
        "effect": None
        if effect is None
        else {
            "run": effect.run,
            "passed_before": effect.effect.before.passed,
            "passed_after": effect.effect.after.passed,
            "scored": effect.effect.before.scored,
            "scored_after": effect.effect.after.scored,
            "is_easier": effect.effect.is_easier,
            "is_edited_since": effect.is_edited,
        },
    }


def proposal_object(proposal: Proposal) -> dict[str, Any]:
    """A proposal as an item of a list."""
    draft = proposal.draft
    return {
        "id": proposal.id,
        "kind": draft.kind,
        "status": proposal.status,
        "client": proposal.client,
        "evalset_id": draft.evalset_id or None,
        "case_id": draft.case_id or None,
        "run": draft.run,
        "trial": draft.trial[1] + 1 if draft.trial else None,
        "why": draft.why,
        "n_times": proposal.n_times,
        "made_at": proposal.made_at.isoformat(),
        "decided_at": proposal.decided_at.isoformat() if proposal.decided_at else None,
        "decided_by": proposal.decided_by or None,
        "is_edited": bool(proposal.edited),
        "reply": proposal.reply or None,
        "page": f"/proposals/{proposal.id}",
    }


def propose_case(
    desk: Desk, name: str, case: dict[str, Any], why: str = "", client: str = UNKNOWN_CLIENT
) -> dict[str, Any]:
    """Propose a new case of an eval set."""
    return _made(ClientProposalDesk(desk).propose_case(client, find_file(desk, name).id, case, why))


def propose_edit(
    desk: Desk, name: str, case_id: str, patch: dict[str, Any], why: str, client: str = UNKNOWN_CLIENT
) -> dict[str, Any]:
    """Propose a change of a case by a JSON merge patch. Raises UsageError without a reason."""
    if not why.strip():
        raise UsageError("why: give the reason in one sentence, for the person deciding", field="why")
    return _made(ClientProposalDesk(desk).propose_edit(client, find_file(desk, name).id, case_id, patch, why))


def propose_expectation(
    desk: Desk,
    name: str,
    case_id: str,
    trial: int,
    parts: dict[str, str],
    why: str = "",
    client: str = UNKNOWN_CLIENT,
) -> dict[str, Any]:
    """Propose values of a trial as expectations of its case."""
    run_id, key, _, _ = find_trial(desk, name, case_id, trial)
    return _made(ClientProposalDesk(desk).propose_expectation(client, run_id, case_id, key[1], parts, why))


def propose_finding(
    desk: Desk,
    name: str,
    case_id: str,
    trial: int,
    kind: str,
    quote: str,
    turn: int | None = None,
    note: str = "",
    client: str = UNKNOWN_CLIENT,
) -> dict[str, Any]:
    """Propose a finding on a trial, with words of it; the turn counts from 1."""
    run_id, key, _, _ = find_trial(desk, name, case_id, trial)
    form = TypedFinding(note=note, new_mode=kind, quote=quote)
    at = None if turn is None else turn - 1
    return _made(ClientProposalDesk(desk).propose_finding(client, run_id, case_id, key, at, form))


def propose_kind(
    desk: Desk,
    kind: str,
    definition: str,
    example_yes: str = "",
    example_no: str = "",
    client: str = UNKNOWN_CLIENT,
) -> dict[str, Any]:
    """Propose a kind of failure."""
    return _made(ClientProposalDesk(desk).propose_kind(client, TypedMode(kind, definition, example_yes, example_no)))


def _made(result: Made) -> dict[str, Any]:
    return {
        "proposal": result.id,
        "is_joined": result.is_joined,
        "is_masked": result.is_masked,
        "next": "A person accepts or refuses it on its page, or with `evaldesk proposals`.",
        "page": f"/proposals/{result.id}",
    }
