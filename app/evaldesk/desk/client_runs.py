"""Runs that a coding agent starts: within a day's budget, on trusted folders, by the criteria of the eval set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from evaldesk.desk.client_proposals import client_name
from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.handover import hand_over
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.provenance import run_digest
from evaldesk.errors import ConflictError, UsageError
from evaldesk.model import Gates
from evaldesk.model.client_budget import Budget
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store

MARK = "Started through the door for coding agents."
"""The note of these runs, which their client cannot change; the day's budget counts them by it."""
MAX_RUNS_A_DAY = 1_000
LOOK_S = 0.2
MAX_WAIT_S = 50.0
OPTIONS = ("concurrency", "timeout_s", "seed", "rows")
"""The options of a run that change no verdict's bar."""


@dataclass(frozen=True, slots=True)
class AskedRun:
    """The run that a client asks for; without cases all of the eval set."""

    agent_id: str
    evalset_id: str
    case_ids: Sequence[str] = ()
    n: int = 1
    options: Mapping[str, Any] | None = None


def spent_today(desk: Desk, now: datetime | None = None) -> float:
    """The cost of this day's runs of coding agents; one that goes on, or does not tell its cost, counts its limit.

    Raises UsageError where there are too many to be counted.
    """
    day = (now or desk.store.now()).date()
    newest_runs = desk.store.runs.list(text=MARK, limit=MAX_RUNS_A_DAY)
    runs = [run for run in newest_runs if run.created_at.date() >= day]
    if len(runs) >= MAX_RUNS_A_DAY:
        raise UsageError(f"coding agents started {MAX_RUNS_A_DAY:,} runs this day; a person starts the next ones")
    total = 0.0
    for run in filter(is_of_client, runs):
        limit = run.config.gates.max_cost or 0.0
        total += limit if run.status in LIVE or run.whole_cost is None else run.whole_cost
    return total


def is_of_client(run: RunSummary) -> bool:
    """Whether a coding agent started the run."""
    return run.note == MARK


async def start_run(desk: Desk, request: AskedRun, client: str, budget: Budget | None) -> int:
    """Store a run for the open desk, or a driver of its own, to play; gives its number at once.

    Without a client it is a person's.

    Raises UsageError for an option that is a person's, and where the day's budget is spent or cannot be kept.
    """
    unknown_option = next((name for name in request.options or {} if name not in OPTIONS), None)
    if unknown_option is not None:
        raise UsageError(
            f"options: {unknown_option} is for a person to choose; here are {', '.join(OPTIONS)}", field="options"
        )
    if budget is None:
        run_id, digest = await _submit(desk, request, client, Gates())
    else:
        async with _alone_with_budget(desk.store):
            now = budget.clock() if budget.clock else None
            usd_left = budget.usd - await asyncio.to_thread(spent_today, desk, now)
            if usd_left <= 0:
                raise UsageError(
                    f"the budget of {budget.usd:g} US dollars is spent for this day; a person can raise --budget"
                )
            run_id, digest = await _submit(desk, request, client, Gates(max_cost=usd_left))
    await asyncio.to_thread(hand_over, desk.settings, run_id, digest)
    return run_id


@asynccontextmanager
async def _alone_with_budget(store: Store) -> AsyncIterator[None]:
    """Keep all other calls, also of other machines on this store, from giving the rest of the day to another run.

    The daily budget is read, and a run is stored, between two turns of an event loop (decision 510).
    """
    end = None
    while end is None:  # a thread that waited would be missing to the call that plans
        attempt = asyncio.ensure_future(asyncio.to_thread(store.try_hold, "budget"))
        try:
            end = await asyncio.shield(attempt)
        except asyncio.CancelledError:
            attempt.add_done_callback(_end_late_hold)
            raise
        if end is None:
            await asyncio.sleep(LOOK_S)
    try:
        yield
    finally:
        end()


def _end_late_hold(attempt: asyncio.Future[Callable[[], None] | None]) -> None:
    """End a hold that was given to a call which was cancelled meanwhile."""
    if not attempt.cancelled() and attempt.exception() is None and (end := attempt.result()):
        end()


async def _submit(desk: Desk, request: AskedRun, client: str, gates: Gates) -> tuple[int, str]:
    """Store the run; gives its number and its digest."""
    options = dict(request.options or {})
    # Its own desk, so that the run is stored under the name of the client.
    settings = replace(desk.settings, me=client_name(client)) if client else desk.settings
    own = await asyncio.to_thread(Desk.open, settings)
    try:
        await own.agents.look_again()
        case_ids = tuple(request.case_ids) or None
        run_options = RunOptions(case_ids=case_ids, gates=gates, **options).but(
            n=request.n, note=MARK if client else ""
        )
        plan = await own.plan_run(request.agent_id, request.evalset_id, run_options)
        return await own.runs.submit(plan), run_digest(plan.config)
    finally:
        await own.close()


async def wait_for_run(desk: Desk, run_id: int, seconds: float) -> RunSummary:
    """The run once it ends, or as it is after some seconds. Raises NotFoundError."""
    end = time.monotonic() + min(seconds, MAX_WAIT_S)
    while True:
        run = await asyncio.to_thread(desk.store.runs.summary, run_id)
        if run.status not in LIVE or time.monotonic() >= end:
            return run
        await asyncio.sleep(LOOK_S)


async def stop_run(desk: Desk, run_id: int) -> RunSummary:
    """Stop a run that a coding agent started. Raises ConflictError for one that a person started."""
    run = await asyncio.to_thread(desk.store.runs.summary, run_id)
    if not is_of_client(run):
        raise ConflictError(f"run {run_id} was started by a person, who stops it with `evaldesk run stop {run_id}`")
    await desk.runs.stop(run_id)
    return await asyncio.to_thread(desk.store.runs.summary, run_id)
