"""An agent behind ADK's `api_server`: a session of it for each of ours, turns by `/run_sse`. (reference/adk.md 5.1)"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from evaldesk.agents.agent import Agent, ModelCaller
from evaldesk.agents.http_protocol import Options, bounded_lines, headers_from, http_client, read_options
from evaldesk.agents.protocol import Calls
from evaldesk.errors import AgentError
from evaldesk.llm import price
from evaldesk.llm.client import open_litellm
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, Session, ToolCall, Usage
from evaldesk.wire import plain

KIND = "adk_server"

_MEMORY = "adk_server_session"


def adapt(found: object, ref: AgentRef) -> Agent | None:
    """The agent at an address, whose last part is the name of the app. Raises AgentError."""
    if ref.kind != KIND or found is not None:
        return None
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
        """The app and where it is."""
        return AgentDescription(name=self.app, kind=KIND, description=f"An app of the ADK server at {self.address}")

    def warm(self, session: Session) -> None:
        """Import what knows the prices of the models that the server names."""
        open_litellm()

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Send the message and yield what the server tells of it. Raises AgentError."""
        import httpx

        calls = Calls()
        headers = headers_from(self.headers_env, self.ref.id)
        try:
            async with http_client(self.address, headers) as client:
                if _MEMORY not in session.memory:
                    session.memory[_MEMORY] = await self._create(client, session)
                    if session.turns:
                        said = "the server was not there before: it does not remember the earlier turns"
                        yield Event("log", author=self.ref.id, text=said)
                body = {
                    "appName": self.app,
                    "userId": session.user_id,
                    "sessionId": session.memory[_MEMORY],
                    "newMessage": {"role": "user", "parts": [{"text": message}]},
                    "streaming": session.is_streaming,
                }
                async with client.stream("POST", f"{self.address}/run_sse", json=body) as got:
                    if got.status_code != 200:
                        raise AgentError(await self._refusal(got, "/run_sse"))
                    async for line in bounded_lines(got):
                        if line.startswith(b"data:"):
                            for event in self._events(line.removeprefix(b"data:"), session):
                                yield calls.known(event)
        except httpx.HTTPError as error:
            raise AgentError(f"{self.address}: {type(error).__name__}: {error}") from error

    async def _create(self, client: Any, session: Session) -> str:
        path = f"/apps/{quote(self.app, safe='')}/users/{quote(session.user_id, safe='')}/sessions"
        got = await client.post(f"{self.address}{path}", json={"state": plain(session.state)})
        if got.status_code != 200:
            raise AgentError(f"{self.address}{path} answered {got.status_code}: {got.text[:300]!r}")
        found = got.json()
        if not isinstance(found, dict) or not isinstance(found.get("id"), str):
            raise AgentError(f"{self.address}{path} gave no session: {got.text[:300]!r}")
        return str(found["id"])

    async def _refusal(self, response: Any, path: str) -> str:
        said = b" ".join([line async for line in bounded_lines(response)])[:300].decode("utf-8", "replace")
        return f"{self.address}{path} answered {response.status_code}: {said!r}"

    def _events(self, data: bytes, session: Session) -> Iterator[Event]:
        try:
            found = json.loads(data)
        except ValueError as error:
            raise AgentError(f"{self.address}/run_sse sent what is no JSON: {data[:80]!r}") from error
        if not isinstance(found, Mapping):
            return
        if "error" in found and "content" not in found:
            yield Event("error", error=ErrorRecord("adk_server", str(found["error"])))
            return
        author = str(found.get("author") or self.app)
        is_partial = found.get("partial") is True
        yield from _parts(_mapping(found.get("content")).get("parts"), author, is_partial=is_partial)
        if is_partial:
            return
        delta = plain(_mapping(_mapping(found.get("actions")).get("stateDelta")))
        if isinstance(delta, dict):
            session.state.update({key: value for key, value in delta.items() if not key.startswith("temp:")})
        usage = found.get("usageMetadata")
        if isinstance(usage, Mapping):
            yield _usage(usage, str(found.get("modelVersion") or ""))
        if found.get("errorCode"):
            said = str(found.get("errorMessage") or found["errorCode"])
            yield Event("error", error=ErrorRecord(str(found["errorCode"]), said))


def _parts(found: object, author: str, *, is_partial: bool) -> Iterator[Event]:
    """Text first to last as one message, calls and their results as they stand; thoughts are left out."""
    parts = [part for part in (found if isinstance(found, list) else []) if isinstance(part, Mapping)]
    text = "".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str) and not part.get("thought"))
    if text:
        yield Event("agent_message", author=author, text=text, is_partial=is_partial)
    if is_partial:
        return
    for part in parts:
        if isinstance(called := part.get("functionCall"), Mapping):
            yield Event("tool_call", author=author, call=_call(called))
        if isinstance(given := part.get("functionResponse"), Mapping):
            result = plain(given.get("response"))
            is_error = isinstance(result, dict) and set(result) == {"error"}
            if isinstance(result, dict) and set(result) == {"result"}:
                result = result["result"]
            yield Event("tool_result", author=author, call=_call(given), result=result, is_error=is_error)


def _call(found: Mapping[str, Any]) -> ToolCall:
    args = plain(found.get("args"))
    call_id = found.get("id")
    return ToolCall(
        str(found.get("name")), args if isinstance(args, dict) else {}, None if call_id is None else str(call_id)
    )


def _usage(found: Mapping[str, Any], model: str) -> Event:
    def n(*names: str) -> int:
        return sum(int(found.get(name) or 0) for name in names)

    tokens_in = n("promptTokenCount", "toolUsePromptTokenCount")
    tokens_out = n("candidatesTokenCount", "thoughtsTokenCount")
    cost = price(model, tokens_in, tokens_out) if model else None
    return Event("usage", usage=Usage(model or "unknown", tokens_in=tokens_in, tokens_out=tokens_out, cost=cost))


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
