"""From several verdicts to one: a majority for yes and no, where a tie is no; means for numbers; the spread beside it.

The rules are ADK's. (reference/adk.md 2.3)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev


@dataclass(frozen=True, slots=True)
class Votes:
    """Verdicts on one question; unreadable ones are in neither number."""

    n_yes: int
    n_no: int

    @property
    def value(self) -> float | None:
        """1 where most say yes, 0 otherwise; None without any vote."""
        return float(self.n_yes > self.n_no) if self.n_yes + self.n_no else None

    @property
    def words(self) -> str:
        """`4 of 5`: the share that agrees with the majority."""
        return f"{max(self.n_yes, self.n_no)} of {self.n_yes + self.n_no}"


def count(verdicts: Iterable[bool | float | None]) -> Votes:
    """The votes, None left out."""
    votes = [bool(verdict) for verdict in verdicts if verdict is not None]
    return Votes(sum(votes), len(votes) - sum(votes))


def mean_of(values: Iterable[float | None]) -> float | None:
    """The mean of the present values, added from the left as ADK does; None without any."""
    total, n = 0.0, 0
    for value in values:
        if value is not None:
            total, n = total + value, n + 1
    return total / n if n else None


def by_rubric(samples: Sequence[Mapping[str, float | None]]) -> dict[str, Votes]:
    """The votes on each rubric over the samples that name it."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: count(sample.get(name) for sample in samples) for name in names}


@dataclass(frozen=True, slots=True)
class Spread:
    """Numbers of several samples: mean, deviation of the population, least and greatest."""

    mean: float
    std: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """The range of `values`, at least one."""
    return Spread(fmean(values), float(pstdev(values)), min(values), max(values))
