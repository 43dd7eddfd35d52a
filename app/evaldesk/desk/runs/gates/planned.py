"""The forecast of the gate on regressions for runs that are about to be played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaldesk.desk.runs.gates.forecasts import MOST_PREVIEWED, gate_forecasts, history_subject
from evaldesk.desk.runs.histories import compared_history, keys_of
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.model import Gates
from evaldesk.model.forecast import GateForecast
from evaldesk.model.history import SetHistory


def doubtful_regressions(gates: Gates, plans: Sequence[RunPlan]) -> tuple[GateForecast, GateForecast] | None:
    """The gate on regressions that does not ask what the cases did before, and the same gate where that judges them.

    None without the gate, with a rule whose bar is the history, and where a flip alone counts and rarely fails by
    chance.
    """
    if gates.max_regressions is None or gates.is_by_history:
        return None
    histories: list[SetHistory] = []
    n_each: list[int] = []
    passed: list[bool] = []
    for plan in plans:
        if plan.baseline is not None:
            keys = keys_of(plan.config.evalset_name, plan.cases)
            comparable_history = compared_history(plan.baseline, keys, plan.config.left_out)
            histories.append(comparable_history.history)
            n_each += [plan.n_each[place] for place in comparable_history.places]
            passed += comparable_history.passed
    if not 0 < len(n_each) <= MOST_PREVIEWED:
        return None
    cases = tuple(case for each in histories for case in each.cases)
    history = SetHistory(cases, days=histories[0].days)
    subject = history_subject(history, n_each, plans[0].config.pass_threshold, passed)
    if subject is None:
        return None
    rule, (n_needed, fresh) = gates.regression_rule, gates.confirm
    fixed_gates = Gates(max_regressions=gates.max_regressions, regression_rule=rule, confirm=gates.confirm)
    confirmed = replace(fixed_gates, regression_rule="confirm", confirm=(0, fresh))
    (fixed,), (again,) = (gate_forecasts(each, subject, is_searched=False) for each in (fixed_gates, confirmed))
    return (fixed, again) if n_needed or fixed.standing != "rarely" else None
