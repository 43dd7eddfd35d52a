"""Our own client of OpenAI-compatible endpoints on aiohttp: a tenth of LiteLLM's CPU time. (decision 017)"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from evaldesk.codec import msgspec
from evaldesk.errors import TEXT_LIMIT, FormatError, ModelError
from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.endpoints import KEY_OF, OPENAI, OwnEndpoint
from evaldesk.llm.refusals import BrokenAnswerError, EndpointError, without_fields
from evaldesk.model import Usage
from evaldesk.unpacking import ASKED_FOR, Unpacker, redirect_refusal
from evaldesk.wire import LineCutter

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

IDLE_S = 4.0  # servers commonly close a connection that was idle for five
UNAUTHORIZED = 401
_PROXIES = tuple(name for kind in ("http", "https", "all", "no") for name in (f"{kind}_proxy", f"{kind}_PROXY".upper()))


class _ThreadState(threading.local):
    """State of each thread: connections belong to a loop, and a loop to a thread."""

    session: ClientSession | None = None
    home: asyncio.AbstractEventLoop | None = None


_thread_state = _ThreadState()


def use_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Allow calls on `loop`, the loop of this thread until the process ends."""
    _thread_state.home = loop


def is_own_loop() -> bool:
    """Whether calls may run on the current loop; otherwise they run on the shared loop of model calls."""
    return _thread_state.home is asyncio.get_running_loop()


async def ask(
    call: ModelCall, at: OwnEndpoint, on_text: Callable[[str], object] | None, unknown: frozenset[str]
) -> ModelReply:
    """Send one request, streamed with `on_text`, without the `unknown` fields.

    Raises EndpointError, BrokenAnswerError, and exceptions of aiohttp.
    """
    from aiohttp import ClientPayloadError, ClientResponseError

    if not at.key and at.key_name == KEY_OF[OPENAI]:  # fails here, as it does in OpenAI's client
        raise EndpointError(UNAUTHORIZED, f"{at.key_name} is not set".encode(), key_name=at.key_name)
    headers = {"content-type": "application/json", "accept-encoding": ASKED_FOR}
    if at.key:
        headers["authorization"] = f"Bearer {at.key}"
    body = msgspec.json.encode(_body(call, at, unknown, is_streamed=on_text is not None))
    options: dict[str, Any] = {
        "data": body,
        "headers": headers,
        "allow_redirects": False,
        **_connection_options(at.url, tuple(os.environ.get(name) for name in _PROXIES)),
    }
    try:
        async with _client_session().post(at.url, **options) as response:
            if 300 <= response.status < 400:
                refusal = redirect_refusal(response.status, response.headers.get("location", ""))
                raise ModelError(f"{call.model}: {at.url} {refusal}", kind="redirect", is_fatal=True)
            if not response.ok:
                raise EndpointError(response.status, await _body_of(response), response.headers, at.key_name)
            if on_text is None or response.content_type != "text/event-stream":
                return _send_text(whole_reply(call, await _body_of(response)), on_text)
            return await _read_stream(call, response, on_text)
    except FormatError as error:
        raise ModelError(f"{call.model}: {at.url}: {error}", kind="too_big", is_fatal=True) from None
    except ClientPayloadError as error:
        raise BrokenAnswerError(f"the answer broke off: {error}") from None
    except ClientResponseError as error:  # of a proxy
        raise EndpointError(error.status, (error.message or type(error).__name__).encode()) from None


def preload() -> None:
    """Import the packages of a call."""
    import aiohttp  # noqa: F401


async def close() -> None:
    """Close the connections of this thread; its next call opens new ones."""
    session, _thread_state.session = _thread_state.session, None
    if session:
        await session.close()


def _client_session() -> ClientSession:
    """The client session of this thread's loop: unlimited connections, no cookies."""
    if _thread_state.session is None:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        connector = TCPConnector(limit=0, keepalive_timeout=IDLE_S)
        jar, timeout = DummyCookieJar(), ClientTimeout(total=None)  # each attempt has its own bound
        _thread_state.session = ClientSession(
            connector=connector, cookie_jar=jar, timeout=timeout, auto_decompress=False
        )
        if _thread_state.home is None:
            atexit.register(_close_at_exit, asyncio.get_running_loop())  # aiohttp warns of a session left open
    return _thread_state.session


def _close_at_exit(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(close(), loop).result(1)


def _body(call: ModelCall, at: OwnEndpoint, unknown: frozenset[str], *, is_streamed: bool) -> dict[str, Any]:
    """The request body: fields of OpenAI's chat completions and the call's `extra`."""
    fields: dict[str, Any] = {"model": at.model, "messages": call.messages}
    fields |= {"tools": call.tools} if call.tools else {}
    fields |= call.settings
    fields |= {"stream": True, "stream_options": {"include_usage": True}} if is_streamed else {}
    return without_fields(fields, unknown) | {name: value for name, value in call.extra.items() if name != "api_key"}


async def _read_stream(call: ModelCall, response: ClientResponse, on_text: Callable[[str], object]) -> ModelReply:
    pieces = StreamedReply()
    async for line in _lines(response):
        text = pieces.take(line)
        if text:
            on_text(text)
    return pieces.reply(call)


async def _lines(response: ClientResponse) -> AsyncIterator[bytes]:
    """The non-blank lines of a stream. Raises FormatError beyond MAX_ANSWER bytes."""
    unpacker, lines = Unpacker(response.headers.get("content-encoding")), LineCutter()
    async for data in response.content.iter_any():
        for line in lines.feed(unpacker.feed(data)):
            yield line
    for line in lines.last_lines():
        yield line


async def _body_of(response: ClientResponse) -> bytes:
    """The whole body. Raises FormatError beyond MAX_ANSWER bytes, compressed or not."""
    unpacker = Unpacker(response.headers.get("content-encoding"))
    return b"".join([unpacker.feed(data) async for data in response.content.iter_any()])


def _send_text(reply: ModelReply, on_text: Callable[[str], object] | None) -> ModelReply:
    """Pass the text in one piece to `on_text`; the reply."""
    if on_text and reply.text:
        on_text(reply.text)
    return reply


@lru_cache(maxsize=64)
def _connection_options(url: str, _: tuple[str | None, ...]) -> dict[str, Any]:
    """The request options for proxy and certificates, from the environment, as in LiteLLM."""
    parts = urlsplit(url)
    is_bypassed = proxy_bypass(parts.hostname or "")
    proxies = {} if is_bypassed else getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    way: dict[str, Any] = {"proxy": proxy if not proxy or "://" in proxy else f"http://{proxy}"}
    if parts.scheme == "https":
        from httpx import create_ssl_context

        way["ssl"] = create_ssl_context()
    return way


_THINKING = re.compile(r"\A<(think|thinking)>.*?</\1>", re.DOTALL)
_REASONS: Mapping[str, str] = {
    **{reason: reason for reason in ("stop", "length", "tool_calls", "content_filter", "function_call")},
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    content: Any = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Tokens(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Any = None
    completion_tokens_details: Any = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Tokens | None = None
    error: Any = None


_decoder = msgspec.json.Decoder(_Answer)


def whole_reply(call: ModelCall, body: bytes) -> ModelReply:
    """The reply in the body of an answer. Raises BrokenAnswerError, and EndpointError for an error in the body."""
    answer = _decode(body)
    if not answer.choices or answer.choices[0].message is None:
        raise BrokenAnswerError("the answer has no choices")
    message, reason = answer.choices[0].message, answer.choices[0].finish_reason
    calls = [_PendingCall(tool_call.id, tool_call.function or _Function()) for tool_call in message.tool_calls or ()]
    return _reply(call, _text(message.content), calls, reason, answer.usage)


@dataclass(slots=True)
class StreamedReply:
    """The received part of a streamed reply."""

    _text: list[str] = field(default_factory=list)
    _calls: dict[int, _PendingCall] = field(default_factory=dict)
    _usage: _Tokens | None = None
    _reason: str | None = None
    _is_done: bool = False

    def take(self, line: bytes) -> str:
        """Add a line of the stream; its text. Raises as `whole_reply` does."""
        name, colon, data = line.partition(b":")
        data = data.strip()
        if name != b"data" or not colon or not data:
            return ""
        if data == b"[DONE]":
            self._is_done = True
            return ""
        answer = _decode(data)
        self._usage = answer.usage or self._usage
        if not answer.choices:
            return ""
        self._reason = answer.choices[0].finish_reason or self._reason
        delta = answer.choices[0].delta or _Message()
        for part in delta.tool_calls or ():
            self._join(part)
        text = _text(delta.content)
        self._text.append(text)
        return text

    def reply(self, call: ModelCall) -> ModelReply:
        """The complete reply. Raises BrokenAnswerError for an incomplete stream."""
        if not (self._is_done or self._reason):
            raise BrokenAnswerError("the streamed answer broke off")
        calls = [self._calls[index] for index in sorted(self._calls)]
        return _reply(call, "".join(self._text), calls, self._reason, self._usage)

    def _join(self, part: _Call) -> None:
        """Add a part of a tool call; without an index it continues the last call, unless its id differs."""
        last = max(self._calls, default=-1)
        index = part.index
        if index is None:
            is_new = part.id is not None and not (last >= 0 and self._calls[last].id == part.id)
            index = last + 1 if is_new or last < 0 else last
        pending = self._calls.setdefault(index, _PendingCall(None, _Function()))
        pending.id = pending.id or part.id
        if part.function:
            pending.function.name = pending.function.name or part.function.name
            pending.function.arguments = (pending.function.arguments or "") + _arguments(part.function.arguments)


@dataclass(slots=True)
class _PendingCall:
    id: str | None
    function: _Function


def _decode(body: bytes) -> _Answer:
    try:
        answer = _decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BrokenAnswerError(
            f"the answer cannot be read: {error}: {body[:TEXT_LIMIT].decode('utf-8', 'replace')}"
        ) from None
    if answer.error:
        code = answer.error.get("code") if isinstance(answer.error, Mapping) else None
        raise EndpointError(code if isinstance(code, int) else BrokenAnswerError.status_code, body)
    return answer


def _reply(
    call: ModelCall, text: str, pending: list[_PendingCall], reason: str | None, tokens: _Tokens | None
) -> ModelReply:
    calls = tuple(
        RequestedCall(
            pending_call.id or f"call_{index}",
            pending_call.function.name or "",
            _arguments(pending_call.function.arguments) or "{}",
        )
        for index, pending_call in enumerate(pending)
    )
    base_reason = _REASONS.get(reason or "stop", "stop")
    usage = Usage(
        call.model,
        tokens_in=(tokens and tokens.prompt_tokens) or 0,
        tokens_out=(tokens and tokens.completion_tokens) or 0,
        tokens_cached=_detail(tokens and tokens.prompt_tokens_details, "cached_tokens"),
        tokens_reasoning=_detail(tokens and tokens.completion_tokens_details, "reasoning_tokens"),
        is_cut=base_reason == "length",
    )
    finish_reason = "tool_calls" if calls and base_reason == "stop" else base_reason
    return ModelReply(_THINKING.sub("", text), calls, usage, finish_reason)


def _detail(details: Any, name: str) -> int:
    """A token count in the details; 0 for a missing or invalid number, as some endpoints send."""
    number = details.get(name) if isinstance(details, dict) else None
    return number if isinstance(number, int) and number >= 0 else 0


def _text(content: Any) -> str:
    """The text of a message; parts are joined."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""


def _arguments(raw: Any) -> str:
    return raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)
