"""The decisive turn of a failed trial: forks before its turns, and the answer that they give. (reference/fork.md 3)"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Finding: TypeAlias = Literal["located", "not located", "already lost at the start", "bad luck"]
FINDINGS: tuple[Finding, ...] = get_args(Finding)
Method: TypeAlias = Literal["profile", "search"]
Stage: TypeAlias = Literal["profile", "search", "confirmation"]


@dataclass(frozen=True, slots=True)
class Count:
    """Passed continuations, and all that were scored."""

    passes: int = 0
    n: int = 0

    @property
    def rate(self) -> float:
        """Share that passed, 0 to 1; 0 without a continuation."""
        return self.passes / self.n if self.n else 0.0

    @property
    def words(self) -> str:
        """Such as "18 of 20"."""
        return f"{self.passes} of {self.n}"

    def plus(self, other: Count) -> Count:
        """The sum of two counts."""
        return Count(self.passes + other.passes, self.n + other.n)


@dataclass(frozen=True, slots=True)
class Batch:
    """Forks to play next: `n` of them before `turn`, which counts from 1."""

    stage: Stage
    turn: int
    n: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one fork before a turn; `passed` is None where it has no verdict, such as after an error."""

    stage: Stage
    turn: int
    passed: bool | None


@dataclass(frozen=True, slots=True)
class Drop:
    """The fall of the pass rate from before a turn to before the next one, or to the recorded end.

    `p_between` is the chance that it is the largest fall between turns, None for the last turn; `p_largest` also
    against the fall to the recorded end. `p` is Fisher's, one-sided, and `holm_p` adjusted for all.
    """

    turn: int
    before: Count
    after: Count
    p_between: float | None
    p_largest: float
    p: float
    holm_p: float


@dataclass(frozen=True, slots=True)
class Confirmation:
    """Fresh forks before the turn that a search proposes, and before the next one (the recorded end for the last)."""

    turn: int
    before: Count
    after: Count
    p: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The finding over the turns of a trial. `turn` is the decisive one, or the last one for bad luck.

    `counts` are of the forks before each turn, in order; `drops` of a profile, `posterior` and `confirmation` of a
    search.
    """

    finding: Finding
    turn: int | None
    counts: tuple[Count, ...]
    drops: tuple[Drop, ...] = ()
    posterior: tuple[float, ...] = ()
    confirmation: Confirmation | None = None

    @property
    def before(self) -> Count:
        """The count before the turn of the answer."""
        if self.confirmation and self.turn:
            return self.confirmation.before
        return self.counts[self.turn - 1] if self.turn else Count()

    @property
    def after(self) -> Count | None:
        """The count after the turn of the answer; None for the last turn, after which the failure is recorded."""
        if self.turn is None or self.turn == len(self.counts):
            return None
        return self.confirmation.after if self.confirmation else self.counts[self.turn]
