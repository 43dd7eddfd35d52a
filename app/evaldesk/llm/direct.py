"""Model calls on aiohttp, straight to an OpenAI-compatible endpoint: a tenth of the processor time, and no LiteLLM."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from evaldesk.llm.answers import Pieces, whole_reply
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.endpoints import KEY_OF, OPENAI, OwnEndpoint
from evaldesk.llm.refusals import BrokenAnswerError, EndpointError

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientSession

IDLE_S = 4.0  # servers commonly close a connection that was idle for five
MAX_REDIRECTS = 3
UNAUTHORIZED = 401
_PROXIES = tuple(name for kind in ("http", "https", "all", "no") for name in (f"{kind}_proxy", f"{kind}_PROXY".upper()))


class _Here(threading.local):
    """What a thread has of its own: a loop is that of one thread, and connections are those of one loop."""

    session: ClientSession | None = None
    home: asyncio.AbstractEventLoop | None = None


_here = _Here()


def settle_on(loop: asyncio.AbstractEventLoop) -> None:
    """Let calls be made on `loop`, which is that of this thread as long as the process lasts."""
    _here.home = loop


def is_home() -> bool:
    """Whether calls may be made on the running loop; elsewhere only that of all model calls makes them."""
    return _here.home is asyncio.get_running_loop()


async def ask(
    call: ModelCall, at: OwnEndpoint, tell: Callable[[str], object] | None, unknown: frozenset[str]
) -> ModelReply:
    """One request, streamed when `tell` is given, without the fields that are `unknown` there.

    Raises EndpointError, BrokenAnswerError, and what aiohttp raises.
    """
    from aiohttp import ClientPayloadError, ClientResponseError

    _check_key(at)
    headers = {"content-type": "application/json"}
    if at.key:
        headers["authorization"] = f"Bearer {at.key}"
    body = msgspec.json.encode(_body(call, at, unknown, is_streamed=tell is not None))
    options: dict[str, Any] = {
        "data": body,
        "headers": headers,
        "max_redirects": MAX_REDIRECTS,
        **_way_to(at.url, _proxies()),
    }
    try:  # aiohttp follows a redirect to another host without the key
        async with _opened().post(at.url, **options) as response:
            if not response.ok:
                raise EndpointError(response.status, await response.read(), response.headers, at.key_name)
            if tell is None or response.content_type != "text/event-stream":
                return _told(whole_reply(call, await response.read()), tell)
            return await _streamed(call, response, tell)
    except ClientPayloadError as error:
        raise BrokenAnswerError(f"the answer broke off: {error}") from None
    except ClientResponseError as error:  # of a proxy, or after too many redirects
        raise EndpointError(error.status, (error.message or type(error).__name__).encode()) from None


def preload() -> None:
    """Import what a call needs."""
    import aiohttp  # noqa: F401


async def close() -> None:
    """Close the connections of this thread; its next call opens others."""
    session, _here.session = _here.session, None
    if session:
        await session.close()


def _opened() -> ClientSession:
    """The session of this thread's loop: as many connections as there are calls, no cookies."""
    if _here.session is None:
        from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

        connector = TCPConnector(limit=0, keepalive_timeout=IDLE_S)
        jar, timeout = DummyCookieJar(), ClientTimeout(total=None)  # each attempt has its own bound
        _here.session = ClientSession(connector=connector, cookie_jar=jar, timeout=timeout)
        if _here.home is None:
            atexit.register(_close_at_exit, asyncio.get_running_loop())
    return _here.session


def _close_at_exit(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(Exception):
        asyncio.run_coroutine_threadsafe(close(), loop).result(1)


def _check_key(at: OwnEndpoint) -> None:
    """Let a call that cannot succeed fail here, as it does in OpenAI's client. Raises EndpointError."""
    if not at.key and at.key_name == KEY_OF[OPENAI]:
        raise EndpointError(UNAUTHORIZED, f"{at.key_name} is not set".encode(), key_name=at.key_name)


def _body(call: ModelCall, at: OwnEndpoint, unknown: frozenset[str], *, is_streamed: bool) -> dict[str, Any]:
    """What OpenAI's chat completions know, what was asked for, and nothing else."""
    fields = {
        "model": at.model,
        "messages": call.messages,
        "tools": call.tools or None,
        "temperature": call.temperature,
        "top_p": call.top_p,
        "max_tokens": call.max_tokens,
        "seed": call.seed,
        "stream": True if is_streamed else None,
        "stream_options": {"include_usage": True} if is_streamed else None,
    }
    asked = {name: value for name, value in fields.items() if value is not None and name not in unknown}
    return {**asked, **call.extra}


async def _streamed(call: ModelCall, response: ClientResponse, tell: Callable[[str], object]) -> ModelReply:
    pieces = Pieces()
    async for line in _lines(response):
        text = pieces.take(line)
        if text:
            tell(text)
    return pieces.reply(call)


async def _lines(response: ClientResponse) -> AsyncIterator[bytes]:
    """The lines of a stream, however long they are."""
    rest = b""
    async for data in response.content.iter_any():
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line
    yield rest


def _told(reply: ModelReply, tell: Callable[[str], object] | None) -> ModelReply:
    """The reply, told in one piece to who wanted it streamed."""
    if tell and reply.text:
        tell(reply.text)
    return reply


def _proxies() -> tuple[str | None, ...]:
    """What the environment says of proxies at this moment."""
    return tuple(os.environ.get(name) for name in _PROXIES)


@lru_cache(maxsize=64)
def _way_to(url: str, _: tuple[str | None, ...]) -> dict[str, Any]:
    """The proxy that the environment names for that address, as LiteLLM takes it, and the certificates to trust."""
    parts = urlsplit(url)
    is_bypassed = proxy_bypass(parts.hostname or "")
    proxies = {} if is_bypassed else getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    way: dict[str, Any] = {"proxy": proxy if not proxy or "://" in proxy else f"http://{proxy}"}
    if parts.scheme == "https":
        from httpx import create_ssl_context

        way["ssl"] = create_ssl_context()
    return way
