"""Trials by the names that a person types: `RUN:CASE:TRIAL`."""

from __future__ import annotations

from evaldesk.desk.desk import Desk
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model.stored import TrialKey


def find_trial(desk: Desk, text: str) -> tuple[int, TrialKey | None]:
    """The run and the trial of `RUN:CASE:TRIAL`; trials count from 1, as on their pages.

    Without TRIAL that is the first failed trial of the case; None without CASE, for the whole run. RUN is a number or a
    name. Raises NotFoundError, UsageError.
    """
    run_text, _, rest = text.partition(":")
    run = desk.stored_runs.find_by_name(run_text)
    if not rest:
        return run.id, None
    case_ids = [case_id for case_id, _ in desk.store.failures.verdicts(run.id)]
    case_text, _, number = rest.rpartition(":")
    if rest not in case_ids and case_text and number.isdecimal() and len(number) < 10:
        case_index, trial = _case_index(case_ids, case_text), int(number)
        n = len(desk.store.runs.strips(run.id, [case_index])[0])
        if not 1 <= trial <= n:
            raise NotFoundError(
                f"case {case_ids[case_index]} of run {run.id} has trials 1 to {n}, and no trial {trial}"
            )
        return run.id, (case_index, trial - 1)
    case_index = _case_index(case_ids, rest)
    at = desk.store.runs.strips(run.id, [case_index])[0].find("f")
    if at < 0:
        raise UsageError(f"no trial of case {case_ids[case_index]} of run {run.id} failed", field="trial")
    return run.id, (case_index, at)


def _case_index(case_ids: list[str], text: str) -> int:
    if text not in case_ids:
        raise NotFoundError.among("case", text, case_ids)
    return case_ids.index(text)
