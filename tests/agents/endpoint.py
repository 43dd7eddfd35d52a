"""An OpenAI-compatible endpoint on loopback that answers what a test tells it to, faults included."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What the endpoint answers once: a status with a body, or the events of a stream.

    `raw` replaces the body. It waits for `held` before it answers, and drops the connection where `is_dropped`:
    at once, or after the events of a stream.
    """

    body: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Sequence[Mapping[str, Any]] = ()
    held: threading.Event | None = None
    raw: bytes | None = None
    is_dropped: bool = False


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

    def gives(self, raw: bytes, **more: Any) -> Endpoint:
        """Add an answer with that body, whatever it is."""
        self.answers.append(Answer(raw=raw, **more))
        return self

    def drops(self, *texts: str) -> Endpoint:
        """Add an answer that breaks off: before the first byte, or after these pieces of a stream."""
        stream = chunks(*({"role": "assistant", "content": text} for text in texts))[: len(texts)]
        self.answers.append(Answer(stream=stream, is_dropped=True))
        return self

    def stalls(self, text: str = "too late") -> threading.Event:
        """Add an answer that comes when the event is set."""
        held = threading.Event()
        self.answers.append(Answer(completion(text), held=held))
        return held

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


@contextlib.contextmanager
def served() -> Iterator[Endpoint]:
    """An endpoint that answers while this lasts."""
    endpoint = Endpoint()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            endpoint.headers.append({name.lower(): value for name, value in self.headers.items()})
            endpoint.asked.append(json.loads(body))
            answer = endpoint.answers.pop(0)
            if answer.held:
                answer.held.wait(300)
            with contextlib.suppress(ConnectionError):  # who asked has gone away
                if answer.is_dropped and not answer.stream:
                    self.connection.shutdown(socket.SHUT_RDWR)
                else:
                    self._send(answer)

        def _send(self, answer: Answer) -> None:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if "content-type" not in answer.headers:
                self.send_header("content-type", "text/event-stream" if answer.stream else "application/json")
            if answer.is_dropped:
                self.send_header("content-length", "1000000")
            self.end_headers()
            for event in answer.stream:
                self.wfile.write(f"data: {json.dumps(event)}\n\n".encode())
            if not answer.is_dropped:
                self.wfile.write(b"data: [DONE]\n\n" if answer.stream else _body(answer))

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    endpoint.address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _body(answer: Answer) -> bytes:
    return json.dumps(answer.body).encode() if answer.raw is None else answer.raw
