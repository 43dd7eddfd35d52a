"""Runs that a coding agent starts, waits for and stops, for its tools and for `evaldesk run start` and `run wait`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from evaldesk.desk.client_runs import AskedRun, start_run, stop_run, wait_for_run
from evaldesk.desk.desk import Desk
from evaldesk.model.client_budget import Budget
from evaldesk.pages.door.evalsets import find_file
from evaldesk.pages.door.runs import item_of


async def start_answer(
    desk: Desk,
    agent: str,
    name: str,
    cases: Sequence[str] = (),
    n: int = 1,
    options: Mapping[str, Any] | None = None,
    client: str = "",
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Start a run; its number comes at once."""
    file = await asyncio.to_thread(find_file, desk, name)
    run_id = await start_run(desk, AskedRun(agent, file.id, cases, n, options), client, budget)
    return await _item(desk, run_id)


async def try_answer(
    desk: Desk,
    agent: str,
    name: str,
    case_id: str,
    n: int = 1,
    client: str = "",
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Start a run of one case."""
    return await start_answer(desk, agent, name, (case_id,), n, None, client, budget)


async def wait_answer(desk: Desk, name: str, seconds: float = 30) -> dict[str, Any]:
    """A run once it ends, or as it is after some seconds."""
    run = await asyncio.to_thread(desk.stored_runs.find_by_name, name)
    await wait_for_run(desk, run.id, seconds)
    return await _item(desk, run.id)


async def stop_answer(desk: Desk, name: str) -> dict[str, Any]:
    """Stop a run that a coding agent started."""
    run = await asyncio.to_thread(desk.stored_runs.find_by_name, name)
    await stop_run(desk, run.id)
    return await _item(desk, run.id)


async def _item(desk: Desk, run_id: int) -> dict[str, Any]:
    def item() -> dict[str, Any]:
        return item_of(desk.stored_runs, desk.store.runs.summary(run_id))

    return await asyncio.to_thread(item)
