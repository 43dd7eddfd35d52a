"""Model requests of agents' own clients, observed in their HTTP libraries: usage, recording, fault injection.

A request is a model request if a known client sends it, or if its path belongs to a known API. If its answer cannot be
read, the turn notes a missing call; a replay refuses such a call, because it calls no model.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import inspect
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from copy import copy
from datetime import timedelta
from functools import cache, wraps
from typing import Any
from urllib.parse import urlsplit

from evaldesk.llm.answered_requests import answer_aiohttp, answer_getresponse, answer_putrequest, answer_send
from evaldesk.llm.client_wrapping import AIOHTTP, CLIENT_OF_GOOGLE, HTTPX, on_import, parts_of, wrap_once
from evaldesk.llm.context import run_now
from evaldesk.llm.faults import (
    FAULTS_BEFORE_REQUEST,
    MALFORMED,
    SLOW,
    SLOW_S,
    STATUS,
    TIMEOUT,
    TRUNCATED,
    WORDS,
    faulty_answer,
    malformed_body,
    refusal_body,
)
from evaldesk.llm.model_request import (
    END_MARK,
    ModelRequest,
    answers_of_turn,
    is_to_model,
    request_of_turn,
    sending_again,
    with_body,
)
from evaldesk.llm.refusals import MAY_REFUSE
from evaldesk.llm.retry_events import AnsweredRequest, body_of
from evaldesk.llm.socket_calls import watch_socket_clients

_MARK = "_is_seen"


def watch_requests() -> None:
    """Wrap the HTTP libraries, Google's client and DSPy's, also after a later import."""
    watch_socket_clients()
    on_import((*HTTPX, AIOHTTP, CLIENT_OF_GOOGLE), _wrap)
    _wrap()


def _wrap() -> None:
    for library in HTTPX:
        for owner, name in parts_of(library, ("AsyncClient", "Client"), ("send",)):
            wrap_once(owner, name, _watch_httpx, _MARK)
    for owner, name in parts_of(CLIENT_OF_GOOGLE, ("BaseApiClient",), ("_async_request", "_request")):
        wrap_once(owner, name, _watch_google, _MARK)
    for owner, name in parts_of(AIOHTTP, ("ClientSession",), ("_request",)):
        wrap_once(owner, name, answer_aiohttp, _MARK)
    for name, wrapper in (
        ("putrequest", answer_putrequest),
        ("send", answer_send),
        ("getresponse", answer_getresponse),
    ):
        wrap_once(http.client.HTTPConnection, name, wrapper, _MARK)


def _is_sent_to_model(request: Any) -> bool:
    return is_to_model(request.url.netloc.decode(), request.url.path)


# Private functions of clients are wrapped, as no hook sees every call: decision 105.
def _watch_httpx(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `send` of httpx: recordings, refused fields and injected faults."""
    if inspect.iscoroutinefunction(send):
        return _answer_async(_watch_async(send))
    return _answer_sync(_watch_sync(send))


def _answer_async(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `send`: tool calls that are answered here go back to the model, and never to the client (decision 508)."""

    @wraps(send)
    async def send_soon(client: Any, request: Any, **options: Any) -> Any:
        answers = answers_of_turn(request.url.path)
        if answers is None:
            return await send(client, request, **options)
        answered = answers.begin(request.url.path, body_of(await request.aread()))
        while True:
            request = with_body(request, answered.body)
            with sending_again(answered):
                response = await send(client, request, **options)
            if not response.is_success:
                answered.fail()
                return response
            data = await answered.go_on(await response.aread())
            if data is not None:
                return _response_for_client(request, response, data, is_stream=bool(options.get("stream")))

    return send_soon


def _answer_sync(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def send_now(client: Any, request: Any, **options: Any) -> Any:
        answers = answers_of_turn(request.url.path)
        if answers is None:
            return send(client, request, **options)
        answered = answers.begin(request.url.path, body_of(request.read()))
        while True:
            request = with_body(request, answered.body)
            with sending_again(answered):
                response = send(client, request, **options)
            if not response.is_success:
                answered.fail()
                return response
            data = run_now(answered.go_on(response.read()))
            if data is not None:
                return _response_for_client(request, response, data, is_stream=bool(options.get("stream")))

    return send_now


def _response_for_client(request: Any, response: Any, data: bytes, *, is_stream: bool) -> Any:
    """The response with that body, unread where its client reads a stream."""
    library, kind = _library(request), response.headers.get("content-type", "")
    changed, _ = _response_of(request, {"status": response.status_code, "kind": kind, **_as_text(data)})
    left_out = ("content-encoding", "content-length", "content-type", "transfer-encoding")
    others = [(name, value) for name, value in response.headers.multi_items() if name not in left_out]
    changed.headers = library.Headers([*changed.headers.multi_items(), *others])
    if not is_stream:
        changed.read()
    return changed


def _watch_async(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    async def send_soon(client: Any, request: Any, **options: Any) -> Any:
        model_request = request_of_turn(request.url.path, await request.aread()) if _is_sent_to_model(request) else None
        if model_request is None:
            return await send(client, request, **options)
        is_stream = bool(options.get("stream"))
        fault, ready_response = _fault_and_response(model_request, request, is_stream=is_stream)
        if ready_response is not None:
            return ready_response
        if fault == SLOW:
            await asyncio.sleep(SLOW_S)
        request = model_request.without_unsupported(request) or request
        with model_request.sending():
            response = await send(client, request, **options)
            while response.status_code in MAY_REFUSE:
                retry_request = model_request.learn_refusal(request, response.status_code, await response.aread())
                if retry_request is None:
                    break
                request, response = retry_request, await send(client, retry_request, **options)
            if model_request.recorder or fault == TRUNCATED:
                await response.aread()
        return (_truncate_answer if fault == TRUNCATED else _report_answer)(
            model_request, request, response, is_stream=is_stream
        )

    return send_soon


def _watch_sync(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def send_now(client: Any, request: Any, **options: Any) -> Any:
        model_request = request_of_turn(request.url.path, request.read()) if _is_sent_to_model(request) else None
        if model_request is None:
            return send(client, request, **options)
        is_stream = bool(options.get("stream"))
        fault, ready_response = _fault_and_response(model_request, request, is_stream=is_stream)
        if ready_response is not None:
            return ready_response
        time.sleep(SLOW_S if fault == SLOW else 0)
        request = model_request.without_unsupported(request) or request
        with model_request.sending():
            response = send(client, request, **options)
            while response.status_code in MAY_REFUSE:
                retry_request = model_request.learn_refusal(request, response.status_code, response.read())
                if retry_request is None:
                    break
                request, response = retry_request, send(client, retry_request, **options)
            if model_request.recorder or fault == TRUNCATED:
                response.read()
        return (_truncate_answer if fault == TRUNCATED else _report_answer)(
            model_request, request, response, is_stream=is_stream
        )

    return send_now


def _fault_and_response(model_request: ModelRequest, request: Any, *, is_stream: bool) -> tuple[str, Any]:
    """The fault to inject, and the response without a request, if any: from the recording, or of the fault."""
    entry = model_request.find_recording()
    if entry is not None:
        response, data = _response_of(request, entry)
        model_request.report(data, is_replayed=True)
        if not is_stream:
            response.read()
        return "", response
    fault = model_request.fault()
    return fault, _fault_response(
        model_request, request, fault, is_stream=is_stream
    ) if fault in FAULTS_BEFORE_REQUEST else None


def _fault_response(model_request: ModelRequest, request: Any, fault: str, *, is_stream: bool) -> Any:
    """The answer of an endpoint with that fault, without a request. Raises the library's error of a timeout."""
    model_request.record_failure(f"{WORDS[fault]} (injected)")
    library = _library(request)
    if fault == TIMEOUT:
        raise library.ReadTimeout("no answer in time (injected)", request=request)
    status, kind, data = faulty_answer(fault, is_stream=is_stream)
    response = library.Response(status, headers={"content-type": kind}, content=data, request=request)
    response.elapsed = timedelta(0)
    return response


def _truncate_answer(model_request: ModelRequest, request: Any, response: Any, *, is_stream: bool) -> Any:
    """Half of the answer, then a connection error; its whole usage counts, and it is not recorded."""
    if not response.is_success:
        return _report_answer(model_request, request, response, is_stream=is_stream)
    model_request.release()
    model_request.report(response.content)
    library, half = _library(request), response.content[: len(response.content) // 2]
    error = library.RemoteProtocolError("peer closed connection without sending complete message body", request=request)
    if not is_stream:
        raise error
    headers = {"content-type": response.headers.get("content-type", "")}
    broken = library.Response(
        response.status_code, headers=headers, stream=_half(library)(half, error), request=request
    )
    broken.elapsed = timedelta(0)
    return broken


@cache
def _half(library: Any) -> Any:
    """A stream class of the library that ends with an error."""

    class Half(library.AsyncByteStream, library.SyncByteStream):  # type: ignore[misc] # the library may be missing
        def __init__(self, data: bytes, error: Exception) -> None:
            self._data, self._error = data, error

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield self._data
            raise self._error

        def __iter__(self) -> Iterator[bytes]:
            yield self._data
            raise self._error

    return Half


def _report_answer(model_request: ModelRequest, request: Any, response: Any, *, is_stream: bool) -> Any:
    """The response, reported and recorded if successful; a stream stays readable."""
    if not response.is_success:
        model_request.record_failure(f"HTTP {response.status_code}")
        return response
    if is_stream and not model_request.recorder:
        response.stream = _tee(_library(request))(response, model_request)
        return response
    data = response.content
    answer = {"status": response.status_code, "kind": response.headers.get("content-type", ""), **_as_text(data)}
    model_request.record_answer(data, answer)
    return _response_of(request, answer)[0] if is_stream else response


@cache
def _tee(library: Any) -> Any:
    """A stream class of the library that reports the answer at its end."""

    class Tee(library.AsyncByteStream, library.SyncByteStream):  # type: ignore[misc] # the library may be missing
        def __init__(self, response: Any, model_request: ModelRequest) -> None:
            self._stream, self._model_request = response.stream, model_request
            self._headers, self._parts = response.headers, [b""]

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in self._stream:
                self._parts.append(part)
                yield part
            self._end()

        def __iter__(self) -> Iterator[bytes]:
            for part in self._stream:
                self._parts.append(part)
                yield part
            self._end()

        async def aclose(self) -> None:
            self._leave()
            await self._stream.aclose()

        def close(self) -> None:
            self._leave()
            self._stream.close()

        def _end(self) -> None:
            data, self._parts = b"".join(self._parts), []
            self._model_request.report(library.Response(200, headers=self._headers, content=data).content)

        def _leave(self) -> None:
            """Report a stream that was closed after its end mark; any other closed stream stays a pending request."""
            data, self._parts = b"".join(self._parts), []
            if END_MARK in data:
                self._model_request.report(data)

    return Tee


def _as_text(data: bytes) -> dict[str, str]:
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _library(request: Any) -> Any:
    return sys.modules[type(request).__module__.partition(".")[0]]


def _response_of(request: Any, answer: Mapping[str, Any]) -> tuple[Any, bytes]:
    """An unread response of the request's library from a recorded answer, and its body."""
    library = _library(request)
    data = base64.b64decode(answer["base64"]) if "base64" in answer else str(answer["body"]).encode()
    stream, headers = library.ByteStream(data), {"content-type": str(answer["kind"])}
    response = library.Response(int(answer["status"]), headers=headers, stream=stream, request=request)
    response.elapsed = timedelta(0)
    return response, data


def _watch_google(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a request function of Google's client, which may use aiohttp; its answers are lists of texts."""
    return _answer_google(_watch_google_calls(send))


def _answer_google(send: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function: tool calls that are answered here go back to the model (decision 508)."""

    def begin(http_request: Any) -> AnsweredRequest | None:
        answers = answers_of_turn(path := urlsplit(http_request.url).path)
        is_object = isinstance(http_request.data, Mapping)
        return answers.begin(path, http_request.data) if answers and is_object else None

    @wraps(send)
    async def send_soon(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        answered = begin(http_request)
        if answered is None:
            return await send(client, http_request, *args, **options)
        while True:
            own = copy(http_request)
            own.data = answered.body
            with sending_again(answered):
                response = await send(client, own, *args, **options)
            parts = [json.dumps(part) async for part in response.async_segments()]
            data = await answered.go_on(_json_array(parts))
            if data is not None:
                return _response_of_google({"parts": [json.dumps(part) for part in json.loads(data)]})

    @wraps(send)
    def send_now(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        answered = begin(http_request)
        if answered is None:
            return send(client, http_request, *args, **options)
        while True:
            own = copy(http_request)
            own.data = answered.body
            with sending_again(answered):
                response = send(client, own, *args, **options)
            data = run_now(answered.go_on(_json_array(json.dumps(part) for part in response.segments())))
            if data is not None:
                return _response_of_google({"parts": [json.dumps(part) for part in json.loads(data)]})

    return send_soon if inspect.iscoroutinefunction(send) else send_now


def _watch_google_calls(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    async def send_soon(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        model_request = request_of_turn(urlsplit(http_request.url).path, http_request.data)
        if model_request is None:
            return await send(client, http_request, *args, **options)
        entry = model_request.find_recording()
        if entry is not None:
            model_request.report(_json_array(entry["parts"]), is_replayed=True)
            return _response_of_google(entry)
        fault = model_request.fault()
        if fault == SLOW:
            await asyncio.sleep(SLOW_S)
        with model_request.sending():
            _raise_as_google(fault)
            response = await send(client, http_request, *args, **options)
            if not model_request.recorder and not isinstance(response.response_stream, list):
                response.async_segments = _tee_async(response.async_segments, model_request)
                return response
            parts = [json.dumps(part) async for part in response.async_segments()]
        model_request.record_answer(_json_array(parts), {"parts": [*parts]})
        return _response_of_google({"parts": parts}) if model_request.recorder else response

    @wraps(send)
    def send_now(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        model_request = request_of_turn(urlsplit(http_request.url).path, http_request.data)
        if model_request is None:
            return send(client, http_request, *args, **options)
        entry = model_request.find_recording()
        if entry is not None:
            model_request.report(_json_array(entry["parts"]), is_replayed=True)
            return _response_of_google(entry)
        fault = model_request.fault()
        time.sleep(SLOW_S if fault == SLOW else 0)
        with model_request.sending():
            _raise_as_google(fault)
            response = send(client, http_request, *args, **options)
            if not model_request.recorder and not isinstance(response.response_stream, list):
                response.segments = _tee_sync(response.segments, model_request)
                return response
            parts = [json.dumps(part) for part in response.segments()]
        model_request.record_answer(_json_array(parts), {"parts": [*parts]})
        return _response_of_google({"parts": parts}) if model_request.recorder else response

    return send_soon if inspect.iscoroutinefunction(send) else send_now


def _raise_as_google(fault: str) -> None:
    """Raise the error of Google's client for that fault; a slow answer is none."""
    if fault in STATUS:
        errors, status = sys.modules["google.genai.errors"], STATUS[fault]
        kind = errors.ClientError if status < 500 else errors.ServerError
        raise kind(status, json.loads(refusal_body(status)))
    if fault == TIMEOUT:
        raise TimeoutError("no answer in time (injected)")
    if fault == TRUNCATED:
        raise ConnectionResetError("the answer breaks off (injected)")
    if fault == MALFORMED:
        json.loads(malformed_body(is_stream=False)[1])


def _tee_async(
    segments: Callable[[], AsyncIterator[Any]], model_request: ModelRequest
) -> Callable[[], AsyncIterator[Any]]:
    async def report_at_end() -> AsyncIterator[Any]:
        parts = []
        async for part in segments():
            parts.append(json.dumps(part))
            yield part
        model_request.report(_json_array(parts))

    return report_at_end


def _tee_sync(segments: Callable[[], Iterator[Any]], model_request: ModelRequest) -> Callable[[], Iterator[Any]]:
    def report_at_end() -> Iterator[Any]:
        parts = []
        for part in segments():
            parts.append(json.dumps(part))
            yield part
        model_request.report(_json_array(parts))

    return report_at_end


def _json_array(parts: Iterable[str]) -> bytes:
    return f"[{','.join(parts)}]".encode()


def _response_of_google(answer: Mapping[str, Any]) -> Any:
    return sys.modules[CLIENT_OF_GOOGLE].HttpResponse({}, [str(part) for part in answer["parts"]])
