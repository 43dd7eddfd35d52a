"""`python -m bench.simulate_gates`: simulated builds of each rule of a gate over mixtures of cases; writes docs/ci.md.

An agent plays a history of each case, then a build: with the same pass rates, on another day, with a rate that is lower
by DROP in every case, or with as many passes less in a quarter of the cases. The seed is fixed, so the table is the
same each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evaldesk.desk.runs.gates.conclusion import regressions_answer
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.conclusion import CONFIRM, RegressionRule
from evaldesk.model.evalset import CaseKey
from evaldesk.model.history import CaseHistory, RunDays
from evaldesk.statistics.case_comparison import changed_to, compare_cases
from evaldesk.statistics.history.days import FEWEST_RUNS, day_shifts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rates = NDArray[np.float64]
    Passes = NDArray[np.int64]

N_BUILDS, N_AFTER_RUNS = 200, 40
N_CASES, DROP, DAY = 20, 0.15, 0.5
SEED = 20261123
PAGE = Path(__file__).resolve().parents[1] / "docs" / "ci.md"
FIRST, LAST = "<!-- simulated gates -->\n", "<!-- end of simulated gates -->\n"
RECOMMENDED = "--n 5 --max-regressions 0 --regression-rule confirm"

MIXTURES: dict[str, Callable[[np.random.Generator], Rates]] = {
    "all 0.9": lambda _: np.full(N_CASES, 0.9),
    "half 1, half 0.8": lambda _: np.repeat([1.0, 0.8], N_CASES // 2),
    "14 at 1, 6 at 2/3": lambda _: np.repeat([1.0, 2 / 3], [14, 6]),
    "16 at 1, 4 at 1/2": lambda _: np.repeat([1.0, 0.5], [16, 4]),
    "beta(9, 1)": lambda random: random.beta(9, 1, N_CASES),
}


class Build(NamedTuple):
    """Whether a build fails, and how many trials it plays."""

    fails: bool
    n_trials: int


@dataclass(frozen=True)
class Rule:
    """A gate and its number of trials: `options` is how it is asked for, `bar` a pass rate.

    Without a bar the rule is one on regressions, `confirm` as `--confirm`; its baseline has as many trials, after
    `n_runs` runs of history.
    """

    options: str
    n: int
    bar: float | None = None
    rule: RegressionRule = "any"
    confirm: tuple[int, int] = CONFIRM
    n_runs: int = 1

    @property
    def n_builds(self) -> int:
        """The builds of each cell: fewer after many runs, whose days take the most time."""
        return N_AFTER_RUNS if self.n_runs >= FEWEST_RUNS else N_BUILDS

    @property
    def before(self) -> str:
        """The trials of a case before: those of a run, times the runs."""
        return "none" if self.bar is not None else f"{self.n} x {self.n_runs}"

    def build(self, random: np.random.Generator, runs: Sequence[Passes], rates: Rates) -> Build:
        """Play one build, and let the product's own rule answer; the newest of the runs before is its baseline."""
        passes = random.binomial(self.n, rates)
        n_trials = self.n * N_CASES
        if self.bar is not None:
            return Build(bool(passes.sum() < self.bar * n_trials - 1e-9), n_trials)
        before = self._cases(runs[-1])
        history = [CaseHistory(len(runs) * self.n, int(passed)) for passed in np.sum(runs, axis=0)]
        before = [replace(case, history=each) for case, each in zip(before, history, strict=True)]
        days = RunDays(len(runs), day_shifts([[(self.n, int(passed)) for passed in run] for run in runs]).weights)
        now = self._cases(passes)
        change = compare_cases("history", before, now, rule=self.rule, confirm=self.confirm, days=days)
        again = {case.key for case in change.unconfirmed_cases}
        fresh = self.confirm[1]
        if again:
            letters = iter(_letters(random.binomial(fresh, rates), fresh))
            now = [
                replace(case, confirming=own if case.key in again else "")
                for case, own in zip(now, letters, strict=True)
            ]
            change = changed_to(change, before, now)
        return Build(regressions_answer(change, 0) == "failed", n_trials + fresh * len(again))

    def _cases(self, passes: Passes) -> list[PlayedCase]:
        return [
            PlayedCase(CaseKey("set", str(at), 0, "d"), letters) for at, letters in enumerate(_letters(passes, self.n))
        ]


def _letters(passes: Passes, n: int) -> list[str]:
    """The first trials that failed are the last: only their number counts, but for a baseline of other length."""
    return ["p" * int(passed) + "f" * (n - int(passed)) for passed in passes]


RULES = (
    Rule("--n 1 --max-regressions 0", 1),
    Rule("--n 5 --max-regressions 0", 5),
    Rule("--n 1 --max-regressions 0 --regression-rule confirm --confirm 9/12", 1, rule="confirm", confirm=(9, 12)),
    Rule("--n 5 --max-regressions 0 --regression-rule likely", 5, rule="likely"),
    Rule("--n 2 --max-regressions 0 --regression-rule confirm", 2, rule="confirm", n_runs=3),
    Rule(RECOMMENDED, 5, rule="confirm"),
    Rule(RECOMMENDED, 5, rule="confirm", n_runs=6),
    Rule("--n 2 --min-pass-rate 0.82", 2, bar=0.82),
    Rule("--n 5 --min-pass-rate 0.82", 5, bar=0.82),
)


PROMISED = tuple(rule for rule in RULES if rule.options == RECOMMENDED)
"""The rules of which docs/ci.md promises at most 5 % false alarms and 80 % power."""


def history_of(random: np.random.Generator, rates: Rates, rule: Rule, *, on_days: bool = False) -> list[Passes]:
    """The passes of each case in the runs before a build, each on its own day."""
    return [random.binomial(rule.n, _on_day(random, rates) if on_days else rates) for _ in range(rule.n_runs)]


def simulate(rule: Rule, mixture: str, kind: str) -> tuple[float, float]:
    """The share of builds that fail, and the mean trials of a case."""
    random = np.random.default_rng([SEED, rule.n_runs, *rule.options.encode(), *mixture.encode(), *kind.encode()])
    builds = []
    for _ in range(rule.n_builds):
        rates = MIXTURES[mixture](random)
        runs = history_of(random, rates, rule, on_days=kind == "days")
        builds.append(rule.build(random, runs, _now(random, rates, kind)))
    return float(np.mean([build.fails for build in builds])), float(
        np.mean([build.n_trials for build in builds])
    ) / N_CASES


def _now(random: np.random.Generator, rates: Rates, kind: str) -> Rates:
    if kind == "days":
        return _on_day(random, rates)
    if kind == "even":
        return np.maximum(0.0, rates - DROP)
    if kind == "quarter":
        now = rates.copy()
        chosen = random.choice(N_CASES, N_CASES // 4, replace=False)
        now[chosen] = np.maximum(0.0, now[chosen] - 4 * DROP)
        return now
    return rates


def _on_day(random: np.random.Generator, rates: Rates) -> Rates:
    """All cases up or down together, by DAY logits; those that always or never pass stay."""
    shift = random.normal(0, DAY)
    with np.errstate(divide="ignore"):
        return np.asarray(1 / (1 + np.exp(-(np.log(rates) - np.log1p(-rates) + shift))))


def table() -> Iterator[str]:
    """The lines of the table."""
    days = f"all 0.9, days differ by {DAY:g} logits"
    columns = ("trials a case before", *MIXTURES, days, "finds, even drop", "finds, a quarter drops", "trials a case")
    yield f"| gate, {N_CASES} cases | {' | '.join(columns)} |\n"
    yield "|---|" + "---|" * (len(MIXTURES) + 5) + "\n"
    for rule in RULES:
        same = [simulate(rule, mixture, "same") for mixture in MIXTURES]
        on_days, _ = simulate(rule, "all 0.9", "days")
        power = [min(simulate(rule, mixture, kind)[0] for mixture in MIXTURES) for kind in ("even", "quarter")]
        shares = [f"{100 * share:.1f} %" for share in (*(share for share, _ in same), on_days, *power)]
        yield f"| `{rule.options}` | {rule.before} | {' | '.join(shares)} | {np.mean([n for _, n in same]):.1f} |\n"


def main() -> None:
    """Write the table into the page."""
    lines = "".join(table())
    page = PAGE.read_text("utf-8")
    PAGE.write_text(re.sub(f"(?s){FIRST}.*?{LAST}", lambda _: f"{FIRST}{lines}{LAST}", page), "utf-8")


if __name__ == "__main__":
    main()
