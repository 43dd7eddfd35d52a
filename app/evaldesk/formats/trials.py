"""Several recorded runs of the same cases as the trials of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import RecordedRun
from evaldesk.model import Case, Criterion, TrialResult


def as_trials(runs: Sequence[RecordedRun]) -> RecordedRun:
    """One run with the trials of all, cases matched by id; names come from the first. Raises FormatError.

    A case that a run does not have gets no trial from it.
    """
    if not runs:
        raise FormatError("there is no run to put together")
    cases: dict[str, Case] = {}
    criteria: dict[str, Criterion] = {}
    results: list[TrialResult] = []
    n_trials: dict[str, int] = {}
    for run in runs:
        ids = [case.id for case in run.cases]
        if len(set(ids)) != len(ids):
            raise FormatError(f"{run.name}: two cases have the same id, so its trials cannot be matched by id")
        for case in run.cases:
            cases.setdefault(case.id, case)
        places = {case_id: place for place, case_id in enumerate(cases)}
        ranks = {case_id: n_trials.get(case_id, 0) for case_id in ids}
        for result in sorted(run.results, key=lambda result: (result.case_index, result.trial_index)):
            case_id = ids[result.case_index]
            results.append(replace(result, case_index=places[case_id], trial_index=ranks[case_id]))
            ranks[case_id] += 1
        n_trials |= ranks
        for criterion in run.criteria:
            criteria.setdefault(criterion.metric, criterion)
    return replace(runs[0], cases=tuple(cases.values()), results=tuple(results), criteria=tuple(criteria.values()))
