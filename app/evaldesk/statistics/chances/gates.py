"""How often a gate holds, and how often it fails although nothing changed: exact, from pass rates of cases.

Cases are independent; a trial of a case passes with the chance of its case. (reference/decisions.md 2.1)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb, exp, fsum, lgamma, log, log1p
from typing import TypeAlias

from evaldesk.statistics.exact_tests import fisher_drop

Kinds: TypeAlias = Sequence[tuple[float, int, int]]
"""Cases by the chance of one of their trials to pass, 0 to 1: (chance, trials of each, number of such cases)."""

ALPHA = 0.05
ROUNDING = 1e-9
_TAIL = 1e-20
_EXACT_UP_TO = 1000
_MAX_VALUES = 200_000
_MOST_LIKELY_DROPS = 3


@dataclass(frozen=True, slots=True)
class Answers:
    """How often a gate holds, and how often it fails; in all other builds it is neutral: too close to tell.

    `error` is how far a chance can be off, which is 0 unless there are too many values to add up.
    """

    holds: float
    fails: float
    error: float = 0.0

    @classmethod
    def that_hold(cls, chance: float, error: float = 0.0) -> Answers:
        """Those of a gate that is never neutral."""
        return cls(chance, 1.0 - chance, error)

    @property
    def neutral(self) -> float:
        """How often it is neutral; what is left by rounding is none."""
        left = 1.0 - self.holds - self.fails
        return left if left > ROUNDING else 0.0


def needed_passes(n: int, share: float) -> int:
    """The fewest of `n` trials that must pass to reach `share`, 0 to 1."""
    return ceil(n * share - ROUNDING)


@lru_cache(maxsize=4096)
def chance_of_at_least(needed: int, n: int, p: float) -> float:
    """The chance that at least `needed` of `n` trials pass, each with chance `p`."""
    if needed <= 0:
        return 1.0
    return min(1.0, fsum(binomial(n, p, passes) for passes in range(needed, n + 1)))


def binomial(n: int, p: float, passes: int) -> float:
    """The chance that exactly `passes` of `n` trials pass."""
    if not 0 <= passes <= n:
        return 0.0
    if p in (0.0, 1.0):
        return 1.0 if passes == n * p else 0.0
    if n <= _EXACT_UP_TO:
        return comb(n, passes) * p**passes * (1 - p) ** (n - passes)
    ways = lgamma(n + 1) - lgamma(passes + 1) - lgamma(n - passes + 1)
    return exp(ways + passes * log(p) + (n - passes) * log1p(-p))


def pass_rate_holds(kinds: Kinds, least: float) -> float:
    """The chance that the pass rate of all trials reaches `least`, where all cases have as many."""
    n_trials = sum(n * n_cases for _, n, n_cases in kinds)
    first, chances = 0, [1.0]
    for p, n, n_cases in kinds:
        group_first, group = counts_of_passes(n * n_cases, p)
        first, chances = first + group_first, _sum_of(chances, group)
    return min(1.0, fsum(chances[max(0, needed_passes(n_trials, least) - first) :]))


def every_case_holds(kinds: Kinds, least: float) -> float:
    """The chance that every case passes at least the share `least` of its trials."""
    chance = 1.0
    for p, n, n_cases in kinds:
        chance *= chance_of_at_least(needed_passes(n, least), n, p) ** n_cases
    return chance


def curve_holds(kinds: Kinds, k: int, least: float, *, is_hat: bool) -> float | None:
    """The chance that the mean pass@k, or pass^k, reaches `least`, over the trials that every case has.

    None when k exceeds them, and for too many values.
    """
    n, n_cases = min((n for _, n, _ in kinds), default=0), sum(times for _, _, times in kinds)
    if not 1 <= k <= n:
        return None
    whole = comb(n, k)
    of_case = [comb(c, k) if is_hat else whole - comb(n - c, k) for c in range(n + 1)]
    sums = {0: 1.0}
    for p, _, times in kinds:
        case: dict[int, float] = {}
        for c, value in enumerate(of_case):
            case[value] = case.get(value, 0.0) + binomial(n, p, c)
        found = _repeated(case, times)
        if found is None or len(found) * len(sums) > 25 * _MAX_VALUES:
            return None
        sums = _sum_of_values(sums, found)
    needed = n_cases * whole * least - n_cases * whole * ROUNDING
    return min(1.0, fsum(chance for value, chance in sums.items() if value >= needed))


def regressed_by_chance(p: float, n: int, threshold: float) -> float:
    """The chance that an unchanged case passes in one run of `n` trials and does not pass in the next."""
    passes = chance_of_at_least(needed_passes(n, threshold), n, p)
    return passes * (1 - passes)


def regressed_in_draws(scored: int, passed: int, m: int, threshold: float) -> float | None:
    """The chance that a case passes in m of its trials and does not pass in m others, drawn without replacement.

    None for fewer than 2 m scored trials.
    """
    if m < 1 or scored < 2 * m:
        return None
    needed, failed = needed_passes(m, threshold), scored - passed
    pairs = 0
    for a in range(max(needed, m - failed), min(m, passed) + 1):
        second = sum(comb(passed - a, b) * comb(failed - (m - a), m - b) for b in range(needed))
        pairs += comb(passed, a) * comb(failed, m - a) * second
    return pairs / (comb(scored, m) * comb(scored - m, m))


def more_than(allowed: int, chances: Iterable[tuple[float, int]]) -> float:
    """The chance that more than `allowed` of independent events happen: (chance of one, how many such events)."""
    sums = [1.0]
    for p, n in chances:
        sums = _sum_of(sums, [binomial(n, p, happened) for happened in range(min(allowed, n) + 1)])[: allowed + 1]
    return max(0.0, 1.0 - fsum(sums))


def still_regressed(chance: float, p: float, needed: int, n: int) -> float:
    """The chance that a case seems to have regressed, and then passes fewer than `needed` of `n` fresh trials.

    `chance` is that of seeming to have regressed, `p` that of passing a fresh trial.
    """
    return chance * (1 - chance_of_at_least(needed, n, p))


def trials_to_tell(n_cases: int) -> int:
    """The fewest trials of each case in both runs with which one case can show a likely drop among `n_cases`."""
    n = 2
    while n_cases * fisher_drop(n, n, 0, n) >= ALPHA:
        n += 1
    return n


def likely_drops(cases: Sequence[tuple[float, float, int, int]], allowed: int) -> float | None:
    """The chance that more than `allowed` cases have a likely drop: Fisher's test, one-sided, and Holm over cases.

    `cases` are (chance to pass before, chance to pass now, trials of each in both runs, number of such cases); those
    with one trial are not tested. None for more than 3 allowed, where there are too many ways.
    """
    tested = [case for case in cases if case[2] > 1]
    n_cases = sum(times for *_, times in tested)
    if allowed >= n_cases:
        return 0.0
    if allowed > _MOST_LIKELY_DROPS:
        return None
    levels = [ALPHA / (n_cases - place) for place in range(allowed + 1)]
    ways: dict[tuple[int, ...], float] = {(0,) * len(levels): 1.0}
    for before, now, n, times in tested:
        below = [_drop_below(before, now, n, level) for level in levels]
        for _ in range(times):
            ways = _with_case(ways, below, allowed + 1)
    return fsum(chance for below_bar, chance in ways.items() if all(m > at for at, m in enumerate(below_bar)))


def _with_case(ways: dict[tuple[int, ...], float], below: Sequence[float], most: int) -> dict[tuple[int, ...], float]:
    """The chances of the numbers of cases below each level, with one case more; numbers count up to `most`."""
    steps = [(len(below), 1 - below[-1])]
    steps += [(at, chance - (below[at - 1] if at else 0.0)) for at, chance in enumerate(below)]
    found: dict[tuple[int, ...], float] = {}
    for counts, chance in ways.items():
        for first, step in steps:
            if step > 0:
                to = tuple(min(most, count + 1) if at >= first else count for at, count in enumerate(counts))
                found[to] = found.get(to, 0.0) + chance * step
    return found


@lru_cache(maxsize=4096)
def _drop_below(before: float, now: float, n: int, level: float) -> float:
    """The chance that the test of one case gives less than `level`."""
    first, chances = counts_of_passes(n, before)
    total, passes_now = 0.0, -1
    for passed, chance in enumerate(chances, first):
        while fisher_drop(passed, n, passes_now + 1, n) < level:
            passes_now += 1
        total += chance * (1 - chance_of_at_least(passes_now + 1, n, now))
    return total


def counts_of_passes(n: int, p: float) -> tuple[int, list[float]]:
    """The chances of all counts of passes that are not negligible, and the first of these counts."""
    middle = min(n, int(n * p + 0.5))
    low, high = _reach(middle, -1, n, p), _reach(middle, 1, n, p)
    return low, [binomial(n, p, passes) for passes in range(low, high + 1)]


def _reach(start: int, step: int, n: int, p: float) -> int:
    here = start
    while binomial(n, p, here + step) > _TAIL:
        here += step
    return here


def _sum_of(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """The chances of the sum of two independent counts."""
    sums = [0.0] * (len(one) + len(other) - 1)
    for place, chance in enumerate(one):
        for step, other_chance in enumerate(other, place):
            sums[step] += chance * other_chance
    return sums


def _repeated(case: dict[int, float], times: int) -> dict[int, float] | None:
    """The chances of the sum over `times` equal cases, by repeated doubling; None for too many values."""
    sums, power = {0: 1.0}, case
    while times:
        if len(power) * max(len(sums), len(power)) > 25 * _MAX_VALUES:
            return None
        if times & 1:
            sums = _sum_of_values(sums, power)
        times >>= 1
        if times:
            power = _sum_of_values(power, power)
    return sums


def _sum_of_values(one: dict[int, float], other: dict[int, float]) -> dict[int, float]:
    sums: dict[int, float] = {}
    for value, chance in one.items():
        for other_value, other_chance in other.items():
            both = chance * other_chance
            if both > _TAIL:
                sums[value + other_value] = sums.get(value + other_value, 0.0) + both
    return sums
