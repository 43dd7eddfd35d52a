"""A session of Evaldesk in google-adk's services: its state with the prefixes, and its earlier turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from evaldesk.model import Event, JsonValue, Session, TurnRecord

TEMPORARY = "temp:"
_OWN_KEYS = ("_adk", "__llm_request_key__")  # what the runner itself keeps in a session's state
MEMORY = "adk"


@dataclass(slots=True)
class Conversation:
    """Services of google-adk that hold one session, and what it was when the last turn ended."""

    app_name: str
    sessions: Any
    artifacts: Any
    memory: Any
    n_turns: int = 0
    state: dict[str, JsonValue] = field(default_factory=dict)

    def runner(self, app: Any, plugin: Any) -> Any:
        """A runner of `app` on this session, with `plugin` before the app's own."""
        from google.adk.runners import Runner

        return Runner(
            app=app.model_copy(update={"plugins": [plugin, *app.plugins]}),
            app_name=self.app_name,
            session_service=self.sessions,
            artifact_service=self.artifacts,
            memory_service=self.memory,
        )

    def adopt(self, found: Any, state: dict[str, JsonValue]) -> None:
        """Change `state` as an event of google-adk says."""
        delta = found.actions.state_delta if found.actions else None
        state.update({key: value for key, value in (delta or {}).items() if not _is_own(key)})

    async def keep(self, session: Session) -> None:
        """Remember where the session stands, for the next turn."""
        found = await self.sessions.get_session(app_name=self.app_name, user_id=session.user_id, session_id=session.id)
        if found is not None:
            session.state.clear()
            session.state.update({key: value for key, value in found.state.items() if not _is_own(key)})
        self.state = dict(session.state)
        self.n_turns = len(session.turns) + 1


async def opened(session: Session, app_name: str, app: Any) -> tuple[Conversation, bool]:
    """The conversation, and whether it was made just now.

    One is kept from turn to turn; it is made anew from the session's turns in a fresh worker, and where a person
    changed the state in between.
    """
    known = session.memory.get(MEMORY)
    if isinstance(known, Conversation) and known.n_turns == len(session.turns) and known.state == session.state:
        return known, False
    from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
    from google.adk.memory.in_memory_memory_service import InMemoryMemoryService
    from google.adk.sessions.in_memory_session_service import InMemorySessionService

    made = Conversation(app_name, InMemorySessionService(), InMemoryArtifactService(), InMemoryMemoryService())
    found = await made.sessions.create_session(
        app_name=app_name, user_id=session.user_id, session_id=session.id, state=dict(session.state)
    )
    for number, turn in enumerate(session.turns, start=1):
        for event in _past(turn, f"turn-{number}", app.root_agent.name):
            await made.sessions.append_event(found, event)
    session.memory[MEMORY] = made
    return made, True


def _past(turn: TurnRecord, invocation_id: str, root_name: str) -> Iterator[Any]:
    """A turn that was played before, as events of google-adk; calls without a result are left out."""
    from google.adk.events.event import Event as AdkEvent
    from google.genai import types

    def made(author: str, role: str, *parts: Any) -> Any:
        return AdkEvent(author=author, invocation_id=invocation_id, content=types.Content(role=role, parts=list(parts)))

    yield made("user", "user", types.Part(text=turn.query))
    events = [event for event in turn.events if not event.within]
    answered = {event.call.id for event in events if event.kind == "tool_result" and event.call}
    for (kind, author), group in groupby(_told(events, answered), key=lambda event: (event.kind, event.author)):
        role = "user" if kind == "tool_result" else "model"
        yield made(author or root_name, role, *(_part(event, types) for event in group))


def _told(events: Iterable[Event], answered: set[str | None]) -> Iterator[Event]:
    for event in events:
        is_answered_call = event.kind == "tool_call" and event.call and event.call.id in answered
        is_said = event.kind in {"agent_message", "tool_result"} and not event.is_partial
        if is_answered_call or is_said:
            yield event


def _part(event: Event, types: Any) -> Any:
    call = event.call
    if call is None:
        return types.Part(text=event.text)
    if event.kind == "tool_call":
        return types.Part(function_call=types.FunctionCall(name=call.name, args=dict(call.args), id=call.id))
    result = event.result if isinstance(event.result, dict) else {"result": event.result}
    return types.Part(function_response=types.FunctionResponse(name=call.name, id=call.id, response=result))


def _is_own(key: str) -> bool:
    return key.startswith((TEMPORARY, *_OWN_KEYS))
