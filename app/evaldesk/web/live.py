"""Server-sent events: one way to answer with a stream, a bound on open ones, and live blocks of a page.

A frame is compressed by itself, so that streams which send the same one share it: pieces of raw deflate that refer to
nothing before them may follow each other in one gzip member (RFC 1951, section 3.2.4; RFC 1952).

The changing part of a page is rendered once a tick for all tabs, and sent as its changes. A template marks its blocks
with `ui.mark(cut, name)` before and `ui.mark(cut)` behind each; a block is one element, whose id is its name. The text
around the blocks is the frame of the page: a tab gets all of it again when that changes, since blocks came or went.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import struct
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send


@dataclass(frozen=True)
class Frame:
    """A message on the wire, for one stream or for many."""

    data: bytes

    @cached_property
    def deflated(self) -> bytes:
        """The same as a piece of a gzip member."""
        # Raw deflate with no history, so that streams share a frame: decision 178.
        packer = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        return packer.compress(self.data) + packer.flush(zlib.Z_SYNC_FLUSH)


Message: TypeAlias = tuple[str | None, str] | Frame

MAX_STREAMS = 300
PING_S = 15.0
_PING = Frame(b": ping\n\n")
_GZIP_HEAD = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_LAST_BLOCK = b"\x03\0"


def event_stream(request: Request, source: AsyncIterator[Message], *, ping_s: float = PING_S) -> Response:
    """The messages of `source` as they come, each a frame or (event name or None, HTML).

    After `ping_s` seconds of silence it sends a ping.

    A message without a name is swapped by htmx; one with a name becomes a DOM event. Ends with `source`, or when the
    browser goes away or the server stops, which closes `source`. Raises a 503 when MAX_STREAMS are open.
    """
    if not has_room(request):
        raise HTTPException(503, headers={"Retry-After": "5"})
    frames = _frames(source, ping_s, closing_of(request.app))
    return _EventStream(request.app.state, frames, is_packed="gzip" in request.headers.get("accept-encoding", ""))


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

    def __init__(self, state: object, frames: AsyncIterator[Frame], *, is_packed: bool) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(
            _gzip_frames(frames) if is_packed else (each.data async for each in frames),
            media_type="text/event-stream",
            headers=headers | ({"Content-Encoding": "gzip"} if is_packed else {}),
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


async def _gzip_frames(frames: AsyncIterator[Frame]) -> AsyncIterator[bytes]:
    """The frames as one gzip member, each readable as soon as it came."""
    check = size = 0
    yield _GZIP_HEAD
    async for each in frames:
        check, size = zlib.crc32(each.data, check), size + len(each.data)
        yield each.deflated
    # The trailer of a gzip member: CRC-32 and length modulo 2**32 (RFC 1952): decision 178.
    yield _LAST_BLOCK + struct.pack("<II", check, size % 2**32)


async def _frames(source: AsyncIterator[Message], ping_s: float, closing: asyncio.Event) -> AsyncIterator[Frame]:
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
                yield _PING
                continue
            message = pending.result()
            pending = None
            if message is None:
                return
            yield message if isinstance(message, Frame) else frame(*message)
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


def frame(name: str | None, html: str) -> Frame:
    """One message: every line of `html` gets its own data line, and there is always one."""
    lines = html.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = f"event: {name}\n" if name else ""
    return Frame((head + "".join(f"data: {line}\n" for line in lines) + "\n").encode())


Render = Callable[[str], Awaitable[str]]
"""Renders the part with its blocks marked by a word that no text can know."""

_AROUND = ""


class LiveBlocks:
    """The blocks as they stand, and the tick at which each changed last.

    Without `has_frame` a tab has the text around the blocks for good, and gets blocks alone.
    """

    def __init__(self, *, has_frame: bool = True) -> None:
        self._has_frame = has_frame
        self._whole = ""
        self._blocks: dict[str, str] = {}
        self._changed: dict[str, int] = {}
        self._tick = self._asked = -1
        self._rendering: asyncio.Future[None] | None = None
        self._frames: dict[int | None, Frame | None] = {}

    async def since(self, tab_tick: int | None, tick: int, render: Render) -> tuple[int, Frame | None]:
        """The frame for a tab that has the tick `tab_tick`, or none; and the tick that it has then.

        The first request renders it; a tab that leaves takes it away from no other.
        """
        if tick > self._asked:
            self._asked = tick
            self._rendering = asyncio.ensure_future(self._render_blocks(tick, render, self._rendering))
        if self._rendering:
            await asyncio.shield(self._rendering)
        if tab_tick not in self._frames:
            self._frames[tab_tick] = self._frame_since(tab_tick)
        return self._tick, self._frames[tab_tick]

    async def _render_blocks(self, tick: int, render: Render, before: asyncio.Future[None] | None) -> None:
        marker = secrets.token_urlsafe(12)
        page_html, blocks = split(await render(marker), marker)
        if before:
            with suppress(Exception):  # its own tabs were told
                await before
        for name, html in blocks.items():
            if self._blocks.get(name) != html:
                self._changed[name] = tick
        self._whole, self._blocks, self._tick = page_html, blocks, tick
        self._frames.clear()

    def _frame_since(self, tab_tick: int | None) -> Frame | None:
        if self._has_frame and (tab_tick is None or self._changed[_AROUND] > tab_tick):
            return frame(None, self._whole)
        block_names = [name for name in self._blocks if name and (tab_tick is None or self._changed[name] > tab_tick)]
        parts = (
            f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{self._blocks[name]}</hx-partial>'
            for name in block_names
        )
        return frame(None, "".join(parts)) if block_names else None


def split(html: str, marker: str) -> tuple[str, dict[str, str]]:
    """The part without marks, and its blocks by name; the text around them has the empty name."""
    pieces = re.split(rf"<!--{re.escape(marker)} ?(.*?)-->", html)
    around, blocks = [pieces[0]], {}
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if name:
            blocks[name] = text
            around.append(f"#{name}")
        else:
            around.append(text)
    return "".join(pieces[0::2]), {_AROUND: "\n".join(around), **blocks}
