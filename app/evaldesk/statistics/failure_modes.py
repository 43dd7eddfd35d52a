"""Statistics of failure modes: shares, an estimate of unseen ones, and changes between runs.

(reference/failure_modes.md section 4)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import erfc, exp, fsum, lgamma, sqrt
from statistics import fmean

from evaldesk.model.comparison import ROUNDING
from evaldesk.model.conclusion import Interval
from evaldesk.statistics.comparison import holm
from evaldesk.statistics.exact_tests import sign_flips
from evaldesk.statistics.intervals import wilson

_MAX_EXACT = 24


@dataclass(frozen=True, slots=True)
class Stratum:
    """Trials that were drawn with one chance: `n_all` of them; `cases` counts the cases by (read, with the mode)."""

    n_all: int
    cases: Mapping[tuple[int, int], int]

    @property
    def n_cases(self) -> int:
        """The number of cases with a read trial."""
        return sum(self.cases.values())

    @property
    def n_read(self) -> int:
        """Trials that were read."""
        return sum(n * n_of_case for (n_of_case, _), n in self.cases.items())

    @property
    def n_found(self) -> int:
        """Trials in which the mode was found."""
        return sum(n * n_of_case for (_, n_of_case), n in self.cases.items())


@dataclass(frozen=True, slots=True)
class Prevalence:
    """The share of trials with a mode, 0 to 1; `n_effective` is None where all were read: then it is known."""

    share: float
    error: float
    n_effective: float | None
    interval: Interval


@dataclass(frozen=True, slots=True)
class Saturation:
    """The number of seen modes, and a lower bound of unseen ones; `expected_new` is a chance for each trial."""

    n_read: int
    n_modes: int
    n_once: int
    n_twice: int
    unseen: float
    coverage: float
    expected_new: float


@dataclass(frozen=True, slots=True)
class ModeChange:
    """The change of the share of trials with a mode, the mean over cases; `p_holm` is over all modes."""

    n_cases: int
    n_less: int
    n_more: int
    difference: float
    p: float
    p_holm: float


def prevalence(strata: Sequence[Stratum]) -> Prevalence | None:
    """The share of a mode over all trials of the strata that were read from, clustered by case; None when none was.

    Wilson's interval for as many independent trials as tell as much. (Korn and Graubard 1998)
    """
    sample = [(stratum, n) for stratum in strata if (n := stratum.n_read)]
    n_all, n_read = sum(stratum.n_all for stratum, _ in sample), sum(n for _, n in sample)
    if not n_all:
        return None
    shares = [stratum.n_found / n for stratum, n in sample]
    share = fsum(stratum.n_all * each for (stratum, _), each in zip(sample, shares, strict=True)) / n_all
    if n_read >= n_all:
        return Prevalence(share, 0.0, None, Interval(share, share))
    parts = zip(sample, shares, strict=True)
    variance = fsum((stratum.n_all / n_all) ** 2 * _variance(stratum, n, each) for (stratum, n), each in parts)
    n_effective = share * (1 - share) / variance if variance > 0 else float(n_read)
    return Prevalence(share, sqrt(variance), n_effective, wilson(share * n_effective, n_effective))


def _variance(stratum: Stratum, n: int, share: float) -> float:
    """Of the share in `n` trials: between cases; a single trial may be either, a single case is its trials."""
    unread = 1 - n / stratum.n_all
    if unread <= 0:
        return 0.0
    if n < 2:
        return unread / 4
    n_cases = stratum.n_cases
    if n_cases < 2:
        return unread * share * (1 - share) / (n - 1)
    squares = fsum(
        n * (n_case_found - n_case_read * share) ** 2 for (n_case_read, n_case_found), n in stratum.cases.items()
    )
    return unread * n_cases / (n_cases - 1) * squares / n**2


def saturation(times: Sequence[int], n_read: int) -> Saturation:
    """The estimate of unseen modes after `n_read` failed trials, from the counts of seen modes.

    `unseen` is a lower bound (Chao 1987), `coverage` the share of the causes of failure that the modes are (Chao and
    Jost 2012). Without a finding, and after one trial, nothing is known: coverage 0.
    """
    frequencies = [each for each in times if each]
    once, twice = frequencies.count(1), frequencies.count(2)
    if not frequencies or not n_read:
        return Saturation(n_read, 0, 0, 0, 0.0, 0.0, 0.0)
    total, n_others = sum(frequencies), n_read - 1
    pairs = once**2 / (2 * twice) if twice else once * (once - 1) / 2
    return Saturation(
        n_read=n_read,
        n_modes=len(frequencies),
        n_once=once,
        n_twice=twice,
        unseen=n_others / n_read * pairs,
        coverage=1 - once / total * _unseen_share(once, twice, n_others),
        expected_new=once / n_read,
    )


def _unseen_share(once: int, twice: int, n_others: int) -> float:
    if not once or not n_others:
        return float(once > 0)
    if not twice and once > 1:
        return n_others * (once - 1) / (n_others * (once - 1) + 2)
    return n_others * once / (n_others * once + 2 * twice)


def accumulation(times: Sequence[int], n_read: int, at: int) -> float:
    """The modes expected in `at` of the `n_read` trials, drawn in any order; exact, without drawing any."""
    return fsum(1 - _chance_of_none(each, n_read, at) for each in times if each)


def _chance_of_none(times: int, n_read: int, at: int) -> float:
    """C(n_read - times, at) / C(n_read, at)."""
    if at > n_read - times:
        return 0.0
    n_without = n_read - times
    return exp(lgamma(n_without + 1) - lgamma(n_without - at + 1) - lgamma(n_read + 1) + lgamma(n_read - at + 1))


def mode_changes(differences: Mapping[str, Sequence[float]]) -> dict[str, ModeChange]:
    """Each mode's change from one run to another, from its shares of each case's trials, after less before."""
    ps = [_p([each for each in values if abs(each) > ROUNDING]) for values in differences.values()]
    return {
        mode: ModeChange(
            n_cases=len(values),
            n_less=sum(each < -ROUNDING for each in values),
            n_more=sum(each > ROUNDING for each in values),
            difference=fmean(values) if values else 0.0,
            p=p,
            p_holm=adjusted,
        )
        for (mode, values), p, adjusted in zip(differences.items(), ps, holm(ps), strict=True)
    }


def _p(nonzero: Sequence[float]) -> float:
    if len(nonzero) <= _MAX_EXACT:
        return sign_flips([round(each / ROUNDING) for each in nonzero])
    return erfc(abs(fsum(nonzero)) / sqrt(2 * fsum(each**2 for each in nonzero)))
