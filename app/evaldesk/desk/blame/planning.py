"""The plan of a search for a decisive turn, before anything is spent: method, forks, cost, and tools that run."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaldesk.desk.failures import MAX_SIGNED
from evaldesk.diff.signature import Signature
from evaldesk.errors import ConflictError, UsageError
from evaldesk.model.blame import BlamePlan
from evaldesk.model.decisive_turn import Count
from evaldesk.model.fork import Fork, ForkPoint
from evaldesk.model.run import LIVE
from evaldesk.model.stored import TrialKey
from evaldesk.statistics.decisive_turn import fewest_forks, forks_of_turn, method_of

if TYPE_CHECKING:
    from evaldesk.desk.failures import FailureDesk
    from evaldesk.desk.forks.forks import ForkDesk
    from evaldesk.desk.runs.runs import RunDesk
    from evaldesk.store import Store

DEFAULT_BUDGET = 60
MOST_BUDGET = 2_000
MOST_BATCH = 500
"""Failed trials of one batch."""
_CHANGED = (
    "The agent has changed since run {}: the forks are played by the agent as it is now, and counted before turn 1 "
    "together with the earlier trials of the case."
)


@dataclass(frozen=True, slots=True)
class BlameSources:
    """The parts of a desk that a search uses: runs, their forks, and the signatures of failures."""

    store: Store
    runs: RunDesk
    forks: ForkDesk
    failures: FailureDesk


@dataclass(frozen=True, slots=True)
class BlameRequest:
    """The most forks and US dollars of a search, or of a batch; `runs_tools` is that of `Fork`."""

    budget: int = DEFAULT_BUDGET
    max_cost: float | None = None
    runs_tools: bool | None = None

    def check(self) -> None:
        """Raise UsageError for a number that is no budget."""
        if not 1 <= self.budget <= MOST_BUDGET:
            raise UsageError(f"the budget is 1 to {MOST_BUDGET:,} forks, not {self.budget:,}", field="budget")
        if self.max_cost is not None and not 0 < self.max_cost < float("inf"):
            raise UsageError(f"the most to spend is above 0 dollars, not {self.max_cost:g}", field="max_cost")


@dataclass(frozen=True, slots=True)
class PlannedBlame:
    """The searches of a batch in the order of play, and the facts to know before.

    `real_tools` are the tools that would run for real. `refusals` are the failed trials that cannot be searched, each
    with its reason; `notes` are sentences.
    """

    plans: tuple[BlamePlan, ...]
    request: BlameRequest
    real_tools: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusals: tuple[tuple[TrialKey, str], ...] = ()

    @property
    def n_forks(self) -> int:
        """The most forks of all searches together."""
        return min(self.request.budget, sum(each.n_forks for each in self.plans))

    @property
    def most_cost(self) -> float | None:
        """The estimated US dollars of all forks, at most `max_cost`; None where it is not known."""
        costs = [each.most_cost for each in self.plans]
        known_costs = [cost for cost in costs if cost is not None]
        if len(known_costs) < len(costs) or not known_costs:
            return None
        n = sum(each.n_forks for each in self.plans)
        cost = sum(known_costs) * min(1.0, self.request.budget / n)
        return cost if self.request.max_cost is None else min(cost, self.request.max_cost)


async def plan_trial(desk: BlameSources, run_id: int, key: TrialKey, request: BlameRequest) -> PlannedBlame:
    """The search for the decisive turn of a failed trial. Raises UsageError naming the field, NotFoundError."""
    request.check()
    summary = await desk.runs.summary(run_id)
    if summary.status in LIVE:
        raise ConflictError(f"run {run_id} is still running; wait for its end, or stop it")
    letters = await asyncio.to_thread(_letters, desk, run_id)
    signatures = await asyncio.to_thread(desk.failures.signatures, run_id, [key])
    return await _plan_of(desk, run_id, key, request, letters, signatures)


async def plan_run(desk: BlameSources, run_id: int, request: BlameRequest) -> PlannedBlame:
    """The searches of all failed trials of a run, those of the most frequent signature first.

    Trials that have an answer, or are being searched, are left out. Raises UsageError, NotFoundError.
    """
    request.check()
    summary = await desk.runs.summary(run_id)
    if summary.status in LIVE:
        raise ConflictError(f"run {run_id} is still running; wait for its end, or stop it")
    letters = await asyncio.to_thread(_letters, desk, run_id)
    blames = await asyncio.to_thread(desk.store.blames.of_run, run_id)
    has_answer = {each.plan.key for each in blames if each.answer or each.is_live}
    failed = [(case, at) for case, strip in letters.items() for at, letter in enumerate(strip) if letter == "f"]
    keys = [key for key in failed if key not in has_answer][:MAX_SIGNED]
    if not keys:
        words = "has no failed trial" if not failed else "has no failed trial without an answer"
        raise UsageError(f"run {run_id} {words}", field="run")
    signatures = await asyncio.to_thread(desk.failures.signatures, run_id, keys)
    names = {key: each.key for key, each in signatures.items()}
    plans: list[BlamePlan] = []
    refusals: list[tuple[TrialKey, str]] = []
    real_tools: dict[str, None] = {}
    notes: dict[str, None] = {}
    n_fewest = 0
    ordered_keys = by_frequency(keys, names)[:MOST_BATCH]
    for n_before, key in enumerate(ordered_keys):
        if n_fewest >= request.budget:
            n_left = len(ordered_keys) - n_before
            notes[f"{n_left:,} of the failed trials are left for later: the forks are too few for them."] = None
            break
        try:
            batch_plan = await _plan_of(desk, run_id, key, request, letters, signatures)
        except UsageError as error:
            refusals.append((key, str(error)))
            continue
        plans += batch_plan.plans
        n_fewest += sum(fewest_forks(plan.n_turns, plan.own) for plan in batch_plan.plans)
        real_tools |= dict.fromkeys(batch_plan.real_tools)
        notes |= dict.fromkeys(batch_plan.notes)
    if not plans:
        raise UsageError(f"none of the {len(keys):,} failed trials can be searched: {refusals[0][1]}", field="run")
    return PlannedBlame(tuple(plans), request, tuple(real_tools), tuple(notes), tuple(refusals))


def by_frequency(keys: Sequence[TrialKey], signatures: Mapping[TrialKey, str]) -> list[TrialKey]:
    """Trials of the most frequent signature first; those without one last. Equal ones stay in their order."""
    times = Counter(signatures[key] for key in keys if key in signatures)
    return sorted(keys, key=lambda key: -times[signatures[key]] if key in signatures else 0)


async def _plan_of(
    desk: BlameSources,
    run_id: int,
    key: TrialKey,
    request: BlameRequest,
    letters: Mapping[int, str],
    signatures: Mapping[TrialKey, Signature],
) -> PlannedBlame:
    case_index, trial_index = key
    strip = letters.get(case_index, "")
    letter = strip[trial_index] if trial_index < len(strip) else ""
    if letter != "f":
        words = {"p": "passed", "e": "errored", "u": "was not scored"}.get(letter, "was not played")
        raise UsageError(f"trial {trial_index + 1} {words}; only a failed trial has a decisive turn", field="trial")
    trial_turns, _ = await asyncio.to_thread(desk.runs.run_store.turns, run_id, case_index, trial_index)
    n_turns = max(1, trial_turns.summary.n_turns)
    own = Count(strip.count("p"), strip.count("p") + strip.count("f"))
    fewest = fewest_forks(n_turns, own)
    if request.budget < fewest:
        raise UsageError(
            f"{request.budget} forks are too few for {n_turns:,} turns; at least {fewest:,} are needed", field="budget"
        )
    method = method_of(n_turns, own)
    n_forks = request.budget
    if method == "profile":
        n = forks_of_turn(n_turns, own, request.budget)
        n_forks = max(0, n - own.n) + (n_turns - 1) * n
    points = [ForkPoint(run_id, *key, turn) for turn in dict.fromkeys((1, n_turns))]
    forked = [await desk.forks.plan(Fork(point, runs_tools=request.runs_tools)) for point in points]
    first, signature = forked[0], signatures.get(key)
    notes = dict.fromkeys(note for each in forked for note in each.notes)
    if first.is_agent_changed:
        notes[_CHANGED.format(run_id)] = None
    return PlannedBlame(
        (
            BlamePlan(
                run_id,
                case_index,
                trial_index,
                n_turns,
                own,
                method,
                n_forks,
                request.budget,
                request.max_cost,
                None if first.cost_each is None else first.cost_each / n_turns,
                signature.key if signature else "",
                signature.words if signature else "",
                runs_tools=request.runs_tools,
            ),
        ),
        request,
        first.real_tools,
        tuple(notes),
    )


def _letters(desk: BlameSources, run_id: int) -> dict[int, str]:
    """The letters of the trials of each case of a run."""
    return dict(enumerate(strip for _, strip in desk.store.failures.verdicts(run_id)))
