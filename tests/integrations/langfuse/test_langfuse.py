"""Traces of Langfuse: observations alone, errors, costs."""

from __future__ import annotations

import json
from typing import Any

from evaldesk.integrations.langfuse.traces import Langfuse

FIRST: dict[str, Any] = {
    "id": "o-1",
    "trace_id": "t-1",
    "project_id": "p",
    "type": "GENERATION",
    "is_root_observation": True,
    "session_id": "s-1",
    "start_time": "2026-11-29T12:00:01Z",
    "end_time": "2026-11-29T12:00:02Z",
    "input": '[{"role": "user", "content": "hi"}]',
    "output": '{"role": "assistant", "content": "hello"}',
    "model": "gpt-5-mini",
    "usage_details": {"input": 7, "output": 2, "input_cached_tokens": 4},
    "cost_details": {"total": 0.25},
}


def test_observations_alone_are_joined_by_trace_and_session() -> None:
    second = {**FIRST, "id": "o-2", "trace_id": "t-2", "start_time": "2026-11-29T12:01:00Z"}
    second |= {"end_time": "2026-11-29T12:01:01Z", "input": [{"role": "user", "content": "bye"}], "output": "see you"}

    data = json.dumps([FIRST, second]).encode()
    (run,) = Langfuse.read(data, source="observations.json").runs

    assert Langfuse.recognises(data, "observations.json")
    (result,) = run.results
    assert [(turn.query, turn.answer) for turn in result.transcript.turns] == [("hi", "hello"), ("bye", "see you")]
    (usage,) = result.transcript.turns[0].usages
    assert (usage.tokens_in, usage.tokens_out, usage.tokens_cached, usage.cost) == (7, 2, 4, 0.25)


def test_an_observation_at_the_level_of_errors_breaks_its_trial() -> None:
    failed = {**FIRST, "level": "ERROR", "status_message": "overloaded", "output": None}

    (run,) = Langfuse.read(json.dumps([failed]).encode(), source="x.json").runs

    (result,) = run.results
    assert result.error is not None
    assert (result.status, result.error.message) == ("errored", "overloaded")
