"""Blame: the plan of a search for the decisive turn of a failed trial, and its state. (reference/fork.md 3)"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from evaldesk.model.comparison import Comparison
from evaldesk.model.decisive_turn import Answer, Count, Method
from evaldesk.model.stored import TrialKey

BlameStatus: TypeAlias = Literal["planned", "running", "finished", "stopped", "failed"]
UNFINISHED: tuple[BlameStatus, ...] = ("planned", "running")


@dataclass(frozen=True, slots=True)
class BlamePlan:
    """A search for the decisive turn of one trial.

    `own` are the scored trials of its case. `n_forks` are the most of this search; `budget` forks and `max_cost` US
    dollars are the most of all searches of its batch together. `cost_per_turn` is that of earlier trials in US
    dollars; None where it is not known. Trials with the same `signature` failed alike. `runs_tools` is that of `Fork`;
    `note` is that of the runs of its forks.
    """

    run_id: int
    case_index: int
    trial_index: int
    n_turns: int
    own: Count
    method: Method
    n_forks: int
    budget: int
    max_cost: float | None = None
    cost_per_turn: float | None = None
    signature: str = ""
    signature_words: str = ""
    runs_tools: bool | None = None
    note: str = ""

    @property
    def key(self) -> TrialKey:
        """Case and trial."""
        return self.case_index, self.trial_index

    def cost_of_fork(self, turn: int) -> float | None:
        """US dollars of one fork before `turn`, by the turns that are left; None where it is not known."""
        return None if self.cost_per_turn is None else self.cost_per_turn * (self.n_turns - turn + 1)

    @property
    def most_cost(self) -> float | None:
        """US dollars of all forks, each about from the middle of the trial; None where it is not known."""
        if self.cost_per_turn is None:
            return None
        cost = self.n_forks * self.cost_per_turn * (self.n_turns + 1) / 2
        return cost if self.max_cost is None else min(cost, self.max_cost)


@dataclass(frozen=True, slots=True)
class Blame:
    """A stored search. `batch_id` is the id of the first search of its batch, its own for a single one.

    `answer` is that of the forks so far; None before the first end. `is_leased` tells whether a process plays it.
    """

    id: int
    plan: BlamePlan
    batch_id: int
    status: BlameStatus
    reason: str
    answer: Answer | None
    created_at: datetime
    is_leased: bool = False

    @property
    def is_live(self) -> bool:
        """Whether forks of it are still to be played."""
        return self.status in UNFINISHED


@dataclass(frozen=True, slots=True)
class Side:
    """Continuations before the fix and with it, over all cases, and their difference paired by case."""

    before: Count
    after: Count
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class Verification:
    """The effect of a fix over `n_trials` failed trials of `n_cases` cases, from there and from the start."""

    n_trials: int
    n_cases: int
    from_turn: Side
    from_start: Side
