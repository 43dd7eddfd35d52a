"""A judge that no trial can ask stops the run, before every agent is paid for scores that never come."""

from __future__ import annotations

import pytest

from evaldesk.desk.runs.driver import fatal_sentence
from evaldesk.model import ErrorRecord, Score, TrialResult


def result(kind: str) -> TrialResult:
    error = ErrorRecord(kind, "openai/x: no valid key; set OPENAI_API_KEY\nmore")
    scores = (Score("tool_f1", 1.0), Score("safety_v1", error=error))
    return TrialResult(1, 0, 0, "finished", "errored", scores=scores)


@pytest.mark.parametrize("kind", ["authentication", "quota", "unknown_model"])
def test_a_judge_that_refuses_for_good_stops_the_run(kind: str) -> None:
    assert fatal_sentence(result(kind)).endswith(
        "no more trials were started: openai/x: no valid key; set OPENAI_API_KEY"
    )


@pytest.mark.parametrize("kind", ["rate_limit", "metric", "timeout"])
def test_other_errors_of_judges_are_those_of_one_trial(kind: str) -> None:
    assert fatal_sentence(result(kind)) == ""


def test_a_function_that_cannot_be_imported_stops_the_run() -> None:
    error = ErrorRecord("metric_import", "Module 'rewards' has no attribute 'f'")

    assert fatal_sentence(TrialResult(1, 0, 0, "errored", "errored", error=error))
