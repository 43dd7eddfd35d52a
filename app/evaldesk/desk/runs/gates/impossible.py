"""Gates that can give only one answer over the planned trials: refused before the first trial is played."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evaldesk.desk.runs.fresh_trials import without_evidence
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.errors import UsageError
from evaldesk.gate_options import GATES_BY_NAME, flag_of
from evaldesk.model import Gates
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.conclusion import counted
from evaldesk.run_options import BY_NAME, RunOption
from evaldesk.statistics.exact_tests import ALPHA, fisher_drop, trials_to_tell


def check_gates(gates: Gates, plans: Sequence[RunPlan], called: Callable[[RunOption], str] = flag_of) -> None:
    """Raise UsageError for a gate that can never hold, or can never fail, over the trials of these plans together.

    The plans carry the baseline that the gate on regressions and its rule are about. `called` names an option as the
    door does.
    """
    more = called(BY_NAME["n"])
    n_cases, n_trials = sum(len(plan.cases) for plan in plans), sum(plan.n_trials for plan in plans)
    if gates.min_scored is not None and gates.min_scored > n_trials:
        least = called(GATES_BY_NAME["min_scored"])
        raise UsageError(
            f"{least} {gates.min_scored} can never hold: {_planned(n_cases, n_trials)}; "
            f"say {least} {n_trials} or less, or raise {more}",
            field="min_scored",
        )
    if gates.stop_when_decided and len(plans) > 1:
        stop = called(GATES_BY_NAME["stop_when_decided"])
        raise UsageError(
            f"{stop} is about one run, and these are {len(plans)}; name one agent and one eval set, or leave it out",
            field="stop_when_decided",
        )
    evidence = next(filter(None, (without_evidence(plan.config) for plan in plans)), "")
    if gates.stop_when_decided == "likely" and evidence:
        stop = called(GATES_BY_NAME["stop_when_decided"])
        raise UsageError(f"{stop} likely: {evidence}, or say {stop} exact", field="stop_when_decided")
    most = gates.max_regressions
    if most is not None and most >= n_cases > 0:
        fewer = f"{n_cases - 1} or less" if n_cases > 1 else "0"
        name = called(GATES_BY_NAME["max_regressions"])
        raise UsageError(
            f"{name} {most} can never fail: {_planned(n_cases, n_trials)}; say {name} {fewer}", field="max_regressions"
        )
    if most is not None and gates.regression_rule == "likely":
        _check_likely(plans, called)


def _planned(n_cases: int, n_trials: int) -> str:
    cases = counted(n_cases, "case")
    trials = counted(n_trials, "trial")
    return f"the run has {cases} and {trials}"


def _check_likely(plans: Sequence[RunPlan], called: Callable[[RunOption], str]) -> None:
    """Refuse trials that could not show a drop even if a single case were compared.

    How many cases are compared is known after the run, when edited ones are left out.
    """
    compared = [
        (case, n_of[case.key.case_id])
        for plan in plans
        for n_of in [{each.id: n for each, n in zip(plan.cases, plan.n_each, strict=True)}]
        for case in baseline_of(plan)
    ]
    if compared and not any(_can_drop(case, n) for case, n in compared):
        needed, rule, more = trials_to_tell(1), called(GATES_BY_NAME["regression_rule"]), called(BY_NAME["n"])
        raise UsageError(
            f"{rule} likely can never fail: so few trials cannot show a drop in any case; "
            f"play at least {needed} of each case in both runs, and say {more} {needed} or more",
            field="regression_rule",
        )


def baseline_of(plan: RunPlan) -> list[PlayedCase]:
    """The cases of the baseline that are scored and have the id of a planned case."""
    ids = {case.id for case in plan.cases}
    known = plan.baseline.cases if plan.baseline else ()
    return [case for case in known if case.key.case_id in ids and case.scored]


def _can_drop(case: PlayedCase, n: int) -> bool:
    """Whether so many trials could show a drop from all passed to none, if no other case were compared."""
    n_before = len(case.scored)
    return min(n_before, n) > 1 and fisher_drop(n_before, n_before, 0, n) < ALPHA
