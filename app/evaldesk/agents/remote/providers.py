"""Base addresses of model providers by the rules of their SDKs, and a pool of connections to them.

A pooled connection saves the handshake; it serves one call at a time.
"""

from __future__ import annotations

import os
import select
import time
import urllib.error
import urllib.request
from collections import defaultdict, deque
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection, RemoteDisconnected
from typing import Any
from urllib.parse import urlsplit

from evaldesk.llm.retry_events import hide_requests

TIMEOUT_S = 600.0
MAX_BODY = 32 * 1024 * 1024
PIECE = 65536
MAX_IDLE_S = 4.0
"""Servers close a connection that is idle for 5 s or longer."""

HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"}
    | {"upgrade", "host", "content-length", "accept-encoding", "content-encoding"}
)


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: its address is the first set variable of `variables`, else `address`."""

    variables: tuple[str, ...]
    address: str

    def base(self, environment: Mapping[str, str]) -> str:
        """The base address of its models."""
        address = next((environment[name] for name in self.variables if environment.get(name)), self.address)
        return address.rstrip("/")


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider(("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1"),
    "anthropic": Provider(("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), "https://api.anthropic.com"),
    "gemini": Provider(("GOOGLE_GEMINI_BASE_URL",), "https://generativelanguage.googleapis.com"),
}

_idle: dict[tuple[str, str], deque[tuple[float, HTTPConnection]]] = defaultdict(deque)
# Two processes on one connection would read each other's answers (decision 222).
os.register_at_fork(after_in_child=_idle.clear)


class ProviderAnswer(AbstractContextManager["ProviderAnswer"]):
    """The answer of a provider, also an HTTP error; its connection goes back to the pool after a complete read."""

    def __init__(self, key: tuple[str, str], connection: HTTPConnection, response: HTTPResponse) -> None:
        self._key, self._connection, self._response = key, connection, response
        self.status = response.status
        self.headers = response.headers
        self.read = response.read
        self.read1 = response.read1

    @property
    def length(self) -> int | None:
        """The number of bytes left to read; None without a content length."""
        return self._response.length

    def close(self) -> None:
        """Return the connection to the pool, or close it after an incomplete read."""
        is_read, will_close = self._response.isclosed(), self._response.will_close
        self._response.close()
        if is_read and not will_close:
            _idle[self._key].append((time.monotonic(), self._connection))
        else:
            self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """No redirects: they could leak keys to another host. (decision 053)"""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def open_answer(method: str, address: str, data: bytes, headers: Mapping[str, str]) -> Any:
    """Send a request to an address of the environment; an HTTP error is an answer. Raises OSError, HTTPException."""
    body = data if method == "POST" else None
    parts = urlsplit(address)
    key = (parts.scheme, parts.netloc)
    with hide_requests():
        if not _is_direct(*key):
            return _by_urllib(method, address, body, headers)
        path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        if idle_connection := _idle_connection(key):
            # closed at the other end while this request was on its way: it was not read there
            with suppress(RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                return _send_request(key, idle_connection, method, path, body, headers)
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        return _send_request(key, kind(parts.netloc, timeout=TIMEOUT_S), method, path, body, headers)


def _send_request(
    key: tuple[str, str],
    connection: HTTPConnection,
    method: str,
    path: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> ProviderAnswer:
    try:
        connection.request(method, path, body, headers)
        return ProviderAnswer(key, connection, connection.getresponse())
    except BaseException:
        connection.close()
        raise


def _idle_connection(key: tuple[str, str]) -> HTTPConnection | None:
    """The most recently used open connection of the pool."""
    while idle := _idle[key]:
        try:
            since, connection = idle.pop()  # the last one used: the least likely to be closed by its server
        except IndexError:  # another thread took it
            return None
        if time.monotonic() - since < MAX_IDLE_S and not _is_ended(connection):
            return connection
        connection.close()
    return None


def _is_ended(connection: HTTPConnection) -> bool:
    """Whether the server closed the connection: an idle connection is readable only at its end."""
    try:
        return bool(select.select([connection.sock], [], [], 0)[0])
    except ValueError:  # a number of a file that select cannot name
        return True


@lru_cache(maxsize=64)
def _is_direct(scheme: str, host: str) -> bool:
    """Whether the host is reached without a proxy; proxies come from the environment at process start."""
    is_proxied = scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
    return scheme in {"http", "https"} and not is_proxied and "@" not in host


def _by_urllib(method: str, address: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
    request = urllib.request.Request(address, body, dict(headers), method=method)  # noqa: S310 - as said
    try:
        return _opener.open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as refusal:
        return refusal
