"""Answers to tool calls at the requests of `http.client`, the library of `requests` and `urllib`, and of aiohttp.

A request is held until its client waits for the answer. Where doubles or denials answer all calls of the model, it is
sent again with their results; the client reads the first answer that is left for it. (decision 508)
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from evaldesk.llm.client_wrapping import AIOHTTP
from evaldesk.llm.context import run_now
from evaldesk.llm.model_request import answers_of_turn, is_to_model, sending_again
from evaldesk.llm.retry_events import CallAnswers, body_of
from evaldesk.llm.unrecorded_calls import (
    decoded_body,
    sent_body,
    watch_again,
    watch_aiohttp,
    watch_getresponse,
    watch_putrequest,
    watch_send,
    without_chunks,
)

_HELD = "_evaldesk_held"
_SENT = "Request-sent"
"""The state of a connection of `http.client` that waits for an answer."""
_HEAD_END = b"\r\n\r\n"
_LENGTHS = (b"content-length:", b"transfer-encoding:")


@dataclass(slots=True)
class _HeldRequest:
    """A request that is not sent yet; `parts` are its bytes as its client sends them."""

    path: str
    answers: CallAnswers
    parts: list[bytes] = field(default_factory=list)
    is_passing: bool = False

    def take(self, data: Any) -> None:
        """Take a part: bytes, text, an open file, or an iterable of bytes."""
        if isinstance(data, bytes | bytearray | memoryview):
            self.parts.append(bytes(data))
        elif hasattr(data, "read"):
            text = data.read()
            self.parts.append(text.encode("iso-8859-1") if isinstance(text, str) else text)
        else:
            self.parts.append(b"".join(data))

    def head_and_body(self) -> tuple[bytes, bytes]:
        """The head without the length of its body, and the body."""
        head, _, body = b"".join(self.parts).partition(_HEAD_END)
        lines = head.split(b"\r\n")
        is_chunked = any(line.lower().startswith(_LENGTHS[1]) and b"chunked" in line.lower() for line in lines)
        kept_lines = [line for line in lines if not line.lower().startswith(_LENGTHS)]
        return b"\r\n".join(kept_lines), (without_chunks(body) or b"") if is_chunked else body


# Private steps of a request, as `requests` and urllib3 share no public function below them: decision 105.
def answer_putrequest(putrequest: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the begin of a request of `http.client`."""
    watched = watch_putrequest(putrequest)

    @wraps(putrequest)
    def begin(connection: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
        path = urlsplit(url).path
        is_asked = method == "POST" and is_to_model(f"{connection.host}:{connection.port}", path)
        answers = answers_of_turn(path) if is_asked else None
        setattr(connection, _HELD, _HeldRequest(path, answers) if answers else None)
        return watched(connection, method, url, *args, **options)

    return begin


def answer_send(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the sending of a part, which is held; the connection is opened at once, so that its failure comes here."""
    watched = watch_send(send)

    @wraps(send)
    def send_part(connection: Any, data: Any) -> Any:
        held_request: _HeldRequest | None = getattr(connection, _HELD, None)
        if held_request is None or held_request.is_passing:
            return watched(connection, data)
        if connection.sock is None and connection.auto_open:
            held_request.is_passing = True  # a tunnel through a proxy is asked for
            try:
                connection.connect()
            finally:
                held_request.is_passing = False
        held_request.take(data)
        return None

    return send_part


def answer_getresponse(getresponse: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the wait for the answer: the held request is sent, and again with results until its client has to act."""
    watched = watch_getresponse(getresponse)

    @wraps(getresponse)
    def get(connection: Any, *args: Any, **options: Any) -> Any:
        held_request: _HeldRequest | None = getattr(connection, _HELD, None)
        if held_request is None:
            return watched(connection, *args, **options)
        held_request.is_passing = True
        try:
            return _answered_response(connection, held_request, lambda: watched(connection, *args, **options))
        finally:
            setattr(connection, _HELD, None)

    return get


def _answered_response(connection: Any, held_request: _HeldRequest, get: Callable[[], Any]) -> Any:
    head, body = held_request.head_and_body()
    answered = held_request.answers.begin(held_request.path, body_of(body))
    while True:
        data = json.dumps(answered.body).encode()
        with sending_again(answered):
            watch_again(connection, held_request.path)
            connection.send(head + b"\r\nContent-Length: %d" % len(data) + _HEAD_END)
            connection.send(data)
            connection._HTTPConnection__state = _SENT
            response = get()
            answer = response.read()
        text = decoded_body(answer, (response.getheader("content-encoding") or "").strip().lower())
        if text is None or not 200 <= response.status < 300:
            answered.fail()
            return _response_with(response, answer, is_changed=False)
        text = run_now(answered.go_on(text))
        if text is not None:
            return _response_with(response, text, is_changed=True)


def _response_with(response: Any, data: bytes, *, is_changed: bool) -> Any:
    """The response with that body to read; a changed one is not compressed."""
    for name in ("content-length", "transfer-encoding", *(("content-encoding",) if is_changed else ())):
        del response.headers[name]
    response.headers["Content-Length"] = str(len(data))
    response.chunked, response.chunk_left, response.length = False, None, len(data)
    response.fp = io.BufferedReader(io.BytesIO(data))
    return response


def answer_aiohttp(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a request of aiohttp."""
    watched = watch_aiohttp(send)

    @wraps(send)
    async def request(session: Any, method: str, str_or_url: Any, **options: Any) -> Any:
        address = urlsplit(str(str_or_url))
        is_asked = method == "POST" and is_to_model(address.netloc, address.path)
        answers = answers_of_turn(address.path) if is_asked else None
        if answers is None:
            return await watched(session, method, str_or_url, **options)
        answered = answers.begin(address.path, _content(sent_body(options)))
        options.pop("data", None)
        while True:
            with sending_again(answered):
                response = await watched(session, method, str_or_url, **{**options, "json": answered.body})
                answer = await response.read()
            if not response.ok:
                answered.fail()
                return response
            text = await answered.go_on(answer)
            if text is not None:
                return _aiohttp_response_with(response, text)

    return request


def _content(body: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    return body if isinstance(body, Mapping) else body_of(body)


def _aiohttp_response_with(response: Any, data: bytes) -> Any:
    """The response with that body, to be read at once or as a stream."""
    streams, protocols = sys.modules[f"{AIOHTTP}.streams"], sys.modules[f"{AIOHTTP}.base_protocol"]
    loop = asyncio.get_running_loop()
    # A reader that never pauses its connection, since it has none.
    reader = streams.StreamReader(protocols.BaseProtocol(loop), len(data) + 1, loop=loop)
    reader.feed_data(data)
    reader.feed_eof()
    response.content, response._body = reader, None
    return response
