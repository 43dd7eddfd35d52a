"""The proposals of coding agents, and the answers of a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.errors import ConflictError, EvaldeskError, LossError, NotFoundError, UsageError
from evaldesk.model.proposals import Proposal
from evaldesk.pages.proposals import read_proposals
from evaldesk.web.forms.fields import read_form, text_of
from evaldesk.web.render import desk_of, go, number, page, refused_status


async def show(request: Request) -> Response:
    """GET /proposals and /proposals/{proposal_id}: the open proposals, and one of them."""
    return await _page(request)


async def answer(request: Request) -> Response:
    """POST /proposals/{proposal_id}: accept, refuse, or take the answer back."""
    form = await read_form(request)
    proposals, number_of_proposal = ClientProposalDesk(desk_of(request)), request.path_params["proposal_id"]
    accept = partial(proposals.accept, seen=text_of(form, "seen"))
    verbs: dict[str, Callable[[int, str], Proposal]] = {
        "accept": accept,
        "refuse": proposals.refuse,
        "undo": proposals.undo,
    }
    verb = verbs.get(text_of(form, "answer"))
    await run_in_threadpool(proposals.get, number_of_proposal)
    if verb is None:
        return await _page(request, UsageError("Press Accept or Refuse."))
    try:
        await run_in_threadpool(verb, number_of_proposal, text_of(form, "labeller"))
    except (UsageError, ConflictError, LossError, NotFoundError) as error:
        return await _page(request, error)
    return go(f"/proposals/{number_of_proposal}")


async def _page(request: Request, error: EvaldeskError | None = None) -> Response:
    found = await run_in_threadpool(read_proposals, desk_of(request), request.path_params.get("proposal_id"))
    status = refused_status(error) if error else 200
    return page(request, "proposals/index.html", status=status, found=found, problem=str(error or ""))


PROPOSAL = "/proposals/" + number("proposal_id")
routes = [
    Route("/proposals", show, methods=["GET"]),
    Route(PROPOSAL, show, methods=["GET"]),
    Route(PROPOSAL, answer, methods=["POST"]),
]
