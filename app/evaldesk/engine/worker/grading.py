"""Scores what was played; apart from playing, so that a stored trial can be scored again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from evaldesk.engine.failures import failure
from evaldesk.engine.worker.attempt import GRADE_TIMEOUT_S
from evaldesk.model import Case, Criterion, Limits, TrialResult, trial_verdict

JUDGE_TIMEOUT_S = 300.0


async def grade(
    result: TrialResult,
    case: Case,
    criteria: Sequence[Criterion],
    limits: Limits | None = None,
    *,
    strict: bool = False,
) -> TrialResult:
    """`result` with scores, what judges used for them, and the verdict. What did not finish is not scored."""
    from evaldesk.metrics import grade_trial

    if result.status != "finished":
        return replace(result, scores=(), verdict=trial_verdict((), criteria, result.error))
    with suppress(Exception, SystemExit):  # a function that cannot be imported is the error of its own score
        load_functions(criteria)
    try:
        grading = await grade_trial(
            result.transcript, case, criteria, timeouts=_timeouts(criteria, limits), strict=strict
        )
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        found = failure(error, "grading_failed")
        return replace(result, status="errored", scores=(), verdict="errored", error=found)
    verdict = trial_verdict(grading.scores, criteria, result.error)
    return replace(result, scores=grading.scores, usages=(*result.usages, *grading.usages), verdict=verdict)


def load_functions(criteria: Sequence[Criterion]) -> None:
    """Import the user's functions that `criteria` name, with something to import where osmosis_ai is not installed.

    Raises MetricError for a function that cannot be called as one, and whatever an import raises.
    """
    from evaldesk.agents.osmosis.standin import install
    from evaldesk.metrics import is_function, load_function_of

    for criterion in filter(is_function, criteria):
        install()
        load_function_of(criterion)


def grading_timeout_s(criteria: Sequence[Criterion], limits: Limits | None = None) -> float:
    """How long grading may take: each judge and each function of the user has its own bound within."""
    return GRADE_TIMEOUT_S + sum(_timeouts(criteria, limits).values())


def _timeouts(criteria: Sequence[Criterion], limits: Limits | None) -> dict[str, float]:
    """Seconds by metric, of those that may have to wait."""
    from evaldesk.metrics import is_function, is_metric, metric_info

    asked = limits.judge_timeout_s if limits else None
    found: dict[str, float] = {}
    for criterion in criteria:
        if is_function(criterion):
            found[criterion.metric] = asked or GRADE_TIMEOUT_S
        elif is_metric(criterion.metric) and metric_info(criterion.metric).has_judge:
            found[criterion.metric] = asked or JUDGE_TIMEOUT_S
    return found
