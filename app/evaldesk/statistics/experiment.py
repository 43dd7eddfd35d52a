"""The statistics of an experiment: variants against a baseline, all pairs, cost against quality, factors, luck.

Each difference is that of two runs (`compare_means`); Holm's adjustment holds a family of them together.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import ceil, exp, floor, lgamma, log, log1p, sqrt
from statistics import fmean
from typing import TypeVar

from evaldesk.model.comparison import ROUNDING, Comparison, Sample
from evaldesk.model.conclusion import Interval
from evaldesk.model.experiment import (
    ALPHA,
    FEWEST_SHARED_CASES,
    Analysis,
    Effect,
    Factor,
    Grid,
    Luck,
    PairDifference,
    VariantDifference,
    VariantRate,
)
from evaldesk.statistics.comparison import compare_means, compare_scores, holm
from evaldesk.statistics.intervals import case_rate_interval, t_quantile

K = TypeVar("K", bound=Hashable)

_FAR = 12.0
"""Standard deviations beyond which a number of passes has no chance that a double could hold beside 1."""


def analyse(
    cases: Mapping[str, Mapping[K, Sample]],
    baseline: str,
    *,
    costs: Mapping[str, float | None] | None = None,
    grid: Grid | None = None,
    unranked: Collection[str] = (),
) -> Analysis:
    """Analyse variants by name, in order, each with the scored trials of its cases: a passed trial is 1, another 0.

    `costs` are dollars of a trial. Variants in `unranked`, such as replayed and imported runs, are compared with the
    baseline and take no part in "may be best". (reference/experiments.md 5)
    """
    costs = costs or {}
    ranked = [name for name in cases if name not in unranked]
    pairs = _pairs({name: cases[name] for name in ranked})
    rates = [_rate(name, cases[name], costs.get(name), pairs, costs) for name in cases]
    rates = [
        replace(
            each,
            is_dominated_by_points=each.variant in ranked
            and any(_is_above(other, each) for other in rates if other.variant in ranked),
            may_be_best=each.variant in ranked and each.rate is not None and not each.beaten_by,
        )
        for each in rates
    ]
    return Analysis(
        baseline,
        tuple(rates),
        _differences(cases, baseline),
        pairs,
        effects(cases, grid) if grid else (),
        _luck([each for each in rates if each.variant in ranked and each.rate is not None]),
    )


def worse_than_leader(cases: Mapping[str, Mapping[K, Sample]], n_looks: int) -> tuple[str, ...]:
    """The variants to drop at one of `n_looks` looks: worse than the leader beyond chance in any of the looks."""
    leader = max(cases, key=lambda name: fmean(each.mean for each in cases[name].values()) if cases[name] else -1.0)
    differences = _differences(cases, leader)
    return tuple(
        each.variant
        for each in differences
        if each.word == "worse" and each.holm_p is not None and each.holm_p <= ALPHA / n_looks
    )


def expected_lead(n_variants: int, n_trials: int, rate: float) -> float:
    """The expected lead of the best of equal variants over their rate: E[max of k binomials] / N - p, exactly."""
    if n_trials < 1 or not 0 < rate < 1:
        return 0.0
    middle, error = n_trials * rate, sqrt(n_trials * rate * (1 - rate))
    first = max(0, floor(middle - _FAR * error - _FAR))
    last = min(n_trials, ceil(middle + _FAR * error + _FAR))
    total, mean, earlier_share = 0.0, 0.0, 0.0
    all_ways = lgamma(n_trials + 1)
    for passes in range(first, last + 1):
        ways = all_ways - lgamma(passes + 1) - lgamma(n_trials - passes + 1)
        total += exp(ways + passes * log(rate) + (n_trials - passes) * log1p(-rate))
        share = min(total, 1.0) ** n_variants
        mean += passes * (share - earlier_share)
        earlier_share = share
    return max(0.0, mean / n_trials - rate)


def effects(cases: Mapping[str, Mapping[K, Sample]], grid: Grid) -> tuple[Effect, ...]:
    """The main effects of all pairs of levels, then the interactions with the first levels, all adjusted together."""
    contrasts = [*_main_effects(cases, grid), *_interactions(cases, grid)]
    ps = _adjusted([each.comparison for each in contrasts])
    return tuple(replace(each, holm_p=p) for each, p in zip(contrasts, ps, strict=True))


def adjusted_together(comparisons: Sequence[tuple[str, Comparison | None]]) -> tuple[VariantDifference, ...]:
    """The differences of variants by their names, each from its own baseline, adjusted by Holm for all of them."""
    ps = _adjusted([comparison for _, comparison in comparisons])
    return tuple(
        VariantDifference(comparison, p, name, _family_interval(comparison, len(comparisons)))
        for (name, comparison), p in zip(comparisons, ps, strict=True)
    )


def _differences(cases: Mapping[str, Mapping[K, Sample]], baseline: str) -> tuple[VariantDifference, ...]:
    names = [name for name in cases if name != baseline]
    return adjusted_together([(name, compare_means(cases[baseline], cases[name])) for name in names])


def _family_interval(comparison: Comparison | None, n_variants: int) -> Interval | None:
    """The t interval at 1 - 0.05 / the number of differences from the baseline."""
    if comparison is None or comparison.n_cases < FEWEST_SHARED_CASES or comparison.interval is None:
        return None
    half = t_quantile(comparison.n_cases - 1, 1 - ALPHA / n_variants) * (comparison.error or 0.0)
    return Interval(comparison.difference - half, comparison.difference + half)


def _pairs(cases: Mapping[str, Mapping[K, Sample]]) -> tuple[PairDifference, ...]:
    names = list(combinations(cases, 2))
    comparisons = [compare_means(cases[second], cases[first]) for first, second in names]
    return tuple(
        PairDifference(comparison, p, first, second)
        for (first, second), comparison, p in zip(names, comparisons, _adjusted(comparisons), strict=True)
    )


def _adjusted(comparisons: Sequence[Comparison | None]) -> list[float | None]:
    """The p values adjusted by Holm; None for a comparison of too few cases, which counts in the family as well."""
    ps = [each.p if each and each.n_cases >= FEWEST_SHARED_CASES else None for each in comparisons]
    return [
        None if p is None else high for p, high in zip(ps, holm([1.0 if p is None else p for p in ps]), strict=True)
    ]


def _rate(
    name: str,
    cases: Mapping[K, Sample],
    cost: float | None,
    pairs: Sequence[PairDifference],
    costs: Mapping[str, float | None],
) -> VariantRate:
    beaten_by = tuple(pair.winner for pair in pairs if pair.winner and pair.loser == name)
    return VariantRate(
        variant=name,
        n_cases=len(cases),
        n_trials=sum(each.n for each in cases.values()),
        rate=fmean(each.mean for each in cases.values()) if cases else None,
        interval=case_rate_interval((each.n, round(each.n * each.mean), 1) for each in cases.values()),
        cost=cost,
        beaten_by=beaten_by,
        dominated_by=tuple(winner for winner in beaten_by if _costs_no_more(costs.get(winner), cost)),
        is_dominated_by_points=False,
        may_be_best=False,
    )


def _is_above(other: VariantRate, variant: VariantRate) -> bool:
    """Whether the other is no worse in rate and cost, by points alone, and better in one of them."""
    if other.rate is None or variant.rate is None or not _costs_no_more(other.cost, variant.cost):
        return False
    lead = other.rate - variant.rate
    is_cheaper = other.cost is not None and variant.cost is not None and other.cost < variant.cost
    return lead > ROUNDING or (lead >= -ROUNDING and is_cheaper)


def _costs_no_more(cost: float | None, other: float | None) -> bool:
    return cost is not None and other is not None and cost <= other


def _luck(rates: Sequence[VariantRate]) -> Luck | None:
    """That of the leader, at the fewest trials of a variant and the mean rate of all; None where none leads."""
    by_rate = sorted(rates, key=lambda each: each.rate or 0.0)
    if len(rates) < 2 or (by_rate[-1].rate or 0.0) - (by_rate[-2].rate or 0.0) < ROUNDING:
        return None
    leader = by_rate[-1]
    n_trials, rate = min(each.n_trials for each in rates), fmean(each.rate or 0.0 for each in rates)
    return Luck(leader.variant, len(rates), n_trials, expected_lead(len(rates), n_trials, rate))


def _main_effects(cases: Mapping[str, Mapping[K, Sample]], grid: Grid) -> list[Effect]:
    return [
        Effect(
            compare_scores(_means_at(cases, grid, {at: reference}), _means_at(cases, grid, {at: level})),
            None,
            factor.name,
            level,
            reference,
        )
        for at, factor in enumerate(grid.factors)
        for reference, level in combinations(factor.levels, 2)
    ]


def _interactions(cases: Mapping[str, Mapping[K, Sample]], grid: Grid) -> list[Effect]:
    return [
        Effect(
            compare_scores(
                _contrast(cases, grid, (at, level, reference), {other_at: other_reference}),
                _contrast(cases, grid, (at, level, reference), {other_at: other_level}),
            ),
            None,
            factor.name,
            level,
            reference,
            other.name,
            other_level,
            other_reference,
        )
        for (at, factor), (other_at, other) in combinations(enumerate(grid.factors), 2)
        for (reference, level), (other_reference, other_level) in product(_from_first(factor), _from_first(other))
    ]


def _from_first(factor: Factor) -> list[tuple[str, str]]:
    return [(factor.levels[0], level) for level in factor.levels[1:]]


def _contrast(
    cases: Mapping[str, Mapping[K, Sample]], grid: Grid, step: tuple[int, str, str], levels: Mapping[int, str]
) -> dict[K, float]:
    """The difference level - reference of one factor in each case, at these levels of others."""
    at, level, reference = step
    upper = _means_at(cases, grid, {**levels, at: level})
    lower = _means_at(cases, grid, {**levels, at: reference})
    return {key: value - lower[key] for key, value in upper.items() if key in lower}


def _means_at(cases: Mapping[str, Mapping[K, Sample]], grid: Grid, levels: Mapping[int, str]) -> dict[K, float]:
    """The mean pass rate of each case over the variants at these levels, of cases that all of them scored."""
    variants = [
        cases.get(name, {})
        for combination, name in grid.variants.items()
        if all(combination[at] == level for at, level in levels.items())
    ]
    first, *others = variants
    return {key: fmean(each[key].mean for each in variants) for key in first if all(key in each for each in others)}
