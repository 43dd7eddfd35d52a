"""`python -m bench.simulate_forecasts`: how often the ranges of forecasts, proposals and intervals at any stop hold.

`coverage` plays histories of agents whose rates are known: the range of a forecast should hold the true false alarm in
90 % of them. `proposals`: a proposed gate should really fail more than 5 % of unchanged builds in at most 10 % of them,
`days`: the same ranges after six runs, each on a day of its own. `looks` looks at a run after each block of trials: its
intervals should leave out the truth at any look in at most 5 % of runs. Each prints a row of a table as soon as it is
known. The seed is fixed. Matrices are small: with OPENBLAS_NUM_THREADS=1 it takes a fifth of the time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.special import gammaln
from scipy.stats import binom

from bench.simulate_gates import DROP, MIXTURES, N_CASES, SEED
from evaldesk.model.forecast import OFTEN, OFTEN_BY_HISTORY, Range
from evaldesk.statistics.anytime import ALPHA, anytime_interval
from evaldesk.statistics.history.build_tests import CASE_LEVEL, case_chances
from evaldesk.statistics.history.days import day_shifts
from evaldesk.statistics.history.draws import Draws, assumed_rates, drawn_rates
from evaldesk.statistics.history.gates import rate_fails, regressions_fail
from evaldesk.statistics.history.posterior import posterior_of
from evaldesk.statistics.history.proposals import (
    CASES_SHARE,
    FRESH,
    Setting,
    confirm_fails,
    likely_fails,
    proposed_confirm,
    proposed_fixed_confirm,
    proposed_likely,
    proposed_rate,
    trials_without_failure,
)
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
Fails: TypeAlias = "Callable[[Draws, Draws, tuple[bool, ...]], Rates]"
"""The chance to fail in each draw of the second, by the history of the first and the verdicts of a baseline."""
FEW = [2] * N_CASES
GATES: dict[str, Fails] = {
    "`--min-pass-rate 0.85`": lambda _, now, __: rate_fails(now, N_BUILD, 0.85),
    "`--max-regressions 0`, baseline stored": lambda _, now, passed: regressions_fail(
        now, N_BUILD, 1.0, 0, passed_before=passed
    ),
    "`--max-regressions 0`, both to be played": lambda _, now, __: regressions_fail(now, N_BUILD, 1.0, 0),
    "`--confirm 3/5`, baseline stored": lambda _, now, passed: regressions_fail(
        now, N_BUILD, 1.0, 0, passed_before=passed, confirm=(3, 5)
    ),
}
BY_HISTORY: dict[str, tuple[list[int], int]] = {
    "`--n 5`, `likely`": (N_BUILD, 0),
    "`--n 2`, `confirm`": (FEW, FRESH),
    "`--n 5`, `confirm`": (N_BUILD, FRESH),
}
"""Gates whose bar is the history: trials of a build, and fresh ones."""


def suite_fails(history: Draws, now: Draws, n_each: list[int], n_fresh: int) -> Rates:
    """The chance that the cases together are worse, in each draw of `now`."""
    if n_fresh:
        return confirm_fails(history, n_each, now, n_fresh)
    return likely_fails(history, n_each, now)


def cases_fail(n: int, passes: Trials, rates: Rates, n_trials: int) -> Rates:
    """The chance that some case is worse, at most: that of `n_trials` of each, which a case plays if it is suspect.

    `rates` has a row for each day.
    """
    holds = np.ones(len(rates))
    for case, bar in enumerate(case_bars(n, passes, n_trials)):
        holds *= 1 - binom.cdf(bar, n_trials, rates[:, case])
    return 1 - holds


@lru_cache(maxsize=10_000)
def case_bars(n: int, passes: Trials, n_trials: int) -> Trials:
    """The most passes of each case that are worse by Holm's first step over all of them; -1 for none."""
    history = [(n, each) for each in passes]
    bars = [-1] * len(passes)
    for passed in range(n_trials):
        for case, chance in enumerate(case_chances(history, [(n_trials, passed)] * len(passes))):
            if chance * len(passes) <= CASE_LEVEL:
                bars[case] = passed
    return tuple(bars)


def true_draws(rates: Rates) -> Draws:
    """Draws of which each row has exactly these rates."""
    grid, places = np.unique(rates, return_inverse=True)
    return Draws(grid, places.reshape(rates.shape))


@dataclass
class Tally:
    """How many ranges of a gate contain the truth, and how many truths lie above them; stated by `n` histories."""

    n: int = 0
    n_held: int = 0
    n_above: int = 0
    n_known: int = 0
    n_loud: int = 0
    sum_true: float = 0.0

    def add(self, stated: Range, truth: float, most: float = OFTEN) -> None:
        """Compare what was forecast with the truth."""
        self.n += 1
        self.n_held += stated.low - ROUNDED <= truth <= stated.high + ROUNDED
        self.n_above += truth > stated.high + ROUNDED
        self.n_known += stated.standing(most) == "rarely"
        self.n_loud += truth > OFTEN
        self.sum_true += truth

    @property
    def words(self) -> str:
        """The shares, in per cent: within, above, stated to fail rarely, truly above 5 %; and the mean truth."""
        shares = (100 * each / self.n for each in (self.n_held, self.n_above, self.n_known, self.n_loud, self.sum_true))
        return "{:.1f} ({:.1f}), {:.0f}, {:.1f}, {:.1f}".format(*shares)


HEAD = "within its range (above it), fails rarely, truly above 5 %, mean"


def coverage(sizes: tuple[int, ...] = N_EACH) -> Iterator[str]:
    """A row for each mixture and number of trials a case: shares of ranges that hold the truth."""
    yield f"| {N_CASES} cases, trials a case: {HEAD} | {' | '.join((*GATES, *BY_HISTORY))} |\n"
    yield f"|---|{'---|' * (len(GATES) + len(BY_HISTORY))}\n"
    for n, name in product(sizes, RATES):
        tallies = {gate: Tally() for gate in (*GATES, *BY_HISTORY)}
        for passes, rates in histories(name, n):
            add_history(tallies, n, passes, rates)
        yield f"| {name}, {n} | {' | '.join(each.words for each in tallies.values())} |\n"


def histories(name: str, n: int) -> Iterator[tuple[Trials, Rates]]:
    """The passes of each case in a history of `n` trials, and the true rates of the cases."""
    random = np.random.default_rng([SEED, n, *name.encode()])
    for _ in range(N_HISTORIES):
        rates = RATES[name](random)
        passes = random.binomial(n, rates)
        order = np.argsort(passes, kind="stable")
        yield tuple(passes[order].tolist()), rates[order]


def add_history(tallies: dict[str, Tally], n: int, passes: Trials, rates: Rates) -> None:
    """Compare what the history of `passes` forecasts with the truth of its `rates`."""
    draws, ranges = forecast(n, passes)
    true = assumed_rates(rates.tolist())
    passed = verdicts(n, passes)
    for gate, fails in GATES.items():
        tallies[gate].add(ranges[gate], float(fails(draws, true, passed)[0]))
    for gate, (n_each, n_fresh) in BY_HISTORY.items():
        of_suite = float(suite_fails(draws, true, n_each, n_fresh)[0])
        truth = of_suite + float(cases_fail(n, passes, rates[None], n_each[0] + n_fresh)[0])
        tallies[gate].add(ranges[gate], min(1.0, truth), OFTEN_BY_HISTORY)


@lru_cache(maxsize=2_000)
def forecast(n: int, passes: Trials) -> tuple[Draws, dict[str, Range]]:
    """The range of each gate after a history; many histories are the same one."""
    draws = drawn_rates(posterior_of([(n, each) for each in passes]))
    passed = verdicts(n, passes)
    return draws, {
        **{gate: Range.of(fails(draws, draws, passed)) for gate, fails in GATES.items()},
        **{gate: Range.of(suite_fails(draws, draws, *of)).plus(CASES_SHARE) for gate, of in BY_HISTORY.items()},
    }


Propose: TypeAlias = "Callable[[Draws, tuple[bool, ...]], Setting | None]"
PROPOSALS: dict[str, Propose] = {
    "rate": lambda draws, _: proposed_rate(draws, drop=DROP),
    "likely": lambda draws, _: proposed_likely(draws, drop=DROP),
    "confirm": lambda draws, _: proposed_confirm(draws, drop=DROP),
}
N_REGRESSIONS = 1
"""With 0 the rule by the history is proposed in place of a fixed bar."""
FIXED: dict[str, Propose] = {
    "fixed, baseline stored": lambda draws, passed: proposed_fixed_confirm(
        draws, 1.0, N_REGRESSIONS, passed_before=passed, drop=DROP
    ),
    "fixed, both to be played": lambda draws, _: proposed_fixed_confirm(draws, 1.0, N_REGRESSIONS, drop=DROP),
}


def fixed(sizes: tuple[int, ...] = (3, 5, 10)) -> Iterator[str]:
    """A row as in `proposals` for `--max-regressions 1` with a fixed number of fresh trials."""
    return proposals(sizes, FIXED)


def proposals(sizes: tuple[int, ...] = (3, 5, 10), kinds: dict[str, Propose] = PROPOSALS) -> Iterator[str]:
    """A row for each mixture and number of trials a case: proposals, those above 5 %, and the power of the others."""
    of = f"proposed of {N_HISTORIES} histories, truly above 5 %, mean and least power"
    yield f"| {N_CASES} cases, trials a case: {of} | {' | '.join(kinds)} |\n|---|{'---|' * len(kinds)}\n"
    for n, name in product(sizes, RATES):
        truths: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for passes, rates in histories(name, n):
            for kind in kinds:
                if setting := proposed(kind, n, passes):
                    truths[kind].append(true_chances(kind, n, passes, rates, setting))
        yield f"| {name}, {n} | {' | '.join(map(proposal_words, truths.values()))} |\n"


def proposal_words(truths: list[tuple[float, float]]) -> str:
    """How many, how many of them truly fail more than 5 % of unchanged builds, and the power."""
    if not truths:
        return "0"
    n_loud = sum(fails > OFTEN for fails, _ in truths)
    finds = sorted(finds for _, finds in truths)
    return f"{len(truths)}, {n_loud}, {100 * sum(finds) / len(finds):.0f}, {100 * finds[0]:.0f}"


@lru_cache(maxsize=6_000)
def proposed(kind: str, n: int, passes: Trials) -> Setting | None:
    """The proposal of a kind after a history."""
    draws, _ = forecast(n, passes)
    if kind in ("likely", "confirm") and draws.cases is not None and trials_without_failure(draws.cases):
        return None
    return (PROPOSALS | FIXED)[kind](draws, verdicts(n, passes))


def verdicts(n: int, passes: Trials) -> tuple[bool, ...]:
    """Whether each case passed in the baseline, which is its history."""
    return tuple(each == n for each in passes)


def true_chances(kind: str, n: int, passes: Trials, rates: Rates, setting: Setting) -> tuple[float, float]:
    """How often a proposed gate truly fails an unchanged agent, and one that is worse by DROP in each case."""
    draws, _ = forecast(n, passes)
    n_each, n_fresh = [setting.n] * N_CASES, FRESH if kind == "confirm" else 0
    if kind in FIXED:
        before = verdicts(n, passes) if kind == "fixed, baseline stored" else None
        true = assumed_rates(rates.tolist())
        same, worse = (
            regressions_fail(
                true, n_each, 1.0, N_REGRESSIONS, passed_before=before, confirm=setting.confirm, worse=drop
            )
            for drop in (0.0, DROP)
        )
        return float(same[0]), float(worse[0])
    both = []
    for each in (rates, np.maximum(0.0, rates - DROP)):
        true = assumed_rates(each.tolist())
        if kind == "rate":
            fails = float(rate_fails(true, n_each, setting.bar / 100)[0])
        else:
            fails = float(suite_fails(draws, true, n_each, n_fresh)[0])
            fails += float(cases_fail(n, passes, each[None], setting.n + n_fresh)[0])
        both.append(min(1.0, fails))
    return both[0], both[1]


DAY, N_DAYS, N_RUNS_OF_DAYS, N_HISTORIES_OF_DAYS = 0.5, 21, 6, 100


def days(sizes: tuple[int, ...] = (1, 3, 5)) -> Iterator[str]:
    """A row as in `coverage` for the gates by history after six runs, each moved by its own normal shift in logits."""
    yield f"| {N_CASES} cases, trials a case in each of 6 runs: {HEAD} | {' | '.join(BY_HISTORY)} |\n"
    yield f"|---|{'---|' * len(BY_HISTORY)}\n"
    middles = [NormalDist().inv_cdf((at + 0.5) / N_DAYS) * DAY for at in range(N_DAYS)]
    for n, name in product(sizes, RATES):
        random = np.random.default_rng([SEED, n, *name.encode()])
        tallies = {gate: Tally() for gate in BY_HISTORY}
        for _ in range(N_HISTORIES_OF_DAYS):
            rates = RATES[name](random)
            runs = [random.binomial(n, on_day(rates, random.normal(0, DAY))) for _ in range(N_RUNS_OF_DAYS)]
            order = np.argsort(np.sum(runs, axis=0), kind="stable")
            passes = tuple(np.sum(runs, axis=0)[order].tolist())
            shifts = day_shifts([[(n, int(passed)) for passed in run[order]] for run in runs])
            n_scored = n * N_RUNS_OF_DAYS
            draws = drawn_rates(posterior_of([(n_scored, each) for each in passes]), shifts)
            now = np.array([on_day(rates[order], shift) for shift in middles])
            for gate, (n_each, n_fresh) in BY_HISTORY.items():
                stated = Range.of(suite_fails(draws, draws, n_each, n_fresh)).plus(CASES_SHARE)
                truth = suite_fails(draws, true_draws(now), n_each, n_fresh).mean()
                truth += cases_fail(n_scored, passes, now, n_each[0] + n_fresh).mean()
                tallies[gate].add(stated, min(1.0, float(truth)), OFTEN_BY_HISTORY)
        yield f"| {name}, {n} | {' | '.join(each.words for each in tallies.values())} |\n"


def on_day(rates: Rates, shift: float) -> Rates:
    """The rates moved by a shift in logits; 0 and 1 stay."""
    with np.errstate(divide="ignore"):
        moved: Rates = 1 / (1 + np.exp(-(np.log(rates) - np.log1p(-rates) + shift)))
    return moved


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
    """Print the tables that are asked for by name, or all."""
    tables = {"coverage": coverage, "proposals": proposals, "fixed": fixed, "days": days, "looks": looks}
    for name, table in tables.items():
        if name in (sys.argv[1:] or (name,)):
            for line in table():
                print(line, end="", flush=True)


if __name__ == "__main__":
    main()
