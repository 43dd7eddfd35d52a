"""Chat: the sessions, one session with its inspector, the actions on it, and a simulated user in a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaldesk.desk.agents import FoundAgent
from evaldesk.desk.chat.sessions import PAGE_SIZE
from evaldesk.errors import ConflictError, FormatError, NotFoundError, UsageError
from evaldesk.model import AgentRef, ErrorRecord, Event
from evaldesk.model.agent_tree import several_agents
from evaldesk.model.stored import StoredSession
from evaldesk.pages.chat_pieces import chat_piece, chat_pieces
from evaldesk.pages.conversation import changes_of, deciding, gist, live_view, open_view, parts_of_gap, turn_views
from evaldesk.pages.large_state import MAX_TYPED, large_state, value_part
from evaldesk.pages.timeline import raw_chat_call, read_chat_timeline
from evaldesk.pages.typed import error_sentence
from evaldesk.web.forms.fields import attachment, file_text_of, number_of, read_form, start_of, text_of
from evaldesk.web.render import desk_of, go, number, page
from evaldesk.web.timing import bars, timings, total_cost
from evaldesk.wording.json_layout import laid_out

ELSEWHERE = "Another Evaldesk plays this turn."


async def index(request: Request) -> Response:
    """The session that was used last; without one, the start page."""
    desk = desk_of(request)
    deleted_id = request.query_params.get("deleted", "")
    newest = desk.sessions.list(limit=1)
    if newest:
        query = f"?{urlencode({'deleted': deleted_id})}" if deleted_id else ""
        return go(f"/sessions/{newest[0].id}{query}")
    agents = desk.agents.list()
    await run_in_threadpool(desk.adk_sessions.look_once)
    first = next((agent.id for agent in agents if agent.state != "failed"), "")
    values: dict[str, Any] = {"deleted": deleted_id, "has_adk_sessions": desk.adk_sessions.is_any}
    return page(request, "sessions/index.html", agents=agents, first=first, **values)


async def show_new_session(request: Request) -> Response:
    """The form of a new session; its state is proposed by the agent."""
    desk = desk_of(request)
    await desk.agents.look_again()
    agents = desk.agents.list()
    agent_id = request.query_params.get("agent") or (agents[0].id if agents else "")
    agent = await desk.agents.get_described_agent(agent_id)
    desk.agents.warm(agent.id)
    state = agent.description.initial_state if agent.description else {}
    return _new_page(request, agent, state_text=laid_out(state, width=0))


async def create(request: Request) -> Response:
    """Begin a session, with its first message where one was typed, and go to it."""
    desk = desk_of(request)
    form = await read_form(request)
    agent = desk.agents.get(text_of(form, "agent"))
    state, title, message = (text_of(form, name) for name in ("state", "title", "message"))
    form_texts = {"state_text": state, "title": title, "message": message}
    try:
        session = await desk.sessions.begin(agent.id, state, title, message)
    except FormatError as error:
        return _new_page(request, agent, status=422, state_error=error_sentence(error), **form_texts)
    except UsageError as error:
        return _new_page(request, agent, status=422, message_error=str(error), **form_texts)
    return go(f"/sessions/{session.id}")


async def show(request: Request) -> Response:
    """One session: the list of all, the conversation, the inspector."""
    await desk_of(request).agents.look_again()
    await run_in_threadpool(desk_of(request).adk_sessions.look_once)
    return show_session(request, deleted=request.query_params.get("deleted", ""))


async def rename(request: Request) -> Response:
    """Give the session another title."""
    session_id = request.path_params["session_id"]
    title = text_of(await read_form(request), "title")
    try:
        await run_in_threadpool(desk_of(request).sessions.rename, session_id, title)
    except UsageError as error:
        return show_session(request, status=422, problem=str(error))
    return go(f"/sessions/{session_id}")


async def delete(request: Request) -> Response:
    """Put the session aside; the next page offers to bring it back."""
    session_id = request.path_params["session_id"]
    await run_in_threadpool(desk_of(request).sessions.delete, session_id)
    return go(f"/sessions?{urlencode({'deleted': session_id})}")


async def restore(request: Request) -> Response:
    """Bring a deleted session back."""
    session_id = request.path_params["session_id"]
    await run_in_threadpool(desk_of(request).sessions.restore, session_id)
    return go(f"/sessions/{session_id}")


async def set_state(request: Request) -> Response:
    """Change the state before the next turn."""
    session_id = request.path_params["session_id"]
    form = await read_form(request)
    text = text_of(form, "state")
    try:
        uploaded = await file_text_of(form, "file")
        if uploaded is None and "state" not in form:
            return show_session(request, status=422, state_error="Choose a file first.")
        text = text if uploaded is None else uploaded
        await run_in_threadpool(desk_of(request).sessions.set_state, session_id, text)
    except FormatError as error:
        return show_session(request, status=422, **_typed_state(text, error_sentence(error)))
    except ConflictError as error:
        return show_session(request, status=409, **_typed_state(text, str(error)))
    return go(f"/sessions/{session_id}#state")


def _typed_state(text: str, error: str) -> dict[str, Any]:
    """A refused state beside its error; a state too large for the page is in the person's own file."""
    return {"state_error": error} if len(text) > MAX_TYPED else {"state_error": error, "state_text": text}


async def download_state(request: Request) -> Response:
    """GET …/state/file: the state as JSON, to be edited elsewhere and put back."""
    session = await run_in_threadpool(desk_of(request).sessions.recent, request.path_params["session_id"])
    return attachment(laid_out(session.state, width=0), "state.json")


async def show_value(request: Request) -> Response:
    """One value of the state, part by part: `key`, and `from` the character that the part begins with."""
    session = await run_in_threadpool(desk_of(request).sessions.recent, request.path_params["session_id"])
    part = await run_in_threadpool(value_part, session.state, request.query_params.get("key", ""), start_of(request))
    address = f"/sessions/{session.id}"
    return page(
        request,
        "value.html",
        part=part,
        crumbs=(("Chat", "/sessions"), (session.title or "Session", address), ("State", "")),
        from_href=f"{address}/state/value?{urlencode({'key': part.key, 'from': ''})}",
        back_href=address,
        back="Back to the session",
    )


def show_session(request: Request, *, status: int = 200, **context: Any) -> Response:
    """The page of the session that the address names."""
    desk = desk_of(request)
    session = desk.sessions.recent(request.path_params["session_id"])
    desk.agents.warm(session.agent_id)
    values = {**session_view(request, session), "has_adk_sessions": desk.adk_sessions.is_any, **context}
    return page(request, "sessions/show.html", status=status, **values)


def session_view(request: Request, session: StoredSession) -> dict[str, Any]:
    """The contents of the blocks of a session's page."""
    desk = desk_of(request)
    agent = agent_of(request, session)
    running_turn = desk.sessions.find_running_turn(session.id)
    shown_turns = session.turns[bool(session.first) :]
    rows = timings(shown_turns, session.first + bool(session.first))
    sessions = desk.sessions.list(request.query_params.get("older", ""))
    large_text = large_state(session.state)
    elsewhere = None if running_turn else session.open_turn
    live = live_view(running_turn, agent.name, session) if running_turn else None
    open_index = running_turn.turn_index if running_turn else elsewhere.turn_index if elsewhere else None
    n_turns = session.n_turns if open_index is None else min(open_index, session.n_turns)
    turns = session.turns[: n_turns - session.first]  # one that goes on after a decision is stored as it waited
    views = turn_views(turns, session.initial_state, agent.name, session.first)
    models = [usage.model for turn in session.turns[-1:] for usage in turn.usages]
    return {
        "session": session,
        "sessions": sessions,
        "me": desk.me,
        "is_shared": desk.settings.is_shared,
        "older": sessions[-1].id if len(sessions) == PAGE_SIZE else "",
        "agent": agent,
        "agent_name": agent.name,
        "agent_model": agent.description.model if agent.description else None,
        "is_demo": agent.is_demo,
        "turns": views,
        "n_turns": n_turns,
        "pieces": chat_pieces(desk.sessions, session, views, agent.name, turn_asked(request)),
        "deciding": None if running_turn else deciding(session),
        "live": open_view(elsewhere, agent.name) if elsewhere else live,
        "is_interrupted": bool(session.turns) and session.turns[-1].stop_reason == "interrupted",
        "takes": agent.takes,
        "accept": "" if "file" in agent.takes else ",".join(f"{kind}/*" for kind in agent.takes),
        "models": desk.agents.models,
        "model": models[-1] if models else "",
        "state_text": "" if large_text else laid_out(session.state, width=0),
        "large": large_text,
        "state_error": "",
        "changes": changes_of(session),
        "n_events": None if session.first else sum(len(turn.events) for turn in session.turns),
        "timings": rows,
        "bars": bars(rows),
        "cost": total_cost(rows),
        "agents": several_agents(shown_turns),
        "problem": "",
        "is_simulated": desk.simulation.is_simulated(session.id),
        "notice": ELSEWHERE if elsewhere else desk.simulation.ending(session.id),
        "typed": "",
        "deleted": "",
        "event_tables": event_tables(session),
        "gist": gist,
        "parts": turn_macros(request),
    }


MAX_EVENTS = 300
"""Rows of events on the page of a chat; the time line has all of them."""


def event_tables(session: StoredSession) -> list[tuple[int, int, Sequence[Event]]]:
    """The turns from the last one back: the number of each, how many events it has, and the events with a row."""
    room, tables = MAX_EVENTS, list[tuple[int, int, Sequence[Event]]]()
    for turn_number, turn in zip(range(session.n_turns, 0, -1), reversed(session.turns), strict=False):
        tables.append((turn_number, len(turn.events), turn.events[:room]))
        room -= len(tables[-1][2])
    return tables


def turn_macros(request: Request) -> Any:
    """The macros that draw a turn."""
    return request.app.state.templates.get_template("sessions/turn.html").module


def agent_of(request: Request, session: StoredSession) -> FoundAgent:
    """The session's agent; a missing one is shown as failed, so that the conversation can still be read."""
    try:
        return desk_of(request).agents.get(session.agent_id)
    except NotFoundError as error:
        return FoundAgent(AgentRef(session.agent_id, ""), "failed", error=ErrorRecord("missing", str(error)))


def _new_page(request: Request, agent: FoundAgent, *, status: int = 200, **context: Any) -> Response:
    agents = desk_of(request).agents.list()
    context = {"title": "", "state_text": "", "state_error": "", "message": "", "message_error": "", **context}
    return page(request, "sessions/new.html", status=status, agents=agents, agent=agent, **context)


async def show_timeline(request: Request) -> Response:
    """GET /sessions/{session_id}/timeline?span=TURN.EVENT&part=tools: the spans of a chat, and one of them."""
    desk, query = desk_of(request), request.query_params
    place = request.path_params["session_id"], query.get("span", ""), query.get("part", "")
    return page(request, "trials/timeline.html", line=await run_in_threadpool(read_chat_timeline, desk, *place))


async def show_call(request: Request) -> Response:
    """GET /sessions/{session_id}/calls/{at}: a model call of a chat as JSON, from the character `from` on."""
    session_id, at = request.path_params["session_id"], request.path_params["at"]
    start = start_of(request)
    part = await run_in_threadpool(raw_chat_call, desk_of(request), session_id, at, start)
    address = f"/sessions/{session_id}"
    return page(
        request,
        "value.html",
        part=part,
        crumbs=(("Chat", "/sessions"), ("Time line", f"{address}/timeline"), ("Model call", "")),
        from_href=f"{address}/calls/{at}?from=",
        back_href=f"{address}/timeline",
        back="Back to the time line",
    )


def turn_asked(request: Request) -> int:
    """The number of the turn that the address names; 0 without one."""
    return number_of(request.query_params.get("turn")) or 0


async def show_piece(request: Request) -> Response:
    """GET /sessions/{session_id}/pieces?from=51&to=9950: turns that the page of a long chat left out, and the gap.

    Without htmx the address leads to the page that begins with them.
    """
    desk, session_id, query = desk_of(request), request.path_params["session_id"], request.query_params
    first, last = number_of(query.get("from")) or 0, number_of(query.get("to")) or 0
    session = await run_in_threadpool(desk.sessions.recent, session_id)
    if not request.headers.get("HX-Request"):
        return go(f"/sessions/{session_id}?turn={first}#turn-{first}")
    name = agent_of(request, session).name
    pieces = await run_in_threadpool(chat_piece, desk.sessions, session, name, first, last)
    return page(request, "sessions/pieces.html", pieces=pieces, session_id=session_id)


async def show_parts(request: Request) -> Response:
    """GET /sessions/{session_id}/turns/{turn}/parts?from=51&to=9950: what a long turn left out, and the gap.

    The turn is counted from 0, as in the store. Without htmx the address leads to the time line.
    """
    desk, query = desk_of(request), request.query_params
    session_id, turn = request.path_params["session_id"], request.path_params["turn"]
    first, last = number_of(query.get("from")) or 0, number_of(query.get("to")) or 0
    session = await run_in_threadpool(desk.sessions.recent, session_id)
    records = await run_in_threadpool(desk.sessions.turns, session_id, turn, turn + 1)
    if not records:
        raise NotFoundError(f"the chat has no turn {turn + 1}")
    if not request.headers.get("HX-Request"):
        return go(f"/sessions/{session_id}/timeline?span={turn + 1}")
    parts = await run_in_threadpool(parts_of_gap, records[0], first, last)
    agent = agent_of(request, session).name
    values = {"gap_parts": parts, "session_id": session_id, "number": turn + 1, "agent": agent}
    return page(request, "sessions/parts.html", **values)


async def simulate(request: Request) -> Response:
    """POST …/cases/{key}/simulation: play the scenario in a new chat session, and go there."""
    desk = desk_of(request)
    form = await read_form(request)
    file = await run_in_threadpool(desk.evalsets.file, request.path_params["set_id"])
    found_case = await run_in_threadpool(desk.evalsets.cases.find, file.id, request.path_params["key"])
    session = await desk.simulation.start(text_of(form, "agent"), found_case.case)
    return go(f"/sessions/{session.id}")


routes = [
    Route("/sessions", index),
    Route("/sessions", create, methods=["POST"]),
    Route("/sessions/new", show_new_session),
    Route("/sessions/{session_id}", show),
    Route("/sessions/{session_id}/pieces", show_piece),
    Route(f"/sessions/{{session_id}}/turns/{number('turn')}/parts", show_parts),
    Route("/sessions/{session_id}/timeline", show_timeline),
    Route(f"/sessions/{{session_id}}/calls/{number('at')}", show_call),
    Route("/sessions/{session_id}/title", rename, methods=["POST"]),
    Route("/sessions/{session_id}/deletion", delete, methods=["POST"]),
    Route("/sessions/{session_id}/restoration", restore, methods=["POST"]),
    Route("/sessions/{session_id}/state", set_state, methods=["POST"]),
    Route("/sessions/{session_id}/state/value", show_value),
    Route("/sessions/{session_id}/state/file", download_state),
    Route("/evalsets/{set_id}/cases/{key}/simulation", simulate, methods=["POST"]),
]
