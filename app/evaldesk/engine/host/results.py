"""Results of trials whose worker could not give one."""

from __future__ import annotations

from dataclasses import replace

from evaldesk.engine.frames import GradeSpec
from evaldesk.model import ErrorRecord, TrialResult, TrialSpec, TrialStatus, trial_verdict


def cancelled(spec: TrialSpec | GradeSpec) -> TrialResult:
    """The result of a trial that was ended, or never begun, because its run was."""
    return unplayed(spec, "cancelled", None)


def unplayed(spec: TrialSpec | GradeSpec, status: TrialStatus, error: ErrorRecord | None) -> TrialResult:
    """A result without a transcript; a trial that was to be graded keeps the one it has."""
    if isinstance(spec, GradeSpec):
        verdict = trial_verdict((), spec.criteria, error)
        return replace(spec.result, status=status, verdict=verdict, scores=(), error=error)
    return TrialResult(
        run_id=spec.run_id,
        case_index=spec.case_index,
        trial_index=spec.trial_index,
        status=status,
        verdict=trial_verdict((), spec.criteria, error),
        stop_reason="error" if status == "errored" else status,
        error=error,
        attempt=spec.attempt,
    )
