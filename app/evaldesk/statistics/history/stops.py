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
    n_trials_of_run, by_block = n * n_cases, n_cases if n > 1 else 1
    rates, times = (np.array(each, float) for each in zip(*kinds, strict=True))
    block = sum_of([ValueTable(times[None, :], np.stack((1 - rates, rates), axis=1), np.arange(2))], n_cases)
    of_block = np.zeros(1) if block.chances is None else np.maximum(0.0, block.chances[0])
    steps = _blocks(of_block) if n > 1 else _cases(of_block)
    bar, n_trials = needed_passes(n_trials_of_run, least), 0.0
    going = np.ones(1)
    for n_blocks in range(1, n_trials_of_run // by_block + 1):
        going, n_played = steps(going, n_blocks), n_blocks * by_block
        if n_played == n_trials_of_run:
            bars = (bar, bar)
        elif n_blocks in looks:
            bars = _bars(n_played, n_trials_of_run, bar, least if is_likely and 0 < least < 1 else None)
        else:
            continue
        n_trials += n_played * float(going[: bars[0]].sum() + going[bars[1] :].sum())
        going[: bars[0]] = 0.0
        going[bars[1] :] = 0.0
    return n_trials


def _bars(n_played: int, n_trials: int, bar: int, least: float | None) -> tuple[int, int]:
    """The bars after a number of trials: the run fails below the first, and holds from the second on."""
    fails_below, holds_from = max(0, bar - (n_trials - n_played)), bar
    if least is not None:
        fails_below = max(fails_below, first_value(n_played, lambda c: not is_above(1 - least, n_played - c, n_played)))
        holds_from = min(holds_from, first_value(n_played, lambda c: is_above(least, c, n_played)))
    return fails_below, holds_from


def _blocks(of_block: Floats) -> Step:
    """The passes after one more block of all cases."""
    import numpy as np

    return lambda going, _: np.convolve(going, of_block)


def _cases(of_all: Floats) -> Step:
    """The passes after one more case, drawn from the remaining ones."""
    import numpy as np

    distributions = [of_all]  # the passes among the first cases, from all of them down to none
    for n in range(len(of_all) - 1, 0, -1):
        passes = np.arange(n + 1)
        after = distributions[-1]
        distributions.append(after[:-1] * (n - passes[:-1]) / n + after[1:] * passes[1:] / n)
    distributions.reverse()

    def step(going: Floats, n: int) -> Floats:
        before, after = distributions[n - 1], distributions[n]
        share = np.divide(after[1:] * np.arange(1, n + 1) / n, before, out=np.zeros(n), where=before > 0)
        sums = np.zeros(n + 1)
        sums[:-1] += going * (1 - share)
        sums[1:] += going * share
        return sums

    return step
