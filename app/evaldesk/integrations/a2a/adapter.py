"""An agent that speaks A2A at an address: its card, messages whole or streamed, tasks. (https://a2a-protocol.org)

Versions 0.3 and 1.0 over JSON-RPC: they differ in the names of methods, roles, states and parts.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urljoin, urlsplit
from uuid import uuid4

from evaldesk.agents.agent import Agent
from evaldesk.agents.remote.adk_events import NO_MEMORY_NOTE, read_adk_event
from evaldesk.agents.remote.http_protocol import (
    bounded_lines,
    fetch,
    headers_from,
    http_client,
    parse_answer,
    read_options,
    refusal_of,
    whole_body,
)
from evaldesk.agents.tools.frameworks import lost_turn_error, pause, take_paused_turn, waiting_events
from evaldesk.codec import msgspec
from evaldesk.errors import NAME_LIMIT, TEXT_LIMIT, AgentError
from evaldesk.llm.retry_events import note_capture, note_unseen
from evaldesk.model import AgentDescription, AgentRef, ErrorRecord, Event, Session, Waiting
from evaldesk.model.decisions import ANSWER, APPROVAL, Decided
from evaldesk.model.json_text import json_line
from evaldesk.model.media import Media, split
from evaldesk.transcripts.adk import AdkEvents
from evaldesk.wire import plain_json, plain_text

KIND = "a2a"

_MEMORY = "a2a_conversation"
_CARDS = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1"})  # noqa: S104 - names of this machine in a card
_POLL_S, _MOST_POLL_S, _CANCEL_S = 0.2, 2.0, 0.5
_MAX_TEXT = 2_000

_OPEN_STATES = frozenset({"submitted", "working", "unspecified", "unknown"})
_FAILED_STATES = frozenset({"failed", "rejected", "canceled"})
_INPUT, _AUTH = "input-required", "auth-required"
_CONTINUE = "continue"
_TO_AUTHORIZE = (
    f"Authenticate where the agent asks for it, then approve: {_CONTINUE!r} is sent to the same task. "
    "Deny cancels the task."
)
_ADK_PARTS = frozenset({"function_call", "function_response", "executable_code", "code_execution_result"})
_METHODS = {
    "send": ("message/send", "SendMessage"),
    "stream": ("message/stream", "SendStreamingMessage"),
    "get": ("tasks/get", "GetTask"),
    "cancel": ("tasks/cancel", "CancelTask"),
}


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's table. `model` names the model of the tokens that it tells: the protocol has no place for it."""

    headers_env: dict[str, str] = msgspec.field(default_factory=dict)
    model: str = ""


def adapt(candidate: object, ref: AgentRef) -> Agent:
    """The agent at an address."""
    options = read_options(ref, Options)
    return A2aAgent(ref, options.headers_env, options.model)


@dataclass(frozen=True, slots=True)
class _Card:
    """The used fields of an agent card: name, address, protocol version and streaming."""

    name: str
    description: str
    url: str
    is_new: bool
    is_streaming: bool


@dataclass(slots=True)
class _Conversation:
    """The server's ids of the conversation and its task, and the keys of the reported events."""

    context_id: str = ""
    task_id: str = ""
    reported_ids: set[str] = field(default_factory=set)

    def restore(self, snapshot: Any) -> bool:
        """Restore the ids from the snapshot of a paused turn; False without a snapshot."""
        if not isinstance(snapshot, dict):
            return False
        self.context_id, self.task_id = str(snapshot["context"]), str(snapshot["task"])
        self.reported_ids.update(snapshot["seen"])
        return True


@dataclass(slots=True)
class A2aAgent:
    """An agent behind its card. Its tools run there; only agents of ADK report their calls, thoughts and tokens."""

    ref: AgentRef
    headers_env: dict[str, str] = field(default_factory=dict)
    model: str = ""
    _card: _Card | None = None

    def describe(self) -> AgentDescription:
        """The name and description on its card. Raises AgentError without a card."""
        card = self._load_card()
        return AgentDescription(name=card.name, kind=KIND, description=card.description, model=self.model or None)

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Send the message and yield the events of its answer or of its task. Raises AgentError."""
        memory_entry = session.memory.get(_MEMORY)
        conversation = memory_entry if isinstance(memory_entry, _Conversation) else _Conversation()
        if memory_entry is None and session.turns and not conversation.restore(session.turns[-1].paused):
            yield Event("log", author=self.ref.id, text=NO_MEMORY_NOTE)
        session.memory[_MEMORY] = conversation
        async for event in self._send(session, conversation, message, session.media):
            yield event

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """Resume the paused task: send the answer or the approval, or cancel it. Raises AgentError."""
        snapshot: Any = take_paused_turn(session) or session.paused
        memory_entry = session.memory.get(_MEMORY)
        conversation = memory_entry if isinstance(memory_entry, _Conversation) else _Conversation()
        conversation.restore(snapshot)
        if not conversation.task_id:
            raise lost_turn_error()
        session.memory[_MEMORY] = conversation
        for _, decision in decided:
            if decision.decision == "deny":
                async for event in self._cancel(session, conversation, decision.reason):
                    yield event
                continue
            answer = _CONTINUE if decision.decision == "approve" else decision.answer
            text = answer if isinstance(answer, str) else json_line(answer)
            async for event in self._send(session, conversation, text, ()):
                yield event

    async def _send(
        self, session: Session, conversation: _Conversation, text: str, media: Sequence[Media]
    ) -> AsyncIterator[Event]:
        note_unseen("state")
        async with self._connect(session, conversation) as (connection, reader):
            try:
                async for result in connection.send(_message(connection.card, conversation, text, media)):
                    for event in reader.events(result):
                        yield event
                async for task in connection.poll(reader):
                    for event in reader.events(task):
                        yield event
            except asyncio.CancelledError:
                await connection.cancel_task(reader)
                raise
        if reader.state in (_AUTH, _INPUT):
            snapshot = {
                "context": conversation.context_id,
                "task": conversation.task_id,
                "seen": sorted(conversation.reported_ids),
            }
            pause(session, snapshot, lambda: plain_json(snapshot))
        # Only agents of google-adk tell their calls, each beside the ids of its events.
        note_capture("told" if reader.is_of_adk else "answers")
        for event in reader.end_events():
            yield event

    async def _cancel(self, session: Session, conversation: _Conversation, reason: str) -> AsyncIterator[Event]:
        """Cancel the paused task, and report its final state."""
        task_id, conversation.task_id = conversation.task_id, ""
        reason_fields = {"metadata": {"reason": reason}} if reason else {}
        async with self._connect(session, conversation) as (connection, reader):
            try:
                results = connection.results("cancel", {"id": task_id, **reason_fields})
                events = [event async for task in results for event in reader.events(_as_task(task))]
                outcome = f"the task was cancelled: the server has it as {reader.state or 'unknown'}"
            except AgentError as error:
                events, outcome = [], f"the task was not cancelled: {error}"
        conversation.task_id = ""
        # Artifacts are the answer and come last, also before closing words: decision 146.
        for event in (*events, *reader.artifacts()):
            yield event
        yield Event("log", author=self.ref.id, text=outcome)

    @asynccontextmanager
    async def _connect(
        self, session: Session, conversation: _Conversation
    ) -> AsyncIterator[tuple[_Connection, _AnswerReader]]:
        """A connection to the agent, and the reader of its answers. Raises AgentError for an unreachable agent."""
        card = await asyncio.to_thread(self._load_card)
        version = {"a2a-version": "1.0"} if card.is_new else {}
        async with http_client(card.url, headers_from(self.headers_env, self.ref.id) | version) as client:
            yield _Connection(client, card), _AnswerReader(card, conversation, session.is_streaming, self.model)

    def _load_card(self) -> _Card:
        if self._card is None:
            self._card = self._fetch_card()
        return self._card

    def _fetch_card(self) -> _Card:
        """The card: at its own address, below the agent's, or at the root of the host as in the specification."""
        headers = headers_from(self.headers_env, self.ref.id)
        target = self.ref.target.rstrip("/")
        places = [target] if target.endswith(".json") else [f"{target}{path}" for path in _CARDS]
        if urlsplit(target).path and not target.endswith(".json"):
            places += [urljoin(target, path) for path in _CARDS]
        refusals: list[str] = []
        for place in places:
            status, body, refusal = fetch(place, headers)
            if status == 200:
                return _card(parse_answer(body, place), place)
            refusals.append(refusal)
        raise AgentError(f"there is no agent card: {'; '.join(refusals)}")


def _card(raw: Any, place: str) -> _Card:
    """The card from the JSON at `place`. Raises AgentError."""
    if not isinstance(raw, Mapping):
        raise AgentError(f"{place} must be an agent card, an object, got {type(raw).__name__}")
    raw_interfaces = raw.get("supportedInterfaces") or raw.get("additionalInterfaces")
    interfaces = (
        [each for each in raw_interfaces if isinstance(each, Mapping)] if isinstance(raw_interfaces, list) else []
    )
    if isinstance(raw.get("url"), str):
        first = {"url": raw["url"], "transport": raw.get("preferredTransport") or "JSONRPC"}
        interfaces = [first, *interfaces]
    jsonrpc_interfaces = [way for way in interfaces if "JSONRPC" in (way.get("protocolBinding"), way.get("transport"))]
    if not jsonrpc_interfaces:
        names = (
            ", ".join(str(way.get("protocolBinding") or way.get("transport"))[:NAME_LIMIT] for way in interfaces)
            or "no interface"
        )
        raise AgentError(f"{place} offers {names}; Evaldesk speaks JSONRPC")
    interface = max(jsonrpc_interfaces, key=lambda way: str(way.get("protocolVersion") or "").startswith("1."))
    version = str(interface.get("protocolVersion") or raw.get("protocolVersion") or "0.3")
    capabilities = raw.get("capabilities")
    skills = raw.get("skills")
    skill_names = (
        [str(each.get("name")) for each in skills if isinstance(each, Mapping)] if isinstance(skills, list) else []
    )
    about = str(raw.get("description") or "")
    return _Card(
        name=plain_text(str(raw.get("name") or "agent"))[:TEXT_LIMIT],
        description=plain_text(f"{about} Skills: {', '.join(skill_names)}." if skill_names else about)[:_MAX_TEXT],
        url=_own_address(str(interface.get("url") or ""), place),
        is_new=version.startswith("1."),
        is_streaming=isinstance(capabilities, Mapping) and capabilities.get("streaming") is True,
    )


def _own_address(url: str, place: str) -> str:
    """The address in a card. Raises AgentError for another host: requests may contain keys."""
    own_url, card_url = urlsplit(place), urlsplit(urljoin(place, url))
    is_same_host = {own_url.hostname, card_url.hostname} <= _LOOPBACK or own_url.hostname == card_url.hostname
    if not is_same_host or own_url.port != card_url.port or card_url.scheme != own_url.scheme:
        raise AgentError(
            f"the card at {place} names the address {url[:TEXT_LIMIT]!r}, which is on another host; "
            f"name the agent by that host, as a2a:{card_url.scheme}://{card_url.netloc}"
        )
    return card_url._replace(netloc=own_url.netloc).geturl()


def _message(card: _Card, conversation: _Conversation, text: str, media: Sequence[Media]) -> dict[str, Any]:
    parts = [_message_part(part, is_new=card.is_new) for part in split(text, media) or [text]]
    message: dict[str, Any] = {
        "role": "ROLE_USER" if card.is_new else "user",
        "parts": parts,
        "messageId": str(uuid4()),
        **({"contextId": conversation.context_id} if conversation.context_id else {}),
        **({"taskId": conversation.task_id} if conversation.task_id else {}),
    }
    if card.is_new:
        return {"message": message, "configuration": {"acceptedOutputModes": ["text/plain", "application/json"]}}
    configuration = {"acceptedOutputModes": ["text/plain", "application/json"], "blocking": True}
    return {"message": {"kind": "message", **message}, "configuration": configuration}


def _message_part(part: str | Media, *, is_new: bool) -> dict[str, Any]:
    """A part of a message. (A2A 1.0: raw or url beside mediaType; 0.3: a file with bytes or uri)"""
    if isinstance(part, str):
        return {"text": part} if is_new else {"kind": "text", "text": part}
    if is_new:
        name_field = {"filename": part.name} if part.name else {}
        return {**({"url": part.uri} if part.uri else {"raw": part.data}), **name_field, "mediaType": part.mime_type}
    name_field = {"name": part.name} if part.name else {}
    where = {"uri": part.uri} if part.uri else {"bytes": part.data}
    return {"kind": "file", "file": {**where, **name_field, "mimeType": part.mime_type}}


@dataclass(frozen=True, slots=True)
class _Connection:
    """A JSON-RPC connection to the agent, with streams as server-sent events."""

    client: Any
    card: _Card

    async def send(self, params: dict[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """Send a message; its result, or the results of its stream."""
        async for result in self.results("stream" if self.card.is_streaming else "send", params):
            yield result

    async def poll(self, reader: _AnswerReader) -> AsyncIterator[Mapping[str, Any]]:
        """Poll the task until it ends or pauses: a server may answer early, and a stream may break off."""
        wait_s = _POLL_S
        while reader.is_open:
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, _MOST_POLL_S)
            async for result in self.results("get", {"id": reader.conversation.task_id}):
                yield _as_task(result)

    async def cancel_task(self, reader: _AnswerReader) -> None:
        """Cancel the open task of a cancelled turn."""
        if reader.is_open:
            with suppress(Exception):
                request = self._request("cancel", {"id": reader.conversation.task_id})
                await asyncio.wait_for(self.client.post(self.card.url, json=request), _CANCEL_S)

    def _request(self, name: str, params: dict[str, Any]) -> dict[str, Any]:
        method = _METHODS[name][self.card.is_new]
        return {"jsonrpc": "2.0", "id": str(uuid4()), "method": method, "params": params}

    async def results(self, name: str, params: dict[str, Any]) -> AsyncIterator[Mapping[str, Any]]:
        """The results of a method. Raises AgentError."""
        headers = {"accept": "text/event-stream" if name == "stream" else "application/json"}
        async with self.client.stream(
            "POST", self.card.url, json=self._request(name, params), headers=headers
        ) as response:
            if response.status_code != 200:
                raise AgentError(await refusal_of(response, self.card.url))
            if "event-stream" not in response.headers.get("content-type", ""):
                yield self._result(await whole_body(response))
                return
            async for line in bounded_lines(response):
                if line.startswith(b"data:"):
                    yield self._result(line.removeprefix(b"data:"))

    def _result(self, data: bytes) -> Mapping[str, Any]:
        reply = parse_answer(data, self.card.url)
        error = reply.get("error") if isinstance(reply, Mapping) else None
        if isinstance(error, Mapping):
            error_text = plain_text(str(error.get("message") or ""))[:_MAX_TEXT]
            raise AgentError(f"{self.card.url} refused: {error.get('code')}: {error_text}")
        result = reply.get("result") if isinstance(reply, Mapping) else None
        if not isinstance(result, Mapping):
            raise AgentError(f"{self.card.url} gave no result: {data[:TEXT_LIMIT].decode('utf-8', 'replace')!r}")
        return result


@dataclass(slots=True)
class _AnswerReader:
    """Converts the results of one turn to events: each message once, and the artifacts; the last one is the answer."""

    card: _Card
    conversation: _Conversation
    is_streaming: bool
    model: str = ""
    state: str = ""
    is_of_adk: bool = False
    _artifacts: dict[str, list[str]] = field(default_factory=dict)
    _adk: AdkEvents = field(default_factory=AdkEvents)

    @property
    def is_open(self) -> bool:
        """Whether a task is in progress."""
        return bool(self.conversation.task_id) and self.state in _OPEN_STATES

    def events(self, result: Mapping[str, Any]) -> Iterator[Event]:
        """The events of one result, in either version: named by its only key, or by `kind`."""
        kind, raw = _kind_of(result)
        self.is_of_adk = self.is_of_adk or '"adk_' in json_line(raw)
        context = raw.get("contextId")
        if isinstance(context, str) and context:
            self.conversation.context_id = context
        if kind == "message":
            self.state = "completed"
            yield from self._message_events(raw)
            return
        task_id = raw.get("id" if kind == "task" else "taskId")
        if isinstance(task_id, str) and task_id:
            self.conversation.task_id = task_id
        if kind == "task":
            for message in _list(raw.get("history")):
                yield from self._message_events(message)
            for artifact in _list(raw.get("artifacts")):
                self._artifacts.pop(str(artifact.get("artifactId")), None)  # a task has each whole
                yield from self._artifact_events(artifact, is_more=False)
                if _metadata(artifact).get("adk_event_id"):
                    yield from self._usage_events(artifact)
        if kind in ("task", "statusUpdate"):
            status = raw.get("status")
            yield from self._take_status(status if isinstance(status, Mapping) else {})
        elif kind == "artifactUpdate" and isinstance(raw.get("artifact"), Mapping):
            yield from self._artifact_events(raw["artifact"], is_more=raw.get("append") is True)
            if raw.get("lastChunk") is True:  # a piece of a model's answer may tell the tokens so far
                yield from self._usage_events(raw["artifact"])
        if kind != "task":
            yield from self._usage_events(raw)

    def artifacts(self) -> Iterator[Event]:
        """The texts of the artifacts."""
        for pieces in self._artifacts.values():
            if text := "".join(pieces).strip():
                yield Event("agent_message", author=self.card.name, text=text)

    def end_events(self) -> Iterator[Event]:
        """The artifacts, and the pause or failure of the task. Raises AgentError for an empty answer."""
        yield from self.artifacts()
        if not self.state:
            raise AgentError(f"{self.card.url} ended its answer without a message or a task")
        task_id = self.conversation.task_id
        if self.state != _INPUT:
            self.conversation.task_id = ""
        if self.state == _AUTH:
            yield from waiting_events([Waiting(task_id, _AUTH, choices=APPROVAL, question=_TO_AUTHORIZE)])
        elif self.state == _INPUT and task_id:
            yield Event("waiting", waiting=Waiting(task_id, _INPUT, choices=(*ANSWER, "deny"), takes_message=True))
        elif self.state in _FAILED_STATES:
            yield Event("error", error=ErrorRecord("a2a_task", f"the task of the agent ended {self.state}"))

    def _take_status(self, status: Mapping[str, Any]) -> Iterator[Event]:
        self.state = str(status.get("state") or "").removeprefix("TASK_STATE_").replace("_", "-").lower()
        self.state = "canceled" if self.state == "cancelled" else self.state or "unknown"
        if isinstance(status.get("message"), Mapping):
            yield from self._message_events(status["message"])

    def _message_events(self, message: Mapping[str, Any]) -> Iterator[Event]:
        """The text and calls of a message of the agent; the user's own messages are skipped."""
        message_id = message.get("messageId")
        if (
            str(message.get("role")).removeprefix("ROLE_").lower() == "user"
            or message_id in self.conversation.reported_ids
        ):
            return
        if isinstance(message_id, str):
            self.conversation.reported_ids.add(message_id)
        texts: list[str] = []
        for part in _list(message.get("parts")):
            if adk_part := _adk_part(part):
                yield from self._adk_part_events(adk_part)
            else:
                texts.append(_text(part))
        if text := "\n".join(filter(None, texts)):
            yield Event("agent_message", author=self.card.name, text=text)
        yield from self._usage_events(message)

    def _artifact_events(self, artifact: Mapping[str, Any], *, is_more: bool) -> Iterator[Event]:
        pieces = self._artifacts.setdefault(str(artifact.get("artifactId")), [])
        if not is_more:
            pieces.clear()
        for part in _list(artifact.get("parts")):
            if adk_part := _adk_part(part):
                yield from self._adk_part_events(adk_part)
                continue
            text = _text(part)
            pieces.append(text)  # a server keeps what was appended as parts of their own
            if self.is_streaming and text:
                yield Event("agent_message", author=self.card.name, text=text, is_partial=True)

    def _adk_part_events(self, part: Mapping[str, Any]) -> Iterator[Event]:
        """The events of an ADK part: call, result, thought or code, without duplicates of earlier updates."""
        [(kind, data), *_] = part.items()
        part_id = (data.get("id") or data.get("name")) if isinstance(data, Mapping) else None
        yield from self._new_events(f"{kind} {part_id or json_line(part)[:TEXT_LIMIT]}", content={"parts": [part]})

    def _usage_events(self, raw: Mapping[str, Any]) -> Iterator[Event]:
        """Token usage from ADK metadata of an event, or of each message or artifact of it."""
        metadata = _metadata(raw)
        usage = metadata.get("adk_usage_metadata")
        if isinstance(usage, Mapping):  # ADK writes text of what it cannot dump
            yield from self._new_events(
                f"usage {metadata.get('adk_event_id') or uuid4()}", usage_metadata=usage, model_version=self.model
            )

    def _new_events(self, key: str, **fields: Any) -> Iterator[Event]:
        if key not in self.conversation.reported_ids:
            self.conversation.reported_ids.add(key)
            yield from read_adk_event(self._adk, self.card.name, fields, self.card.url)


def _metadata(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = raw.get("metadata")
    return metadata if isinstance(metadata, Mapping) else {}


def _adk_part(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part in ADK's form, for a thought, call, result or code of an ADK agent; None for answer text."""
    metadata = _metadata(part)
    if metadata.get("adk_thought") is True and isinstance(part.get("text"), str):
        return {"text": part["text"], "thought": True}
    kind = metadata.get("adk_type")
    return {kind: part.get("data")} if isinstance(kind, str) and kind in _ADK_PARTS else None


def _kind_of(result: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The kind of a result, and its content."""
    for kind in ("task", "message", "statusUpdate", "artifactUpdate"):
        if isinstance(result.get(kind), Mapping) and "kind" not in result:
            return kind, result[kind]
    kinds = {"status-update": "statusUpdate", "artifact-update": "artifactUpdate"}
    kind = str(result.get("kind"))
    return kinds.get(kind, kind), result


def _as_task(result: Mapping[str, Any]) -> Mapping[str, Any]:
    """The result of `tasks/get` or `tasks/cancel`, in the form of a message's result."""
    return result if "task" in result else {"task": result}


def _list(raw: Any) -> list[Mapping[str, Any]]:
    return [each for each in raw if isinstance(each, Mapping)] if isinstance(raw, list) else []


def _text(part: Mapping[str, Any]) -> str:
    """The text of a part; of data its JSON, of a file its name."""
    if isinstance(part.get("text"), str):
        return plain_text(part["text"])
    if "data" in part:
        return json.dumps(plain_json(part["data"]), ensure_ascii=False)
    inner = part.get("file")
    file = inner if isinstance(inner, Mapping) else part
    name = next((file[key] for key in ("name", "filename", "uri", "url") if isinstance(file.get(key), str)), "")
    kind = next((file[key] for key in ("mimeType", "mediaType") if isinstance(file.get(key), str)), "")
    return plain_text(f"[file {name} {kind}".rstrip()[:300] + "]")
