"""An agent behind ADK's `api_server`: one session of the server each, turns by `/run_sse`. (reference/adk.md 5.1)"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote

from evaldesk.agents.agent import Agent, ModelCaller
from evaldesk.agents.remote.adk_events import NO_MEMORY_NOTE, read_adk_event
from evaldesk.agents.remote.http_protocol import (
    Options,
    bounded_lines,
    headers_from,
    http_client,
    parse_answer,
    read_options,
    refusal_of,
    whole_body,
)
from evaldesk.agents.tools.frameworks import lost_turn_error, pause, take_paused_turn, waiting_events
from evaldesk.errors import TEXT_LIMIT, AgentError
from evaldesk.llm.client import open_litellm
from evaldesk.llm.retry_events import note_capture
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, JsonObject, Session, ToolCall
from evaldesk.model.decisions import Decided
from evaldesk.transcripts.adk import AdkEvents, function_response, kept_state, person_results, written_parts
from evaldesk.wire import plain_json

KIND = "adk_server"

_MEMORY = "adk_server_session"


def adapt(candidate: object, ref: AgentRef) -> Agent:
    """The agent at an address that ends in the name of the app. Raises AgentError."""
    address, _, app = ref.target.rstrip("/").rpartition("/")
    if not app or address.endswith(("/", ":")):
        raise AgentError(
            f"{ref.target}: the last part must be the name of the app, as in http://127.0.0.1:8000/weather"
        )
    return AdkServerAgent(ref, address, app, read_options(ref, Options).headers_env)


@dataclass(frozen=True, slots=True)
class AdkServerAgent(ModelCaller):
    """An app of an `api_server`. Tools and sub-agents run there; we see their events."""

    ref: AgentRef
    address: str
    app: str
    headers_env: dict[str, str]

    def describe(self) -> AgentDescription:
        """The app and the address of its server."""
        return AgentDescription(name=self.app, kind=KIND, description=f"An app of the ADK server at {self.address}")

    def warm(self, session: Session) -> None:
        """Import the price list, for the models in the server's answers."""
        open_litellm()

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Send the message and yield the events of the server's answer. Raises AgentError."""
        async for event in self._send(session, written_parts(message, session.media), AdkEvents()):
            yield event

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Send the decisions as function responses: the server keeps the paused turn."""
        snapshot: Any = take_paused_turn(session) or session.paused
        if not isinstance(snapshot, dict):
            raise lost_turn_error()
        session.memory.setdefault(_MEMORY, snapshot["session"])
        reader = AdkEvents({key: ToolCall(*call) for key, call in snapshot["calls"].items()})
        for event in person_results(reader.calls, decided):
            yield event
        parts: list[JsonObject] = [{"functionResponse": dict(function_response(*each))} for each in decided]
        async for event in self._send(session, parts, reader):
            yield event

    async def _send(self, session: Session, parts: Sequence[JsonObject], reader: AdkEvents) -> AsyncIterator[Event]:
        note_capture("told")
        async with http_client(self.address, headers_from(self.headers_env, self.ref.id)) as client:
            if _MEMORY not in session.memory:
                session.memory[_MEMORY] = await self._create(client, session)
                if session.turns:
                    yield Event("log", author=self.ref.id, text=NO_MEMORY_NOTE)
            body = {
                "appName": self.app,
                "userId": session.user_id,
                "sessionId": session.memory[_MEMORY],
                "newMessage": {"role": "user", "parts": list(parts)},
                "streaming": session.is_streaming,
            }
            async with client.stream("POST", f"{self.address}/run_sse", json=body) as response:
                if response.status_code != 200:
                    raise AgentError(await refusal_of(response, f"{self.address}/run_sse"))
                async for line in bounded_lines(response):
                    if line.startswith(b"data:"):
                        for event in self.events_of(line.removeprefix(b"data:"), session, reader):
                            yield event
        if reader.requests:
            calls = {key: [call.name, dict(call.args), call.id] for key, call in reader.calls.items()}
            snapshot = {"session": session.memory[_MEMORY], "calls": calls}
            pause(session, snapshot, partial(plain_json, snapshot))
            for event in waiting_events(reader.requests.values()):
                yield event

    async def _create(self, client: Any, session: Session) -> str:
        path = f"/apps/{quote(self.app, safe='')}/users/{quote(session.user_id, safe='')}/sessions"
        async with client.stream(
            "POST", f"{self.address}{path}", json={"state": plain_json(session.state)}
        ) as response:
            if response.status_code != 200:
                raise AgentError(await refusal_of(response, f"{self.address}{path}"))
            body = await whole_body(response)
        answer = parse_answer(body, f"{self.address}{path}")
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
            raise AgentError(f"{self.address}{path} gave no session: {body[:TEXT_LIMIT].decode('utf-8', 'replace')!r}")
        return str(answer["id"])

    def events_of(self, data: bytes, session: Session, reader: AdkEvents) -> Iterator[Event]:
        """The events in one event of the stream; its state delta updates `session`. Raises AgentError."""
        adk_event = parse_answer(data, f"{self.address}/run_sse")
        if not isinstance(adk_event, Mapping):
            return
        if "error" in adk_event and "content" not in adk_event:
            yield Event("error", error=ErrorRecord("adk_server", str(adk_event["error"])))
            return
        yield from read_adk_event(reader, self.app, adk_event, f"{self.address}/run_sse")
        if adk_event.get("partial") is not True:
            delta = plain_json(_mapping(_mapping(adk_event.get("actions")).get("stateDelta")))
            if isinstance(delta, dict):
                session.state.update(kept_state(delta))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
