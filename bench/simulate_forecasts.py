"""`python -m bench.simulate_forecasts`: how often the ranges of forecasts, proposals and intervals at any stop hold.

`coverage` plays histories of agents whose rates are known: the range of a forecast should hold the true false alarm in
90 % of them, and a proposal should really fail more than 5 % of unchanged builds in at most 10 %. `looks` looks at a
run after each block of trials: its intervals should leave out the truth at any look in at most 5 % of runs. Both print
a row of a table as soon as it is known. The seed is fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import product
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import gammaln

from bench.simulate_gates import DROP, MIXTURES, N_CASES, SEED
from evaldesk.model.forecast import OFTEN, Range
from evaldesk.statistics.anytime import ALPHA, anytime_interval
from evaldesk.statistics.history.draws import Draws, assumed_rates, drawn_rates
from evaldesk.statistics.history.gates import rate_fails, regressions_fail
from evaldesk.statistics.history.posterior import posterior_of
from evaldesk.statistics.history.proposals import Setting, proposed_rate
from evaldesk.statistics.intervals import like_these, rate_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rates = NDArray[np.float64]

N_HISTORIES = 500
N_EACH = (1, 2, 3, 5, 10)
N_BUILD = [5] * N_CASES
ROUNDED = 0.005
"""A range is shown in whole per cent."""
ALIKE = (0.8, 0.85, 0.9, 0.95, 0.97, 1.0)

RATES: dict[str, Callable[[np.random.Generator], Rates]] = {
    **{f"all {rate:g}": partial(lambda rate, _: np.full(N_CASES, rate), rate) for rate in ALIKE},
    **{name: mixture for name, mixture in MIXTURES.items() if not name.startswith("all")},
}
"""The true rates of 20 cases, alike and mixed."""
Trials: TypeAlias = tuple[int, ...]
"""The passes of each case, the fewest first."""
GATES: dict[str, Callable[[Draws, tuple[bool, ...]], Rates]] = {
    "`--min-pass-rate 0.85`": lambda draws, _: rate_fails(draws, N_BUILD, 0.85),
    "`--max-regressions 0`, baseline stored": lambda draws, passed: regressions_fail(
        draws, N_BUILD, 1.0, 0, passed_before=passed
    ),
    "`--max-regressions 0`, both to be played": lambda draws, _: regressions_fail(draws, N_BUILD, 1.0, 0),
    "`--confirm 3/5`, baseline stored": lambda draws, passed: regressions_fail(
        draws, N_BUILD, 1.0, 0, passed_before=passed, confirm=(3, 5)
    ),
}


@dataclass
class Tally:
    """Histories of a cell by what came of them."""

    n_held: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GATES, 0))
    n_above: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GATES, 0))
    n_proposed: int = 0
    n_loud: int = 0

    def row(self, cell: str) -> str:
        """The cell as a row: ranges that hold the truth, truths above the upper end, proposals above 5 %."""
        shares = (
            f"{100 * self.n_held[gate] / N_HISTORIES:.1f} ({100 * self.n_above[gate] / N_HISTORIES:.1f})"
            for gate in GATES
        )
        return f"| {cell} | {' | '.join(shares)} | {self.n_loud} of {self.n_proposed} |\n"


def coverage(sizes: tuple[int, ...] = N_EACH) -> Iterator[str]:
    """A row for each mixture and number of trials a case: shares of ranges that hold the truth."""
    yield f"| rates of {N_CASES} cases, trials a case | {' | '.join(GATES)} | proposals above 5 % |\n"
    yield f"|---|{'---|' * len(GATES)}---|\n"
    for n, name in product(sizes, RATES):
        random, tally = np.random.default_rng([SEED, n, *name.encode()]), Tally()
        for _ in range(N_HISTORIES):
            rates = RATES[name](random)
            passes = random.binomial(n, rates)
            order = np.argsort(passes, kind="stable")
            add_history(tally, n, tuple(passes[order].tolist()), tuple(rates[order].tolist()))
        yield tally.row(f"{name}, {n}")


def add_history(tally: Tally, n: int, passes: Trials, rates: tuple[float, ...]) -> None:
    """Compare what the history of `passes` forecasts with the truth of its `rates`."""
    ranges, setting = forecast(n, passes)
    true = assumed_rates(rates)
    passed = tuple(each == n for each in passes)
    for gate, fails in GATES.items():
        truth, stated = float(fails(true, passed)[0]), ranges[gate]
        tally.n_held[gate] += stated.low - ROUNDED <= truth <= stated.high + ROUNDED
        tally.n_above[gate] += truth > stated.high + ROUNDED
    if setting:
        tally.n_proposed += 1
        tally.n_loud += float(rate_fails(true, [setting.n] * N_CASES, setting.bar / 100)[0]) > OFTEN


@lru_cache(maxsize=100_000)
def forecast(n: int, passes: Trials) -> tuple[dict[str, Range], Setting | None]:
    """The range of each gate, and the proposed pass rate, after a history; many histories are the same one."""
    draws = drawn_rates(posterior_of([(n, each) for each in passes]))
    passed = tuple(each == n for each in passes)
    return {gate: Range.of(fails(draws, passed)) for gate, fails in GATES.items()}, proposed_rate(draws, drop=DROP)


N_LOOKS = 400
N_RUNS = 600
POPULATIONS: dict[str, Callable[[np.random.Generator, int], Rates]] = {
    **{f"all {rate:g}": partial(lambda rate, _, n: np.full(n, rate), rate) for rate in (0.8, 0.9, 0.97)},
    "half 1, half 0.8": lambda random, n: random.choice([1.0, 0.8], n),
    "70 % 1, 30 % 2/3": lambda random, n: random.choice([1.0, 2 / 3], n, p=[0.7, 0.3]),
    "beta(9, 1)": lambda random, n: random.beta(9, 1, n),
}
"""Cases that are drawn from those like them."""


def looks(sizes: tuple[int, ...] = (10, 20, 50)) -> Iterator[str]:
    """A row for each population and number of cases: shares of runs whose interval is wrong at any of 400 looks."""
    yield "| cases | these cases | cases like these | cases like these, at the last look |\n|---|---|---|---|\n"
    for n_cases, (name, population) in product(sizes, POPULATIONS.items()):
        random = np.random.default_rng([SEED, n_cases, *name.encode()])
        mean = round(float(population(np.random.default_rng(SEED), 1_000_000).mean()), 3)
        wrong = np.zeros(3)
        for _ in range(N_RUNS):
            rates = population(random, n_cases)
            passes = np.cumsum(random.random((N_LOOKS, n_cases)) < rates, axis=0, dtype=np.int64)
            wrong += [is_these_wrong(passes, float(rates.mean())), *is_like_these_wrong(passes, mean)]
        shares = " | ".join(f"{100 * share:.1f} %" for share in wrong / N_RUNS)
        yield f"| {n_cases} cases, {name} | {shares} |\n"


def is_these_wrong(passes: NDArray[np.int64], truth: float) -> bool:
    """Whether the anytime interval of the trials so far leaves out the mean of exactly these cases at any look."""
    c, n = passes.sum(axis=1), np.arange(1, len(passes) + 1) * passes.shape[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        odds = np.where(c > 0, c * np.log(truth), 0) + np.where(n > c, (n - c) * np.log1p(-truth), 0)
    evidence = gammaln(1 + c) + gammaln(1 + n - c) - gammaln(2 + n) - odds
    return bool((evidence > -np.log(ALPHA)).any())


def is_like_these_wrong(passes: NDArray[np.int64], truth: float) -> tuple[bool, bool]:
    """Whether the interval for cases like these leaves out the mean of them all: at any look, and at the last one."""
    found = False
    for look, row in enumerate(passes, 1):
        counts = [(look, passed, 1) for passed in row.tolist()]
        rate = sum(row.tolist()) / (look * len(row))
        whole = rate_interval(counts)
        interval = whole and like_these(rate, anytime_interval(int(row.sum()), look * len(row)), whole)
        is_wrong = interval is None or not interval.low <= truth <= interval.high
        found = found or is_wrong
    return found, is_wrong


def main() -> None:
    """Print the tables that are asked for by name, or both."""
    for name, table in (("coverage", coverage), ("looks", looks)):
        if name in (sys.argv[1:] or (name,)):
            for line in table():
                print(line, end="", flush=True)


if __name__ == "__main__":
    main()
