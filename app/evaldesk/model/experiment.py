"""An experiment: one eval set played under several configurations, its variants, and the analysis of their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from evaldesk.model.comparison import Comparison
from evaldesk.model.conclusion import Interval
from evaldesk.model.evalset import JsonObject

ALPHA = 0.05
"""The largest p value, adjusted by Holm, from which a difference has a word."""
FEWEST_SHARED_CASES = 5
"""Below these two variants are counted and not tested."""
Difference: TypeAlias = Literal["better", "worse", "cannot be told", "too few shared cases"]


@dataclass(frozen=True, slots=True)
class Factor:
    """An option that the variants of a grid differ in, with its levels."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A full grid: its factors, and the name of the variant of each combination of their levels."""

    factors: tuple[Factor, ...]
    variants: Mapping[tuple[str, ...], str]


@dataclass(frozen=True, slots=True)
class Variant:
    """One configuration of an experiment: its name, and the options that it has of its own, as a person gave them.

    `levels` are its levels of the factors of a full grid, in their order; empty without one.
    """

    name: str
    options: JsonObject
    levels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExperimentPlan:
    """A request for an experiment: its variants, the order and the bounds of their trials.

    `baseline` is the index of the variant that others are compared with. `budget` bounds all trials together, as
    `budget_of` reads it: at the cap no trial begins. With `drops_worse` a variant that is worse than the leader is not
    played on, looked at after each of `n_looks` blocks. `factors` are those of a full grid. The gates of the runs of
    `gate_variants` count.
    """

    name: str
    variants: tuple[Variant, ...]
    seed: int
    concurrency: int
    baseline: int = 0
    budget: str | None = None
    drops_worse: bool = False
    n_looks: int = 1
    factors: tuple[Factor, ...] = ()
    gate_variants: tuple[str, ...] = ()

    @property
    def grid(self) -> Grid | None:
        """The full grid; None where the variants were listed."""
        if not self.factors:
            return None
        return Grid(self.factors, {each.levels: each.name for each in self.variants if each.levels})


@dataclass(frozen=True, slots=True)
class Member:
    """The run of a variant. `run_id` is None where the run was removed for good, `is_deleted` in the trash."""

    variant_index: int
    run_id: int | None
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class Experiment:
    """A stored experiment with the runs of its variants, in their order.

    `dropped` has the number of blocks that a variant had when it was dropped early, by its index.
    """

    id: int
    plan: ExperimentPlan
    members: tuple[Member, ...]
    created_at: datetime
    dropped: Mapping[int, int]

    @property
    def run_ids(self) -> tuple[int, ...]:
        """The runs that are there, in the order of their variants."""
        return tuple(each.run_id for each in self.members if each.run_id is not None and not each.is_deleted)


@dataclass(frozen=True, slots=True)
class RateDifference:
    """A difference of pass rates over the shared cases, with its p value adjusted for all that are tested beside it.

    `comparison` is None without a shared case, `holm_p` also below `FEWEST_SHARED_CASES`.
    """

    comparison: Comparison | None
    holm_p: float | None

    @property
    def n_cases(self) -> int:
        """The number of shared cases."""
        return self.comparison.n_cases if self.comparison else 0

    @property
    def n_unshared_cases(self) -> int:
        """The number of cases that only one side scored."""
        return self.comparison.n_only_before + self.comparison.n_only_after if self.comparison else 0

    @property
    def value(self) -> float | None:
        """The mean difference; None where the cases are too few for one."""
        return self.comparison.difference if self.comparison and self.holm_p is not None else None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval; None below `FEWEST_SHARED_CASES`, and where every case differs by the same."""
        return self.comparison.interval if self.comparison and self.holm_p is not None else None

    @property
    def p(self) -> float | None:
        """The p value of this difference alone."""
        return self.comparison.p if self.comparison and self.holm_p is not None else None

    @property
    def word(self) -> Difference:
        """The answer, from the adjusted p value alone."""
        if self.value is None or self.holm_p is None:
            return "too few shared cases"
        if self.holm_p > ALPHA or self.value == 0:
            return "cannot be told"
        return "better" if self.value > 0 else "worse"


@dataclass(frozen=True, slots=True)
class VariantDifference(RateDifference):
    """The difference variant - baseline. `family_interval` is wide enough to hold for all variants at once."""

    variant: str
    family_interval: Interval | None


@dataclass(frozen=True, slots=True)
class PairDifference(RateDifference):
    """The difference first - second, of one pair of all."""

    first: str
    second: str

    @property
    def loser(self) -> str | None:
        """The variant that the other beats; None where they cannot be told apart."""
        return {"better": self.second, "worse": self.first}.get(self.word)

    @property
    def winner(self) -> str | None:
        """The variant that beats the other; None where they cannot be told apart."""
        return {"better": self.first, "worse": self.second}.get(self.word)


@dataclass(frozen=True, slots=True)
class Effect(RateDifference):
    """A main effect of a full grid, or an interaction.

    A main effect is the difference level - reference within each case, over all levels of the other factors. An
    interaction is how much larger that is with `other_level` of `other_factor` than with its `other_reference`.
    """

    factor: str
    level: str
    reference: str
    other_factor: str = ""
    other_level: str = ""
    other_reference: str = ""

    @property
    def is_interaction(self) -> bool:
        """Whether it is a difference of differences."""
        return bool(self.other_factor)


@dataclass(frozen=True, slots=True)
class VariantRate:
    """The pass rate of a variant, the mean over its scored cases, and its cost in dollars of a trial.

    `rate` and `interval` are None without a scored case. `beaten_by` are the variants that beat it, `dominated_by`
    those of them that cost no more. `is_dominated_by_points`: another has a rate and a cost that are no worse and not
    both the same, which may be chance. `may_be_best` is False as well where a variant is not compared with all.
    """

    variant: str
    n_cases: int
    n_trials: int
    rate: float | None
    interval: Interval | None
    cost: float | None
    beaten_by: tuple[str, ...]
    dominated_by: tuple[str, ...]
    is_dominated_by_points: bool
    may_be_best: bool


@dataclass(frozen=True, slots=True)
class Luck:
    """The lead over its own rate that the best of `n_variants` equal ones shows by chance at `n_trials` of each."""

    leader: str
    n_variants: int
    n_trials: int
    lead: float


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that an experiment says: of each variant in order, against the baseline, of all pairs, and of the factors."""

    baseline: str
    rates: tuple[VariantRate, ...]
    differences: tuple[VariantDifference, ...]
    pairs: tuple[PairDifference, ...]
    effects: tuple[Effect, ...]
    luck: Luck | None

    @property
    def may_be_best(self) -> tuple[str, ...]:
        """The variants that no other beats."""
        return tuple(each.variant for each in self.rates if each.may_be_best)

    @property
    def best(self) -> str | None:
        """The one variant that may be the best, where others were ranked beside it; None while there are more."""
        names = self.may_be_best
        return names[0] if len(names) == 1 and len(self.ranked) > 1 else None

    @property
    def ranked(self) -> frozenset[str]:
        """The variants with a scored trial that are compared in pairs; replayed and imported runs are not."""
        names = {name for pair in self.pairs for name in (pair.first, pair.second)}
        return frozenset(each.variant for each in self.rates if each.rate is not None and each.variant in names)

    @property
    def front(self) -> tuple[str, ...]:
        """The variants that none beats at the same cost or less."""
        return tuple(each.variant for each in self.rates if not each.dominated_by)

    def rate_of(self, variant: str) -> VariantRate:
        """The rate of the variant of that name."""
        return next(each for each in self.rates if each.variant == variant)

    def difference_of(self, variant: str) -> VariantDifference | None:
        """The difference of the variant of that name from the baseline; None for the baseline itself."""
        return next((each for each in self.differences if each.variant == variant), None)
