"""An agent behind the two routes of docs/protocol.md: `GET /agent` and `POST /turn`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from evaldesk.agents.agent import Agent
from evaldesk.agents.in_thread import run_in_thread
from evaldesk.agents.remote.protocol import Calls, description_of, read_events, turn_body
from evaldesk.codec import msgspec
from evaldesk.errors import TEXT_LIMIT, VALUE_LIMIT, AgentError, FormatError
from evaldesk.llm.retry_events import note_capture, note_hidden_work, note_unseen
from evaldesk.model import AgentDescription, AgentRef, Event, Session
from evaldesk.model.decisions import Decided
from evaldesk.reading.strict_json import parse_json
from evaldesk.unpacking import ASKED_FOR, MAX_ANSWER, Unpacker, redirect_refusal
from evaldesk.wire import LineCutter, from_json

KIND = "http"
DESCRIBE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the agent's table: `headers_env` maps headers to the environment variables with their values."""

    headers_env: dict[str, str] = msgspec.field(default_factory=dict)


def adapt(candidate: object, ref: AgentRef) -> Agent:
    """The agent at an address."""
    return HttpAgent(ref, read_options(ref, Options).headers_env)


def read_options(ref: AgentRef, kind: type[Any]) -> Any:
    """The agent's table as `kind`. Raises AgentError."""
    try:
        return from_json(ref.declared or "{}", kind)
    except msgspec.ValidationError as error:
        raise AgentError(f"{ref.id}: {error}") from error


def headers_from(variables: dict[str, str], agent_id: str) -> dict[str, str]:
    """The headers with the values of these environment variables. Raises AgentError for an unset variable."""
    unset_variables = [name for name in variables.values() if name not in os.environ]
    if unset_variables:
        raise AgentError(f"{agent_id}: the environment has no {unset_variables[0]}; set it where Evaldesk is started")
    return {header: os.environ[name] for header, name in variables.items()}


@dataclass(slots=True)
class HttpAgent:
    """An agent in any language. Each request has the whole session, so the agent may be stateless."""

    ref: AgentRef
    headers_env: dict[str, str] = field(default_factory=dict)
    _description: AgentDescription | None = None

    def describe(self) -> AgentDescription:
        """The answer of `GET /agent`. Raises AgentError without an answer."""
        if self._description is None:
            self._description = description_of(self._fetch_description(), self.ref.id, KIND)
        return self._description

    def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Send the turn and yield the events of the answer: one JSON object a line, or all in one object."""
        return self.resume(session, message, ())

    async def resume(self, session: Session, message: str, decided: Sequence[Decided]) -> AsyncIterator[Event]:
        """As `reply`, with the decisions of a person; the agent needs no memory of the paused turn."""
        note_capture("told")
        note_unseen("state")  # until it reports one
        calls = Calls()
        headers = {"accept": "application/x-ndjson, application/json", **headers_from(self.headers_env, self.ref.id)}
        async with (
            http_client(self.ref.target, headers) as client,
            client.stream("POST", f"{self.ref.target}/turn", json=turn_body(session, message, decided)) as response,
        ):
            if response.status_code != 200:
                raise AgentError(await refusal_of(response, f"{self.ref.target}/turn"))
            if "ndjson" in response.headers.get("content-type", ""):
                async for line in bounded_lines(response):
                    for event in read_events(parse_answer(line, self.ref.target), session, self.ref.id):
                        yield calls.with_call(event)
            else:
                for event in self._events_of_answer(await whole_body(response), session):
                    yield calls.with_call(event)
        if not (calls.is_told or decided or await self._tells_calls()):
            note_hidden_work()

    async def _tells_calls(self) -> bool:
        """Whether the agent says that it tells each tool call; False where it does not describe itself."""
        try:
            return (await run_in_thread(self.describe)).tells_calls
        except AgentError:
            return False

    def _events_of_answer(self, body: bytes, session: Session) -> list[Event]:
        answer = parse_answer(body, self.ref.target)
        raw_events = answer.get("events") if isinstance(answer, dict) else None
        if not isinstance(raw_events, list):
            raise AgentError(f"{self.ref.target}/turn answered without a list of events: {body[:VALUE_LIMIT]!r}")
        events = [event for item in raw_events for event in read_events(item, session, self.ref.id)]
        if isinstance(answer, dict) and answer.get("state") is not None:
            events.extend(read_events({"kind": "state", "state": answer["state"]}, session, self.ref.id))
        return events

    def _fetch_description(self) -> object:
        address = f"{self.ref.target}/agent"
        status, body, refusal = fetch(address, headers_from(self.headers_env, self.ref.id))
        if status != 200:
            raise AgentError(refusal)
        return parse_answer(body, self.ref.target)


def fetch(address: str, headers: dict[str, str]) -> tuple[int, bytes, str]:
    """The status and the body of a GET request, and the sentence for a failed one. Raises AgentError."""
    import httpx

    try:
        with (
            httpx.Client(timeout=DESCRIBE_TIMEOUT_S, trust_env=False) as client,
            client.stream("GET", address, headers={"accept-encoding": ASKED_FOR, **headers}) as response,
        ):
            unpack = _unpacker(response)
            body = b"".join(unpack(data) for data in response.iter_raw())
    except httpx.HTTPError as error:
        raise AgentError(f"{address.removesuffix('/agent')}: {type(error).__name__}: {error}") from None
    return response.status_code, body, _refusal(response, address, body)


@asynccontextmanager
async def http_client(address: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    """An httpx client without a read timeout: the turn has its own. Proxies of the environment are not used.

    Raises AgentError for a connection that fails.
    """
    import httpx

    is_secure = address.startswith("https:")  # certificates take 20 ms to read
    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
    headers = {"accept-encoding": ASKED_FOR, **headers}
    try:
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, headers=headers, verify=is_secure) as client:
            yield client
    except httpx.HTTPError as error:
        raise AgentError(f"{address}: {type(error).__name__}: {error}") from None


async def bounded_lines(response: Any) -> AsyncIterator[bytes]:
    """The non-blank lines of an answer. Raises AgentError beyond MAX_ANSWER bytes, compressed or not."""
    unpack, lines = _unpacker(response), LineCutter()
    async for data in response.aiter_raw():
        for line in lines.feed(unpack(data)):
            yield line
    for line in lines.last_lines():
        yield line


async def whole_body(response: Any) -> bytes:
    """The answer without its blank lines. Raises AgentError as `bounded_lines` does."""
    return b"\n".join([line async for line in bounded_lines(response)])


async def refusal_of(response: Any, address: str) -> str:
    """The sentence for a failed answer of `address`."""
    return _refusal(response, address, await whole_body(response))


def parse_answer(data: bytes, address: str) -> Any:
    """The JSON of an answer of `address`, read strictly. Raises AgentError with the place of the error."""
    try:
        return parse_json(data, source=address, max_bytes=MAX_ANSWER).value
    except FormatError as error:
        raise AgentError(f"{error}; the answer is not readable JSON: {data[:VALUE_LIMIT]!r}") from None


def _refusal(response: Any, address: str, body: bytes) -> str:
    if 300 <= response.status_code < 400:
        return f"{address} {redirect_refusal(response.status_code, response.headers.get('location', ''))}"
    return f"{address} answered {response.status_code}: {body[:TEXT_LIMIT].decode('utf-8', 'replace')!r}"


def _unpacker(response: Any) -> Callable[[bytes], bytes]:
    address = str(response.url)[:TEXT_LIMIT]
    unpacker: Unpacker | None = None

    def unpack(data: bytes) -> bytes:
        nonlocal unpacker
        try:
            unpacker = unpacker or Unpacker(response.headers.get("content-encoding"))
            return unpacker.feed(data)
        except FormatError as error:
            raise AgentError(f"{address}: {error}") from None

    return unpack
