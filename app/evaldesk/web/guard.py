"""The one gate in front of every page: permitted requests, and the headers of every answer.

Pure ASGI and outermost, so that no route can forget it (DESIGN.md section 9). In this order: no websockets; exactly
one Host header from the exact list; methods GET, HEAD and POST only; nothing that another site or another local
port started, but a plain link; a bounded body; the token, as cookie or bearer. The door for coding agents has a key of
its own, which opens nothing else: who has the token can accept and label (decision 510).
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from evaldesk.settings import PublicUrl

MAX_BODY = 10 * 1024 * 1024
UPLOADS = "/imports"
"""Where files of any size are posted; they go to the disk as they come, and its room bounds them."""
MAX_TARGET = 8192
MAX_FAILURES_PER_S = 10
NOT_IN = (
    "Evaldesk needs its token. Open the address that `evaldesk ui` printed. If you were in before, another program on "
    "this machine may have displaced the cookie of the desk."
)
MCP_PATH = "/mcp"
NOT_AT_DOOR = (
    "Coding agents need the key of their door as bearer token, not the token of the pages. `evaldesk ui` prints it "
    "where evaldesk.toml has [mcp] serve = true."
)
KEY_OF_DOOR = "This key opens /mcp alone. Open the address that `evaldesk ui` printed."
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """The permitted requests: `authorities` are the exact values of Host that are served, lower case with port.

    `public` is the address of a proxy in front of the desk, and `public_authorities` the values of Host that it sends.
    """

    token: str
    port: int
    authorities: frozenset[str]
    public: str = ""
    public_authorities: frozenset[str] = frozenset()

    @property
    def hosts(self) -> frozenset[str]:
        """All values of Host that are served."""
        return self.authorities | self.public_authorities

    @property
    def origins(self) -> frozenset[str]:
        """The values of Origin of the desk's own pages."""
        own = {f"http://{authority}" for authority in self.authorities}
        return frozenset({*own, self.public}) if self.public else frozenset(own)

    @property
    def cookie(self) -> str:
        """The cookie's name holds the port: cookies do not tell ports apart."""
        return f"evaldesk-{self.port}"

    @property
    def cookie_value(self) -> str:
        """A digest of the token: 256 bits that nobody guesses, however plain the token is."""
        return _digest(self.token, self.cookie)

    @property
    def mcp_key(self) -> str:
        """The bearer token of coding agents."""
        return mcp_key(self.token)


def mcp_key(token: str) -> str:
    """The key of the door for coding agents of a desk with that token, which cannot be found from it.

    The same token gives the same key, so that the settings of a client outlive a desk.
    """
    return _digest(token, MCP_PATH)


@lru_cache(maxsize=16)  # asked for with every request
def _digest(token: str, name: str) -> str:
    # Another port reads the cookie: it holds no token, and a wrong value is no guess (decision 042).
    return hmac.new(token.encode(), name.encode(), "sha256").hexdigest()


def guard_settings(
    token: str, port: int, names: tuple[str, ...] = LOOPBACK_NAMES, public: PublicUrl | None = None
) -> GuardSettings:
    """Settings that serve `names` on `port`, which may be left out of Host where it is 80, and a name that a person
    allows also without one: a proxy on the usual port sends it so.
    """
    authorities = {f"{name.lower()}:{port}" for name in names}
    authorities |= {name.lower() for name in names if port == 80 or name not in LOOPBACK_NAMES}
    return GuardSettings(
        token=token,
        port=port,
        authorities=frozenset(authorities),
        public=str(public or ""),
        public_authorities=public.authorities if public else frozenset(),
    )


@dataclass(slots=True)
class Guard:
    """The ASGI middleware."""

    app: ASGIApp
    settings: GuardSettings
    clock: Callable[[], float] = time.monotonic
    failures: deque[float] = field(default_factory=deque)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it here."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["nonce"] = secrets.token_urlsafe(16)
        if self._is_encrypted(scope):
            scope["scheme"] = "https"
        answer = _Answer(send, state)
        refusal = self._refusal(scope)
        if refusal:
            await answer.send_plain_text(*refusal)
        elif scope["method"] == "GET" and b"token=" in scope["query_string"]:
            await self._welcome(scope, answer)
        elif not self._is_known(scope):
            await answer.send_plain_text(401, self._reason_out(scope))
        else:
            await self.app(scope, receive if _is_upload(scope) else _limit_body(receive), answer.send)

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self.settings.hosts:
            return 400, "This name is not served here."
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_TARGET:
            return 414, "The address is too long."
        if scope["method"] not in {"GET", "HEAD", "POST"}:
            return 405, "Only GET, HEAD and POST are served."
        if self._is_foreign(scope):
            return 403, "This request was started by another site."
        length = (_values(scope, b"content-length") or ["0"])[0]
        if not length.isdecimal() or len(length) > 15 or (int(length) > MAX_BODY and not _is_upload(scope)):
            return 413, f"The upload is larger than {MAX_BODY // 1024 // 1024} MiB."
        return None

    def _is_foreign(self, scope: Scope) -> bool:
        """Another port of this machine counts as foreign: it is `same-site`, not `same-origin`."""
        origins = _values(scope, b"origin")
        if any(origin.lower() not in self.settings.origins for origin in origins):
            return True
        if {"", "same-origin", "none"}.issuperset(_values(scope, b"sec-fetch-site")):
            return False
        is_link = _values(scope, b"sec-fetch-mode") == ["navigate"] and _values(scope, b"sec-fetch-dest") == [
            "document"
        ]
        return scope["method"] not in {"GET", "HEAD"} or not is_link

    # The headers of a proxy are not asked: anybody could send them to the port of the desk.
    def _is_encrypted(self, scope: Scope) -> bool:
        """Whether the browser is at the public address, and that one is encrypted."""
        hosts = {host.lower() for host in _values(scope, b"host")}
        return self.settings.public.startswith("https:") and hosts <= self.settings.public_authorities

    async def _welcome(self, scope: Scope, answer: _Answer) -> None:
        """Trade the token in the address for a cookie, and leave the address clean."""
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in query if name == "token"]
        if len(tokens) != 1 or not self._is_token(tokens[0]):
            await answer.send_plain_text(
                401, "This token is not the right one. Open the address that `evaldesk ui` printed."
            )
            return
        clean_query = urlencode([(name, value) for name, value in query if name != "token"])
        path = "/" + scope["path"].lstrip("/\\")
        target = quote(path, safe="/-._~") + (f"?{clean_query}" if clean_query else "")
        # With a high priority Chromium keeps it when other programs on this machine set too many of theirs.
        value = f"{self.settings.cookie}={self.settings.cookie_value}"
        cookie = f"{value}; Path=/; HttpOnly; SameSite=Strict; Priority=High"
        cookie += "; Secure" if scope["scheme"] == "https" else ""
        # A link on another site does not send a strict cookie along a redirect; a page of our own does.
        site = (_values(scope, b"sec-fetch-site") or ["none"])[0]
        if site in {"same-origin", "none"}:
            await answer.redirect(target, cookie)
        else:
            await answer.refresh(target, cookie)

    def _is_known(self, scope: Scope) -> bool:
        keys = _bearer_keys(scope)
        if scope["path"] == MCP_PATH:
            return bool(keys) and self._is_secret(self.settings.mcp_key, *keys)
        return any(self._is_token(key) for key in keys) or self._has_cookie(_cookies(scope, self.settings.cookie))

    def _reason_out(self, scope: Scope) -> str:
        if scope["path"] == MCP_PATH:
            return NOT_AT_DOOR
        return KEY_OF_DOOR if _is_among(tuple(_bearer_keys(scope)), self.settings.mcp_key) else NOT_IN

    def _has_cookie(self, values: list[str]) -> bool:
        """Whether one of them is ours; a page on another port may have set any number of others.

        A wrong digest is no guess and so no failure. A possible token itself is one guess, however often it comes.
        """
        right = self.settings.cookie_value.encode()
        if any(hmac.compare_digest(value.encode(), right) for value in values):
            return True
        guesses = [value for value in values if len(value) == len(self.settings.token)]
        return bool(guesses) and self._is_token(*guesses)

    def _is_token(self, *values: str) -> bool:
        return self._is_secret(self.settings.token, *values)

    def _is_secret(self, secret: str, *values: str) -> bool:
        """Whether one of the values of one request is the token or key. While too many were wrong, none is."""
        now = self.clock()
        while self.failures and now - self.failures[0] > 1:
            self.failures.popleft()
        if len(self.failures) >= MAX_FAILURES_PER_S:
            return False
        is_right = _is_among(values, secret)
        if not is_right and not _is_among(values, self.settings.token, self.settings.mcp_key):
            self.failures.append(now)  # the right one at the wrong door is no guess
        return is_right


def _is_among(values: tuple[str, ...], *secret_values: str) -> bool:
    pairs = [(value.encode(), secret.encode()) for value in values for secret in secret_values]
    return any(hmac.compare_digest(*pair) for pair in pairs)


class _Answer:
    """Sends the application's answer, with the headers that every answer carries."""

    def __init__(self, send: Send, state: dict[str, Any]) -> None:
        self._send = send
        self._state = state

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            extra = security_headers(self._state["nonce"], has_chart=bool(self._state.get("has_chart")))
            message["headers"] = headers + [(name, value) for name, value in extra if name not in names]
        await self._send(message)

    async def send_plain_text(self, status: int, text: str) -> None:
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"hx-reswap", b"none")]
        if status != 413:  # the sender of too large an upload reads why; any other may not go on sending
            headers.append((b"connection", b"close"))
        await self._send_text(status, f"{text}\n", headers)

    async def redirect(self, target: str, cookie: str) -> None:
        await self._send_text(303, "", [(b"location", target.encode()), (b"set-cookie", cookie.encode())])

    async def refresh(self, target: str, cookie: str) -> None:
        # `target` is percent-encoded, so it holds no quote and no angle bracket.
        page = f'<!doctype html><meta http-equiv="refresh" content="0;url={target}"><title>Evaldesk</title>\n'
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"set-cookie", cookie.encode())]
        await self._send_text(200, page.replace("&", "&amp;"), headers)

    async def _send_text(self, status: int, text: str, headers: list[tuple[bytes, bytes]]) -> None:
        body = text.encode()
        headers = [*headers, (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def _is_upload(scope: Scope) -> bool:
    kind = (_values(scope, b"content-type") or [""])[0]
    return scope["method"] == "POST" and scope["path"] == UPLOADS and kind.lower().startswith("multipart/form-data")


def _limit_body(receive: Receive) -> Receive:
    size = 0

    async def read() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(413)
        return message

    return read


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == name]


def _bearer_keys(scope: Scope) -> list[str]:
    pairs = [header.partition(" ") for header in _values(scope, b"authorization")]
    return [value.strip() for kind, _, value in pairs if kind.lower() == "bearer"]


def _cookies(scope: Scope, name: str) -> list[str]:
    """Every value of that cookie. Others may be malformed: programs on other ports of this machine set them too."""
    pairs = [pair.partition("=") for header in _values(scope, b"cookie") for pair in header.split(";")]
    return [value.strip() for key, _, value in pairs if key.strip() == name]


# Under `no-referrer` a browser sends `Origin: null` with our own forms, and the guard refuses them.
_FIXED: tuple[tuple[bytes, bytes], ...] = (
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    # Under no-referrer, Chromium posts our plain forms with "Origin: null": decision 007.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"cache-control", b"no-store"),
)


def security_headers(nonce: str, *, has_chart: bool = False) -> list[tuple[bytes, bytes]]:
    """Policy, framing, sniffing, caching. Only a page with a chart may set inline styles: Plotly needs them."""
    style = "'self' 'unsafe-inline'" if has_chart else "'self'"
    policy = (
        f"default-src 'none'; script-src 'self' 'nonce-{nonce}'; style-src {style}; img-src 'self' data:; "
        "media-src 'self'; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types htmx"
    )
    return [(b"content-security-policy", policy.encode()), *_FIXED]
