"""Traces of MLflow: older names of its keys, assessments, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.integrations.mlflow.traces import MlflowTraces

SPAN: dict[str, Any] = {
    "name": "ask",
    "context": {"span_id": "0x1", "trace_id": "0x9"},
    "parent_id": None,
    "start_time": 1_000_000_000,
    "end_time": 2_000_000_000,
    "status": {"code": "STATUS_CODE_OK"},
    "attributes": {
        "mlflow.spanType": '"CHAT_MODEL"',
        "mlflow.spanInputs": json.dumps({"model": "gpt-5-mini", "messages": [{"role": "user", "content": "hi"}]}),
        "mlflow.spanOutputs": json.dumps({"choices": [{"message": {"role": "assistant", "content": "hello"}}]}),
        "mlflow.chat.tokenUsage": json.dumps({"input_tokens": 7, "output_tokens": 2}),
    },
}


def trace(span: dict[str, Any], **info: Any) -> bytes:
    """A file of one trace."""
    return json.dumps({"info": {"request_id": "tr-1", **info}, "data": {"spans": [span]}}).encode()


def test_a_trace_of_an_older_version_is_read() -> None:
    (run,) = MlflowTraces.read(trace(SPAN, request_metadata={"mlflow.trace.session": "s-1"}), source="t.json").runs

    (case,), (result,) = run.cases, run.results
    (usage,) = result.transcript.turns[0].usages
    assert (case.id, result.transcript.turns[0].answer) == ("s-1", "hello")
    assert (usage.model, usage.tokens_in, usage.tokens_out, usage.duration_ms) == ("gpt-5-mini", 7, 2, 1000.0)


@pytest.mark.parametrize(
    ("value", "number"), [("yes", 1.0), ("no", 0.0), (False, 0.0), (0.4, 0.4), ("fair", None), ({}, None)]
)
def test_an_assessment_is_a_score(value: object, number: float | None) -> None:
    assessment = {"assessment_name": "fair", "feedback": {"value": value}, "rationale": "it is"}

    (run,) = MlflowTraces.read(trace(SPAN, assessments=[assessment]), source="t.json").runs

    (score,) = run.results[0].scores
    assert (score.metric, score.value, score.reason) == ("fair", number, "it is")


def test_a_failed_call_breaks_its_trial() -> None:
    failed = {**SPAN, "status": {"code": "STATUS_CODE_ERROR", "message": "overloaded"}}

    (run,) = MlflowTraces.read(trace(failed), source="t.json").runs

    assert run.results[0].error is not None
    assert run.results[0].error.message == "overloaded"
