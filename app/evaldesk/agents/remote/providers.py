"""Model providers as their SDKs find them, and connections to them.

Connections are kept open between calls, as each costs a handshake; one call at a time uses each.
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

from evaldesk.llm.retry_events import unseen

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
    """A provider as its SDKs find it: by the first of `variables`, else at `address`."""

    variables: tuple[str, ...]
    address: str

    def base(self, environment: Mapping[str, str]) -> str:
        """The address of its models, as the environment has it."""
        address = next((environment[name] for name in self.variables if environment.get(name)), self.address)
        return address.rstrip("/")


PROVIDERS: Mapping[str, Provider] = {
    "openai": Provider(("OPENAI_BASE_URL", "OPENAI_API_BASE"), "https://api.openai.com/v1"),
    "anthropic": Provider(("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"), "https://api.anthropic.com"),
    "gemini": Provider(("GOOGLE_GEMINI_BASE_URL",), "https://generativelanguage.googleapis.com"),
}

_idle: dict[tuple[str, str], deque[tuple[float, HTTPConnection]]] = defaultdict(deque)
os.register_at_fork(after_in_child=_idle.clear)  # two processes on one connection would read each other's answers


class ProviderAnswer(AbstractContextManager["ProviderAnswer"]):
    """The answer of a provider, also one that refuses; its connection is kept when all of it was read."""

    def __init__(self, key: tuple[str, str], connection: HTTPConnection, response: HTTPResponse) -> None:
        self._key, self._connection, self._response = key, connection, response
        self.status = response.status
        self.headers = response.headers
        self.read = response.read
        self.read1 = response.read1

    @property
    def length(self) -> int | None:
        """How many bytes are left of those that it said; None where it said none."""
        return self._response.length

    def close(self) -> None:
        """Keep the connection, or end it where something of the answer is left."""
        is_read, will_close = self._response.isclosed(), self._response.will_close
        self._response.close()
        if is_read and not will_close:
            _idle[self._key].append((time.monotonic(), self._connection))
        else:
            self._connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect could lead keys elsewhere: it is an answer like any other."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_opener = urllib.request.build_opener(_NoRedirect)


def open_answer(method: str, address: str, data: bytes, headers: Mapping[str, str]) -> Any:
    """The answer at an address of the person's own environment, also a refusal. Raises OSError, HTTPException."""
    body = data if method == "POST" else None
    parts = urlsplit(address)
    key = (parts.scheme, parts.netloc)
    with unseen():
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
    """The connection that was used last, if its server has not ended it."""
    while idle := _idle[key]:
        try:
            since, connection = idle.pop()
        except IndexError:  # another thread took it
            return None
        if time.monotonic() - since < MAX_IDLE_S and not _is_ended(connection):
            return connection
        connection.close()
    return None


def _is_ended(connection: HTTPConnection) -> bool:
    """Whether anything came that nobody asked for: mostly its end."""
    try:
        return bool(select.select([connection.sock], [], [], 0)[0])
    except ValueError:  # a number of a file that select cannot name
        return True


@lru_cache(maxsize=64)
def _is_direct(scheme: str, host: str) -> bool:
    """Whether no proxy stands between; proxies are those of this process, as it was started."""
    is_proxied = scheme in urllib.request.getproxies() and not urllib.request.proxy_bypass(host)
    return scheme in {"http", "https"} and not is_proxied and "@" not in host


def _by_urllib(method: str, address: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
    request = urllib.request.Request(address, body, dict(headers), method=method)  # noqa: S310 - as said
    try:
        return _opener.open(request, timeout=TIMEOUT_S)
    except urllib.error.HTTPError as refusal:
        return refusal
