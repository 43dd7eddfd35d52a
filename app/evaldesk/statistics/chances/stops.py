"""How a gate on the pass rate behaves in a run that stops when it is decided: exact, from pass rates of cases.

Where a block is one trial of every case, the passes after each block are a sum of independent counts. Where it is one
case, the cases come in an order of chance: of the passes of the run, any are as likely to come first.
(reference/decisions.md 2.4)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from evaldesk.statistics.anytime import is_above
from evaldesk.statistics.chances.gates import Answers, needed_passes
from evaldesk.statistics.chances.means import passes_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

Step: TypeAlias = Callable[["Floats", int], "Floats"]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The answers of a gate, and the mean number of trials that are played."""

    answers: Answers
    n_trials: float


@lru_cache(maxsize=256)
def stopped_rate(
    kinds: tuple[tuple[float, int, int], ...], least: float, looks: tuple[int, ...], *, is_likely: bool
) -> Stopped:
    """The pass rate of cases that have as many trials each, looked at after so many blocks.

    `is_likely` stops it where the rate is likely on one side, too.
    """
    import numpy as np

    n_cases, n = sum(times for *_, times in kinds), kinds[0][1]
    whole, by_block = n * n_cases, n_cases if n > 1 else 1
    first, chances = passes_of(1, tuple((p, 1, times) for p, _, times in kinds))
    of_block = np.zeros(n_cases + 1)
    of_block[first : first + len(chances)] = chances
    steps = _blocks(of_block) if n > 1 else _cases(of_block)
    needed, holds, fails, n_trials = needed_passes(whole, least), 0.0, 0.0, 0.0
    going = np.ones(1)
    for n_blocks in range(1, whole // by_block + 1):
        going, played = steps(going, n_blocks), n_blocks * by_block
        if played == whole:
            bars = (needed, needed)
        elif n_blocks in looks:
            bars = _bars(played, whole, needed, least if is_likely and 0 < least < 1 else None)
        else:
            continue
        below, held = float(going[: bars[0]].sum()), float(going[bars[1] :].sum())
        holds, fails, n_trials = holds + held, fails + below, n_trials + played * (held + below)
        going[: bars[0]] = 0.0
        going[bars[1] :] = 0.0
    return Stopped(Answers(min(1.0, holds), min(1.0, fails)), n_trials)


def _bars(played: int, whole: int, needed: int, least: float | None) -> tuple[int, int]:
    """The run fails with fewer passes than the first after so many trials, and holds from the second on."""
    fails_below, holds_from = max(0, needed - (whole - played)), needed
    if least is not None:
        fails_below = max(fails_below, _first(played, lambda c: not is_above(1 - least, played - c, played)))
        holds_from = min(holds_from, _first(played, lambda c: is_above(least, c, played)))
    return fails_below, holds_from


def _first(most: int, is_so: Callable[[int], bool]) -> int:
    """The fewest passes from which on it is so, up to `most`; one more where it never is."""
    low, high = 0, most + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_so(middle) else (middle + 1, high)
    return low


def _blocks(of_block: Floats) -> Step:
    """The passes after one more block of all cases."""
    import numpy as np

    return lambda going, _: np.convolve(going, of_block)


def _cases(of_all: Floats) -> Step:
    """The passes after one more case, drawn from those that are left."""
    import numpy as np

    seen = [of_all]  # the passes among the first cases, from all of them down to none
    for n in range(len(of_all) - 1, 0, -1):
        passes = np.arange(n + 1)
        after = seen[-1]
        seen.append(after[:-1] * (n - passes[:-1]) / n + after[1:] * passes[1:] / n)
    seen.reverse()

    def step(going: Floats, n: int) -> Floats:
        before, after = seen[n - 1], seen[n]
        share = np.divide(after[1:] * np.arange(1, n + 1) / n, before, out=np.zeros(n), where=before > 0)
        found = np.zeros(n + 1)
        found[:-1] += going * (1 - share)
        found[1:] += going * share
        return found

    return step
