"""The limit of a run's cost: it starts no more trials once the known cost of the finished ones exceeds it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from evaldesk.engine import Executor, GradeSpec
from evaldesk.engine.worker.attempt import Pause
from evaldesk.model import TrialResult, TrialSpec
from evaldesk.wording.words import cost_words

ROUNDING = 1e-9


class Metered:
    """An executor that adds up its trials' cost in US dollars, and tells `on_end` when each of them ends."""

    def __init__(self, executor: Executor, on_end: Callable[[TrialResult], None]) -> None:
        self.spent = 0.0
        self._executor = executor
        self._on_end = on_end

    @property
    def is_cancelled(self) -> bool:
        """As the executor says."""
        return self._executor.is_cancelled

    @property
    def pauses(self) -> Sequence[Pause]:
        """The pauses of trials, where the executor knows them."""
        return getattr(self._executor, "pauses", ())

    async def submit(self, spec: TrialSpec | GradeSpec) -> None:
        """Hand the trial on."""
        await self._executor.submit(spec)

    async def results(self) -> AsyncIterator[TrialResult]:
        """The results, each counted before anybody sees it; an unknown cost counts nothing."""
        async for result in self._executor.results():
            self.spent += result.cost or 0.0
            self._on_end(result)
            yield result

    async def cancel(self) -> None:
        """Hand it on."""
        await self._executor.cancel()

    async def close(self) -> None:
        """Hand it on."""
        await self._executor.close()

    def has_spent_more_than(self, max_cost: float | None) -> bool:
        """Whether the trials cost more; never where there is no limit."""
        return is_more(self.spent, max_cost)


def is_more(cost: float, max_cost: float | None) -> bool:
    """Whether a cost is above the limit by more than rounding."""
    return max_cost is not None and cost > max_cost + ROUNDING


def overspent_sentence(spent: float, max_cost: float, n_left: int) -> str:
    """Why a run was stopped, in one sentence."""
    trials = "1 trial was" if n_left == 1 else f"{n_left:,} trials were"
    return f"The trials cost {cost_words(spent)}, more than the limit of ${max_cost:g}, so {trials} not started."
