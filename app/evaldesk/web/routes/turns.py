"""Turns of a chat session: sending a message, watching the answer come, stopping it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from mimetypes import guess_type

from markupsafe import escape
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from evaldesk.desk.chat.running_turn import RunningTurn
from evaldesk.errors import ConflictError, NotFoundError, UsageError, WorkspaceError
from evaldesk.model import Decision
from evaldesk.model.media import MAX_MEDIA_COUNT, Media, media_of, sniffed_type
from evaldesk.model.stored import OpenTurn
from evaldesk.pages.conversation import TurnView, live_view, open_view, turn_views
from evaldesk.pages.typed import typed_value
from evaldesk.web.forms.fields import number_of, read_form, text_of
from evaldesk.web.live import Message, event_stream, has_room
from evaldesk.web.render import desk_of, fragment, go, number, page
from evaldesk.web.routes.sessions import ELSEWHERE, agent_of, session_view, show_session, turn_macros

PAUSE_S = 0.06
TICK_S = 1.0
NEXT_TURN_S = 30.0
"""The time that a simulated user of another process may take for its next message."""
MAX_ANNOUNCED = 2000
MAX_NAME = 120
MAX_REASON = 10_000
TEMPLATE = "sessions/show.html"


async def send(request: Request) -> Response:
    """Start a turn. A script gets the answer as a stream, a plain form is sent back to the page."""
    session_id = request.path_params["session_id"]
    form = await read_form(request, max_files=MAX_MEDIA_COUNT)
    message, model = text_of(form, "message"), text_of(form, "model")
    files = [each for each in form.getlist("media") if isinstance(each, UploadFile) and each.filename]
    if _wants_stream(request) and not has_room(request):
        return _note(request, "Too many windows of Evaldesk are open. Close a few and send again.", 503)
    try:
        media = [await _media(each) for each in files]
        turn = await desk_of(request).sessions.start_turn(session_id, message, model or None, media=media)
    except (UsageError, ConflictError, WorkspaceError) as error:
        return _refusal(request, error, message)
    if not _wants_stream(request):
        page_href = f"/bench?session={session_id}" if "bench" in form else f"/sessions/{session_id}"
        return go(f"{page_href}#turn-{turn.turn_index + 1}")
    return event_stream(
        request, _messages(request, turn, after=_n_shown_turns(text_of(form, "after"), turn.turn_index))
    )


async def _media(upload: UploadFile) -> Media:
    """An uploaded file as a part of a message. Raises UsageError for an empty or too large one."""
    content = await upload.read()
    await upload.close()
    name = (upload.filename or "").replace("\\", "/").rpartition("/")[2][:MAX_NAME]
    mime_type = sniffed_type(content) or guess_type(name)[0] or "application/octet-stream"
    return media_of(mime_type, content, name=name)


async def decide(request: Request) -> Response:
    """Go on with the turn that waits: `choice-0` is approve, deny or answer, with `answer-0` or `reason-0`."""
    session_id = request.path_params["session_id"]
    form = await read_form(request)
    try:
        n = sum(re.fullmatch(r"choice-\d{1,3}", name) is not None for name in form)
        decisions = [_decision(form, index) for index in range(n)]
        turn = await desk_of(request).sessions.decide(session_id, text_of(form, "asked"), decisions)
    except (UsageError, ConflictError, WorkspaceError) as error:
        return _refusal(request, error, "")
    return go(f"/sessions/{session_id}#turn-{turn.turn_index + 1}")


def _decision(form: FormData, index: int) -> Decision:
    """The decision about the thing at that place. Raises UsageError."""
    choice = text_of(form, f"choice-{index}")
    if choice == "answer":
        return Decision("answer", answer=typed_value(text_of(form, f"answer-{index}")))
    if choice == "deny":
        return Decision("deny", reason=text_of(form, f"reason-{index}").strip()[:MAX_REASON])
    if choice == "approve":
        return Decision("approve")
    raise UsageError("Decide every waiting call: approve, deny or answer.")


async def branch(request: Request) -> Response:
    """POST /sessions/{session_id}/branches: send a turn again, or its text `message`, in a new session."""
    session_id = request.path_params["session_id"]
    form = await read_form(request)
    turn_number = number_of(text_of(form, "turn"))
    message = text_of(form, "message") if "message" in form else None
    try:
        if not turn_number:
            raise UsageError("Name the turn to send again.")
        turn = await desk_of(request).sessions.branch(session_id, turn_number - 1, message)
    except NotFoundError:
        raise
    except (UsageError, ConflictError, WorkspaceError) as error:
        return _refusal(request, error, message or "")
    return go(f"/sessions/{turn.session_id}#turn-{turn_number}")


async def edit(request: Request) -> Response:
    """GET /sessions/{session_id}/turns/{turn}/message: the form that sends the message of a turn (from 0) changed."""
    session_id, at = request.path_params["session_id"], request.path_params["turn"]
    desk = desk_of(request)
    session = await asyncio.to_thread(desk.sessions.recent, session_id)
    turns = await asyncio.to_thread(desk.sessions.turns, session_id, at, at + 1)
    if not turns:
        raise NotFoundError(f"this session has no finished turn {at + 1}")
    return page(request, "sessions/edit.html", session=session, number=at + 1, turn=turns[0])


async def send_again(request: Request) -> Response:
    """Play the interrupted turn anew; the page shows it from its start."""
    session_id = request.path_params["session_id"]
    try:
        turn = await desk_of(request).sessions.ask_again(session_id)
    except (UsageError, ConflictError, WorkspaceError) as error:
        return _refusal(request, error, "")
    return go(f"/sessions/{session_id}#turn-{turn.turn_index + 1}")


async def events(request: Request) -> Response:
    """The running turn from its start on, for a page that was opened in the middle; `after` turns are shown there."""
    session_id = request.path_params["session_id"]
    desk = desk_of(request)
    after = _n_shown_turns(request.query_params.get("after", ""), desk.sessions.recent(session_id).n_turns)
    return event_stream(request, _messages(request, desk.sessions.find_running_turn(session_id), after=after))


async def news(request: Request) -> Response:
    """The changes of another desk to the session since its page was drawn, with a stream of the running turn.

    The page names its number of turns and when the session was `seen`; empty where nothing is new.
    """
    desk, session_id, query = desk_of(request), request.path_params["session_id"], request.query_params
    changed_at = await asyncio.to_thread(desk.sessions.changed_at, session_id)
    if query.get("seen", "") in ("", changed_at.isoformat()):
        return HTMLResponse("")
    view = session_view(request, await asyncio.to_thread(desk.sessions.recent, session_id))
    n_turns = view["n_turns"]
    after = _n_shown_turns(query.get("after", ""), n_turns)
    if view["live"]:
        stream_html = _out_of_band("innerHTML", "stream", fragment(request, TEMPLATE, "stream", **view))
        return HTMLResponse(
            _turns_html(request, [turn for turn in view["turns"] if turn.number > after])
            + _removal_html(n_turns + 1)
            + stream_html
        )
    return HTMLResponse(_end_html(request, max(after - 1, 0)))  # the last one may have gone on after a decision


async def cancel(request: Request) -> Response:
    """Stop the running turn."""
    session_id = request.path_params["session_id"]
    desk = desk_of(request)
    desk.sessions.recent(session_id)
    await desk.sessions.stop(session_id)
    if request.headers.get("HX-Request"):
        return Response(status_code=204)
    return go(f"/sessions/{session_id}")


async def _messages(request: Request, turn: RunningTurn | None, after: int) -> AsyncIterator[Message]:
    """The turn as it stands, again whenever it grew; then the finished turns after `after`, and `done`.

    Without one it is the turn that another process plays. Where a simulated user talks, the next turn follows.
    """
    desk, session_id, wait_s = desk_of(request), request.path_params["session_id"], 0.0
    simulation = desk.simulation
    while True:
        followed: OpenTurn | None = None
        if turn and not turn.is_finished:
            yield None, _began(request)
            async for text in _growing(request, turn):
                yield None, text
        elif turn is None:
            async for open_turn, text in _follow_stored_turn(request, wait_s):
                followed = open_turn
                yield None, text
        yield None, _end_html(request, after)
        if followed:
            yield None, _out_of_band("innerHTML", "composer-note", "")
        if turn and turn.failure:
            problem = _problem(request, f"The end of the turn could not be stored: {turn.failure}")
            yield None, _out_of_band("innerHTML", "composer-note", problem)
        turn = await simulation.next_turn(session_id)
        wait_s = NEXT_TURN_S if followed and followed.asked_by == "simulated" else 0.0
        if turn is None and not wait_s:
            break
        after = turn.turn_index if turn else followed.turn_index + 1 if followed else after
    if simulation.ending(session_id):
        note = fragment(request, TEMPLATE, "composer_note", problem="", notice=simulation.ending(session_id))
        yield None, _out_of_band("innerHTML", "composer-note", note)
    yield "done", "done"


async def _growing(request: Request, turn: RunningTurn) -> AsyncIterator[str]:
    session = desk_of(request).sessions.recent(turn.session_id)
    name = agent_of(request, session).name
    while not turn.is_finished:
        n_seen = len(turn.events)
        began = time.monotonic()
        view = live_view(turn, name, session)
        text = fragment(request, TEMPLATE, "live", live=view, parts=turn_macros(request))
        spent_s = time.monotonic() - began
        yield text
        await turn.news(n_seen, TICK_S)
        # Events of this time are shown at once; drawing thousands of calls leaves other pages half of the time.
        await asyncio.sleep(max(PAUSE_S, spent_s))


async def _follow_stored_turn(request: Request, wait_s: float) -> AsyncIterator[tuple[OpenTurn, str]]:
    """A turn that another process plays, as far as it is stored, and its part of the page."""
    desk, session_id = desk_of(request), request.path_params["session_id"]
    name = agent_of(request, await asyncio.to_thread(desk.sessions.recent, session_id)).name
    began = _began(request, ELSEWHERE)
    async for turn in desk.sessions.elsewhere(session_id, wait_s):
        view = open_view(turn, name)
        yield turn, began + fragment(request, TEMPLATE, "live", live=view, parts=turn_macros(request))
        began = ""  # a button that has the focus keeps it


def _began(request: Request, notice: str = "") -> str:
    """The parts of the page that change when a turn begins."""
    actions = fragment(request, TEMPLATE, "composer_actions", live=True, n_turns=0)
    note = fragment(request, TEMPLATE, "composer_note", problem="", notice=notice)
    emptied = ("opening", "interrupted", "deciding", "announcement")
    swaps = [("composer-actions", actions), ("composer-note", note), *((element_id, "") for element_id in emptied)]
    return "".join(_out_of_band("innerHTML", element_id, html) for element_id, html in swaps)


def _end_html(request: Request, after: int) -> str:
    """The parts of the page that change when a turn is over, and the turns that it has not shown yet."""
    session = desk_of(request).sessions.recent(request.path_params["session_id"])
    view = session_view(request, session)
    name = agent_of(request, session).name
    views = turn_views(session.turns, session.initial_state, name, session.first)
    fresh = [turn for turn in views if turn.number > after]
    last = session.turns[-1] if fresh else None
    answer = "" if last is None else "waits for a decision" if last.open_requests else last.answer[:MAX_ANNOUNCED]
    title = escape(session.title or "New session")
    swaps = [
        ("innerHTML", "live", ""),
        ("innerMorph", "session-list", fragment(request, TEMPLATE, "session_list", **view)),
        ("innerHTML", "title", title),
        ("innerMorph", "title-field", fragment(request, TEMPLATE, "title_field", **view)),
        ("innerHTML", "add-session", fragment(request, TEMPLATE, "add_session", **view)),
        ("innerHTML", "composer-actions", fragment(request, TEMPLATE, "composer_actions", **(view | {"live": None}))),
        ("innerMorph", "inspector-body", fragment(request, TEMPLATE, "inspector_body", **view)),
        ("innerHTML", "interrupted", fragment(request, TEMPLATE, "interrupted", **view)),
        ("innerHTML", "deciding", fragment(request, TEMPLATE, "deciding", **view)),
        ("innerHTML", "announcement", escape(f"{name}: {answer or 'no answer'}") if fresh else ""),
    ]
    document_title = f"<title>{title}, chat · Evaldesk</title>"
    return document_title + _turns_html(request, fresh) + "".join(_out_of_band(*swap) for swap in swaps)


def _turns_html(request: Request, turns: Sequence[TurnView]) -> str:
    """Turns for the end of the page; a turn that it has is replaced."""
    removals = "".join(_removal_html(turn.number) for turn in turns)
    macros, session_id = turn_macros(request), request.path_params["session_id"]
    return removals + _out_of_band("beforeend", "turns", "".join(macros.turn(turn, session_id) for turn in turns))


def _removal_html(number: int) -> str:
    return _out_of_band("delete", f"turns > #turn-{number}", "")


def _refusal(request: Request, error: Exception, message: str) -> Response:
    """Why no turn was started, beside the composer; the typed text stays there."""
    status = 409 if isinstance(error, ConflictError) else 404 if isinstance(error, NotFoundError) else 422
    if not _wants_stream(request):
        return show_session(request, status=status, problem=str(error), typed=message)
    return _note(request, str(error), status)


def _note(request: Request, problem: str, status: int) -> Response:
    return HTMLResponse(_out_of_band("innerHTML", "composer-note", _problem(request, problem)), status)


def _problem(request: Request, problem: str) -> str:
    return fragment(request, TEMPLATE, "composer_note", problem=problem, notice="")


def _n_shown_turns(text: str, n_turns: int) -> int:
    """The number of turns that a page claims to show, at most the stored number; other pages may have added some."""
    number = number_of(text)
    return n_turns if number is None else min(number, n_turns)


def _out_of_band(style: str, element_id: str, html: str) -> str:
    """Content for an element elsewhere on the page; its wrapper is dropped by htmx."""
    return f'<div hx-swap-oob="{style}:#{element_id}">{html}</div>'


def _wants_stream(request: Request) -> bool:
    return "text/event-stream" in request.headers.get("accept", "")


routes = [
    Route("/sessions/{session_id}/turns", send, methods=["POST"]),
    Route("/sessions/{session_id}/branches", branch, methods=["POST"]),
    Route("/sessions/{session_id}/turns/" + number("turn") + "/message", edit),
    Route("/sessions/{session_id}/decisions", decide, methods=["POST"]),
    Route("/sessions/{session_id}/interrupted-turn", send_again, methods=["POST"]),
    Route("/sessions/{session_id}/events", events),
    Route("/sessions/{session_id}/news", news),
    Route("/sessions/{session_id}/cancellation", cancel, methods=["POST"]),
]
