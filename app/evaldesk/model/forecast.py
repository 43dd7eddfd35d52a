"""The forecast of a gate: its rate of failure if nothing changed, with the range of doubt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, floor, fsum
from typing import Literal, TypeAlias

from evaldesk.model.conclusion import Interval

OFTEN = 0.05
"""Above this share of false alarms a build loses its readers' trust."""
OFTEN_BY_HISTORY = 0.10
"""The same for the upper end of a gate whose bar is the history of the cases: its 3 % on average include the doubt."""
SOUGHT = 0.15
"""A proposed gate finds an agent whose pass rate is lower by this much in each case, in the share FOUND of builds."""
FOUND = 0.8
_MOST_ADVISED = 200

Known: TypeAlias = Literal["rarely", "often", "not known yet"]
Standing: TypeAlias = Literal["rarely", "often", "not known yet", "below the bar", "at the bar"]


@dataclass(frozen=True, slots=True)
class Range:
    """An uncertain chance: its mean, and the ends of a 90 % range."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, chances: Iterable[float]) -> Range:
        """The range over draws, at least one."""
        sorted_chances = sorted(float(chance) for chance in chances)
        return cls(
            fsum(sorted_chances) / len(sorted_chances), _quantile(sorted_chances, 0.05), _quantile(sorted_chances, 0.95)
        )

    @property
    def is_certain(self) -> bool:
        """Whether it is one number, as for rates that are assumed."""
        return self.low == self.high

    def standing(self, most: float = OFTEN) -> Known:
        """Its standing as a share of false alarms whose upper end may be `most`: rarely, often or not known yet."""
        if self.high <= most:
            return "rarely"
        return "often" if self.low > most else "not known yet"

    def plus(self, share: float) -> Range:
        """The range of a chance that is larger by at most `share`, so that its lower end stays."""
        return Range(min(1.0, self.mean + share), self.low, min(1.0, self.high + share))

    def trials_to_know(self, n: float) -> int:
        """The number of trials a case, about, that decide whether it is above OFTEN, after `n` of them: at most 200."""
        apart = max(0.02, abs(self.mean - OFTEN))
        return min(_MOST_ADVISED, ceil(n * max(1.5, ((self.high - self.low) / 2 / apart) ** 2)))


def _quantile(sorted_chances: list[float], share: float) -> float:
    place = share * (len(sorted_chances) - 1)
    at = floor(place)
    after = sorted_chances[min(at + 1, len(sorted_chances) - 1)]
    return sorted_chances[at] + (after - sorted_chances[at]) * (place - at)


@dataclass(frozen=True, slots=True)
class Basis:
    """The basis of a forecast: the scored and passed trials of `n_cases` cases over `n_runs` runs.

    `n_failing` cases never passed, `fewest` are the trials of the case with the fewest. `sigma` is how far runs differ
    from day to day, in logits; None where it is not known. `rate` is that of every case where nothing was played and it
    is assumed.
    """

    n_cases: int
    n_scored: int = 0
    n_passed: int = 0
    n_failing: int = 0
    n_runs: int = 0
    fewest: int = 0
    sigma: float | None = None
    rate: float | None = None

    @property
    def n_each(self) -> float:
        """The mean number of trials of a case."""
        return self.n_scored / self.n_cases


@dataclass(frozen=True, slots=True)
class Proposal:
    """The options of a gate that rarely fails by chance, also at the upper end, and finds an agent worse by SOUGHT.

    `n_trials` is the mean number of trials of a build.
    """

    options: str
    fails: Range
    finds: float
    n_trials: float


@dataclass(frozen=True, slots=True)
class GateForecast:
    """The forecast of one gate for an unchanged agent.

    `fails` is its chance to fail, whatever the agent's level; `false_alarm` that of an agent that meets the level of
    the gate, None where it is below. `level` is the number that the gate compares with its bar, None for a gate on
    change. `holds` and `neutral` are mean chances, and `worse` those of an agent that is worse: (drop of the pass rate,
    chance to hold, chance to be neutral). `hint` names a gate that is stricter than it looks. `n_more` is the mean
    number of trials that it plays beyond those of the run, `n_played` the mean trials of a run that stops when it is
    decided, with an unchanged agent and with one that is worse by SOUGHT. With `may_err` a likely stop can change the
    answers, in one of 20 stops at most. `is_by_history` says whether the history of the cases is its bar, `is_searched`
    whether a better gate was looked for; `history_needed` are the trials of each case that are missing to find one,
    None where that is not the reason. `on_other_days` is the chance to fail if days differ by 0.3 logits, where that is
    not known. `against` says for a gate that counts flips whether the baseline is stored, or is to come as well.
    """

    name: str
    options: str
    standing: Standing
    fails: Range
    false_alarm: Range | None
    basis: Basis
    holds: float = 0.0
    neutral: float = 0.0
    level: Range | None = None
    worse: tuple[tuple[float, float, float], ...] = ()
    trials_to_know: int | None = None
    hint: str = ""
    n_more: float = 0.0
    n_played: tuple[float, float] | None = None
    may_err: bool = False
    is_by_history: bool = False
    proposal: Proposal | None = None
    is_searched: bool = False
    history_needed: int | None = None
    on_other_days: float | None = None
    against: str = ""

    @property
    def is_frequent(self) -> bool:
        """Whether it fails often although nothing changed."""
        return self.standing == "often"

    @property
    def sought(self) -> tuple[float, float] | None:
        """The chances to hold and to be neutral for an agent that is worse by SOUGHT."""
        return next(((holds, neutral) for drop, holds, neutral in self.worse if drop == SOUGHT), None)

    @property
    def is_blind(self) -> bool:
        """Whether it fails too rarely for an agent that is worse by SOUGHT."""
        return self.sought is not None and 1 - sum(self.sought) < FOUND

    @property
    def is_vague(self) -> bool:
        """Whether it is more often too close to tell than not, although nothing changed."""
        return self.neutral > 0.5

    @property
    def is_proposed(self) -> bool:
        """Whether this gate would be proposed."""
        return self.proposal is not None and self.proposal.options == self.options

    @property
    def better(self) -> Proposal | None:
        """The proposal where it is another gate."""
        return None if self.is_proposed else self.proposal


@dataclass(frozen=True, slots=True)
class UnchangedPairs:
    """All ordered pairs of `n_runs` stored runs of one agent, the first as the baseline: the gate fails `n_failed`.

    `interval` is the 95 % interval of the share; None for too few runs to measure one.
    """

    n_runs: int
    n_failed: int
    interval: Interval | None = None

    @property
    def n_pairs(self) -> int:
        """The number of pairs."""
        return self.n_runs * (self.n_runs - 1)

    @property
    def share(self) -> float:
        """The share of pairs that fail; 0 without any."""
        return self.n_failed / self.n_pairs if self.n_pairs else 0.0
