"""The proposals of coding agents, and the answers of a person."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.errors import ConflictError, EvaldeskError, FormatError, LossError, NotFoundError, UsageError
from evaldesk.model.conclusion import counted
from evaldesk.model.proposals import Proposal
from evaldesk.pages.proposals.page import MAX_GROUP, read_proposal, read_proposals
from evaldesk.web.forms.fields import own_address, read_form, text_of
from evaldesk.web.render import desk_of, fragment, go, number, page, refused_status, target_of

UNCHANGED_TITLE = "Nothing was changed"


async def show(request: Request) -> Response:
    """GET /proposals and /proposals/{proposal_id}: the open proposals, and one of them."""
    return await _page(request)


async def show_part(request: Request) -> Response:
    """GET /proposals/{proposal_id}/part: one proposal without the list, for the page of its object."""
    proposal_id = request.path_params["proposal_id"]
    view = await run_in_threadpool(read_proposal, desk_of(request), proposal_id)
    if not target_of(request):  # a page of its own is that of the proposal
        return go(f"/proposals/{proposal_id}")
    back = own_address(request.query_params.get("back", ""), "/proposals")
    return HTMLResponse(fragment(request, "proposals/part.html", "part", view=view, back=back))


async def answer(request: Request) -> Response:
    """POST /proposals/{proposal_id}: accept, also edited or as another case, refuse, reply, or take the answer back.

    `ids` are the proposals that the page answers together.
    """
    form = await read_form(request)
    proposals, proposal_id = ClientProposalDesk(desk_of(request)), request.path_params["proposal_id"]
    ids = _numbers(text_of(form, "ids")) or (proposal_id,)
    versions = text_of(form, "seen").split(",")
    seen_versions = dict(zip(ids, versions, strict=False))
    verbs: dict[str, Callable[[int, str], Proposal]] = {
        "accept": lambda each, author: proposals.accept(each, author, seen_versions.get(each, "")),
        "edit": partial(proposals.accept, seen=seen_versions.get(proposal_id, ""), edited=text_of(form, "edited")),
        "beside": partial(proposals.accept, seen=seen_versions.get(proposal_id, ""), is_new_case=True),
        "refuse": proposals.refuse,
        "undo": proposals.undo,
        "reply": partial(proposals.reply, text=text_of(form, "reply")),
    }
    word = text_of(form, "answer")
    verb = verbs.get(word)
    await run_in_threadpool(proposals.get, proposal_id)
    if verb is None or proposal_id not in ids:
        return await _page(request, UsageError("Press Accept or Refuse."))
    author = text_of(form, "labeller")
    ids_to_answer = ids if word in ("accept", "refuse", "undo") else (proposal_id,)
    for n_answered, each in enumerate(ids_to_answer):
        try:
            await run_in_threadpool(verb, each, author)
        except (UsageError, ConflictError, LossError, NotFoundError, FormatError) as error:
            title = (
                f"{n_answered} of {counted(len(ids_to_answer), 'proposal')} answered" if n_answered else UNCHANGED_TITLE
            )
            return await _page(request, error, title, edited=text_of(form, "edited"), reply=text_of(form, "reply"))
    back = own_address(text_of(form, "back"), "")
    others = f"?with={','.join(map(str, ids))}" if len(ids) > 1 else ""
    return go(back or f"/proposals/{proposal_id}{others}")


async def _page(
    request: Request,
    error: EvaldeskError | None = None,
    title: str = UNCHANGED_TITLE,
    edited: str = "",
    reply: str = "",
) -> Response:
    ids = _numbers(request.query_params.get("with", ""))
    listing = await run_in_threadpool(read_proposals, desk_of(request), request.path_params.get("proposal_id"), ids)
    status = refused_status(error) if error else 200
    return page(
        request,
        "proposals/index.html",
        status=status,
        listing=listing,
        problem=str(error or ""),
        problem_title=title,
        edited=edited,
        reply=reply,
    )


def _numbers(text: str) -> tuple[int, ...]:
    words = text.split(",")[:MAX_GROUP]
    return tuple(int(each) for each in words if each.isascii() and each.isdecimal() and len(each) <= 9)


PROPOSAL = "/proposals/" + number("proposal_id")
routes = [
    Route("/proposals", show, methods=["GET"]),
    Route(PROPOSAL, show, methods=["GET"]),
    Route(PROPOSAL, answer, methods=["POST"]),
    Route(PROPOSAL + "/part", show_part, methods=["GET"]),
]
