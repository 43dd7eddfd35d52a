"""The turns of the variants of an experiment while one process plays them: order, slots, budget and early drop.

The trial index is the outer loop; inside it the cells (case, variant) come in the order of a digest of the seed, so
that time of day, load and rate limits hit all variants alike. (reference/experiments.md 4)
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TypeAlias

from evaldesk.errors import EvaldeskError
from evaldesk.model import TrialResult
from evaldesk.model.comparison import ROUNDING
from evaldesk.model.experiment import ExperimentPlan
from evaldesk.model.stored import TrialKey
from evaldesk.run_options import budget_of, budget_words
from evaldesk.wording.words import cost_words

Rank: TypeAlias = tuple[int, str]
Look: TypeAlias = Callable[[int], Awaitable[Collection[int]]]
"""Gives the variants that are not played on after so many blocks."""


def cell_rank(seed: int, trial_index: int, case_index: int, variant_index: int) -> Rank:
    """The place of a cell in the order of play."""
    cell = f"{seed}:{trial_index}:{case_index}:{variant_index}"
    return trial_index, blake2b(cell.encode(), digest_size=8).hexdigest()


def budget_end(budget: str, n_begun: int, cost: float) -> str:
    """The reason why no cell begins any more under a budget; empty below its cap. `cost` is in US dollars."""
    most, is_money = budget_of(budget)
    if is_money and cost >= most - ROUNDING:
        return f"The trials of the experiment cost {cost_words(cost)}, which is its budget of {budget_words(budget)}."
    if not is_money and n_begun >= most:
        return f"The experiment began as many trials as its budget has: {budget_words(budget)}."
    return ""


# Nothing of the order is stored, and each variant has processes of its own: decision 505.
class Turns:
    """Decides which cell of an experiment begins next.

    A variant is expected from `expect` on, and no cell begins before it has named its next one, until it leaves. A held
    variant, whose model is rate-limited, is passed over, and its running trials take no slot. `dropped` has the blocks
    of each variant that is not played on; `reason` says why no cell begins any more, empty while one may.
    """

    def __init__(self) -> None:
        self.dropped: dict[int, int] = {}
        self.reason = ""
        self._seed = 0
        self._concurrency = 0
        self._budget: str | None = None
        self._look: Look | None = None
        self._is_open = False
        self._expected: set[int] = set()
        self._held: set[int] = set()
        self._heads: dict[int, tuple[Rank, asyncio.Future[bool]]] = {}
        self._under_way: Counter[int] = Counter()
        self._n_unstored = 0
        self._n_begun = 0
        self._cost = 0.0
        self._block = -1
        self._looking: asyncio.Task[None] | None = None
        self._opening = asyncio.Lock()
        self._n_inside = 0

    async def open(self, load: Callable[[], Awaitable[tuple[ExperimentPlan, int, float]]], look: Look) -> None:
        """Take the plan, and the trials and the dollars so far, before the first cell; once."""
        async with self._opening:
            if not self._is_open:
                plan, self._n_begun, self._cost = await load()
                self._seed, self._concurrency, self._budget = plan.seed, plan.concurrency, plan.budget
                self._look = look if plan.drops_worse else None
                self._is_open = True
                self._check_budget()

    @asynccontextmanager
    async def slot(self, slots: asyncio.Semaphore) -> AsyncGenerator[None]:
        """One slot of the runs of a process for all variants together."""
        self._n_inside += 1
        try:
            if self._n_inside == 1:
                self._slot_taken = asyncio.ensure_future(slots.acquire())
            await asyncio.shield(self._slot_taken)
            yield
        finally:
            self._n_inside -= 1
            if not self._n_inside and not self._slot_taken.cancel():
                slots.release()

    def expect(self, variant: int) -> None:
        """Begin no cell before this variant has named its next one."""
        self._expected.add(variant)

    def leave(self, variant: int) -> None:
        """Go on without the variant: it has no more trials, or is stopped."""
        self._expected.discard(variant)
        self._held.discard(variant)
        if variant in self._heads:
            self._answer(variant, may_begin=False)
        self._advance()

    def rank(self, variant: int, key: TrialKey) -> Rank:
        """The place of a trial of the variant in the order of play."""
        return cell_rank(self._seed, key[1], key[0], variant)

    async def wait(self, variant: int, key: TrialKey) -> bool:
        """Wait for the turn of a cell; False where the variant begins no more of them."""
        if self.reason or variant in self.dropped:
            return False
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._expected.add(variant)
        self._heads[variant] = self.rank(variant, key), turn
        self._advance()
        return await turn

    def give_back(self, variant: int) -> None:
        """Undo a turn that was not used."""
        self._under_way[variant] -= 1
        self._n_begun -= 1
        self._advance()

    def end(self, variant: int, result: TrialResult) -> None:
        """Count a trial that ended, before it is stored. Without a known cost no budget in dollars can be kept."""
        self._under_way[variant] -= 1
        self._n_unstored += 1
        self._cost += result.cost or 0.0
        if self._budget and self._is_money and result.status == "finished" and not result.tells_cost:
            self.reason = self.reason or (
                f"A trial does not tell its cost, so that the budget of {budget_words(self._budget)} cannot be kept. "
                "An agent that reports the cost of each call, or makes none, says tells_cost = true"
            )
        self._check_budget()
        self._advance()

    def store(self, n_results: int) -> None:
        """Count results that are stored."""
        self._n_unstored -= n_results
        self._advance()

    def hold(self, variant: int, *, is_held: bool) -> None:
        """Pass over a variant whose model makes it wait, or play it on."""
        (self._held.add if is_held else self._held.discard)(variant)
        self._advance()

    def _advance(self) -> None:
        """Begin the cells whose turn it is, as many as there are slots."""
        if not self._is_open or self._looking:
            return
        if self.reason:
            for variant in list(self._heads):
                self._answer(variant, may_begin=False)
            return
        while heads := {variant: rank for variant, (rank, _) in self._heads.items() if variant not in self._held}:
            n_slots = self._concurrency - sum(n for each, n in self._under_way.items() if each not in self._held)
            if n_slots <= 0 or self._expected - self._heads.keys() - self._held:
                return
            following = min(heads, key=heads.__getitem__)
            if self._is_to_look(heads[following][0]):
                return
            self._under_way[following] += 1
            self._n_begun += 1
            self._answer(following, may_begin=True)
            self._check_budget()
            if self.reason:
                self._advance()
                return

    def _is_to_look(self, block: int) -> bool:
        """Whether the cell is the first of its block, and the one before it is to be looked at."""
        if self._look is None or block <= self._block:
            return False
        if block == 0:
            self._block = 0
            return False
        if sum(self._under_way.values()) or self._n_unstored or self._heads.keys() & self._held:
            return True
        self._block = block
        self._looking = asyncio.ensure_future(self._look_at(self._look, block))
        return True

    async def _look_at(self, look: Look, n_blocks: int) -> None:
        dropped: Collection[int] = ()
        with contextlib.suppress(EvaldeskError):  # of a database that answers later: the next block is looked at
            dropped = await look(n_blocks)
        self._looking = None
        for variant in dropped:
            self.dropped[variant] = n_blocks
            self.leave(variant)
        self._advance()

    def _answer(self, variant: int, *, may_begin: bool) -> None:
        _, turn = self._heads.pop(variant)
        if not turn.done():
            turn.set_result(may_begin)
        elif may_begin:  # the waiting driver was cancelled
            self._under_way[variant] -= 1
            self._n_begun -= 1

    @property
    def _is_money(self) -> bool:
        return self._budget is not None and budget_of(self._budget)[1]

    def _check_budget(self) -> None:
        """Begin no cell at the cap."""
        if self._budget is None or self.reason:
            return
        self.reason = budget_end(self._budget, self._n_begun, self._cost)


class VariantTurns:
    """The turns of one variant, for its driver."""

    def __init__(self, turns: Turns, variant: int, n: int) -> None:
        self._turns = turns
        self._variant = variant
        self._n = n

    @property
    def reason(self) -> str:
        """Why the variant begins no more trials; empty while it may."""
        n_blocks = self._turns.dropped.get(self._variant)
        if n_blocks is not None:
            return f"Dropped after {n_blocks} of {self._n} trials of each case: worse than the leader."
        return self._turns.reason

    def rank(self, key: TrialKey) -> Rank:
        """The place of a trial in the order of play."""
        return self._turns.rank(self._variant, key)

    async def wait(self, key: TrialKey) -> bool:
        """Wait for the turn of a trial; False where no more begin."""
        return await self._turns.wait(self._variant, key)

    def give_back(self) -> None:
        """Undo a turn that was not used."""
        self._turns.give_back(self._variant)

    def end(self, result: TrialResult) -> None:
        """Count a trial that ended."""
        self._turns.end(self._variant, result)

    def store(self, n_results: int) -> None:
        """Count results that are stored."""
        self._turns.store(n_results)

    def hold(self, *, is_held: bool) -> None:
        """Pass over the variant while its model makes it wait."""
        self._turns.hold(self._variant, is_held=is_held)

    def leave(self) -> None:
        """Go on without the variant."""
        self._turns.leave(self._variant)
