"""Review queues: drawn from runs, read one trial at a time, labelled by key or many at once."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Sequence
from functools import partial

from starlette.datastructures import FormData
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.client_proposals import ClientProposalDesk
from evaldesk.desk.failures import TypedFinding
from evaldesk.desk.queues import TypedQueue, TypedVerdict
from evaldesk.errors import ConflictError, EvaldeskError, NotFoundError, UsageError
from evaldesk.pages.queues.page import (
    QueuePlace,
    blind_piece,
    blind_turn,
    is_hidden,
    new_queue_page,
    next_unread,
    places,
    read_queue,
)
from evaldesk.pages.runs.view import trial_href
from evaldesk.pages.trial import event_part
from evaldesk.web.forms.fields import (
    KindOffer,
    number_of,
    offer_of,
    read_form,
    start_of,
    text_of,
    texts_of,
    typed_finding,
)
from evaldesk.web.render import desk_of, go, number, page, target_of
from evaldesk.web.routes.trials import MOST_TURNS


async def index(request: Request) -> Response:
    """GET /queues: the form for a queue of each `run` with the kinds `of`, at most `n` of each; and all queues."""
    query = request.query_params
    run_ids = _run_ids(query.getlist("run"))
    view = await asyncio.to_thread(
        new_queue_page, desk_of(request), run_ids, query.getlist("of"), _n(query.get("n", ""))
    )
    return page(request, "queues/index.html", form=view)


async def create(request: Request) -> Response:
    """POST /queues: draw a queue, and show its first trial."""
    form = await read_form(request)
    runs, kinds = texts_of(form, "run"), texts_of(form, "of")
    n, reader, is_blind = text_of(form, "n"), text_of(form, "reader"), text_of(form, "blind") == "on"
    try:
        queue_id = await asyncio.to_thread(desk_of(request).queues.create, TypedQueue(runs, kinds, n, reader, is_blind))
    except NotFoundError:
        raise
    except UsageError as error:
        view = await asyncio.to_thread(
            new_queue_page,
            desk_of(request),
            _run_ids(runs),
            kinds,
            _n(n),
            is_blind=is_blind,
            problem=str(error),
            field=error.field or "",
        )
        return page(request, "queues/index.html", status=422, form=view)
    return go(f"/queues/{queue_id}")


async def show(request: Request) -> Response:
    """GET /queues/{queue_id}: the trial `at`, else the next one without a label of `reader`, else the results.

    `blind` on or off hides or shows the scores. After a label without a script `stored` names its trials.
    """
    query = request.query_params
    labelled_places, is_whole = places(query.getlist("stored")[:1]), bool(query.get("all"))
    turn = number_of(query.get("turn")) or 0
    return await _page(request, _place(request), labelled_places, is_whole=is_whole, turn=turn)


async def _page(
    request: Request,
    place: QueuePlace,
    labelled_places: Collection[int] = (),
    problem: str = "",
    *,
    note: str | None = None,
    draft: TypedFinding | None = None,
    is_whole: bool = False,
    turn: int = 0,
    undone: str = "",
    offer: KindOffer | None = None,
    proposal: int | None = None,
) -> Response:
    view = await asyncio.to_thread(
        read_queue,
        desk_of(request),
        place,
        places_stored=labelled_places,
        problem=problem,
        note=note,
        draft=draft,
        is_whole=is_whole,
        turn=turn,
        undone=undone,
    )
    is_swap = target_of(request) == "review"
    return page(
        request,
        "queues/show.html",
        block="review",
        status=422 if problem else 200,
        headers={"HX-Replace-Url": place.href(view.trial.item.place if view.trial else None)} if is_swap else None,
        queue=view,
        is_swap=is_swap,
        offer=offer,
        proposal=proposal,
    )


async def label(request: Request) -> Response:
    """POST /queues/{queue_id}/labels: a verdict on each `item`, as `PLACE.SEEN`; then the next trial, or `then=list`.

    A script gets the next trial, a form without one is sent there.
    """
    form = await read_form(request)
    place = _place_of_form(request, form)
    items = texts_of(form, "item")
    is_list = text_of(form, "then") == "list"
    note = None if is_list else text_of(form, "note")
    is_blind = text_of(form, "shown") != "open"
    draft = TypedVerdict(items, text_of(form, "verdict"), text_of(form, "reader"), note, is_blind)
    try:
        await asyncio.to_thread(desk_of(request).queues.give, place.queue_id, draft)
    except NotFoundError:
        raise
    except (UsageError, ConflictError) as error:
        if is_list:
            return await _list(request, place, problem=_sentence(error))
        return await _page(request, place, problem=_sentence(error), note=note)
    labelled_places = places(items)
    if is_list:
        return (
            await _list(request, place, labelled_places)
            if target_of(request)
            else _back(place, labelled_places, is_list=True)
        )
    following = await asyncio.to_thread(next_unread, desk_of(request), place, labelled_places[0])
    there = QueuePlace(place.queue_id, following, place.reader, place.is_open)
    return (
        await _page(request, there, labelled_places)
        if target_of(request) == "review"
        else _back(there, labelled_places)
    )


async def undo(request: Request) -> Response:
    """POST /queues/{queue_id}/undo: take back a reader's last step: a finding, a label, or many at once."""
    form = await read_form(request)
    place = _place_of_form(request, form)
    is_list = text_of(form, "then") == "list"
    try:
        undone, words = await asyncio.to_thread(desk_of(request).queues.undo, place.queue_id, text_of(form, "reader"))
    except (UsageError, ConflictError) as error:
        if is_list:
            return await _list(request, place, problem=_sentence(error))
        return await _page(request, place, problem=_sentence(error))
    if is_list:
        return _back(place, (), is_list=True)
    there = QueuePlace(place.queue_id, undone[0], place.reader, place.is_open)
    return await _page(request, there, undone=words) if target_of(request) == "review" else _back(there, ())


async def find(request: Request) -> Response:
    """POST /queues/{queue_id}/findings: add a finding on the trial `at`; `op=remove` removes `finding`."""
    form = await read_form(request)
    place = _place_of_form(request, form)
    draft = typed_finding(form, text_of(form, "reader"))
    try:
        await asyncio.to_thread(_find, request, place, draft, text_of(form, "op"))
    except (UsageError, ConflictError) as error:
        offer = offer_of(request.url.path, form, error)
        return await _page(request, place, problem=_sentence(error), draft=draft, offer=offer)
    return await _page(request, place) if target_of(request) == "review" else _back(place, ())


async def correct(request: Request) -> Response:
    """POST /queues/{queue_id}/answers: propose the `answer` as the reference of a `turn`, from 1, of the trial `at`."""
    form = await read_form(request)
    place = _place_of_form(request, form)
    desk, text, turn = desk_of(request), text_of(form, "answer"), number_of(text_of(form, "turn"))
    item, _ = await asyncio.to_thread(is_hidden, desk, place)
    try:
        propose = partial(ClientProposalDesk(desk).propose_answer, text_of(form, "reader"), item.run_id, item.key)
        made = await asyncio.to_thread(propose, (turn or 0) - 1, text)
    except (UsageError, ConflictError) as error:
        return await _page(request, place, problem=_sentence(error))
    return await _page(request, place, proposal=made.id)


def _find(request: Request, place: QueuePlace, draft: TypedFinding, op: str) -> None:
    desk = desk_of(request)
    item, _ = is_hidden(desk, place)
    if op == "remove":
        desk.failures.remove_findings_of_mode(item.run_id, item.key, draft)
    else:
        desk.failures.add(item.run_id, item.key, draft, desk.runs.run_store.trial(item.run_id, *item.key).transcript)


async def trials(request: Request) -> Response:
    """GET /queues/{queue_id}/trials: all trials of a queue, to label many at once."""
    return await _list(request, _place(request), places(request.query_params.getlist("stored")))


async def _list(
    request: Request, place: QueuePlace, labelled_places: Collection[int] = (), problem: str = ""
) -> Response:
    view = await asyncio.to_thread(read_queue, desk_of(request), place, places_stored=labelled_places, problem=problem)
    return page(request, "queues/trials.html", status=422 if problem else 200, queue=view)


async def turn(request: Request, kind: str = "turn") -> Response:
    """GET .../trials/{place}/turns/{turn} for a page that left it out, without its scores."""
    queue_id, at, index = (request.path_params[name] for name in ("queue_id", "place", "turn"))
    first = start_of(request)
    desk = desk_of(request)
    item, _ = await asyncio.to_thread(is_hidden, desk, QueuePlace(queue_id, at))
    turns, panel = await asyncio.to_thread(blind_turn, desk, item, index, first, has_events=kind == "events")
    if not request.headers.get("HX-Request"):
        query = panel.rest_query(kind, first)
        return go(f"/queues/{queue_id}?at={at}&{query}#turn-{index + 1}")
    address, error = f"/queues/{queue_id}/trials/{at}", turns.result.error if turns.result else None
    return page(request, "trials/turn.html", kind=kind, turn=panel, error=error, address=address)


async def piece(request: Request) -> Response:
    """GET .../trials/{place}/turns?from=51&to=100: turns that the page left out, without scores.

    Without htmx the address leads to the page that begins with these turns.
    """
    queue_id, at, query = request.path_params["queue_id"], request.path_params["place"], request.query_params
    first, last = number_of(query.get("from", "1")) or 0, number_of(query.get("to", "")) or MOST_TURNS
    item, _ = await asyncio.to_thread(is_hidden, desk_of(request), QueuePlace(queue_id, at))
    pieces = await asyncio.to_thread(blind_piece, desk_of(request), item, first, last)
    if not request.headers.get("HX-Request"):
        return go(f"/queues/{queue_id}?at={at}&turn={first}#turn-{first}")
    address = f"/queues/{queue_id}/trials/{at}"
    return page(request, "trials/turn.html", kind="piece", pieces=pieces, error=None, address=address)


async def event(request: Request) -> Response:
    """GET .../trials/{place}/turns/{turn}/events/{event}: the whole text of an event, which tells no verdict."""
    queue_id, at, index, which = (request.path_params[name] for name in ("queue_id", "place", "turn", "event"))
    item, _ = await asyncio.to_thread(is_hidden, desk_of(request), QueuePlace(queue_id, at))
    stored_runs = desk_of(request).runs.run_store
    await asyncio.to_thread(event_part, stored_runs, item.run_id, item.key, (index, which), 0)
    return go(f"{trial_href(item.run_id, item.key)}/turns/{index}/events/{which}")


def _place(request: Request) -> QueuePlace:
    query = request.query_params
    return _typed_place(request, query.get("at", ""), query.get("reader", ""), query.get("blind", ""))


def _place_of_form(request: Request, form: FormData) -> QueuePlace:
    """As the page was addressed: the reader stands in its address only where it was named there."""
    reader = text_of(form, "named")
    return _typed_place(request, text_of(form, "at"), reader, text_of(form, "blind"))


def _typed_place(request: Request, at: str, reader: str, blind: str) -> QueuePlace:
    is_open = {"off": True, "on": False}.get(blind)
    return QueuePlace(request.path_params["queue_id"], number_of(at), reader, is_open)


def _back(place: QueuePlace, labelled_places: Collection[int], *, is_list: bool = False) -> Response:
    address = place.href(None if is_list else place.at)
    if is_list:
        address = address.replace(f"/queues/{place.queue_id}", f"/queues/{place.queue_id}/trials", 1)
    if labelled_places:
        address += f"{'&' if '?' in address else '?'}stored={next(iter(labelled_places))}"
    return go(address)


def _run_ids(texts: Sequence[str]) -> list[int]:
    return [number for text in texts[:20] if (number := number_of(text)) is not None]


def _n(text: str) -> str:
    return text if re.fullmatch(r"[0-9]{1,4}", text) else ""


def _sentence(error: EvaldeskError) -> str:
    text = str(error)
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."


QUEUE = f"/queues/{number('queue_id')}"
TURN = f"{QUEUE}/trials/{number('place')}/turns/{number('turn')}"
routes = [
    Route("/queues", index, methods=["GET"]),
    Route("/queues", create, methods=["POST"]),
    Route(QUEUE, show, methods=["GET"]),
    Route(QUEUE + "/labels", label, methods=["POST"]),
    Route(QUEUE + "/undo", undo, methods=["POST"]),
    Route(QUEUE + "/findings", find, methods=["POST"]),
    Route(QUEUE + "/answers", correct, methods=["POST"]),
    Route(QUEUE + "/trials", trials, methods=["GET"]),
    Route(f"{QUEUE}/trials/{number('place')}/turns", piece, methods=["GET"]),
    Route(TURN, turn, methods=["GET"]),
    *(Route(f"{TURN}/{kind}", partial(turn, kind=kind), methods=["GET"]) for kind in ("pieces", "events")),
    Route(f"{TURN}/events/{number('event')}", event, methods=["GET"]),
]
