"""The live part of a table of runs: the cells that change while its runs play, by the rows that a tab shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias
from weakref import WeakValueDictionary

from starlette.applications import Starlette

from evaldesk.desk.desk import Desk
from evaldesk.errors import NotFoundError
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.web.live import LiveBlocks, Message, Render

EVENT_S = 1.0
"""Seconds between two looks at the runs: a table of many is dear to render."""
MAX_ROWS = 100
State: TypeAlias = tuple[object, ...]


class LiveTable:
    """The blocks of one table, for all tabs that show the same rows of it."""

    def __init__(self) -> None:
        self.blocks = LiveBlocks(has_frame=False)
        self._state: State = ()
        self._tick = -1

    def tick_of(self, state: State) -> int:
        """The number of this state of the runs; a new one where any tab sees a change first."""
        if state != self._state:
            self._state = state
            self._tick += 1
        return self._tick


def live_table(app: Starlette, address: str) -> LiveTable:
    """The table of an address, shared by its tabs as long as one of them is open."""
    if not hasattr(app.state, "live_tables"):
        app.state.live_tables = WeakValueDictionary()
    tables: WeakValueDictionary[str, LiveTable] = app.state.live_tables
    table = tables.get(address)
    if table is None:
        table = tables[address] = LiveTable()
    return table


async def pause() -> None:
    """Wait between two looks at the runs."""
    await asyncio.sleep(EVENT_S)


async def live_messages(desk: Desk, run_ids: Sequence[int], table: LiveTable, render: Render) -> AsyncIterator[Message]:
    """The blocks that changed, at most one message a second, until no run plays; then `done`."""
    tab_tick: int | None = None
    while True:
        summaries = await asyncio.to_thread(_summaries, desk, run_ids)
        state = tuple((each.id, each.status, each.counts, each.cost, each.duration_ms) for each in summaries)
        tab_tick, changes = await table.blocks.since(tab_tick, table.tick_of(state), render)
        if changes:
            yield changes
        if not any(each.status in LIVE for each in summaries):
            break
        await pause()
    yield "done", "done"


def _summaries(desk: Desk, run_ids: Sequence[int]) -> list[RunSummary]:
    summaries = []
    for run_id in run_ids:
        try:
            summaries.append(desk.stored_runs.summary(run_id))
        except NotFoundError:  # it was deleted while the tab is open
            continue
    return summaries


def row_numbers(text: str) -> tuple[int, ...]:
    """The rows of `0,5,7`, each once, at most as many as a part of a table has."""
    words = [each for each in text[:2_000].split(",") if each.isascii() and each.isdecimal() and len(each) <= 9]
    return tuple(dict.fromkeys(map(int, words)))[:MAX_ROWS]
