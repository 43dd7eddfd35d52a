"""One trial from its spec to its result: load the agent, play the case, grade what happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from evaldesk.engine.failures import failure
from evaldesk.engine.worker.attempt import LOAD_TIMEOUT_S, Attempt
from evaldesk.engine.worker.grading import grade, grading_timeout_s, load_functions
from evaldesk.engine.worker.loading import load_ready
from evaldesk.engine.worker.output import CURRENT_LOG
from evaldesk.engine.worker.player import play_trial, timed_out, trial_result
from evaldesk.llm.retry_events import CURRENT_LISTENER
from evaldesk.model import ErrorRecord, TrialResult, TrialSpec


async def run_trial(spec: TrialSpec, attempt: Attempt) -> TrialResult:
    """Load, play, grade. Each phase has its own deadline, which whoever holds the attempt enforces."""
    CURRENT_LOG.set(attempt.log)
    CURRENT_LISTENER.set(attempt.waits)
    attempt.begin("load", LOAD_TIMEOUT_S)
    try:
        agent = load_ready(spec.agent, spec.model, spec.model_options)
    except BaseException as error:
        return trial_result(spec, attempt, failure(error, "agent_import"))
    try:
        load_functions(spec.criteria)
    except BaseException as error:
        return trial_result(spec, attempt, failure(error, "metric_import"))
    result = await play_trial(agent, spec, attempt=attempt)
    if attempt.stop:
        return result
    attempt.begin("grade", grading_timeout_s(spec.criteria, spec.limits))
    try:
        graded = await grade(result, spec.case, spec.criteria, spec.limits, strict=spec.strict)
    except asyncio.CancelledError:
        if attempt.stop != "timed_out":
            raise
        return given_up(spec, attempt, "")
    return replace(graded, logs=attempt.log.text())


def given_up(spec: TrialSpec, attempt: Attempt, place: str) -> TrialResult:
    """The result of a trial whose thread does not come back, standing at `place`."""
    reasons: dict[str, Callable[[], ErrorRecord]] = {
        "load": lambda: ErrorRecord("agent_import", f"not imported within {attempt.timeout_s:g} s", place),
        "play": lambda: timed_out(attempt.timeout_s, place),
        "grade": lambda: ErrorRecord("grading_failed", f"not graded within {attempt.timeout_s:g} s", place),
    }
    if attempt.stop == "cancelled":
        return trial_result(spec, attempt, None)
    result = trial_result(spec, attempt, reasons[attempt.phase]())
    return result if attempt.phase == "play" else replace(result, status="errored", stop_reason="error")
