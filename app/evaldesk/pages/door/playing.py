"""Runs, forks and searches that a coding agent starts, waits for and stops.

For its tools, and for `evaldesk run start` and `run wait`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from evaldesk.desk.blame.planning import DEFAULT_BUDGET, BlameRequest
from evaldesk.desk.client_runs import AskedRun, start_blame, start_fork, start_run, stop_run, wait_for_run
from evaldesk.desk.desk import Desk
from evaldesk.errors import UsageError
from evaldesk.model.client_budget import Budget
from evaldesk.model.fork import EDIT_KINDS, Edit, Fork
from evaldesk.pages.blame import blame_object
from evaldesk.pages.door.evalsets import find_file
from evaldesk.pages.door.runs import item_of
from evaldesk.pages.forks import fork_object, plan_object
from evaldesk.wire import converted


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


async def fork_answer(
    desk: Desk,
    name: str,
    case_id: str,
    turn: int,
    trial: int | None = None,
    call: int | None = None,
    n: int = 10,
    edits: Sequence[Mapping[str, Any]] = (),
    say: str = "",
    client: str = "",
    budget: Budget | None = None,
) -> dict[str, Any]:
    """Play a trial on from before a turn, changed or not; its plan and its run come at once."""
    run = await asyncio.to_thread(desk.stored_runs.find_by_name, name)
    trial_index = None if trial is None else trial - 1
    point = await asyncio.to_thread(desk.forks.point, run, case_id, trial_index, turn, call)
    fork = Fork(point, tuple(map(_edit, edits)), n, "message" if say else "script", say)
    plan, run_id = await start_fork(desk, fork, client, budget)
    summary = await asyncio.to_thread(desk.store.runs.summary, run_id)
    return plan_object(plan) | {"result": fork_object(summary)}


async def blame_answer(
    desk: Desk,
    name: str,
    case_id: str,
    trial: int,
    forks: int = DEFAULT_BUDGET,
    client: str = "",
    budget: Budget | None = None,
    *,
    again: bool = False,
) -> dict[str, Any]:
    """The newest search for the decisive turn of a failed trial, as it is now.

    It is begun where there is none, or `again`.
    """
    run = await asyncio.to_thread(desk.stored_runs.find_by_name, name)
    point = await asyncio.to_thread(desk.forks.point, run, case_id, trial - 1, 1)
    key = (point.case_index, point.trial_index)
    earlier = await desk.blames.of_trial(run.id, key)
    if again or not earlier:
        blame = await start_blame(desk, run.id, key, BlameRequest(forks), client, budget)
    else:
        blame = earlier[-1]
    return await asyncio.to_thread(blame_object, desk, blame)


def _edit(value: Mapping[str, Any]) -> Edit:
    """An edit of a fork. Raises UsageError."""
    try:
        return converted(dict(value), Edit)
    except ValueError as error:
        raise UsageError(f"edits: {error}; the kinds are {', '.join(EDIT_KINDS)}", field="edits") from error


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
