"""`python -m bench.simulate_gates`: simulated builds of each rule of a gate over mixtures of cases; writes docs/ci.md.

An agent plays a history of each case, then a build: with the same pass rates, on another day, with a rate that is lower
by DROP in every case, or with as many passes less in a quarter of the cases. The seed is fixed, so the table is the
same each time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evaldesk.desk.runs.gates.forecasts import BARS_FROM_HISTORY
from evaldesk.statistics.history.build_tests import confirmed_verdict, likely_verdict, looks_low

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rates = NDArray[np.float64]
    Passes = NDArray[np.int64]

N_BUILDS = 300
N_CASES, DROP, DAY = 20, 0.15, 0.5
SEED = 20261123
PAGE = Path(__file__).resolve().parents[1] / "docs" / "ci.md"
FIRST, LAST = "<!-- simulated gates -->\n", "<!-- end of simulated gates -->\n"
RECOMMENDED = "--n 5 --max-regressions 0 --regression-rule confirm"
FRESH = 5

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
    """A gate and its number of trials; `options` is how it is asked for.

    `bar` is a pass rate, `confirm` the needed and the fresh trials of a suspect, `history` the rule whose bar is the
    history. Without any a flip alone counts.
    """

    options: str
    n: int
    bar: float | None = None
    confirm: tuple[int, int] | None = None
    history: str = ""

    def build(self, random: np.random.Generator, history: tuple[Passes, int], rates: Rates) -> Build:
        """Play one build; the newest run of the history is its baseline."""
        before, n_before = history
        passes = random.binomial(self.n, rates)
        n_trials = self.n * N_CASES
        if self.bar is not None:
            return Build(bool(passes.sum() < self.bar * n_trials - 1e-9), n_trials)
        has_passed = before == n_before
        suspects = np.flatnonzero(has_passed & (passes < self.n))
        if self.confirm:
            needed, fresh = self.confirm
            again = random.binomial(fresh, rates[suspects])
            return Build(bool((again < needed).any()), n_trials + fresh * len(suspects))
        if not self.history:
            return Build(len(suspects) > 0, n_trials)
        known = [(n_before, int(passed)) for passed in before]
        now = [(self.n, int(passed)) for passed in passes]
        if self.history == "likely":
            found = likely_verdict(known, now)
            return Build(found.is_suite_worse or bool(found.worse_cases), n_trials)
        played = set(range(N_CASES) if looks_low(known, now) else suspects.tolist())
        fresh_trials = [
            (FRESH, int(random.binomial(FRESH, rates[at]))) if at in played else (0, 0) for at in range(N_CASES)
        ]
        found = confirmed_verdict(known, now, suspects.tolist(), fresh_trials)
        return Build(found.is_suite_worse or bool(found.worse_cases), n_trials + FRESH * len(played))


RULES = (
    Rule("--n 1 --max-regressions 0", 1),
    Rule("--n 5 --max-regressions 0", 5),
    Rule("--n 1 --max-regressions 0 --regression-rule confirm --confirm 9/12", 1, confirm=(9, 12)),
    Rule("--n 5 --max-regressions 0 --regression-rule likely", 5, history="likely"),
    Rule(RECOMMENDED, 5, history="confirm"),
    Rule("--n 2 --min-pass-rate 0.82", 2, bar=0.82),
    Rule("--n 5 --min-pass-rate 0.82", 5, bar=0.82),
)


SHOWN = tuple(rule for rule in RULES if BARS_FROM_HISTORY or not rule.history)
"""The rules that judge runs."""


def history_of(random: np.random.Generator, rates: Rates, rule: Rule) -> tuple[Passes, int]:
    """The passes of each case in a baseline with as many trials as the build; one of five for rules with a history."""
    return random.binomial(rule.n, rates), rule.n


def simulate(rule: Rule, mixture: str, kind: str, n_builds: int = N_BUILDS) -> tuple[float, float]:
    """The share of builds that fail, and the mean trials of a case."""
    random = np.random.default_rng([SEED, *rule.options.encode(), *mixture.encode(), *kind.encode()])
    builds = []
    for _ in range(n_builds):
        rates = MIXTURES[mixture](random)
        history = history_of(random, _on_day(random, rates) if kind == "days" else rates, rule)
        builds.append(rule.build(random, history, _now(random, rates, kind)))
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


def table(n_builds: int = N_BUILDS) -> Iterator[str]:
    """The lines of the table."""
    days = f"all 0.9, days differ by {DAY:g} logits"
    columns = (*MIXTURES, days, "finds, even drop", "finds, a quarter drops", "trials a case")
    yield f"| gate, {N_CASES} cases | {' | '.join(columns)} |\n"
    yield "|---|" + "---|" * (len(MIXTURES) + 4) + "\n"
    for rule in SHOWN:
        same = [simulate(rule, mixture, "same", n_builds) for mixture in MIXTURES]
        on_days, _ = simulate(rule, "all 0.9", "days", n_builds)
        power = [
            min(simulate(rule, mixture, kind, n_builds)[0] for mixture in MIXTURES) for kind in ("even", "quarter")
        ]
        shares = [f"{100 * share:.1f} %" for share in (*(share for share, _ in same), on_days, *power)]
        yield f"| `{rule.options}` | {' | '.join(shares)} | {np.mean([n for _, n in same]):.1f} |\n"


def main() -> None:
    """Write the table into the page."""
    lines = "".join(table())
    page = PAGE.read_text("utf-8")
    PAGE.write_text(re.sub(f"(?s){FIRST}.*?{LAST}", lambda _: f"{FIRST}{lines}{LAST}", page), "utf-8")


if __name__ == "__main__":
    main()
