"""An OpenAI-compatible endpoint on loopback, and a way to play a turn without an engine."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import Agent, load_agent
from evaldesk.llm.client import open_litellm
from evaldesk.model import AgentRef, Event, JsonObject, Session, TurnRecord


@dataclass
class Answer:
    """What the endpoint answers once: a status with a body, or the events of a stream."""

    body: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Sequence[Mapping[str, Any]] = ()
    held: threading.Event | None = None


@dataclass
class Endpoint:
    """The endpoint: its address, what it will answer in order, and what it was asked."""

    address: str = ""
    answers: list[Answer] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def says(self, text: str, *calls: tuple[str, str, str]) -> Endpoint:
        """Add an answer of text and of calls (id, name, arguments)."""
        self.answers.append(Answer(completion(text, *calls)))
        return self

    def streams(self, *texts: str) -> Endpoint:
        """Add an answer that comes in pieces of text."""
        deltas = [{"role": "assistant", "content": text} for text in texts]
        self.answers.append(Answer(stream=chunks(*deltas)))
        return self

    def fails(self, status: int, message: str = "no", code: str | None = None, **headers: str) -> Endpoint:
        """Add an answer that is an error."""
        body = {"error": {"message": message, "code": code, "type": "error"}}
        self.answers.append(Answer(body, status, {name.replace("_", "-"): value for name, value in headers.items()}))
        return self


def completion(text: str, *calls: tuple[str, str, str]) -> dict[str, Any]:
    """A chat completion in OpenAI's shape."""
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for call_id, name, arguments in calls
        ]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "small",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }


def chunks(*deltas: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The events of a streamed chat completion in OpenAI's shape, with its usage at the end."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "small"}
    events: list[Mapping[str, Any]] = [{**base, "choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
    return [*events, {**base, "choices": [], "usage": usage}]


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    open_litellm()  # seconds that no test's own time limit should pay
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
            endpoint.asked.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            answer = endpoint.answers.pop(0)
            if answer.held:
                answer.held.wait(10)
            with contextlib.suppress(ConnectionError):  # who asked has gone away
                self._send(answer)

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-type", "text/event-stream" if answer.stream else "application/json")
            self.end_headers()
            for event in answer.stream:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n" if answer.stream else json.dumps(answer.body).encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield endpoint
    server.shutdown()
    server.server_close()
    thread.join()


Play = Callable[..., Any]


@pytest.fixture
def play() -> Play:
    async def play(agent: Agent, session: Session, message: str) -> list[Event]:
        before = dict(session.state)
        events = [event async for event in agent.reply(session, message)]
        kept = tuple(event for event in events if not event.is_partial)
        session.turns.append(TurnRecord(message, kept, before, dict(session.state)))
        return events

    return play


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[..., Agent]:
    n = 0

    def loaded(source: str, attribute: str = "root_agent", **fields: str) -> Agent:
        nonlocal n
        n += 1
        root = tmp_path / f"root{n}"
        folder = root / "some_agent"
        folder.mkdir(parents=True)
        folder.joinpath("agent.py").write_text(source)
        ref = AgentRef("some_agent", f"some_agent.agent:{attribute}", root=str(root), folder=str(folder), **fields)
        return load_agent(ref)

    return loaded


def results(events: Sequence[Event]) -> list[tuple[str, JsonObject, Any, bool]]:
    """The tool results among `events` as (name, args, result, is_error)."""
    return [
        (event.call.name, event.call.args, event.result, event.is_error)
        for event in events
        if event.kind == "tool_result" and event.call
    ]


@pytest.fixture(name="results")
def results_fixture() -> Callable[..., Any]:
    return results


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no setting of the machine reaches a test; scripted words come without a pause."""
    for name in ("EVALDESK_MODEL", "EVALDESK_DEMO_MISTAKES", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOSTED_VLLM_API_KEY", "a-key-for-the-tests")
    monkeypatch.setenv("EVALDESK_DEMO_DELAY_MS", "0")
