"""The trials of a run that stops when its gate on the pass rate is decided: exact, from pass rates of cases.

Where a block is one trial of every case, the passes after each block are a sum of independent counts. Where it is one
case, the cases come in an order of chance: of the passes of the run, any are as likely to come first.
(reference/decisions.md 2.4)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from evaldesk.statistics.anytime import is_above
from evaldesk.statistics.history.gates import first_value, needed_passes
from evaldesk.statistics.history.sums import ValueTable, sum_of

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats

Step: TypeAlias = Callable[["Floats", int], "Floats"]


@lru_cache(maxsize=256)
def stopped_rate(
    kinds: tuple[tuple[float, int], ...], n: int, least: float, looks: tuple[int, ...], *, is_likely: bool
) -> float:
    """The mean trials of cases with `n` each, with a look after each block; `kinds` are (chance to pass, cases).

    `is_likely` stops it where the rate is likely on one side, too.
    """
    import numpy as np

    n_cases = sum(times for _, times in kinds)
    whole, by_block = n * n_cases, n_cases if n > 1 else 1
    rates, times = (np.array(each, float) for each in zip(*kinds, strict=True))
    block = sum_of([ValueTable(times[None, :], np.stack((1 - rates, rates), axis=1), np.arange(2))], n_cases)
    of_block = np.zeros(1) if block.chances is None else np.maximum(0.0, block.chances[0])
    steps = _blocks(of_block) if n > 1 else _cases(of_block)
    needed, n_trials = needed_passes(whole, least), 0.0
    going = np.ones(1)
    for n_blocks in range(1, whole // by_block + 1):
        going, played = steps(going, n_blocks), n_blocks * by_block
        if played == whole:
            bars = (needed, needed)
        elif n_blocks in looks:
            bars = _bars(played, whole, needed, least if is_likely and 0 < least < 1 else None)
        else:
            continue
        n_trials += played * float(going[: bars[0]].sum() + going[bars[1] :].sum())
        going[: bars[0]] = 0.0
        going[bars[1] :] = 0.0
    return n_trials


def _bars(played: int, whole: int, needed: int, least: float | None) -> tuple[int, int]:
    """The bars after a number of trials: the run fails below the first, and holds from the second on."""
    fails_below, holds_from = max(0, needed - (whole - played)), needed
    if least is not None:
        fails_below = max(fails_below, first_value(played, lambda c: not is_above(1 - least, played - c, played)))
        holds_from = min(holds_from, first_value(played, lambda c: is_above(least, c, played)))
    return fails_below, holds_from


def _blocks(of_block: Floats) -> Step:
    """The passes after one more block of all cases."""
    import numpy as np

    return lambda going, _: np.convolve(going, of_block)


def _cases(of_all: Floats) -> Step:
    """The passes after one more case, drawn from the remaining ones."""
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
        sums = np.zeros(n + 1)
        sums[:-1] += going * (1 - share)
        sums[1:] += going * share
        return sums

    return step
