"""Runs that a coding agent starts: within a day's budget, on trusted folders, by the criteria of the eval set."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from evaldesk.desk.blame.blaming import search_of
from evaldesk.desk.blame.planning import BlameRequest
from evaldesk.desk.client_proposals import client_name
from evaldesk.desk.desk import Desk
from evaldesk.desk.forks.plan import ForkPlan
from evaldesk.desk.runs.handover import hand_over, hand_over_search
from evaldesk.desk.runs.plan import RunOptions
from evaldesk.desk.runs.provenance import run_digest
from evaldesk.errors import ConflictError, UsageError
from evaldesk.model import Gates
from evaldesk.model.blame import Blame
from evaldesk.model.client_budget import MARK, Budget
from evaldesk.model.fork import Fork
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary, TrialKey
from evaldesk.store import Store

MOST_NAMED = 3
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

    So does a search for a decisive turn that goes on, with all of its forks.

    Raises UsageError where there are too many to be counted.
    """
    runs = _runs_of_day(desk, now)
    if len(runs) >= MAX_RUNS_A_DAY:
        raise UsageError(f"coding agents started {MAX_RUNS_A_DAY:,} runs this day; a person starts the next ones")
    searches = {each.id: each for each in desk.store.blames.live() if each.plan.note == MARK}
    total = sum(each.plan.max_cost or 0.0 for each in searches.values())
    for run in filter(is_of_client, runs):
        if run.config.fork and search_of(run.config.fork) in searches:
            continue
        limit = run.config.gates.max_cost or 0.0
        total += limit if run.status in LIVE or run.whole_cost is None else run.whole_cost
    return total


def _runs_of_day(desk: Desk, now: datetime | None) -> list[RunSummary]:
    """The runs of this day whose texts have the mark of coding agents, at most MAX_RUNS_A_DAY, newest first."""
    day = (now or desk.store.now()).date()
    runs = desk.store.runs.list(text=MARK, limit=MAX_RUNS_A_DAY, has_forks=True)
    return [run for run in runs if run.created_at.date() >= day]


def _live_names(desk: Desk) -> list[str]:
    """The runs and searches of coding agents that go on, as `run 12`, newest first; each holds its limit."""
    runs = desk.store.runs.list(text=MARK, limit=MAX_RUNS_A_DAY, has_forks=True)
    searches = [each.id for each in desk.store.blames.live() if each.plan.note == MARK]
    in_search = {run.id for run in runs if run.config.fork and search_of(run.config.fork) in searches}
    live_runs = [run.id for run in runs if is_of_client(run) and run.status in LIVE and run.id not in in_search]
    return [*(f"search {each}" for each in searches), *(f"run {each}" for each in live_runs)][:MOST_NAMED]


def _unknown_words(desk: Desk, now: datetime | None) -> str:
    """The runs of this day that tell no cost, and so count as much as they could have had; empty without any."""
    runs = filter(is_of_client, _runs_of_day(desk, now))
    names = [f"run {run.id}" for run in runs if run.status not in LIVE and run.whole_cost is None]
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    verb = "tells" if len(names) == 1 else "tell"
    return (
        f": {', '.join(names[:MOST_NAMED])}{more} {verb} no cost, which counts as all that was left then; an agent "
        "without model calls says tells_cost = true"
    )


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
            f"options: {unknown_option} is for a person to choose, with `evaldesk eval AGENT SET`; here are "
            f"{', '.join(OPTIONS)}",
            field="options",
        )
    async with _rest_of(desk, budget) as usd_left, _desk_of(desk, client) as own:
        await own.agents.look_again()
        options = RunOptions(
            case_ids=tuple(request.case_ids) or None, gates=Gates(max_cost=usd_left), **dict(request.options or {})
        )
        plan = await own.plan_run(request.agent_id, request.evalset_id, options.but(n=request.n, note=_note(client)))
        run_id = await own.runs.submit(plan)
    await asyncio.to_thread(hand_over, desk.settings, run_id, run_digest(plan.config))
    return run_id


async def start_fork(desk: Desk, fork: Fork, client: str, budget: Budget | None) -> tuple[ForkPlan, int]:
    """Store a fork of a trial for the open desk, or a driver of its own, to play; gives its plan and its run at once.

    Raises UsageError naming the field at fault, NotFoundError, and as `start_run` for the day's budget.
    """
    async with _rest_of(desk, budget) as usd_left, _desk_of(desk, client) as own:
        await own.agents.look_again()
        plan = await own.forks.plan(fork)
        config = plan.run.config
        config = replace(config, note=_note(client), gates=replace(config.gates, max_cost=usd_left))
        run_id = await own.runs.submit(replace(plan.run, config=config))
    await asyncio.to_thread(hand_over, desk.settings, run_id, run_digest(config))
    return plan, run_id


async def start_blame(
    desk: Desk, run_id: int, key: TrialKey, request: BlameRequest, client: str, budget: Budget | None
) -> Blame:
    """The search for the decisive turn of a trial that goes on, else a new one, played by a process of its own.

    Raises UsageError naming the field at fault, NotFoundError, and as `start_run` for the day's budget.
    """
    live = next((each for each in await desk.blames.of_trial(run_id, key) if each.is_live), None)
    if live is not None:
        return live
    async with _rest_of(desk, budget) as usd_left, _desk_of(desk, client) as own:
        await own.agents.look_again()
        costs = [each for each in (request.max_cost, usd_left) if each is not None]
        batch_plan = await own.blames.plan(run_id, key, replace(request, max_cost=min(costs, default=None)))
        plans = tuple(replace(each, note=_note(client)) for each in batch_plan.plans)
        (blame_id,) = await own.blames.submit(replace(batch_plan, plans=plans))
    await asyncio.to_thread(hand_over_search, desk.settings, run_id, blame_id)
    return await desk.blames.get(blame_id)


def _note(client: str) -> str:
    return MARK if client else ""


@asynccontextmanager
async def _rest_of(desk: Desk, budget: Budget | None) -> AsyncIterator[float | None]:
    """The US dollars that are left of a day while nobody else can spend them; None without a budget.

    Raises UsageError where nothing is left.
    """
    if budget is None:
        yield None
        return
    async with _alone_with_budget(desk.store):
        now = budget.clock() if budget.clock else None
        usd_left = budget.usd - await asyncio.to_thread(spent_today, desk, now)
        if usd_left <= 0:
            holders = await asyncio.to_thread(_live_names, desk)
            words = f"is held by {' and '.join(holders)} until the end; wait for it, or stop it"
            if not holders:
                unknown_words = await asyncio.to_thread(_unknown_words, desk, now)
                words = f"is spent for this day{unknown_words}; a person can raise --budget"
            raise UsageError(f"the budget of {budget.usd:g} US dollars {words}")
        yield usd_left


@asynccontextmanager
async def _desk_of(desk: Desk, client: str) -> AsyncIterator[Desk]:
    """A desk of its own, so that a run is stored under the name of the client."""
    settings = replace(desk.settings, me=client_name(client)) if client else desk.settings
    own = await asyncio.to_thread(Desk.open, settings)
    try:
        yield own
    finally:
        await own.close()


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
