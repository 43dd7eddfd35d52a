"""Gates that can give only one answer over the planned trials: refused before the first trial is played."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evaldesk.desk.runs.fresh_trials import without_evidence
from evaldesk.desk.runs.histories import compared_history, keys_of
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, flag_of
from evaldesk.model import Gates
from evaldesk.model.comparison import Baseline
from evaldesk.model.conclusion import counted
from evaldesk.model.evalset import MOST_OWN_TRIALS
from evaldesk.run_options import BY_NAME, RunOption
from evaldesk.statistics.history.run_verdicts import can_fail

MOST_MORE = 20
"""More trials of each case that are looked at."""


def check_gates(gates: Gates, plans: Sequence[RunPlan], name_of: Callable[[RunOption], str] = flag_of) -> None:
    """Raise UsageError for a gate that can never hold, or can never fail, over the trials of these plans together.

    The plans carry the baseline that the gate on regressions and its rule are about. `name_of` names an option as the
    door does.
    """
    more = name_of(BY_NAME["n"])
    n_cases, n_trials = sum(map(_n_cases, plans)), sum(map(_n_trials, plans))
    run_words = _run_words(n_cases, n_trials, sum(map(_n_left_out, plans)))
    if gates.min_scored is not None and gates.min_scored > n_trials:
        least = name_of(GATES_BY_NAME["min_scored"])
        fewer = f"say {least} {n_trials} or less, or raise {more}"
        advice = fewer if n_trials else f"take one out, or say {name_of(BY_NAME['without'])} none"
        raise UsageError(
            f"{least} {gates.min_scored} can never hold: {run_words}; {advice}",
            field="min_scored",
        )
    if gates.stop_when_decided and len(plans) > 1:
        stop = name_of(GATES_BY_NAME["stop_when_decided"])
        raise UsageError(
            f"{stop} is about one run, and these are {len(plans)}; name one agent and one eval set, or leave it out",
            field="stop_when_decided",
        )
    evidence = next(filter(None, (without_evidence(plan.config) for plan in plans)), "")
    if gates.stop_when_decided == "likely" and evidence:
        stop = name_of(GATES_BY_NAME["stop_when_decided"])
        raise UsageError(f"{stop} likely: {evidence}, or say {stop} exact", field="stop_when_decided")
    most = gates.max_regressions
    if most is not None and most >= n_cases > 0:
        fewer = f"{n_cases - 1} or less" if n_cases > 1 else "0"
        name = name_of(GATES_BY_NAME["max_regressions"])
        raise UsageError(
            f"{name} {most} can never fail: {run_words}; say {name} {fewer}",
            field="max_regressions",
        )
    is_whole = not any(plan.config.shard_sizes for plan in plans)
    if most is not None and gates.is_by_history and is_whole:
        _check_history(gates, most, plans, name_of)


def _n_cases(plan: RunPlan) -> int:
    """The cases that its gates are about: of a shard, at most those of all shards."""
    return sum(plan.config.shard_sizes) or len(plan.cases) - _n_left_out(plan)


def _n_trials(plan: RunPlan) -> int:
    if not plan.trials_of_cases:
        return plan.config.n * _n_cases(plan)
    if plan.config.shard_sizes:  # the cases of the other shards are not known: at most
        return MOST_OWN_TRIALS * _n_cases(plan)
    left_out = frozenset(plan.config.left_out)
    return sum(n for n, case in zip(plan.n_each, plan.cases, strict=True) if case.id not in left_out)


def _n_left_out(plan: RunPlan) -> int:
    """The cases in no gate; of a shard 0, as those of the other shards are not known."""
    return 0 if plan.config.shard_sizes else len(plan.config.left_out)


def _run_words(n_cases: int, n_trials: int, n_left_out: int) -> str:
    """`the run has 4 cases and 4 trials beside 2 cases in quarantine`."""
    beside = f" beside {counted(n_left_out, 'case')} in quarantine" if n_left_out else ""
    return f"the run has {counted(n_cases, 'case')} and {counted(n_trials, 'trial')}{beside}"


def _check_history(gates: Gates, most: int, plans: Sequence[RunPlan], name_of: Callable[[RunOption], str]) -> None:
    """Refuse trials after so short a history that they could all fail by chance, even if all had passed before."""
    fresh = gates.confirm[1] if gates.regression_rule == "confirm" else 0
    suites = []
    for plan in plans:
        keys = keys_of(plan.config.evalset_name, plan.cases)
        comparable_history = compared_history(plan.baseline or Baseline("", ()), keys, plan.config.left_out)
        if comparable_history.places:
            passed = [(case.scored, case.scored) for case in comparable_history.history.cases]
            suites.append((passed, [plan.n_each[place] for place in comparable_history.places]))

    def can(more: int) -> bool:
        return can_fail([(history, [n + more + fresh for n in n_each]) for history, n_each in suites], most)

    if not suites or can(0):
        return
    rule = f"{name_of(GATES_BY_NAME['regression_rule'])} {gates.regression_rule}"
    before = counted(sum(n for history, _ in suites for n, _ in history), "trial")
    cases = counted(sum(len(history) for history, _ in suites), "case")
    more = next((n for n in range(1, MOST_MORE + 1) if can(n)), 0)
    n = max(plan.config.n for plan in plans) + more
    advice = f"say {name_of(BY_NAME['n'])} {n} or more, or " if more else ""
    raise UsageError(
        f"{rule} can never fail: after {before} of {cases} in the baseline, so few trials could all fail by chance; "
        f"{advice}compare with a run of more trials",
        field="regression_rule",
    )
