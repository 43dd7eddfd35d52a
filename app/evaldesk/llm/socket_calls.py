"""Model requests of lm15, DSPy's client with sockets of its own: usage, recording, doubles, injected faults.

Its transports have one function that sends a request and returns an answer that is read in parts. (decision 105)
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from evaldesk.llm.client_wrapping import on_import, parts_of, wrap_once
from evaldesk.llm.context import run_now
from evaldesk.llm.faults import (
    FAULTS_BEFORE_REQUEST,
    SLOW,
    SLOW_S,
    TIMEOUT,
    TRUNCATED,
    WORDS,
    faulty_answer,
)
from evaldesk.llm.model_request import (
    END_MARK,
    ModelRequest,
    answers_of_turn,
    is_to_model,
    request_of_turn,
    sending_again,
)
from evaldesk.llm.retry_events import AnsweredRequest, body_of

_PACKAGES = ("dspy._vendor.lm15.transports", "lm15.transports")
_SYNC = {f"{package}._sync": ("StdlibTransport", "stream") for package in _PACKAGES}
_ASYNC = {f"{package}._async": ("StdlibAsyncTransport", "_do_stream") for package in _PACKAGES}
_MARK = "_is_seen"


def watch_socket_clients() -> None:
    """Wrap the transports, also after a later import."""
    on_import((*_SYNC, *_ASYNC), _wrap)
    _wrap()


def _wrap() -> None:
    for places, wrapper in ((_SYNC, _watch_sync), (_ASYNC, _watch_async)):
        for module, (owner_name, function) in places.items():
            for owner, name in parts_of(module, (owner_name,), (function,)):
                wrap_once(owner, name, wrapper, _MARK)


def _watch_sync(stream: Callable[..., Any]) -> Callable[..., Any]:
    def send(transport: Any, request: Any) -> Any:
        model_request = _request_of_turn(request)
        if model_request is None:
            return stream(transport, request)
        fault, response = _fault_and_response(model_request, transport, is_async=False)
        if response is not None:
            return response
        time.sleep(SLOW_S if fault == SLOW else 0)
        with model_request.sending():
            response = stream(transport, request)
            data = response.read() if model_request.recorder or fault == TRUNCATED else None
        return _seen_response(model_request, transport, response, data, fault, is_async=False)

    @wraps(stream)
    def stream_now(transport: Any, request: Any) -> Any:
        answered = _answered_request(request)
        if answered is None:
            return send(transport, request)
        while True:
            with sending_again(answered):
                response = send(transport, _with_body(request, answered.body))
                data: bytes | None = response.read()
            if not _is_success(response):
                answered.fail()
                return _response_of(transport, response.status, response.headers, data or b"", is_async=False)
            data = run_now(answered.go_on(data or b""))
            if data is not None:
                return _response_of(transport, response.status, response.headers, data, is_async=False)

    return stream_now


def _watch_async(stream: Callable[..., Any]) -> Callable[..., Any]:
    async def send(transport: Any, request: Any) -> Any:
        model_request = _request_of_turn(request)
        if model_request is None:
            return await stream(transport, request)
        fault, response = _fault_and_response(model_request, transport, is_async=True)
        if response is not None:
            return response
        await asyncio.sleep(SLOW_S if fault == SLOW else 0)
        with model_request.sending():
            response = await stream(transport, request)
            data = await response.read() if model_request.recorder or fault == TRUNCATED else None
        return _seen_response(model_request, transport, response, data, fault, is_async=True)

    @wraps(stream)
    async def stream_soon(transport: Any, request: Any) -> Any:
        answered = _answered_request(request)
        if answered is None:
            return await send(transport, request)
        while True:
            with sending_again(answered):
                response = await send(transport, _with_body(request, answered.body))
                data: bytes | None = await response.read()
            if not _is_success(response):
                answered.fail()
                return _response_of(transport, response.status, response.headers, data or b"", is_async=True)
            data = await answered.go_on(data or b"")
            if data is not None:
                return _response_of(transport, response.status, response.headers, data, is_async=True)

    return stream_soon


def _request_of_turn(request: Any) -> ModelRequest | None:
    address = urlsplit(request.url)
    is_asked = request.method == "POST" and is_to_model(address.netloc, address.path)
    return request_of_turn(address.path, bytes(request.body)) if is_asked else None


def _answered_request(request: Any) -> AnsweredRequest | None:
    path = urlsplit(request.url).path
    answers = answers_of_turn(path) if request.method == "POST" else None
    return answers.begin(path, body_of(bytes(request.body))) if answers else None


def _with_body(request: Any, body: Mapping[str, Any]) -> Any:
    headers = [(name, value) for name, value in request.headers if name.lower() != "content-length"]
    return replace(request, headers=headers, body=json.dumps(body).encode())


def _is_success(response: Any) -> bool:
    return 200 <= int(response.status) < 300


def _fault_and_response(model_request: ModelRequest, transport: Any, *, is_async: bool) -> tuple[str, Any]:
    """The fault to inject, and the response without a request, if any: from the recording, or of the fault."""
    entry = model_request.find_recording()
    if entry is not None:
        data = str(entry["body"]).encode()
        model_request.report(data, is_replayed=True)
        headers = [("content-type", str(entry["kind"]))]
        return "", _response_of(transport, int(entry["status"]), headers, data, is_async=is_async)
    fault = model_request.fault()
    if fault not in FAULTS_BEFORE_REQUEST:
        return fault, None
    model_request.record_failure(f"{WORDS[fault]} (injected)")
    if fault == TIMEOUT:
        raise _part(transport, "_exceptions").ReadTimeout("no answer in time (injected)")
    is_stream = body_of(model_request.data or b"").get("stream") is True
    status, kind, data = faulty_answer(fault, is_stream=is_stream)
    return fault, _response_of(transport, status, [("content-type", kind)], data, is_async=is_async)


def _seen_response(
    model_request: ModelRequest, transport: Any, response: Any, data: bytes | None, fault: str, *, is_async: bool
) -> Any:
    """The response, reported and recorded if successful; one that is not read yet is reported at its end."""
    if not _is_success(response):
        model_request.record_failure(f"HTTP {response.status}")
    elif data is None:
        response._chunks = (_tee_async if is_async else _tee)(response._chunks, model_request)
        return response
    elif fault == TRUNCATED:
        model_request.release()
        model_request.report(data)
        error = _part(transport, "_exceptions").ReadError("the answer breaks off (injected)")
        half = data[: len(data) // 2]
        return _response_of(transport, response.status, response.headers, half, error, is_async=is_async)
    else:
        kind, text = response.header("content-type") or "", data.decode("utf-8", "replace")
        model_request.record_answer(data, {"status": response.status, "kind": kind, "body": text})
    if data is None:
        return response
    return _response_of(transport, response.status, response.headers, data, is_async=is_async)


@dataclass
class _Copy:
    """The parts of an answer, reported at its end or its end mark, after which a client may read no further."""

    model_request: ModelRequest | None
    data: bytearray = field(default_factory=bytearray)

    def take(self, part: bytes) -> bytes:
        start = max(0, len(self.data) - len(END_MARK))
        self.data += part
        if END_MARK in self.data[start:]:
            self.end()
        return part

    def end(self) -> None:
        request, self.model_request = self.model_request, None
        if request:
            request.report(bytes(self.data))


def _tee(chunks: Iterator[bytes], model_request: ModelRequest) -> Iterator[bytes]:
    copy = _Copy(model_request)
    for part in chunks:
        yield copy.take(part)
    copy.end()


async def _tee_async(chunks: AsyncIterator[bytes], model_request: ModelRequest) -> AsyncIterator[bytes]:
    copy = _Copy(model_request)
    async for part in chunks:
        yield copy.take(part)
    copy.end()


def _response_of(
    transport: Any, status: int, headers: Any, data: bytes, error: Exception | None = None, *, is_async: bool
) -> Any:
    """A response of the transport with that body, which may end with an error."""

    def chunks() -> Iterator[bytes]:
        yield data
        if error:
            raise error

    async def chunks_async() -> AsyncIterator[bytes]:
        for part in chunks():
            yield part

    async def release_async(_: bool) -> None:  # nothing to give back: its connection was read to the end
        return None

    types = _part(transport, "_types")
    left_out = ("content-encoding", "content-length", "transfer-encoding")
    values = {
        "status": status,
        "reason": "OK" if status < 400 else "Error",
        "headers": [(name, value) for name, value in headers if name.lower() not in left_out],
        "http_version": "HTTP/1.1",
    }
    if is_async:
        return types.AsyncTransportResponse(**values, chunks=chunks_async(), release=release_async)
    return types.TransportResponse(**values, chunks=chunks(), release=lambda _: None)


def _part(transport: Any, name: str) -> Any:
    """A module beside that of the transport."""
    return sys.modules[f"{type(transport).__module__.rpartition('.')[0]}.{name}"]
