"""An agent behind the two routes of docs/protocol.md: `GET /agent` and `POST /turn`."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from evaldesk.agents.agent import Agent
from evaldesk.agents.remote.protocol import MAX_BYTES, Calls, description_of, event_of, turn_body
from evaldesk.errors import AgentError
from evaldesk.model import AgentDescription, AgentRef, Event, Session

KIND = "http"
DESCRIBE_TIMEOUT_S = 10.0
CONNECT_TIMEOUT_S = 10.0


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the agent's table: `headers_env` are headers, each with the name of the variable that holds it."""

    headers_env: dict[str, str] = {}


def adapt(found: object, ref: AgentRef) -> Agent | None:
    """The agent at an address; None for anything that was imported."""
    if ref.kind != KIND or found is not None:
        return None
    return HttpAgent(ref, read_options(ref, Options).headers_env)


def read_options(ref: AgentRef, kind: type[Any]) -> Any:
    """The agent's table as `kind`. Raises AgentError."""
    try:
        return msgspec.json.decode(ref.declared or "{}", type=kind)
    except msgspec.ValidationError as error:
        raise AgentError(f"{ref.id}: {error}") from error


def headers_from(variables: dict[str, str], agent_id: str) -> dict[str, str]:
    """The headers whose values are in these variables. Raises AgentError naming a variable that is not set."""
    missing = [name for name in variables.values() if name not in os.environ]
    if missing:
        raise AgentError(f"{agent_id}: the environment has no {missing[0]}; set it where Evaldesk is started")
    return {header: os.environ[name] for header, name in variables.items()}


@dataclass(slots=True)
class HttpAgent:
    """An agent in any language. It is sent the whole session each time, and may forget it in between."""

    ref: AgentRef
    headers_env: dict[str, str] = field(default_factory=dict)
    _description: AgentDescription | None = None

    def describe(self) -> AgentDescription:
        """The answer of `GET /agent`. Raises AgentError when there is none."""
        if self._description is None:
            self._description = description_of(self._asked(), self.ref.id, KIND)
        return self._description

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        """Send the turn and yield the events that come back, one JSON object a line, or all in one object."""
        import httpx

        calls = Calls()
        headers = {"accept": "application/x-ndjson, application/json", **headers_from(self.headers_env, self.ref.id)}
        try:
            async with (
                http_client(self.ref.target, headers) as client,
                client.stream("POST", f"{self.ref.target}/turn", json=turn_body(session, message)) as got,
            ):
                if got.status_code != 200:
                    raise AgentError(await _refusal(got, self.ref))
                if "ndjson" in got.headers.get("content-type", ""):
                    async for line in bounded_lines(got):
                        event = event_of(_parsed(line, self.ref), session, self.ref.id)
                        if event:
                            yield calls.known(event)
                else:
                    for event in self._whole(await _body(got), session):
                        yield calls.known(event)
        except httpx.HTTPError as error:
            raise AgentError(f"{self.ref.target}: {type(error).__name__}: {error}") from error

    def _whole(self, body: bytes, session: Session) -> list[Event]:
        found = _parsed(body, self.ref)
        listed = found.get("events") if isinstance(found, dict) else None
        if not isinstance(listed, list):
            raise AgentError(f"{self.ref.target}/turn answered without a list of events: {body[:80]!r}")
        events = [event_of(item, session, self.ref.id) for item in listed]
        if isinstance(found, dict) and found.get("state") is not None:
            event_of({"kind": "state", "state": found["state"]}, session, self.ref.id)
        return [event for event in events if event]

    def _asked(self) -> object:
        import httpx

        headers = headers_from(self.headers_env, self.ref.id)
        try:
            with httpx.Client(timeout=DESCRIBE_TIMEOUT_S, trust_env=False) as client:
                got = client.get(f"{self.ref.target}/agent", headers=headers)
        except httpx.HTTPError as error:
            raise AgentError(f"{self.ref.target}: {type(error).__name__}: {error}") from error
        if got.status_code != 200:
            raise AgentError(f"{self.ref.target}/agent answered {got.status_code}: {got.text[:200]!r}")
        return _parsed(got.content, self.ref)


def http_client(address: str, headers: dict[str, str]) -> Any:
    """An httpx client without a limit of its own: the turn's holds. Proxies of the environment are not used."""
    import httpx

    is_secure = address.startswith("https:")  # certificates take 20 ms to read
    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
    return httpx.AsyncClient(timeout=timeout, trust_env=False, headers=headers, verify=is_secure)


async def bounded_lines(response: Any) -> AsyncIterator[bytes]:
    """The lines of an answer that are not blank. Raises AgentError beyond MAX_BYTES."""
    rest, n_bytes = b"", 0
    async for data in response.aiter_bytes():
        n_bytes += len(data)
        if n_bytes > MAX_BYTES:
            raise AgentError(f"the answer of the agent is bigger than {MAX_BYTES // 2**20} MiB")
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
    if rest.strip():
        yield rest


async def _body(response: Any) -> bytes:
    return b"\n".join([line async for line in bounded_lines(response)])


async def _refusal(response: Any, ref: AgentRef) -> str:
    said = (await _body(response))[:300].decode("utf-8", "replace")
    return f"{ref.target}/turn answered {response.status_code}: {said!r}"


def _parsed(data: bytes, ref: AgentRef) -> object:
    try:
        found: object = json.loads(data)
    except ValueError as error:
        raise AgentError(f"{ref.target} answered with what is no JSON ({error}): {data[:80]!r}") from error
    return found
