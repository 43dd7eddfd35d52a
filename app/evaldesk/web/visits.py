"""The last visit of a browser, in a cookie: the home page shows the changes since then.

A visit ends with half an hour without a page. Streams, parts of pages and polls of a tab that stays open are no visit.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

GAP_S = 30 * 60
WRITTEN_AFTER_S = 60
"""A page that comes sooner after the last one writes no cookie."""
MAX_AGE_S = 90 * 24 * 3600
UNKNOWN = timedelta(days=1)
"""Without a known visit, changes of this time are shown."""
_COOKIE = re.compile(r"(\d{1,11})-(\d{1,11})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Visit:
    """A visit: the end of the one before, 0 where it is not known, and its last page, in seconds since 1970."""

    end_before: int
    last_page: int

    @property
    def cookie(self) -> str:
        """The value of its cookie."""
        return f"{self.end_before}-{self.last_page}"


def visit_at(cookie: str, now: int) -> Visit:
    """The visit of a page at `now`, after the pages that the cookie tells; a cookie of the future tells nothing."""
    match = _COOKIE.fullmatch(cookie)
    end_before, last_page = (int(match[1]), int(match[2])) if match else (0, 0)
    if not end_before <= last_page <= now:
        return Visit(0, now)
    return Visit(last_page if now - last_page >= GAP_S else end_before, now)


def visit_of_part(cookie: str, now: int) -> Visit:
    """The visit that the cookie tells, for a part of a page that was asked for at `now`."""
    match = _COOKIE.fullmatch(cookie)
    visit = Visit(int(match[1]), int(match[2])) if match else Visit(0, now)
    return visit if visit.end_before <= visit.last_page <= now else Visit(0, now)


def last_visit(conn: HTTPConnection, now: datetime) -> tuple[datetime, bool]:
    """When the person at this browser left last, and whether that is known; else a day ago."""
    visit: Visit | None = conn.scope.get("evaldesk.visit")
    if visit is None or not visit.end_before:
        return now - UNKNOWN, False
    return datetime.fromtimestamp(visit.end_before, UTC), True


class WithVisits:
    """Notes in a cookie of the workspace when a browser asked for a page."""

    def __init__(self, app: ASGIApp, mark: str, clock: Callable[[], datetime]) -> None:
        self._app, self._name, self._clock = app, f"evaldesk-visit-{mark}", clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        conn = HTTPConnection(scope) if scope["type"] == "http" else None
        if conn is None or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        value, now = conn.cookies.get(self._name, ""), int(self._clock().timestamp())
        if "hx-request" in conn.headers:  # a part of a page belongs to the visit of its page, and makes no new one
            scope["evaldesk.visit"] = visit_of_part(value, now)
            await self._app(scope, receive, send)
            return
        visit = visit_at(value, now)
        scope["evaldesk.visit"] = visit
        match = _COOKIE.fullmatch(value)
        is_new = not match or visit.end_before != int(match[1]) or now - int(match[2]) >= WRITTEN_AFTER_S
        is_page = "text/html" in conn.headers.get("accept", "")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and is_new and is_page and message["status"] == 200:
                headers = MutableHeaders(scope=message)
                if headers.get("content-type", "").startswith("text/html"):
                    cookie = f"{self._name}={visit.cookie}; Path=/; HttpOnly; SameSite=Strict; Max-Age={MAX_AGE_S}"
                    headers.append("set-cookie", cookie + ("; Secure" if scope.get("scheme") == "https" else ""))
            await send(message)

        await self._app(scope, receive, sending)
