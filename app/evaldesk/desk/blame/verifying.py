"""Verify a fix: failed trials played on from their decisive turns, and whole cases, by the agent as it is now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evaldesk.desk.blame.planning import BlameSources
from evaldesk.desk.forks.plan import doubled_tools, tools_of
from evaldesk.errors import UsageError
from evaldesk.model.blame import Blame, Side, Verification
from evaldesk.model.comparison import Sample
from evaldesk.model.decisive_turn import Count
from evaldesk.model.fork import Edit, Fork, ForkPoint
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.model.transcript import known_sum
from evaldesk.statistics.comparison import compare_means
from evaldesk.store.runs.run_store import is_imported

if TYPE_CHECKING:
    from evaldesk.desk.runs.runs import RunDesk

FROM_TURN, FROM_START = 0, 1
_NUMBERS = 1_000_000_000
"""Numbers of forks from here on are those of verifications; searches have smaller ones."""
_OF_BLAME = 20_000
MOST_OF_TRIAL = 100


@dataclass(frozen=True, slots=True)
class FixPlan:
    """The test of a fix before it is played: its trials, the cost of one continuation of each from both places in US
    dollars, None where it is not known, and the tools that would run for real.
    """

    n_trials: int
    cost_each: float | None
    real_tools: Sequence[str]


async def plan_fix(desk: BlameSources, blames: Sequence[Blame]) -> FixPlan:
    """The plan of a test of a fix over trials that have a decisive turn each. Raises NotFoundError."""
    costs = [blame.plan.cost_of_fork(turn) for blame in blames for _, turn in places_of(blame)]
    return FixPlan(len(blames), known_sum(costs), await asyncio.to_thread(_real_tools, desk, blames))


def _real_tools(desk: BlameSources, blames: Sequence[Blame]) -> tuple[str, ...]:
    """The tools without doubles that trials called or their cases expect, but for trials with recorded results."""
    names: dict[str, None] = {}
    for plan in (blame.plan for blame in blames):
        is_from_file = is_imported(desk.store.runs.summary(plan.run_id).config)
        if not (not is_from_file if plan.runs_tools is None else plan.runs_tools):
            continue
        case = desk.store.runs.case(plan.run_id, plan.case_index)
        turns = desk.store.runs.trial(plan.run_id, *plan.key).transcript.turns
        doubled = doubled_tools(case)
        names |= dict.fromkeys(tool for tool in tools_of(turns, case, 1) if tool not in doubled)
    return tuple(names)


async def verify(
    desk: BlameSources, blames: Sequence[Blame], counts: Mapping[int, Count], n: int, agent: str = ""
) -> Verification:
    """Play the missing ones of `n` continuations of each trial from both places, and compare.

    `blames` have a decisive turn each, and `counts` those before it, by the id of the search. The agent is that of the
    run as its code is now, or the one named `agent`. Raises UsageError.
    """
    check_n(n)
    if not blames:
        raise UsageError("no trial of this run has a decisive turn yet; look for them first", field="run")
    after = {
        (blame.id, place): await _play_missing(desk, blame, place, at, n, agent)
        for blame in blames
        for place, at in places_of(blame)
    }
    return verification_of(blames, counts, after)


def verifying_fork(blame: Blame, n: int, agent: str = "", turn: int = 1) -> Fork:
    """The fork of a trial before `turn` by the agent of its run as it is now, or by the one named `agent`."""
    plan = blame.plan
    edits = (Edit("agent", name=agent),) if agent else ()
    return Fork(ForkPoint(plan.run_id, *plan.key, turn), edits, n=n, runs_tools=plan.runs_tools)


def check_n(n: int) -> None:
    """Raise UsageError for a number of continuations of each trial that is not played."""
    if not 1 <= n <= MOST_OF_TRIAL:
        raise UsageError(f"the continuations of a trial are 1 to {MOST_OF_TRIAL}, not {n:,}", field="n")


def places_of(blame: Blame) -> tuple[tuple[int, int], tuple[int, int]]:
    """The two places that a fix is verified from, each with the number of its turn: the decisive one, and the first."""
    return (FROM_TURN, blame.answer.turn if blame.answer and blame.answer.turn else 1), (FROM_START, 1)


def verification_of(
    blames: Sequence[Blame], counts: Mapping[int, Count], after: Mapping[tuple[int, int], Count]
) -> Verification:
    """The effect of a fix; `after` are the continuations with it, by the id of the search and the place."""
    keys = {blame.plan.case_index for blame in blames}
    own = {blame.plan.case_index: blame.plan.own for blame in blames}
    return Verification(
        len(blames),
        len(keys),
        _side(_by_case(blames, counts), _by_case(blames, {each.id: after[each.id, FROM_TURN] for each in blames})),
        _side(own, _by_case(blames, {each.id: after[each.id, FROM_START] for each in blames})),
    )


def stored_continuations(desk: BlameSources, blame: Blame, place: int) -> Count:
    """The continuations of a trial with its newest fix, from one place, as far as they were played.

    A fix is an agent: forks of an earlier one do not count. Reads the database.
    """
    plan = blame.plan
    forks = desk.store.forks.of_trial(plan.run_id, plan.case_index, plan.trial_index)
    runs = _verifying(forks, _first_number(blame, place))
    newest = runs[-1].config.fork if runs else None
    same = [run for run in runs if newest and run.config.fork and run.config.fork.fingerprint == newest.fingerprint]
    return _count_of(same)


async def _play_missing(desk: BlameSources, blame: Blame, place: int, turn: int, n: int, agent: str) -> Count:
    """The count of `n` continuations of a trial; earlier ones of the same fork and agent are not played again."""
    base = _first_number(blame, place)
    fork = replace(verifying_fork(blame, n, agent, turn), first=base)
    runs = _verifying((await desk.forks.plan(fork)).earlier, base)
    for run in runs:
        if run.n_todo:
            await play_to_end(desk.runs, run.id)
    n_missing = n - sum(run.config.n for run in runs)
    if n_missing > 0:
        first = max((run.config.fork.first + run.config.n for run in runs if run.config.fork), default=base)
        run_id = await desk.forks.start(replace(fork, n=n_missing, first=first))
        await play_to_end(desk.runs, run_id)
    runs = _verifying((await desk.forks.plan(fork)).earlier, base)
    return _count_of(runs)


def _count_of(runs: Sequence[RunSummary]) -> Count:
    return Count(sum(run.counts.passed for run in runs), sum(run.counts.scored for run in runs))


def _first_number(blame: Blame, place: int) -> int:
    return _NUMBERS + blame.id * _OF_BLAME + place * _OF_BLAME // 2


def _verifying(runs: Sequence[RunSummary], base: int) -> list[RunSummary]:
    numbers = range(base, base + _OF_BLAME // 2)
    return [run for run in runs if run.config.fork and run.config.fork.first in numbers]


async def play_to_end(runs: RunDesk, run_id: int) -> None:
    """Play the planned trials of a fork, also of one whose process was killed: once its lease is over it is taken over.

    One that a person stops stays so. Raises ConflictError, NotFoundError.
    """
    if (await runs.summary(run_id)).status not in LIVE:
        await runs.resume(run_id)
    async for _ in runs.watch(run_id):
        await runs.take_over(run_id)


def _by_case(blames: Sequence[Blame], counts: Mapping[int, Count]) -> dict[int, Count]:
    sums: dict[int, Count] = {}
    for each in blames:
        sums[each.plan.case_index] = sums.get(each.plan.case_index, Count()).plus(counts[each.id])
    return sums


def _side(before: Mapping[int, Count], after: Mapping[int, Count]) -> Side:
    samples = [
        {case: Sample.of_sums(each.n, each.passes, each.passes) for case, each in side.items() if each.n}
        for side in (before, after)
    ]
    return Side(_sum(before), _sum(after), compare_means(*samples))


def _sum(counts: Mapping[int, Count]) -> Count:
    total = Count()
    for each in counts.values():
        total = total.plus(each)
    return total
