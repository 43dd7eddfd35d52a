"""Chances of means over cases and of their intervals: of a pass rate and its threshold, of a difference and its margin.

They are distributions on a lattice, from the product of the Fourier transforms of the cases. They are exact as long as
the lattice has few enough points; else values are rounded to a coarser one, and how far a chance can be off is told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb, floor, inf, lcm, log, sqrt
from typing import TYPE_CHECKING, TypeAlias

from evaldesk.model.comparison import FEWEST_ALIKE
from evaldesk.statistics.chances.gates import ROUNDING, Kinds, binomial, counts_of_passes, pass_rate_holds
from evaldesk.statistics.intervals import Z_95, pass_at_k, pass_hat_k, t_95

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Spectrum: TypeAlias = NDArray[np.complex128]

Pairs: TypeAlias = tuple[tuple[float, float, int, int], ...]
"""Cases of two runs: chance of a trial to pass before, and now, trials of each case in both runs, number of cases."""

_MOST_POINTS = 1 << 16
_MOST_WORK = 3 << 18
"""Of a lattice of two dimensions: its points, times the kinds of cases."""
_MOST_OFF = 0.01
"""A lattice is not made so coarse that a chance is off by more."""
_NEGLIGIBLE = -log(1e-12)
_UNSEEN = 1e-17
_FINEST = 1 << 20
_DRAWN_OFF = 0.05
"""By how much at most the chances of pass@k differ between intervals of drawn cases and Student's: measured."""
_STEEPEST = 0.242
"""The most of z times the density of Gauss at z: a spread that is wider by r moves a chance by at most r times this."""


def rate_holds(kinds: Kinds, least: float) -> tuple[float, float]:
    """The chance that the pass rate reaches `least`, each case weighing the same: at least, and at most.

    Both are the same unless there are very many different numbers of trials.
    """
    if len({n for _, n, _ in kinds}) == 1:
        exact = pass_rate_holds(kinds, least)
        return exact, exact
    found = _sum_of_rates(tuple(kinds))
    needed = sum(times for _, _, times in kinds) * found.scale * (least - ROUNDING)
    low = found.from_on(needed)
    return low, found.from_on(floor(needed - found.n_rounded) + 1) if found.n_rounded else low


@dataclass(frozen=True, slots=True)
class _Sum:
    """The chances of a sum in steps of 1 / `scale`, from `first` steps on; it may be up to `n_rounded` steps higher."""

    scale: int
    first: int
    chances: Floats
    n_rounded: int

    def from_on(self, least: float) -> float:
        """The chance of at least so many steps."""
        place = max(0, -floor(-least) - self.first)
        return min(1.0, max(0.0, float(self.chances[place:].sum())))


@lru_cache(maxsize=64)
def _sum_of_rates(kinds: tuple[tuple[float, int, int], ...]) -> _Sum:
    """The sum of the pass rates of the cases: the passes of cases with as many trials are one count each."""
    import numpy as np

    counts = {n: passes_of(n, kinds) for n in sorted({n for _, n, _ in kinds})}
    width = sum(len(chances) / n for n, (_, chances) in counts.items())
    scale = _scale(tuple(counts), int(_MOST_POINTS / width))
    first, spectrum = 0, np.ones(_MOST_POINTS // 2 + 1, np.complex128)
    for n, (fewest, chances) in counts.items():
        steps = (np.arange(fewest, fewest + len(chances)) * scale) // n
        values = np.zeros(_MOST_POINTS)
        np.add.at(values, steps - steps[0], chances)
        spectrum *= np.fft.rfft(values)
        first += int(steps[0])
    n_rounded = sum(scale % n != 0 for n in counts)
    return _Sum(scale, first, np.fft.irfft(spectrum, _MOST_POINTS), n_rounded)


def passes_of(n: int, kinds: Kinds) -> tuple[int, Floats]:
    """The passes of all cases with `n` trials: the fewest, and the chances from there on."""
    import numpy as np

    fewest, sums = 0, np.ones(1)
    for p, own, times in kinds:
        if own == n:
            first, chances = counts_of_passes(n * times, p)
            fewest, sums = fewest + first, np.convolve(sums, chances)
    return fewest, sums


@lru_cache(maxsize=64)
def _scale(ns: tuple[int, ...], most: int) -> int:
    """The steps of 1 that fit the rates of cases with so many trials: all, or as many as `most` steps can."""
    whole = lcm(*ns)
    if whole <= most:
        return whole
    near = 60 if most >= 60 else 1
    return min(range(near, max(near, most) + 1, near), key=lambda scale: sum(scale % n != 0 for n in ns) / scale)


@dataclass(frozen=True, slots=True)
class MeanChances:
    """The chances of a mean over cases and of the ends of its interval; each entry is one of its values.

    `error` is how far a chance can be off.
    """

    means: Floats
    lows: Floats
    highs: Floats
    chances: Floats
    error: float = 0.0

    def below(self, threshold: float) -> float:
        """The chance that the whole interval lies below the threshold."""
        return _within_one(self.chances[self.highs < threshold].sum())

    def above(self, threshold: float) -> float:
        """The chance that no part of the interval lies below the threshold."""
        return _within_one(self.chances[self.lows >= threshold].sum())

    def open_below(self, threshold: float) -> float:
        """The chance that the mean lies below the threshold and may be anywhere."""
        return _within_one(self.chances[(self.highs == inf) & (self.means < threshold)].sum())

    def none_around(self, threshold: float) -> float:
        """The chance that the mean is 0 and the threshold lies inside the interval."""
        is_none = (self.means < ROUNDING) & (self.lows < threshold) & (self.highs >= threshold)
        return _within_one(self.chances[is_none].sum())


def _within_one(chance: float) -> float:
    return min(1.0, max(0.0, float(chance)))


@lru_cache(maxsize=64)
def mean_difference(pairs: Pairs) -> MeanChances:
    """The difference of the mean pass rates of two runs over paired cases, as `compare_scores` tells it."""
    import numpy as np

    found = _joint(
        [(*_differences(before, now, n), times) for before, now, n, times in pairs], {n for *_, n, _ in pairs}
    )
    n_cases = sum(times for *_, times in pairs)
    half = t_95(n_cases - 1) * np.sqrt(found.spreads / (n_cases - 1) / n_cases) if n_cases > 1 else 0 * found.means
    if n_cases < FEWEST_ALIKE:
        half[found.spreads == 0] = inf
    return MeanChances(found.means, found.means - half, found.means + half, found.chances, found.error)


@lru_cache(maxsize=64)
def mean_rate(kinds: tuple[tuple[float, int, int], ...]) -> MeanChances:
    """The pass rate of a run, each case weighing the same, as `rate_interval` and `case_rate_interval` tell it."""
    import numpy as np

    n_cases, ns = sum(times for *_, times in kinds), {n for _, n, _ in kinds}
    if n_cases == 1 or ns == {1}:
        n = n_cases * max(ns)
        fewest, chances = passes_of(max(ns), kinds)
        means = np.arange(fewest, fewest + len(chances)) / n
        return MeanChances(means, *_wilson(means, n, Z_95), chances)
    whole = lcm(*ns)
    middle = round(sum(p * times for p, _, times in kinds) / n_cases * whole) / whole  # about it squares are small
    found = _joint([(*_rates(p, n, middle), times) for p, n, times in kinds], ns)
    means = found.means + middle
    return MeanChances(means, *_rate_ends(means, found.spreads, n_cases), found.chances, found.error)


@lru_cache(maxsize=64)
def mean_curve(kinds: tuple[tuple[float, int, int], ...], k: int, *, is_hat: bool) -> MeanChances:
    """pass@k, or pass^k, over the trials that every case has, at least `k`; its interval is near that of `point_at`.

    That one is found by drawing the cases again. Student's, which it is here, moves a chance by up to _DRAWN_OFF.
    """
    import numpy as np

    n, n_cases = min(n for _, n, _ in kinds), sum(times for *_, times in kinds)
    equal = tuple((p, n, times) for p, _, times in kinds)
    if n_cases == 1:  # no interval, whether some trial passes or none
        none = binomial(n, equal[0][0], 0)
        return MeanChances(np.array([0.0, 1.0]), np.full(2, -inf), np.full(2, inf), np.array([none, 1 - none]))
    if k == 1:
        return mean_rate(equal)
    value = pass_hat_k if is_hat else pass_at_k
    cases = [(*counts_of_passes(n, p), times) for p, _, times in equal]
    found = _joint(
        [
            (np.array([value(n, c, k) for c, _ in enumerate(chances, first)], float), np.array(chances), times)
            for first, chances, times in cases
        ],
        {min(comb(n, k), _FINEST)},
    )
    lows, highs = _rate_ends(found.means, found.spreads, n_cases)
    is_out, whole = (lows <= 0) | (highs >= 1), _wilson(np.clip(found.means, 0.0, 1.0), n_cases, Z_95)
    lows = np.where(is_out, np.minimum(lows, whole[0]), lows)
    highs = np.where(is_out, np.maximum(highs, whole[1]), highs)
    return MeanChances(found.means, lows, highs, found.chances, found.error + _DRAWN_OFF)


def _rate_ends(means: Floats, spreads: Floats, n_cases: int) -> tuple[Floats, Floats]:
    """The interval of a rate clustered by case, as `intervals._clustered` has it, for many values at once."""
    import numpy as np

    errors, t = np.sqrt(spreads / (n_cases - 1) / n_cases), t_95(n_cases - 1)
    rates = np.clip(means, 0.0, 1.0)
    lows, highs = means - t * errors, means + t * errors
    is_out = (lows < 0) | (highs > 1)
    worth = np.maximum(1.0, rates * (1 - rates) / np.maximum(errors, 1e-12) ** 2)
    lopsided = _wilson(rates, worth, t)
    lows = np.where(is_out, np.maximum(0.0, np.minimum(lows, lopsided[0])), lows)
    highs = np.where(is_out, np.minimum(1.0, np.maximum(highs, lopsided[1])), highs)
    alike, is_even = _wilson(rates, n_cases, Z_95), errors < 1e-12
    return np.where(is_even, alike[0], lows), np.where(is_even, alike[1], highs)


def _wilson(rates: Floats, n: Floats | int, z: float) -> tuple[Floats, Floats]:
    """Wilson's interval for many rates at once."""
    import numpy as np

    z2 = z * z
    middle = (rates + z2 / (2 * n)) / (1 + z2 / n)
    half = z * np.sqrt(rates * (1 - rates) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    lows = np.where(rates <= 0, 0.0, np.maximum(0.0, middle - half))
    return lows, np.where(rates >= 1, 1.0, np.minimum(1.0, middle + half))


@dataclass(frozen=True, slots=True)
class _Joint:
    """The mean over cases and the sum of the squared deviations from it, and the chance of each such pair."""

    means: Floats
    spreads: Floats
    chances: Floats
    error: float


def _joint(kinds: Sequence[tuple[Floats, Floats, int]], ns: set[int]) -> _Joint:
    """The joint chances of mean and spread: `kinds` are the values of a case, their chances, and how many cases.

    Both follow from two sums, those of the values and of their squares. `ns` are the trials of the cases.
    """
    import numpy as np

    n_cases = sum(times for *_, times in kinds)
    scale, squares = _scales(ns, kinds)
    points = [(*_on_lattice(values, chances, scale, squares), times) for values, chances, times in kinds]
    lows, sizes = zip(*(_window(points, axis) for axis in (0, 1)), strict=True)
    spectrum = np.ones((sizes[0], sizes[1] // 2 + 1), np.complex128)
    for x, y, chances, times in points:
        case = np.zeros(sizes)
        np.add.at(case, (x.astype(int) % sizes[0], y.astype(int) % sizes[1]), chances)
        spectrum *= _power(np.fft.rfft2(case), times)
    joint = np.fft.irfft2(spectrum, sizes)
    at, of_square = np.nonzero(joint > _UNSEEN)
    sums, of_squares = (
        (low + (place - low) % size) / per
        for place, low, size, per in zip((at, of_square), lows, sizes, (scale, squares), strict=True)
    )
    means = sums / n_cases
    spreads = np.maximum(of_squares - means**2 * n_cases, 0.0)
    spreads[spreads < ROUNDING] = 0.0
    return _Joint(means, spreads, joint[at, of_square], _error(kinds, points, scale, squares))


def _rates(p: float, n: int, middle: float) -> tuple[Floats, Floats]:
    """The pass rates of a case in `n` trials, seen from `middle`, and the chance of each."""
    import numpy as np

    first, chances = counts_of_passes(n, p)
    return np.arange(first, first + len(chances)) / n - middle, np.array(chances)


def _differences(before: float, now: float, n: int) -> tuple[Floats, Floats]:
    """The differences of the pass rates of a case in two runs of `n` trials, and the chance of each."""
    import numpy as np

    chances = [np.array([binomial(n, p, passes) for passes in range(n + 1)]) for p in (now, before)]
    found = np.convolve(chances[0], chances[1][::-1])
    is_seen = found > 1e-15
    return (np.arange(-n, n + 1) / n)[is_seen], found[is_seen]


def _scales(ns: Iterable[int], kinds: Sequence[tuple[Floats, Floats, int]]) -> tuple[int, int]:
    """The steps of 1 for the sum of the values, and for that of their squares, as fine as there is work for."""
    n_cases = sum(times for *_, times in kinds)
    variances = [sum(times * _variance(values**power, chances) for values, chances, times in kinds) for power in (1, 2)]
    of_squares = sum(times * float(values**2 @ chances) for values, chances, times in kinds)

    def work(scale: int, squares: int) -> float:
        sizes = [15 * sqrt(variance) * per + 20 for variance, per in zip(variances, (scale, squares), strict=True)]
        return sizes[0] * sizes[1] * (len(kinds) + 2)

    def rounding(scales: tuple[int, int]) -> float:
        added, added_squares = (n_cases / (4 * per**2) for per in scales)
        is_whole, is_square = scales[0] == whole, scales[1] == whole**2
        return (0.0 if is_whole else added / variances[0]) + (0.0 if is_square else added_squares / of_squares**2)

    whole = lcm(*ns)
    found = whole, whole**2
    while variances[0] > 0 and work(*found) > _MOST_WORK:
        halved = [(found[0] // 2, found[1]), (found[0], found[1] // 2)]
        coarser = min((each for each in halved if min(each) > 0), key=rounding, default=found)
        if coarser == found or rounding(coarser) * _STEEPEST / 2 > _MOST_OFF:
            break
        found = coarser
    return found


def _variance(values: Floats, chances: Floats) -> float:
    mean = float(values @ chances)
    return float(((values - mean) ** 2) @ chances)


def _on_lattice(values: Floats, chances: Floats, scale: int, squares: int) -> tuple[Floats, Floats, Floats]:
    """The values and their squares in steps; one between two steps is shared out so that its mean stays."""
    import numpy as np

    found = [(values * scale, values**2 * squares, chances)]
    for axis in (0, 1):
        split = []
        for place in found:
            at = place[axis]
            below = np.floor(at + ROUNDING)
            above = np.clip(at - below, 0.0, 1.0)
            above[above < ROUNDING] = 0.0
            for step, share in ((below, 1 - above), (below + 1, above)):
                split.append((step, place[1], place[2] * share) if axis == 0 else (place[0], step, place[2] * share))
        found = split
    whole = [np.concatenate([each[part] for each in found]) for part in range(3)]
    is_seen = whole[2] > 0
    return whole[0][is_seen], whole[1][is_seen], whole[2][is_seen]


def _window(points: Sequence[tuple[Floats, Floats, Floats, int]], axis: int) -> tuple[int, int]:
    """The least sum of steps that is not negligible, and how many there are, by Chernoff's bound."""
    import numpy as np

    sides = []
    for sign in (-1, 1):
        values = [(sign * (each[axis] - each[axis] @ each[2]), each[2], each[3]) for each in points]
        variance = sum(float(at**2 @ chances) * times for at, chances, times in values)
        far = sum(float(at.max()) * times for at, _, times in values)
        if variance > 0:
            tilts = np.geomspace(0.2, 5, 16) * sqrt(2 * _NEGLIGIBLE / variance)
            grown = [np.log(np.exp(np.minimum(np.outer(tilts, at), 700)) @ chances) * n for at, chances, n in values]
            far = min(far, float(((sum(grown) + _NEGLIGIBLE) / tilts).min()))
        sides.append(far)
    mean = sum(float(each[axis] @ each[2]) * each[3] for each in points)
    low = floor(mean - sides[0])
    return low, _round_size(floor(mean + sides[1]) + 2 - low)


def _round_size(size: int) -> int:
    """A number of points, at least `size`, that is quick to transform."""
    step: int = 1 << max(1, size.bit_length() - 4)
    return -(-size // step) * step


def _power(values: Spectrum, times: int) -> Spectrum:
    import numpy as np

    found = np.ones_like(values)
    while times:
        if times & 1:
            found = found * values
        times >>= 1
        if times:
            values = values * values
    return found


def _error(
    kinds: Sequence[tuple[Floats, Floats, int]],
    points: Sequence[tuple[Floats, Floats, Floats, int]],
    scale: int,
    squares: int,
) -> float:
    """How far rounding can move a chance: what is shared out between two steps widens the spread of both sums."""
    exact, of_squares, added, added_squares = 0.0, 0.0, 0.0, 0.0
    for (values, chances, times), (x, y, shares, _) in zip(kinds, points, strict=True):
        exact += times * _variance(values, chances)
        of_squares += times * float(values**2 @ chances)
        added += times * (_variance(x / scale, shares) - _variance(values, chances))
        added_squares += times * (_variance(y / squares, shares) - _variance(values**2, chances))
    return _STEEPEST / 2 * max(0.0, added / exact + added_squares / of_squares**2) if exact > 1e-12 else 0.0
