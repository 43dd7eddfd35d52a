"""The history of cases that every forecast is drawn from: which runs are its class, and what the baseline passed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case
from evaldesk.model.comparison import Baseline, PlayedCase
from evaldesk.model.evalset import CaseKey, numbered_keys
from evaldesk.model.history import CaseHistory, SetHistory
from evaldesk.model.stored import RunSummary
from evaldesk.store.runs.histories import NO_HISTORY, history_class


@dataclass(frozen=True, slots=True)
class ComparedHistory:
    """The history of the planned cases that a baseline has with the same content.

    `places` are theirs among the planned cases, `passed` whether each passed in the baseline.
    """

    history: SetHistory
    places: tuple[int, ...]
    passed: tuple[bool, ...]


def keys_of(evalset: str, cases: Sequence[Case]) -> list[CaseKey]:
    """The keys of cases that are to be played."""
    return numbered_keys((evalset, case.id, case_version(case)) for case in cases)


def run_history(runs: StoredRuns, run: RunSummary, keys: Sequence[CaseKey] | None = None) -> SetHistory:
    """The history of cases, by default of those of the run, over all runs of the same class.

    Of a run that has no class, such as an imported one, only its own trials.
    """
    of_class = history_class(run.config)
    if of_class != NO_HISTORY:
        return runs.store.case_histories(of_class, runs.store.case_keys(run.id) if keys is None else keys)
    return played_history(runs.played_cases([run]), keys)


def played_history(cases: Sequence[PlayedCase], keys: Sequence[CaseKey] | None = None) -> SetHistory:
    """The history that these trials alone are."""
    found = {(case.key.case_id, case.key.digest): case.scored for case in cases}
    asked = [case.key for case in cases] if keys is None else keys
    scored = [found.get((key.case_id, key.digest), "") for key in asked]
    return SetHistory(tuple(CaseHistory(len(each), each.count("p")) for each in scored))


def plan_history(runs: StoredRuns, plan: RunPlan) -> SetHistory:
    """The history of the cases of a plan, by the class of the run that it will be."""
    keys = keys_of(plan.config.evalset_name, plan.cases)
    return runs.store.case_histories(history_class(plan.config), keys)


def compared_history(runs: StoredRuns, baseline: Baseline, keys: Sequence[CaseKey]) -> ComparedHistory:
    """The history of the cases that a baseline has, too, by the class of its run; edited cases are left out."""
    before = {(case.key.case_id, case.key.digest): case for case in baseline.cases if case.scored}
    places = tuple(at for at, key in enumerate(keys) if (key.case_id, key.digest) in before)
    compared = [keys[place] for place in places]
    own = [before[key.case_id, key.digest] for key in compared]
    if baseline.run_id is None:
        history = played_history(own)
    else:
        history = run_history(runs, runs.summary(baseline.run_id), compared)
    return ComparedHistory(history, places, tuple(case.is_passed(case.scored) for case in own))
