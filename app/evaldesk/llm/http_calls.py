"""Requests to models by clients that agents bring, where an HTTP library sends them: told to the turn, and recorded.

A request is one to a model when a known client sends it, or when its path is that of a known API. Where the answer
cannot be seen, the turn is told that a call is missing; a replay refuses such a call, as it asks no model.
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
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, wraps
from typing import Any
from urllib.parse import urlsplit

from evaldesk.llm.apis import OWN_ADDRESSES, api_of, model_in
from evaldesk.llm.faults import (
    GIVEN,
    MALFORMED,
    SLOW,
    SLOW_S,
    STATUS,
    TIMEOUT,
    TRUNCATED,
    WORDS,
    malformed_body,
    refusal_body,
)
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder, is_replaying, not_recorded
from evaldesk.llm.refusals import MAY_REFUSE, STRICTNESS, dropped_words, without_refused
from evaldesk.llm.retry_events import PLAYED_TURN, SeenCall, TurnListener, body_of, is_unseen, played_turns, unseen
from evaldesk.llm.third_party_clients import (
    AIOHTTP,
    CLIENT_OF_GOOGLE,
    HTTPX,
    is_asking_model,
    parts_of,
    when_imported,
    wrap_once,
)
from evaldesk.model import JsonObject

_MARK = "_is_seen"
_SEED = "seed"  # differs from run to run
_BEDROCK = "bedrock-runtime"
_KIND = "http"
_DONE = b"[DONE]"


def see_requests() -> None:
    """Wrap the HTTP libraries and Google's client, also after a later import."""
    when_imported((*HTTPX, AIOHTTP, CLIENT_OF_GOOGLE), _wrap)
    _wrap()


def _wrap() -> None:
    for library in HTTPX:
        for owner, name in parts_of(library, ("AsyncClient", "Client"), ("send",)):
            wrap_once(owner, name, _seen_by_httpx, _MARK)
    for owner, name in parts_of(CLIENT_OF_GOOGLE, ("BaseApiClient",), ("_async_request", "_request")):
        wrap_once(owner, name, _seen_by_google, _MARK)
    for owner, name in parts_of(AIOHTTP, ("ClientSession",), ("_request",)):
        wrap_once(owner, name, _missed_by_aiohttp, _MARK)
    wrap_once(http.client.HTTPConnection, "putrequest", _missed_by_http_client, _MARK)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request to a model in a turn, and its name in the recording of the trial, where there is one."""

    path: str
    data: bytes | Mapping[str, Any] | None
    turn: TurnListener | None
    recorder: Recorder | None = None
    content: JsonObject = field(default_factory=dict)
    key: str = ""
    begun: float = field(default_factory=time.perf_counter)

    @property
    def is_counted(self) -> bool:
        """Whether its answer tells tokens."""
        return api_of(self.path) is not None

    def recorded(self) -> dict[str, Any] | None:
        """The recorded answer; None where the model is to be asked now. Raises ModelError."""
        found = self.recorder.found(self.key, f"the call of {self.model}") if self.recorder else None
        if self.turn and self.is_counted:
            self.turn.asks()
        return found

    @property
    def model(self) -> str:
        """The name of the model, as far as the request tells it."""
        body = self.content.get("body") if self.recorder else _body(self.data)
        named = body.get("model") if isinstance(body, Mapping) else None
        return named if isinstance(named, str) else model_in(self.path) or self.path

    def without_known(self, request: Any) -> Any:
        """The request without the fields that its model is known to refuse; None where there are none.

        Those are fields that the run asks for: one of the agent's own fails here as it does where it is deployed.
        """
        body = body_of(request.content)
        names = STRICTNESS.unknown_to(str(body.get("model")), str(request.url)) & self._may_miss(body)
        if not names:
            return None
        headers = [(name, value) for name, value in request.headers.raw if name.lower() != b"content-length"]
        data = json.dumps(without_refused(body, names)).encode()
        return type(request)(request.method, request.url, headers=headers, content=data, extensions=request.extensions)

    def without_refused(self, request: Any, status: int, answer: bytes) -> Any:
        """The request without the fields that this answer refuses, which are reported to the turn; None without any."""
        body = body_of(request.content)
        may, model, text = self._may_miss(body), str(body.get("model")), answer.decode("utf-8", "replace")
        new = STRICTNESS.learn(model, str(request.url), may, status, text) & may
        if self.turn and (told := dropped_words(model, new)):
            self.turn.notes(told)
        return self.without_known(request)  # also what a call beside it learned meanwhile

    def _may_miss(self, body: JsonObject) -> frozenset[str]:
        return self.turn.asked_fields & body.keys() if self.turn and self.is_counted else frozenset()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send the request; without an answer the next equal one takes its name."""
        try:
            with unseen():
                yield
        except BaseException as error:
            self.failed(f"{type(error).__name__}: {error}"[:500])
            raise

    def answered(self, data: bytes, answer: JsonObject) -> None:
        """Record the answer, and tell the turn of it."""
        if self.recorder:
            self.recorder.keep(self.key, answer)
        self.tell(data)

    def failed(self, why: str) -> None:
        """There is no answer to record."""
        self.release()
        if self.turn and self.is_counted:
            self.turn.refused()
            took_ms = (time.perf_counter() - self.begun) * 1000
            self.turn.unanswered(SeenCall(self.path, self.data or b"", b"", took_ms), why, took_ms)

    def release(self) -> None:
        """Let the next equal request have the name of this one, which is not recorded."""
        if self.recorder:
            self.recorder.release(_KIND, self.content)

    def fault(self) -> str:
        """The fault to inject into the request; empty for none."""
        return self.turn.fault(self.model) if self.turn and self.is_counted else ""

    def tell(self, data: bytes, *, is_replayed: bool = False) -> None:
        """Tell the turn of the answer, where it can tell tokens."""
        if self.turn and self.is_counted:
            took_ms = (time.perf_counter() - self.begun) * 1000
            self.turn.asked(SeenCall(self.path, self.data or b"", data, took_ms, is_replayed=is_replayed))


def _request(path: str, data: bytes | Mapping[str, Any] | None) -> _Request | None:
    """The request; None where a call is seen as a whole, or no turn is played. Raises ModelError as `_refuse` does."""
    if is_unseen():
        return None
    turn, recorder = PLAYED_TURN.get(), CURRENT_RECORDER.get()
    if recorder is not None:
        content: dict[str, Any] = {"path": path, "body": _body(data)}
        return _Request(path, data, turn, recorder, content, recorder.key(_KIND, content))
    if turn is None:
        _refuse_in_replay("it is asked from a thread that does not know its trial")
        turn = _only_turn()
    return _Request(path, data, turn) if turn else None


def _only_turn() -> TurnListener | None:
    """The one turn to which a request of a thread of the agent's can belong; several are told that one is missed."""
    turns = played_turns()
    if len(turns) > 1:
        for turn in turns:
            turn.missed_call()
    return turns[0] if len(turns) == 1 else None


def _body(data: bytes | Mapping[str, Any] | None) -> object:
    if data is None or isinstance(data, Mapping):
        body: object = data
    else:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return data.decode("utf-8", "replace")
    return {name: value for name, value in body.items() if name != _SEED} if isinstance(body, Mapping) else body


def _miss(reason: str) -> None:
    """Note a request whose answer is not seen. Raises ModelError in a replay."""
    if is_unseen():
        return
    _refuse_in_replay(reason)
    turn = PLAYED_TURN.get() or _only_turn()
    if turn:
        turn.missed_call()


def _refuse_in_replay(reason: str) -> None:
    """Raise ModelError where the trial, or one of the process that is not known here, asks no model."""
    recorder = CURRENT_RECORDER.get()
    replays = is_replaying() and PLAYED_TURN.get() is None
    if recorder.recording.mode == "replay" if recorder else replays:
        error = not_recorded(f"a replay asks no model, and this call cannot be recorded: {reason}")
        if recorder:
            recorder.missed = error
        raise error


def _is_to_model(host: str, path: str) -> bool:
    return host not in OWN_ADDRESSES and (is_asking_model() or api_of(path) is not None)


def _is_sent_to_model(request: Any) -> bool:
    return _is_to_model(request.url.netloc.decode(), request.url.path)


# Private functions of clients are wrapped, as no hook sees every call: decision 105.
def _seen_by_httpx(send: Callable[..., Any]) -> Callable[..., Any]:
    """Send a request without fields that its model refuses, or with the fault that the run asks for."""
    return (_seen_soon if inspect.iscoroutinefunction(send) else _seen_now)(send)


def _seen_soon(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    async def send_soon(client: Any, request: Any, **options: Any) -> Any:
        asked = _request(request.url.path, await request.aread()) if _is_sent_to_model(request) else None
        if asked is None:
            return await send(client, request, **options)
        is_stream = bool(options.get("stream"))
        fault, given = _given(asked, request, is_stream=is_stream)
        if given is not None:
            return given
        if fault == SLOW:
            await asyncio.sleep(SLOW_S)
        request = asked.without_known(request) or request
        with asked.sending():
            response = await send(client, request, **options)
            while response.status_code in MAY_REFUSE:
                again = asked.without_refused(request, response.status_code, await response.aread())
                if again is None:
                    break
                request, response = again, await send(client, again, **options)
            if asked.recorder or fault == TRUNCATED:
                await response.aread()
        return (_cut_off if fault == TRUNCATED else _told)(asked, request, response, is_stream=is_stream)

    return send_soon


def _seen_now(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    def send_now(client: Any, request: Any, **options: Any) -> Any:
        asked = _request(request.url.path, request.read()) if _is_sent_to_model(request) else None
        if asked is None:
            return send(client, request, **options)
        is_stream = bool(options.get("stream"))
        fault, given = _given(asked, request, is_stream=is_stream)
        if given is not None:
            return given
        time.sleep(SLOW_S if fault == SLOW else 0)
        request = asked.without_known(request) or request
        with asked.sending():
            response = send(client, request, **options)
            while response.status_code in MAY_REFUSE:
                again = asked.without_refused(request, response.status_code, response.read())
                if again is None:
                    break
                request, response = again, send(client, again, **options)
            if asked.recorder or fault == TRUNCATED:
                response.read()
        return (_cut_off if fault == TRUNCATED else _told)(asked, request, response, is_stream=is_stream)

    return send_now


def _given(asked: _Request, request: Any, *, is_stream: bool) -> tuple[str, Any]:
    """The fault to inject, and the response where the endpoint is not asked: as recorded, or that of the fault."""
    found = asked.recorded()
    if found is not None:
        response, data = _replayed(request, found)
        asked.tell(data, is_replayed=True)
        if not is_stream:
            response.read()
        return "", response
    fault = asked.fault()
    return fault, _failing(asked, request, fault, is_stream=is_stream) if fault in GIVEN else None


def _failing(asked: _Request, request: Any, fault: str, *, is_stream: bool) -> Any:
    """The answer of an endpoint with that fault, without a request. Raises the library's error of a timeout."""
    asked.failed(f"{WORDS[fault]} (injected)")
    library = _library(request)
    if fault == TIMEOUT:
        raise library.ReadTimeout("no answer in time (injected)", request=request)
    kind, data = malformed_body(is_stream=is_stream)
    if fault in STATUS:
        kind, data = "application/json", refusal_body(STATUS[fault])
    status, headers = STATUS.get(fault, 200), {"content-type": kind}
    response = library.Response(status, headers=headers, content=data, request=request)
    response.elapsed = timedelta(0)
    return response


def _cut_off(asked: _Request, request: Any, response: Any, *, is_stream: bool) -> Any:
    """Half of an answer, then its connection ends; the provider was paid for all of it, and nothing is recorded."""
    if not response.is_success:
        return _told(asked, request, response, is_stream=is_stream)
    asked.release()
    asked.tell(response.content)
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
    """A stream of the library that ends with an error."""

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


def _told(asked: _Request, request: Any, response: Any, *, is_stream: bool) -> Any:
    """The response, reported and recorded where it is an answer; a stream can still be read."""
    if not response.is_success:
        asked.failed(f"HTTP {response.status_code}")
        return response
    if is_stream and not asked.recorder:
        response.stream = _tee(_library(request))(response, asked)
        return response
    data = response.content
    answer = {"status": response.status_code, "kind": response.headers.get("content-type", ""), **_as_text(data)}
    asked.answered(data, answer)
    return _replayed(request, answer)[0] if is_stream else response


@cache
def _tee(library: Any) -> Any:
    """A stream of the library that tells of the whole answer when it is read to its end."""

    class Tee(library.AsyncByteStream, library.SyncByteStream):  # type: ignore[misc] # the library may be missing
        def __init__(self, response: Any, asked: _Request) -> None:
            self._own, self._asked = response.stream, asked
            self._headers, self._parts = response.headers, [b""]

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for part in self._own:
                self._parts.append(part)
                yield part
            self._end()

        def __iter__(self) -> Iterator[bytes]:
            for part in self._own:
                self._parts.append(part)
                yield part
            self._end()

        async def aclose(self) -> None:
            self._leave()
            await self._own.aclose()

        def close(self) -> None:
            self._leave()
            self._own.close()

        def _end(self) -> None:
            whole, self._parts = b"".join(self._parts), []
            self._asked.tell(library.Response(200, headers=self._headers, content=whole).content)

        def _leave(self) -> None:
            """An agent that stops at the mark of the end has read all; until the turn ends, any other is asking."""
            whole, self._parts = b"".join(self._parts), []
            if _DONE in whole:
                self._asked.tell(whole)

    return Tee


def _as_text(data: bytes) -> dict[str, str]:
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _library(request: Any) -> Any:
    return sys.modules[type(request).__module__.partition(".")[0]]


def _replayed(request: Any, answer: Mapping[str, Any]) -> tuple[Any, bytes]:
    """A response of the request's library, not read yet, and its body."""
    library = _library(request)
    data = base64.b64decode(answer["base64"]) if "base64" in answer else str(answer["body"]).encode()
    stream, headers = library.ByteStream(data), {"content-type": str(answer["kind"])}
    response = library.Response(int(answer["status"]), headers=headers, stream=stream, request=request)
    response.elapsed = timedelta(0)
    return response, data


def _seen_by_google(send: Callable[..., Any]) -> Callable[..., Any]:
    """Google's client sends by aiohttp where that is installed; its answers are lists of texts."""

    @wraps(send)
    async def send_soon(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        asked = _request(urlsplit(http_request.url).path, http_request.data)
        if asked is None:
            return await send(client, http_request, *args, **options)
        found = asked.recorded()
        if found is not None:
            asked.tell(_joined(found["parts"]), is_replayed=True)
            return _response_of_google(found)
        fault = asked.fault()
        if fault == SLOW:
            await asyncio.sleep(SLOW_S)
        with asked.sending():
            _raise_as_google(fault)
            sent = await send(client, http_request, *args, **options)
            if not asked.recorder and not isinstance(sent.response_stream, list):
                sent.async_segments = _teed_soon(sent.async_segments, asked)
                return sent
            parts = [json.dumps(part) async for part in sent.async_segments()]
        asked.answered(_joined(parts), {"parts": [*parts]})
        return _response_of_google({"parts": parts}) if asked.recorder else sent

    @wraps(send)
    def send_now(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        asked = _request(urlsplit(http_request.url).path, http_request.data)
        if asked is None:
            return send(client, http_request, *args, **options)
        found = asked.recorded()
        if found is not None:
            asked.tell(_joined(found["parts"]), is_replayed=True)
            return _response_of_google(found)
        fault = asked.fault()
        time.sleep(SLOW_S if fault == SLOW else 0)
        with asked.sending():
            _raise_as_google(fault)
            sent = send(client, http_request, *args, **options)
            if not asked.recorder and not isinstance(sent.response_stream, list):
                sent.segments = _teed_now(sent.segments, asked)
                return sent
            parts = [json.dumps(part) for part in sent.segments()]
        asked.answered(_joined(parts), {"parts": [*parts]})
        return _response_of_google({"parts": parts}) if asked.recorder else sent

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


def _teed_soon(segments: Callable[[], AsyncIterator[Any]], asked: _Request) -> Callable[[], AsyncIterator[Any]]:
    async def teed() -> AsyncIterator[Any]:
        parts = []
        async for part in segments():
            parts.append(json.dumps(part))
            yield part
        asked.tell(_joined(parts))

    return teed


def _teed_now(segments: Callable[[], Iterator[Any]], asked: _Request) -> Callable[[], Iterator[Any]]:
    def teed() -> Iterator[Any]:
        parts = []
        for part in segments():
            parts.append(json.dumps(part))
            yield part
        asked.tell(_joined(parts))

    return teed


def _joined(parts: Iterable[str]) -> bytes:
    return f"[{','.join(parts)}]".encode()


def _response_of_google(answer: Mapping[str, Any]) -> Any:
    return sys.modules[CLIENT_OF_GOOGLE].HttpResponse({}, [str(part) for part in answer["parts"]])


def _missed_by_aiohttp(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    async def request(session: Any, method: str, str_or_url: Any, **options: Any) -> Any:
        address = urlsplit(str(str_or_url))
        if _is_to_model(address.netloc, address.path):
            _miss("it is sent by aiohttp")
        return await send(session, method, str_or_url, **options)

    return request


def _missed_by_http_client(send: Callable[..., Any]) -> Callable[..., Any]:
    """`requests`, `urllib` and the client of AWS send by this module of the standard library."""

    @wraps(send)
    def putrequest(connection: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
        host = f"{connection.host}:{connection.port}"
        if method == "POST" and (_is_to_model(host, urlsplit(url).path) or _BEDROCK in host):
            _miss("it is sent by http.client, as requests and urllib do")
        return send(connection, method, url, *args, **options)

    return putrequest
