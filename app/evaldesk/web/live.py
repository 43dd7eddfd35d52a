"""Server-sent events: one way to answer with a stream, and a bound on how many are open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

Message: TypeAlias = tuple[str | None, str]

MAX_STREAMS = 300
PING_S = 15.0


def event_stream(request: Request, source: AsyncIterator[Message], *, ping_s: float = PING_S) -> Response:
    """The messages of `source` as they come, each (event name or None, HTML); `ping_s` seconds of silence send a ping.

    A message without a name is swapped by htmx; one with a name becomes a DOM event. Ends with `source`, or when the
    browser goes away or the server stops, which closes `source`. Raises a 503 when MAX_STREAMS are open.
    """
    if not has_room(request):
        raise HTTPException(503, headers={"Retry-After": "5"})
    return _EventStream(request.app.state, _frames(source, ping_s, closing_of(request.app)))


def closing_of(app: Starlette) -> asyncio.Event:
    """Set when the server is told to stop: the streams end then, so that it need not wait for their readers."""
    if not hasattr(app.state, "closing"):
        app.state.closing = asyncio.Event()
    closing: asyncio.Event = app.state.closing
    return closing


def has_room(request: Request) -> bool:
    """Whether one more stream may be opened."""
    return int(getattr(request.app.state, "n_streams", 0)) < MAX_STREAMS


class _EventStream(StreamingResponse):
    """Counts itself while it is being sent."""

    def __init__(self, state: object, frames: AsyncIterator[bytes]) -> None:
        super().__init__(
            frames,
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._count(1)
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._count(-1)

    def _count(self, by: int) -> None:
        setattr(self._state, "n_streams", getattr(self._state, "n_streams", 0) + by)  # noqa: B010


async def _frames(source: AsyncIterator[Message], ping_s: float, closing: asyncio.Event) -> AsyncIterator[bytes]:
    """Frames of the stream. The pending read outlives a ping, so that no message is lost to one."""
    pending: asyncio.Task[Message | None] | None = None
    end = asyncio.create_task(closing.wait())
    try:
        while not closing.is_set():
            pending = pending or asyncio.create_task(_next(source))
            await asyncio.wait({pending, end}, timeout=ping_s, return_when=asyncio.FIRST_COMPLETED)
            if end.done():
                return
            if not pending.done():
                yield b": ping\n\n"
                continue
            message = pending.result()
            pending = None
            if message is None:
                return
            yield frame(*message)
    finally:
        end.cancel()
        await _close(source, pending)


async def _next(source: AsyncIterator[Message]) -> Message | None:
    return await anext(source, None)


async def _close(source: AsyncIterator[Message], pending: asyncio.Task[Message | None] | None) -> None:
    """A source that is being read is ended by ending the read."""
    if pending and not pending.done():
        pending.cancel()
    elif isinstance(source, AsyncGenerator):
        await source.aclose()


def frame(name: str | None, html: str) -> bytes:
    """One message on the wire: every line of `html` gets its own data line, and there is always one."""
    lines = html.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = f"event: {name}\n" if name else ""
    return (head + "".join(f"data: {line}\n" for line in lines) + "\n").encode()
