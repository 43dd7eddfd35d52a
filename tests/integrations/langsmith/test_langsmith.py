"""Runs of LangSmith: nested ones, bulk exports, arguments of tools."""

from __future__ import annotations

import json
from typing import Any

from evaldesk.integrations.langsmith.runs import LangSmith

MODEL: dict[str, Any] = {
    "id": "r-2",
    "parent_run_id": "r-1",
    "run_type": "llm",
    "name": "ChatOpenAI",
    "start_time": 1_795_000_000_000,
    "end_time": 1_795_000_001_000,
    "inputs": json.dumps({"messages": [{"role": "user", "content": "hi"}]}),
    "outputs": json.dumps(
        {
            "choices": [{"message": {"role": "assistant", "content": "hello"}}],
            "usage_metadata": {"input_tokens": 7, "output_tokens": 2, "input_token_details": {"cache_read": 4}},
        }
    ),
    "total_cost": "0.25",
}
ROOT: dict[str, Any] = {
    "id": "r-1",
    "trace_id": "r-1",
    "parent_run_id": None,
    "run_type": "chain",
    "name": "agent",
    "start_time": 1_795_000_000_000,
    "extra": json.dumps({"metadata": {"thread_id": "s-1"}}),
}


def test_a_bulk_export_with_json_in_texts_is_read() -> None:
    rows = [ROOT, {**MODEL, "trace_id": "r-1"}]

    (run,) = LangSmith.read("\n".join(map(json.dumps, rows)).encode(), source="runs.jsonl").runs

    (case,), (result,) = run.cases, run.results
    (turn,) = result.transcript.turns
    (usage,) = turn.usages
    assert (case.id, turn.query, turn.answer) == ("s-1", "hi", "hello")
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.cost) == (7, 2, 4, 0.25)
    assert usage.duration_ms == 1000.0


def test_runs_in_a_run_are_of_its_trace() -> None:
    nested = {**ROOT, "child_runs": [{**MODEL, "trace_id": "r-1", "error": "RateLimitError: slow down"}]}

    (run,) = LangSmith.read(json.dumps({"runs": [nested]}).encode(), source="runs.json").runs

    (result,) = run.results
    assert result.error is not None
    assert result.error.message == "RateLimitError: slow down"
