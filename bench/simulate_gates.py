"""`python -m bench.simulate_gates`: 5,000 simulated builds for each rule of a gate; writes the table of docs/ci.md.

The agent is simulated, the rest is the code of a run: a baseline, a candidate with the same pass rate or with one
that is lower by DROP in every case, fresh trials of the suspects, the stop when decided, the comparison
and the conclusion. The seed is fixed, so the table is the same each time.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from evaldesk.desk.runs.deciding import Decider
from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers, Spent, conclude
from evaldesk.model import AgentRef, Counts, Gates, RunConfig
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.evalset import CaseKey
from evaldesk.statistics.case_comparison import compare_cases

N_BUILDS = 5_000
N_CASES, RATE, DROP = 20, 0.9, 0.15
SEED = 20261123
PAGE = Path(__file__).resolve().parents[1] / "docs" / "ci.md"
FIRST, LAST = "<!-- simulated gates -->\n", "<!-- end of simulated gates -->\n"
KEYS = tuple(CaseKey("set", f"case_{number}", 0, "d") for number in range(N_CASES))


@dataclass(frozen=True)
class Rule:
    """A gate and its number of trials; `options` is how it is asked for."""

    options: str
    n: int
    gates: Gates


RULES = (
    Rule("--n 1 --max-regressions 0", 1, Gates(max_regressions=0)),
    Rule("--n 5 --max-regressions 0", 5, Gates(max_regressions=0)),
    Rule("--n 10 --max-regressions 0 --regression-rule likely", 10, Gates(max_regressions=0, regression_rule="likely")),
    Rule("--n 1 --max-regressions 0 --regression-rule confirm", 1, Gates(max_regressions=0, regression_rule="confirm")),
    Rule(
        "--n 1 --max-regressions 0 --regression-rule confirm --confirm 9/12",
        1,
        Gates(max_regressions=0, regression_rule="confirm", confirm=(9, 12)),
    ),
    Rule("--n 2 --max-regressions 0 --regression-rule confirm", 2, Gates(max_regressions=0, regression_rule="confirm")),
    Rule(
        "--n 2 --max-regressions 0 --regression-rule confirm --confirm 7/10",
        2,
        Gates(max_regressions=0, regression_rule="confirm", confirm=(7, 10)),
    ),
    Rule("--n 5 --margin 0.05", 5, Gates(margin=0.05)),
    Rule("--n 2 --min-pass-rate 0.82", 2, Gates(min_pass_rate=0.82)),
    Rule("--n 5 --min-pass-rate 0.82", 5, Gates(min_pass_rate=0.82)),
    Rule(
        "--n 5 --min-pass-rate 0.82 --stop-when-decided exact",
        5,
        Gates(min_pass_rate=0.82, stop_when_decided="exact"),
    ),
    Rule(
        "--n 12 --min-pass-rate 0.84 --undecided neutral",
        12,
        Gates(min_pass_rate=0.84, undecided="neutral"),
    ),
    Rule("--n 30 --min-pass-rate 0.83", 30, Gates(min_pass_rate=0.83)),
    Rule(
        "--n 30 --min-pass-rate 0.83 --stop-when-decided likely",
        30,
        Gates(min_pass_rate=0.83, stop_when_decided="likely"),
    ),
)


@dataclass(frozen=True)
class Simulated:
    """The share of builds that fail though nothing changed, and of those with a worse agent.

    `n_trials` and `n_trials_worse` are the medians of the trials of such builds.
    """

    false_alarm: float
    finds: float
    n_trials: float
    n_trials_worse: float


def simulate(rule: Rule, n_builds: int = N_BUILDS) -> Simulated:
    """The builds of one rule."""
    chance = random.Random(f"{SEED} {rule.options}")
    same = [_build(rule, RATE, chance) for _ in range(n_builds)]
    worse = [_build(rule, RATE - DROP, chance) for _ in range(n_builds)]
    n_failed, n_found = sum(failed for failed, _ in same), sum(failed for failed, _ in worse)
    medians = (median(n for _, n in builds) for builds in (same, worse))
    return Simulated(n_failed / n_builds, n_found / n_builds, *medians)


def _build(rule: Rule, rate: float, chance: random.Random) -> tuple[bool, int]:
    """Whether a build with an agent of this pass rate fails, and how many trials it plays."""
    after = [PlayedCase(key, _letters(rule.n, rate, chance)) for key in KEYS]
    numbers = RunNumbers.of_cases(CaseNumbers(case.key.case_id, _counts(case.verdicts)) for case in after)
    if rule.gates.stop_when_decided:
        config = RunConfig(AgentRef("agent", "agent"), "set", "", "", criteria=(), n=rule.n, gates=rule.gates)
        n_each = [rule.n] * N_CASES
        decider = Decider(config, n_each, rule.gates.stop_when_decided, names=lambda: [key.case_id for key in KEYS])
        if stop := decider.look(lambda _: [case.verdicts for case in after], Spent()):
            return any(answer.answer == "failed" for answer in stop.answers), stop.n_trials
    if not rule.gates.compares:
        return conclude(rule.gates, numbers).outcome == "failed", rule.n * N_CASES
    before = [PlayedCase(key, _letters(rule.n, RATE, chance)) for key in KEYS]
    asked, confirm = rule.gates.regression_rule, rule.gates.confirm
    change = compare_cases("baseline", before, after, rule=asked, confirm=confirm)
    n_fresh = len(change.unconfirmed) * confirm[1]
    if n_fresh:
        suspects = {case.key for case in change.unconfirmed}
        after = [_again(case, confirm[1], rate, chance) if case.key in suspects else case for case in after]
        change = compare_cases("baseline", before, after, rule=asked, confirm=confirm)
    return conclude(rule.gates, numbers, change).outcome == "failed", rule.n * N_CASES + n_fresh


def _again(case: PlayedCase, n: int, rate: float, chance: random.Random) -> PlayedCase:
    return replace(case, confirming=_letters(n, rate, chance))


def _letters(n: int, rate: float, chance: random.Random) -> str:
    return "".join("p" if chance.random() < rate else "f" for _ in range(n))


def _counts(letters: str) -> Counts:
    return Counts(len(letters), letters.count("p"), letters.count("f"))


def table(n_builds: int = N_BUILDS) -> Iterator[str]:
    """The lines of the table."""
    columns = ("nothing changed: fails", f"{100 * DROP:.0f} points worse: fails", "trials", "trials, worse")
    yield f"| gate, {N_CASES} cases | {' | '.join(columns)} |\n"
    yield "|---|---|---|---|---|\n"
    for rule in RULES:
        found = simulate(rule, n_builds)
        shares = f"{100 * found.false_alarm:.1f} % | {100 * found.finds:.1f} %"
        yield f"| `{rule.options}` | {shares} | {found.n_trials:.0f} | {found.n_trials_worse:.0f} |\n"


def main() -> None:
    """Write the table into the page."""
    lines = "".join(table())
    page = PAGE.read_text("utf-8")
    PAGE.write_text(re.sub(f"(?s){FIRST}.*?{LAST}", lambda _: f"{FIRST}{lines}{LAST}", page), "utf-8")


if __name__ == "__main__":
    main()
