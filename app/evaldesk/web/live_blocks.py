"""The changing part of a page for all tabs that look at the same: rendered once a tick, and sent as what changed.

A template marks its blocks with `ui.mark(cut, name)` before and `ui.mark(cut)` behind each; a block is one
element, whose id is its name. The text around the blocks is the frame of the page: a tab gets all of it again when that
changes, since then blocks came or went.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

from evaldesk.web.live import Frame, frame

Render = Callable[[str], Awaitable[str]]
"""Renders the part with its blocks marked by a word that no text can know."""

_AROUND = ""


class LiveBlocks:
    """The blocks as they stand, and the tick at which each changed last."""

    def __init__(self) -> None:
        self._whole = ""
        self._blocks: dict[str, str] = {}
        self._changed: dict[str, int] = {}
        self._tick = self._asked = -1
        self._rendering: asyncio.Future[None] | None = None
        self._frames: dict[int | None, Frame | None] = {}

    async def since(self, seen: int | None, tick: int, render: Render) -> tuple[int, Frame | None]:
        """What a tab lacks at `tick` that has all of the tick `seen`, or nothing; and the tick that it has then.

        Who asks first lets it be rendered; a tab that leaves takes it away from no other.
        """
        if tick > self._asked:
            self._asked = tick
            self._rendering = asyncio.ensure_future(self._rendered(tick, render, self._rendering))
        if self._rendering:
            await asyncio.shield(self._rendering)
        if seen not in self._frames:
            self._frames[seen] = self._frame_since(seen)
        return self._tick, self._frames[seen]

    async def _rendered(self, tick: int, render: Render, before: asyncio.Future[None] | None) -> None:
        cut = secrets.token_urlsafe(12)
        whole, blocks = split(await render(cut), cut)
        if before:
            with suppress(Exception):  # its own tabs were told
                await before
        for name, html in blocks.items():
            if self._blocks.get(name) != html:
                self._changed[name] = tick
        self._whole, self._blocks, self._tick = whole, blocks, tick
        self._frames.clear()

    def _frame_since(self, seen: int | None) -> Frame | None:
        if seen is None or self._changed[_AROUND] > seen:
            return frame(None, self._whole)
        changed = [name for name in self._blocks if self._changed[name] > seen]
        parts = (
            f'<hx-partial hx-target="#{name}" hx-swap="outerMorph">{self._blocks[name]}</hx-partial>'
            for name in changed
        )
        return frame(None, "".join(parts)) if changed else None


def split(html: str, cut: str) -> tuple[str, dict[str, str]]:
    """The part without marks, and its blocks by name; the text around them has the empty name."""
    pieces = re.split(rf"<!--{re.escape(cut)} ?(.*?)-->", html)
    around, blocks = [pieces[0]], {}
    for name, text in zip(pieces[1::2], pieces[2::2], strict=True):
        if name:
            blocks[name] = text
            around.append(f"#{name}")
        else:
            around.append(text)
    return "".join(pieces[0::2]), {_AROUND: "\n".join(around), **blocks}
