"""Spans of Phoenix: annotations of any span of a trace are the scores of its conversation."""

from __future__ import annotations

import json
from typing import Any

from evaldesk.formats.files import read_file
from evaldesk.formats.hosted import Row
from evaldesk.integrations.phoenix.api import PhoenixApi
from evaldesk.transcripts.otel.spans import EVALUATION

CHAIN: Row = {
    "name": "chain",
    "context": {"trace_id": "a1" * 16, "span_id": "b1" * 8},
    "span_kind": "CHAIN",
    "start_time": "2026-11-30T10:00:00Z",
    "end_time": "2026-11-30T10:00:02Z",
    "status_code": "OK",
    "attributes": {},
}
MODEL: Row = {
    **CHAIN,
    "name": "llm",
    "context": {"trace_id": "a1" * 16, "span_id": "b2" * 8},
    "span_kind": "LLM",
    "parent_id": "b1" * 8,
    "start_time": "2026-11-30T10:00:01Z",
    "attributes": {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "Hi",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "Hello",
    },
}


def annotation(name: str, **result: Any) -> Row:
    return {"name": name, "annotator_kind": "HUMAN", "span_id": "b1" * 8, "result": result}


def test_annotations_of_a_chain_come_to_the_first_model_call() -> None:
    chain = {**CHAIN, "annotations": [annotation("user feedback", label="thumbs-down", explanation="wrong order")]}

    spans = PhoenixApi.spans([chain, {**MODEL, "annotations": [annotation("tone", score=0.5)]}], "phoenix")

    events = {span.name: [dict(event.attributes) for event in span.events] for span in spans}
    assert events["chain"] == []
    assert events["llm"] == [
        {
            "gen_ai.evaluation.name": "user feedback",
            "gen_ai.evaluation.score.label": "thumbs-down",
            "gen_ai.evaluation.explanation": "wrong order",
        },
        {"gen_ai.evaluation.name": "tone", "gen_ai.evaluation.score.value": 0.5},
    ]


def test_annotations_in_a_file_of_spans_are_scores_of_its_trial() -> None:
    rows = [CHAIN, {**MODEL, "annotations": [annotation("tone", score=0.5, explanation="curt")]}]

    (run,) = read_file(json.dumps({"data": rows}).encode(), "phoenix.json").runs

    (result,) = run.results
    assert [(score.metric, score.value, score.reason) for score in result.scores] == [("tone", 0.5, "curt")]
    assert EVALUATION == "gen_ai.evaluation.result"


def test_a_span_without_annotations_and_one_without_a_result_are_read() -> None:
    spans = PhoenixApi.spans([{**MODEL, "annotations": [{"name": "seen", "result": None}]}], "phoenix")

    assert [dict(event.attributes) for event in spans[0].events] == [{"gen_ai.evaluation.name": "seen"}]
    assert PhoenixApi.spans([MODEL], "phoenix")[0].events == ()
