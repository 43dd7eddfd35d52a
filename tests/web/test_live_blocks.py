"""Live blocks: a tab that takes each message as a browser does shows what a new tab shows, whatever it missed."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from evaldesk.pages.runs.matrix import Cell, CellKind, MatrixRow, TrialStrip
from evaldesk.pages.runs.view import Bar, Cost, Square
from evaldesk.web.live import Frame, LiveBlocks, Message, event_stream, frame, split
from evaldesk.web.render import environment, remembered

pytestmark = pytest.mark.anyio

Page = tuple[tuple[str, str], ...]
"""Names and texts of blocks; a block without a name is text around them."""
PARTIAL = re.compile(r'<hx-partial hx-target="#([\w-]+)" hx-swap="outerMorph">(.*?)</hx-partial>', re.DOTALL)


def element(name: str, text: str) -> str:
    return f'<p id="{name}">{text}</p>'


def shown(page: Page, cut: str = "") -> str:
    """The page, with marks where there is a word for them."""
    pieces = []
    for name, text in page:
        html = element(name, text) if name else text
        pieces.append(f"<!--{cut} {name}-->{html}<!--{cut} -->" if cut and name else html)
    return "\n".join(pieces)


@dataclass
class Tab:
    """What a browser shows that takes every message it is sent."""

    seen: int | None = None
    html: str = ""
    sizes: list[int] = field(default_factory=list)

    async def look(self, blocks: LiveBlocks, tick: int, page: Page) -> None:
        async def render(cut: str) -> str:
            return shown(page, cut)

        self.seen, changes = await blocks.since(self.seen, tick, render)
        if changes:
            self.take(changes)

    def take(self, changes: Frame) -> None:
        self.sizes.append(len(changes.data))
        text = "\n".join(line.removeprefix("data: ") for line in changes.data.decode().strip("\n").split("\n"))
        parts = PARTIAL.findall(text)
        if not parts:
            self.html = text
        for name, html in parts:
            assert self.html.count(f'<p id="{name}">') == 1, "a part whose place is not on the page"
            found = re.search(rf'<p id="{name}">.*?</p>', self.html, re.DOTALL)
            assert found
            self.html = self.html[: found.start()] + html + self.html[found.end() :]


names = st.sampled_from(["head", "case-1", "case-2", "case-13", "total"])
texts = st.text(alphabet="ab<&\\ ", max_size=3).map(lambda text: text.replace("<", "&lt;"))
pages = st.lists(st.tuples(names | st.just(""), texts), max_size=5, unique_by=lambda block: block[0] or object()).map(
    tuple
)


@given(st.lists(st.tuples(pages, st.sets(st.integers(0, 2))), min_size=1, max_size=8))
def test_each_tab_shows_the_page_of_the_tick_at_which_it_looked_last(story: list[tuple[Page, set[int]]]) -> None:
    async def play() -> None:
        blocks, tabs = LiveBlocks(), [Tab() for _ in range(3)]
        for tick, (page, lookers) in enumerate(story):
            await asyncio.gather(*(tabs[number].look(blocks, tick, page) for number in lookers))
            for number in lookers:
                assert tabs[number].html.strip("\n") == shown(page).strip("\n")

    asyncio.run(play())


async def test_a_tab_that_saw_the_last_tick_gets_only_the_block_that_changed() -> None:
    blocks, tab = LiveBlocks(), Tab()
    rows = [(f"case-{number}", "x" * 500) for number in range(50)]

    await tab.look(blocks, 0, tuple(rows))
    await tab.look(blocks, 1, tuple(rows))
    await tab.look(blocks, 2, (*rows[:7], ("case-7", "changed"), *rows[8:]))

    assert len(tab.sizes) == 2
    assert tab.sizes[0] > 25_000
    assert tab.sizes[1] < 150


async def test_tabs_that_saw_the_same_share_one_frame_and_one_rendering() -> None:
    blocks, n_rendered = LiveBlocks(), 0

    async def render(cut: str) -> str:
        nonlocal n_rendered
        n_rendered += 1
        await asyncio.sleep(0)
        return shown((("head", str(n_rendered)),), cut)

    first = await asyncio.gather(*(blocks.since(None, 0, render) for _ in range(200)))
    second = await asyncio.gather(*(blocks.since(0, 1, render) for _ in range(200)))

    assert n_rendered == 2
    assert len({id(changes) for _, changes in first}) == len({id(changes) for _, changes in second}) == 1
    assert second[0][1]
    assert second[0][1].deflated is second[0][1].deflated


async def test_a_tab_that_is_late_never_takes_the_others_back() -> None:
    blocks, late, early = LiveBlocks(), Tab(), Tab()

    await early.look(blocks, 5, (("head", "new"),))
    await late.look(blocks, 4, (("head", "old"),))
    await early.look(blocks, 6, (("head", "newest"),))
    await late.look(blocks, 6, (("head", "newest"),))

    assert early.html == late.html == element("head", "newest")


async def test_a_rendering_that_takes_long_does_not_undo_a_later_one() -> None:
    blocks, waits = LiveBlocks(), asyncio.Event()

    async def slow(cut: str) -> str:
        await waits.wait()
        return shown((("head", "old"),), cut)

    async def quick(cut: str) -> str:
        return shown((("head", "new"),), cut)

    first = asyncio.create_task(blocks.since(None, 0, slow))
    await asyncio.sleep(0)
    second = asyncio.create_task(blocks.since(None, 1, quick))
    await asyncio.sleep(0)
    waits.set()
    await first
    seen, changes = await second

    assert seen == 1
    assert changes
    assert changes.data == f"data: {element('head', 'new')}\n\n".encode()


async def test_a_watcher_who_leaves_does_not_take_the_picture_from_the_others() -> None:
    blocks, rendered = LiveBlocks(), asyncio.Event()

    async def render(_: str) -> str:
        await rendered.wait()
        return "<p>all</p>"

    leaving, staying = (asyncio.create_task(blocks.since(None, 1, render)) for _ in range(2))
    await asyncio.sleep(0)

    leaving.cancel()
    rendered.set()

    assert await staying == (1, Frame(b"data: <p>all</p>\n\n"))


async def test_a_rendering_that_fails_fails_its_own_tick_alone() -> None:
    blocks, tab = LiveBlocks(), Tab()

    async def broken(_: str) -> str:
        raise LookupError("gone")

    with pytest.raises(LookupError):
        await blocks.since(None, 0, broken)
    await tab.look(blocks, 1, (("head", "here"),))

    assert tab.html == element("head", "here")


@pytest.mark.parametrize("text", ["<!--x head-->", "<!-- head-->", "<!---->", "<!--x -->"])
async def test_what_a_text_says_is_no_mark(text: str) -> None:
    blocks, tab = LiveBlocks(), Tab()

    await tab.look(blocks, 0, (("head", text), ("total", "1")))
    await tab.look(blocks, 1, (("head", text), ("total", "2")))

    assert tab.html == shown((("head", text), ("total", "2")))


def test_the_parts_of_a_page_are_cut_where_they_are_marked() -> None:
    whole, blocks = split("a<!--W head--><p>1</p><!--W -->b<!--W total--><p>2</p><!--W -->c", "W")

    assert whole == "a<p>1</p>b<p>2</p>c"
    assert blocks == {"": "a\n#head\nb\n#total\nc", "head": "<p>1</p>", "total": "<p>2</p>"}


def answered(messages: Sequence[Message], **headers: str) -> tuple[bytes, str]:
    """The bytes of a stream of these messages, and how they are encoded."""

    async def stream(request: Request) -> Response:
        async def source() -> AsyncIterator[Message]:
            for message in messages:
                yield message

        return event_stream(request, source())

    with (
        TestClient(Starlette(routes=[Route("/", stream)])) as client,
        client.stream("GET", "/", headers=headers) as answer,
    ):
        return b"".join(answer.iter_raw()), answer.headers.get("content-encoding", "")


MESSAGES: list[Message] = [frame(None, "<p>é</p>\n" * 3), ("done", "done"), frame(None, "x" * 70_000), (None, "")]


def test_a_stream_is_one_gzip_member_whose_pieces_can_be_read_as_they_come() -> None:
    plain, _ = answered(MESSAGES, **{"Accept-Encoding": "identity"})
    packed, encoding = answered(MESSAGES, **{"Accept-Encoding": "gzip, deflate, br"})
    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    head = cast("Frame", MESSAGES[0])

    assert encoding == "gzip"
    assert gzip.decompress(packed) == plain  # checks length and sum
    assert reader.decompress(packed[: 10 + len(head.deflated)]) == head.data
    assert len(packed) < len(plain) / 50


@given(st.lists(st.text(max_size=300).map(lambda text: frame(None, text)), max_size=6))
def test_frames_that_streams_share_are_whole_in_each(frames: list[Frame]) -> None:
    for messages in (frames, frames[::-1], frames * 2):
        packed, _ = answered(messages, **{"Accept-Encoding": "gzip"})
        assert gzip.decompress(packed) == b"".join(each.data for each in messages)


SQUARES = (Square(1, "passed", "1/cases/1/trials/0"), Square(2, "queued", "1/cases/1/trials/1"))
CELLS = (
    Cell("trials", TrialStrip(SQUARES, 1, "1/cases/1/trials/2")),
    Cell("text", "1 of 1"),
    Cell("rate", Bar(0.5, 0.25, 0.75)),
    Cell("score", 0.5, "pass@2"),
    Cell("cost", Cost(0.5, is_least=False), "cost"),
    Cell("duration", 1500.0, "time"),
)
OTHER_CELLS = (
    Cell("trials", TrialStrip((SQUARES[0], Square(2, "running", "1/cases/1/trials/1")), 1, "1/cases/1/trials/2")),
    Cell("text", "0 of 1"),
    Cell("rate", "too few"),
    Cell("score", None, "pass@2"),
    Cell("cost", Cost(0.5, is_least=True), "cost"),
    Cell("duration", 2500.0, "time"),
)
ROW = MatrixRow(index=1, case_id="roll", href="1/cases/1/trials/0", cells=CELLS)
OTHER_VALUES: dict[str, Any] = {
    "index": 2,
    "case_id": "<b>roll</b>",
    "href": "1/cases/2/trials/0",
    "cells": (*CELLS[:3], Cell("score", 0.5, "match")),
    "message": "<b>Roll</b> a die.",
}


def test_a_row_that_is_remembered_is_rendered_anew_when_any_of_its_values_changes() -> None:
    macro = environment().get_template("runs/parts.html").module.case_row  # type: ignore[attr-defined]
    first = remembered(macro, ROW, False)
    other_cells = [replace(ROW, cells=(*CELLS[:at], cell, *CELLS[at + 1 :])) for at, cell in enumerate(OTHER_CELLS)]

    changed = [*(replace(ROW, **{name: value}) for name, value in OTHER_VALUES.items()), *other_cells]

    assert OTHER_VALUES.keys() == {each.name for each in fields(ROW)}
    of_several_runs = {"squares", "dumbbell", "change"}  # their rows are not remembered
    assert {cell.kind for cell in CELLS} == {*get_args(CellKind)} - of_several_runs
    for row in changed:
        assert remembered(macro, row, False) == macro(row, False) != first
    assert first != remembered(macro, ROW, True)
    assert remembered(macro, replace(ROW), False) is first
    assert "<b>" not in remembered(macro, changed[1], False)
