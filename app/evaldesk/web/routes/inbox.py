"""The inbox: conversations of running agents are found, read, labelled, dropped and made into cases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast, get_args
from urllib.parse import urlencode

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.inbox.inbox import CaseChoice, Expectation, TurnChoice
from evaldesk.desk.inbox.replay import USUAL_N
from evaldesk.errors import ConflictError, NotFoundError, UsageError
from evaldesk.pages.inbox import FORM_EXPECTATIONS, DraftsForm, cases_page, inbox_page, reader_page
from evaldesk.pages.inbox_draws import next_href
from evaldesk.pages.inbox_rates import rates_view
from evaldesk.pages.runs.view import trial_href
from evaldesk.run_options import BY_NAME
from evaldesk.web.forms.fields import number_of, read_form, text_of, texts_of
from evaldesk.web.render import desk_of, go, number, page


async def index(request: Request) -> Response:
    """GET /inbox: the conversations that the filter `q` finds, newest first, from the cursor `after` on."""
    query = request.query_params
    view = await asyncio.to_thread(inbox_page, desk_of(request), query.get("q", ""), query.get("after", ""))
    return page(request, "inbox/index.html", status=422 if view.problem else 200, inbox=view)


async def rates(request: Request) -> Response:
    """GET /inbox/rates: the strip of live scoring, as a part of the page of the inbox."""
    view = await asyncio.to_thread(rates_view, desk_of(request))
    return page(request, "inbox/rates.html", rates=view)


async def show(request: Request) -> Response:
    """GET /inbox/{conversation_id}: the turns of a conversation, as one of `draw`."""
    draw_id = _draw_id(request.query_params.get("draw"))
    view = await asyncio.to_thread(reader_page, desk_of(request), _id(request), draw_id=draw_id)
    return page(request, "inbox/show.html", reader=view)


async def mark_read(request: Request) -> Response:
    """POST /inbox/{conversation_id}/reading: a new conversation is a read one from now on."""
    await asyncio.to_thread(desk_of(request).inbox.mark_read, _id(request))
    return Response()


async def label(request: Request) -> Response:
    """POST /inbox/{conversation_id}/label: the verdict of a person, with a note; without a verdict it is taken away.

    A conversation of a `draw` leads to the next one of it without a label.
    """
    form, desk = await read_form(request), desk_of(request)
    draw_id = _draw_id(text_of(form, "draw"))
    try:
        await asyncio.to_thread(desk.inbox.label, _id(request), text_of(form, "verdict"), text_of(form, "note"))
    except UsageError as error:
        view = await asyncio.to_thread(reader_page, desk, _id(request), str(error), draw_id)
        return page(request, "inbox/show.html", status=422, reader=view)
    if draw_id and text_of(form, "verdict"):
        draw = await asyncio.to_thread(desk.draws.get, draw_id)
        return go(next_href(draw) or f"/inbox/draws/{draw.id}")
    return go(f"/inbox/{_id(request)}?draw={draw_id}" if draw_id else f"/inbox/{_id(request)}")


async def drop(request: Request) -> Response:
    """POST /inbox/dropped: the chosen conversations are dropped, or with `undo` taken back; back to the filter `q`."""
    form, inbox = await read_form(request), desk_of(request).inbox
    await asyncio.to_thread(
        inbox.take_back if text_of(form, "undo") else inbox.drop, _ids(texts_of(form, "conversation"))
    )
    line = text_of(form, "q")[:1000]
    return go(f"/inbox?{urlencode({'q': line})}" if line else "/inbox")


async def show_cases(request: Request) -> Response:
    """GET /inbox/cases: each `conversation` as the draft of a case of `evalset`."""
    query = request.query_params
    return await _cases(request, _ids(query.getlist("conversation")), query.get("evalset", ""))


async def add_cases(request: Request) -> Response:
    """POST /inbox/cases: add the drafts that are ticked, and show the eval set."""
    form, desk = await read_form(request), desk_of(request)
    ids, evalset_id = _ids(texts_of(form, "conversation")), text_of(form, "evalset")
    choice_of = {each: _choice(form, each) for each in ids}
    choices = [choice for each, choice in choice_of.items() if text_of(form, f"chosen-{each}")]
    try:
        if not choices:
            raise UsageError("tick at least one conversation", field="conversation")
        added = await asyncio.to_thread(desk.inbox.add_cases, choices, evalset_id, text_of(form, "name").strip())
    except NotFoundError:
        raise
    except (UsageError, ConflictError) as error:
        ticked_ids = frozenset(each.conversation_id for each in choices)
        drafts_form = DraftsForm(text_of(form, "name"), choice_of, ticked_ids)
        return await _cases(request, ids, evalset_id, drafts_form, str(error))
    return go(f"/evalsets/{added.evalset_id}")


async def replay(request: Request) -> Response:
    """POST /inbox/replays: play the conversations with an agent of the workspace, beside them as they were seen."""
    form, desk = await read_form(request), desk_of(request)
    ids = _ids(texts_of(form, "conversation"))
    try:
        n = BY_NAME["n"].read(text_of(form, "n")) or USUAL_N
        runs_tools = text_of(form, "runs_tools") == "yes"
        plan = await desk.inbox_replays.plan(ids, text_of(form, "agent"), n, runs_tools=runs_tools)
        started = await desk.inbox_replays.start(plan)
    except NotFoundError:
        raise
    except UsageError as error:
        return await _cases(request, ids, "", None, str(error))
    return go(f"/compare?a={started.seen_run_id}&b={started.run_id}")


async def fork(request: Request) -> Response:
    """POST /inbox/{conversation_id}/forks: store the conversation as it was seen, once, and show its forks."""
    form, desk = await read_form(request), desk_of(request)
    try:
        run_id = await asyncio.to_thread(desk.inbox_replays.store_seen, _id(request))
    except NotFoundError:
        raise
    except UsageError as error:
        view = await asyncio.to_thread(reader_page, desk, _id(request), str(error), 0)
        return page(request, "inbox/show.html", status=422, reader=view)
    return go(f"{trial_href(run_id, (0, 0))}/fork?turn={number_of(text_of(form, 'turn')) or 1}")


async def _cases(
    request: Request, ids: Sequence[int], evalset_id: str, form: DraftsForm | None = None, problem: str = ""
) -> Response:
    try:
        view = await asyncio.to_thread(cases_page, desk_of(request), ids, evalset_id, form, problem)
    except UsageError:  # none was chosen
        return go("/inbox")
    return page(
        request,
        "inbox/cases.html",
        status=422 if problem else 200,
        view=view,
        expectations=FORM_EXPECTATIONS,
    )


def _choice(form: FormData, conversation_id: int) -> CaseChoice:
    turns = {}
    for place in _ids(texts_of(form, f"turn-{conversation_id}"), least=0):
        expectation = text_of(form, f"expectation-{conversation_id}-{place}")
        if expectation not in get_args(Expectation):
            raise UsageError(f"an expectation is {', '.join(get_args(Expectation))}", field="turn")
        turns[place] = TurnChoice(expectation=cast("Expectation", expectation))
    return CaseChoice(conversation_id, text_of(form, f"id-{conversation_id}"), turns)


def _ids(texts: Sequence[str], least: int = 1) -> Sequence[int]:
    numbers = (number_of(text) for text in texts)
    return [each for each in dict.fromkeys(numbers) if each is not None and least <= each < 2**31]


def _draw_id(text: object) -> int:
    draw_id = number_of(text)
    return draw_id if draw_id is not None and 0 < draw_id < 2**31 else 0


def _id(request: Request) -> int:
    conversation_id: int = request.path_params["conversation_id"]
    if conversation_id >= 2**31:
        raise NotFoundError("the inbox has no such conversation")
    return conversation_id


routes = (
    Route("/inbox", index),
    Route("/inbox/cases", show_cases, methods=["GET"]),
    Route("/inbox/cases", add_cases, methods=["POST"]),
    Route("/inbox/replays", replay, methods=["POST"]),
    Route("/inbox/rates", rates, methods=["GET"]),
    Route("/inbox/dropped", drop, methods=["POST"]),
    Route(f"/inbox/{number('conversation_id')}", show),
    Route(f"/inbox/{number('conversation_id')}/reading", mark_read, methods=["POST"]),
    Route(f"/inbox/{number('conversation_id')}/label", label, methods=["POST"]),
    Route(f"/inbox/{number('conversation_id')}/forks", fork, methods=["POST"]),
)
