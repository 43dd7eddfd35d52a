"""Streams of events: how a message is written, and when a stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse

from evaldesk.web.live import Message, closing_of, event_stream, frame


@pytest.mark.parametrize(
    ("name", "html", "written"),
    [
        (None, "<p>one</p>", b"data: <p>one</p>\n\n"),
        (None, "a\nb\r\nc\rd", b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        ("done", "", b"event: done\ndata: \n\n"),
        (None, "data: x\n\nevent: done", b"data: data: x\ndata: \ndata: event: done\n\n"),
    ],
    ids=["one line", "every line end", "no data", "hostile"],
)
def test_a_message_is_one_event_whatever_it_holds(name: str | None, html: str, written: bytes) -> None:
    assert frame(name, html).data == written


def stream(source: AsyncIterator[Message], ping_s: float) -> AsyncIterator[bytes]:
    scope = {"type": "http", "app": Starlette(), "headers": []}
    answer = event_stream(Request(scope), source, ping_s=ping_s)
    return cast("AsyncIterator[bytes]", cast("StreamingResponse", answer).body_iterator)


@pytest.mark.anyio
async def test_silence_sends_a_ping_and_loses_no_message() -> None:
    go_on = asyncio.Event()

    async def source() -> AsyncIterator[Message]:
        await go_on.wait()
        yield None, "late"

    frames = stream(source(), ping_s=0.001)
    ping = await anext(frames)
    go_on.set()
    rest = [part async for part in frames if not part.startswith(b":")]

    assert ping == b": ping\n\n"
    assert rest == [b"data: late\n\n"]


@pytest.mark.anyio
async def test_a_browser_that_goes_away_ends_the_source() -> None:
    ended = asyncio.Event()

    async def source() -> AsyncIterator[Message]:
        try:
            yield None, "first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    frames: Any = stream(source(), ping_s=0.001)
    await anext(frames)
    await anext(frames)
    await frames.aclose()

    await asyncio.wait_for(ended.wait(), 300)


@pytest.mark.anyio
async def test_a_server_that_stops_ends_its_streams() -> None:
    app = Starlette()
    ended = asyncio.Event()

    async def source() -> AsyncIterator[Message]:
        try:
            yield None, "first"
            await asyncio.Event().wait()
        finally:
            ended.set()

    answer = event_stream(Request({"type": "http", "app": app, "headers": []}), source())
    frames = cast("AsyncIterator[bytes]", cast("StreamingResponse", answer).body_iterator)
    first = await anext(frames)
    closing_of(app).set()
    rest = [part async for part in frames]

    assert (first, rest) == (b"data: first\n\n", [])
    await asyncio.wait_for(ended.wait(), 300)
