"""Requests of clients that agents bring, recorded and replayed where an HTTP library sends them.

A request is one to a model when a known client sends it, or when its path is that of a known API. A replay sends none,
also where the library cannot be recorded: it is refused then.
"""

from __future__ import annotations

import base64
import http.client
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import wraps
from typing import Any
from urllib.parse import urlsplit

from evaldesk.llm.apis import api_of
from evaldesk.llm.client_wrapping import (
    AIOHTTP,
    CLIENT_OF_GOOGLE,
    HTTPX,
    is_asking_model,
    parts_of,
    when_imported,
    wrap_once,
)
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder, is_replaying, not_recorded, unrecorded
from evaldesk.llm.retry_events import PLAYED_TURN
from evaldesk.model import JsonObject

_MARK = "_is_recorded"
_SEED = "seed"  # differs from run to run
_BEDROCK = "bedrock-runtime"
_KIND = "http"


def record_requests() -> None:
    """Wrap the HTTP libraries and Google's client, those that are imported later as well."""
    when_imported((*HTTPX, AIOHTTP, CLIENT_OF_GOOGLE), _wrap)
    _wrap()


def _wrap() -> None:
    for library in HTTPX:
        for owner, name in parts_of(library, ("AsyncClient", "Client"), ("send",)):
            wrap_once(owner, name, _recorded_by_httpx, _MARK)
    for owner, name in parts_of(CLIENT_OF_GOOGLE, ("BaseApiClient",), ("_async_request", "_request")):
        wrap_once(owner, name, _recorded_by_google, _MARK)
    for owner, name in parts_of(AIOHTTP, ("ClientSession",), ("_request",)):
        wrap_once(owner, name, _refused_by_aiohttp, _MARK)
    wrap_once(http.client.HTTPConnection, "putrequest", _refused_by_http_client, _MARK)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request and its name in the recording of the trial."""

    recorder: Recorder
    content: JsonObject
    key: str
    model: str
    is_generation: bool

    def answer(self) -> dict[str, Any] | None:
        """The recorded answer, of which the turn is told; None where the model is to be asked. Raises ModelError."""
        found = self.recorder.found(self.key, f"the call of {self.model}")
        turn = PLAYED_TURN.get()
        if found is not None and turn and self.is_generation:
            turn.was_cached()
        return found

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Send the request; without an answer the next equal one takes its name."""
        try:
            with unrecorded():
                yield
        except BaseException:
            self.release()
            raise

    def keep(self, answer: JsonObject) -> None:
        """Record the answer."""
        self.recorder.keep(self.key, answer)

    def release(self) -> None:
        """There is no answer to record."""
        self.recorder.release(_KIND, self.content)


def _asked(path: str, data: bytes | Mapping[str, Any] | None) -> _Asked | None:
    """The request to a model; None where nothing is recorded. Raises ModelError as `_refuse_in_replay` does."""
    recorder = CURRENT_RECORDER.get()
    if recorder is None:
        _refuse_in_replay("it is asked from a thread that does not know its trial")
        return None
    body = _body(data)
    content: dict[str, Any] = {"path": path, "body": body}
    model = body.get("model") if isinstance(body, dict) else None
    named = model if isinstance(model, str) else path.rpartition("/models/")[2].partition(":")[0]
    return _Asked(recorder, content, recorder.key(_KIND, content), named or path, api_of(path) is not None)


def _body(data: bytes | Mapping[str, Any] | None) -> object:
    if data is None or isinstance(data, Mapping):
        body: object = data
    else:
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):
            return data.decode("utf-8", "replace")
    return {name: value for name, value in body.items() if name != _SEED} if isinstance(body, Mapping) else body


def _refuse_in_replay(reason: str) -> None:
    """Raise ModelError where the trial, or one of the process that is not known here, asks no model."""
    recorder = CURRENT_RECORDER.get()
    replays = is_replaying() and PLAYED_TURN.get() is None
    if recorder.recording.mode == "replay" if recorder else replays:
        error = not_recorded(f"a replay asks no model, and this call cannot be recorded: {reason}")
        if recorder:
            recorder.missed = error
        raise error


def _is_to_model(path: str) -> bool:
    return is_asking_model() or api_of(path) is not None


def _recorded_by_httpx(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    async def send_soon(client: Any, request: Any, **options: Any) -> Any:
        if not _is_to_model(request.url.path):
            return await send(client, request, **options)
        asked = _asked(request.url.path, await request.aread())
        if asked is None:
            return await send(client, request, **options)
        found = asked.answer()
        if found is not None:
            response = _response(request, found)
            if not options.get("stream"):
                await response.aread()
            return response
        with asked.sending():
            response = await send(client, request, **options)
            data = await response.aread()
        return _kept(asked, request, response, data, options)

    @wraps(send)
    def send_now(client: Any, request: Any, **options: Any) -> Any:
        if not _is_to_model(request.url.path):
            return send(client, request, **options)
        asked = _asked(request.url.path, request.read())
        if asked is None:
            return send(client, request, **options)
        found = asked.answer()
        if found is not None:
            response = _response(request, found)
            if not options.get("stream"):
                response.read()
            return response
        with asked.sending():
            response = send(client, request, **options)
            data = response.read()
        return _kept(asked, request, response, data, options)

    return send_soon if inspect.iscoroutinefunction(send) else send_now


def _kept(asked: _Asked, request: Any, response: Any, data: bytes, options: Mapping[str, Any]) -> Any:
    """The response, recorded where it is an answer; one that is read as a stream can be read again."""
    if not response.is_success:
        asked.release()
        return response
    answer = {"status": response.status_code, "kind": response.headers.get("content-type", ""), **_as_text(data)}
    asked.keep(answer)
    return _response(request, answer) if options.get("stream") else response


def _as_text(data: bytes) -> dict[str, str]:
    try:
        return {"body": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _response(request: Any, answer: Mapping[str, Any]) -> Any:
    """A response of the request's library, not read yet."""
    library = sys.modules[type(request).__module__.partition(".")[0]]
    data = base64.b64decode(answer["base64"]) if "base64" in answer else str(answer["body"]).encode()
    stream, headers = library.ByteStream(data), {"content-type": str(answer["kind"])}
    response = library.Response(int(answer["status"]), headers=headers, stream=stream, request=request)
    response.elapsed = timedelta(0)
    return response


def _recorded_by_google(send: Callable[..., Any]) -> Callable[..., Any]:
    """Google's client sends by aiohttp where that is installed; its answers are lists of texts."""

    @wraps(send)
    async def send_soon(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        asked = _asked(urlsplit(http_request.url).path, http_request.data)
        if asked is None:
            return await send(client, http_request, *args, **options)
        found = asked.answer()
        if found is None:
            with asked.sending():
                sent = await send(client, http_request, *args, **options)
                found = {"parts": [json.dumps(part) async for part in sent.async_segments()]}
            asked.keep(found)
        return _response_of_google(found)

    @wraps(send)
    def send_now(client: Any, http_request: Any, *args: Any, **options: Any) -> Any:
        asked = _asked(urlsplit(http_request.url).path, http_request.data)
        if asked is None:
            return send(client, http_request, *args, **options)
        found = asked.answer()
        if found is None:
            with asked.sending():
                sent = send(client, http_request, *args, **options)
                found = {"parts": [json.dumps(part) for part in sent.segments()]}
            asked.keep(found)
        return _response_of_google(found)

    return send_soon if inspect.iscoroutinefunction(send) else send_now


def _response_of_google(answer: Mapping[str, Any]) -> Any:
    return sys.modules[CLIENT_OF_GOOGLE].HttpResponse({}, [str(part) for part in answer["parts"]])


def _refused_by_aiohttp(send: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(send)
    async def request(session: Any, method: str, str_or_url: Any, **options: Any) -> Any:
        if _is_to_model(urlsplit(str(str_or_url)).path):
            _refuse_in_replay("it is sent by aiohttp")
        return await send(session, method, str_or_url, **options)

    return request


def _refused_by_http_client(send: Callable[..., Any]) -> Callable[..., Any]:
    """`requests`, `urllib` and the client of AWS send by this module of the standard library."""

    @wraps(send)
    def putrequest(connection: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
        if method == "POST" and (_is_to_model(urlsplit(url).path) or _BEDROCK in connection.host):
            _refuse_in_replay("it is sent by http.client, as requests and urllib do")
        return send(connection, method, url, *args, **options)

    return putrequest
