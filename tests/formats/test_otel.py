"""Traces of agents, in every shape and convention that real tools export."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaldesk.formats import load_evalset
from evaldesk.formats.files import read_file
from evaldesk.formats.otel import OpenInference, OpenTelemetry
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, ToolCall

from .traces_read import OTLP, SAMPLES, read, spans_of, turns_of_trace

SDK: list[dict[str, Any]] = json.loads((SAMPLES / "openinference.json").read_bytes())


def shown(case: Case) -> list[tuple[Any, ...]]:
    return [
        (turn.query, [(c.name, c.args, c.id) for c in turn.expected.tool_calls or ()], turn.expected.reference)
        for turn in case.turns
    ]


@pytest.mark.parametrize(
    ("trace", "evalset"),
    [("helm_3.json", "evalset_helm_3_2026-02-23.json"), ("k8s.json", "evalset_k8s_2026-02-20.json")],
)
def test_a_trace_becomes_the_eval_set_that_another_tool_made_of_it(shared: Path, trace: str, evalset: str) -> None:
    folder = shared / "data" / "agentevals_otel"
    wanted = load_evalset(folder / evalset)

    found = read_file((folder / trace).read_bytes(), trace).evalset

    assert found
    ((case,), (other,)) = found.cases, wanted.cases
    assert shown(case) == shown(other)
    assert responses(case) == responses(other)


def responses(case: Case) -> list[Any]:
    """What the tools gave; the other tool writes `is_error` where the trace says `isError`."""
    found: Any = case.turns[0].expected.extra.get("tool_responses") or []
    return [(one["name"], one["id"], one["response"]["content"]) for one in found]


@pytest.mark.parametrize(
    ("trace", "evalset", "value"),
    [
        ("helm.json", "eval_set_helm.json", 1.0),
        ("helm_2.json", "eval_set_helm.json", 0.0),
        ("k8s.json", "eval_set_helm.json", 0.0),
        ("helm_3.json", "evalset_helm_3_2026-02-23.json", 1.0),
        ("k8s.json", "evalset_k8s_2026-02-20.json", 1.0),
    ],
)
def test_a_trace_scores_against_an_eval_set_as_its_own_tool_says(
    shared: Path, trace: str, evalset: str, value: float
) -> None:
    folder = shared / "data" / "agentevals_otel"
    (case,) = load_evalset(folder / evalset).cases

    (result,) = read_file((folder / trace).read_bytes(), trace).runs[0].results

    scores = score_trial(result.transcript, case, (Criterion("tool_trajectory_avg_score", 1.0),))
    assert scores[-1].value == value
    if trace == "helm.json":
        words = score_trial(result.transcript, case, (Criterion("response_match_score", 0.8),))
        assert words[-1].value == pytest.approx(0.8119, abs=5e-5)


def test_an_export_of_tempo_tells_the_same_as_its_spans(shared: Path) -> None:
    data = (shared / "data" / "agentevals_otel" / "tempo_export_with_batches.json").read_bytes()

    found = read_file(data, "tempo.json")

    (run,) = found.runs
    (turn,) = run.results[0].transcript.turns
    assert (run.agent, run.model, turn.query) == ("helm_agent", "gpt-4.1-mini", "list all helm releases\n")
    assert turn.tool_calls == (ToolCall("helm_list_releases", {}, "call_w0eKlvnaE7S9GQJeSSs0gn05"),)
    assert turn.answer.startswith("There are two Helm releases currently deployed")
    assert [usage.tokens_in for usage in turn.usages] == [2256, 2392]
    assert turn.duration_ms < 10_000


@pytest.mark.parametrize(
    "name",
    [
        "otel_genai_client_span_tool_calls.json",
        "otel_genai_deprecated_client_span_tool_calls.json",
        "openinference_client_span_tool_calls.json",
        "openinference_client_span_input_output_only.json",
    ],
)
def test_every_convention_tells_the_same_of_the_same_call(shared: Path, name: str) -> None:
    (run,) = read_file((shared / "data" / "openinference" / name).read_bytes(), name).runs

    (turn,) = run.results[0].transcript.turns
    assert (turn.query, turn.tool_calls) == (
        "Weather in Paris?",
        (ToolCall("get_weather", {"location": "Paris"}, "1234"),),
    )
    assert turn.answer == "The weather in Paris is currently rainy with a temperature of 57°F."
    assert [event.result for event in turn.events if event.kind == "tool_result"] == ["rainy, 57°F"]
    assert run.results[0].tokens == 149


def test_a_trace_keeps_how_each_model_was_asked(shared: Path) -> None:
    folder = shared / "data" / "agentevals_otel"
    found = read_file((folder / "helm_3.json").read_bytes(), "helm_3.json")

    [result] = found.runs[0].results

    assert result.prompts
    usages = [event.usage for event in result.transcript.turns[0].events if event.usage]
    assert [(call.tokens_in, call.at_ms) for call in result.prompts.calls] == [
        (usage.tokens_in, event.at_ms) for event in result.transcript.turns[0].events if (usage := event.usage)
    ]
    assert len(usages) == 2
    first, second = (result.prompts.messages(at) for at in range(2))
    assert second[: len(first)] == first
    offered = result.prompts.part(result.prompts.calls[0].tools)
    assert "helm" in str(offered)


def test_the_span_of_a_tool_alone_is_a_call_with_its_result(shared: Path) -> None:
    name = "otel_genai_tool_execution_span.json"
    (run,) = read_file((shared / "data" / "openinference" / name).read_bytes(), name).runs

    (turn,) = run.results[0].transcript.turns
    assert turn.tool_calls == (ToolCall("get_weather", {"city": "New York"}, "1234"),)


def test_visits_of_one_conversation_are_the_turns_of_one_case() -> None:
    found = read(OTLP)

    (case,), (run,) = found.evalset.cases if found.evalset else (), found.runs
    first, second = run.results[0].transcript.turns
    assert (case.id, shown(case)) == (
        "s1",
        [("Roll a die.", [("roll", {"sides": 6}, "c1")], "A four."), ("Is it prime?", [], "No.")],
    )
    assert [(event.kind, event.at_ms) for event in first.events] == [
        ("log", 0.0),
        ("user_message", 0.0),
        ("usage", 990.0),
        ("log", 990.0),
        ("tool_call", 990.0),
        ("tool_result", 1490.0),
        ("usage", 2890.0),
        ("agent_message", 2890.0),
    ]
    assert first.events[5].duration_ms == 490.0
    assert (second.tool_calls, second.duration_ms) == ((), 890.0)


def test_json_lines_of_spans_or_of_exports_are_one_file() -> None:
    spans = spans_of(OTLP)
    lines = [{"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]} for span in spans]

    data = b"\n".join(json.dumps(line).encode() for line in lines)

    assert OpenTelemetry.recognises(data, "t.jsonl")
    assert OpenTelemetry.read(data, source="t.json").runs == read(OTLP).runs
    sdk = b"\n".join(json.dumps(span).encode() for span in SDK)
    assert OpenInference.read(sdk, source="t.json").runs == read(SDK).runs


def test_a_tool_that_failed_is_an_error_of_the_result_and_not_of_the_trial() -> None:
    (result,) = read(SDK).runs[0].results

    event = next(event for event in result.transcript.turns[0].events if event.kind == "tool_result")
    assert (event.is_error, event.result, result.verdict) == (True, "no dice", "unscored")


def test_phoenix_nests_the_attributes_of_its_spans() -> None:
    message = {"role": "user", "content": "Hi"}
    reply = {"role": "assistant", "contents": [{"message_content": {"type": "text", "text": "Hello"}}]}
    attributes = {"llm": {"input_messages": [{"message": message}], "output_messages": [{"message": reply}]}}
    span = {"name": "llm", "context": {"trace_id": "t", "span_id": "s"}, "span_kind": "LLM", "attributes": attributes}

    (turn,) = turns_of_trace({"data": [span]})

    assert (turn.query, turn.answer) == ("Hi", "Hello")


def test_messages_as_events_of_the_span() -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    events = [
        ("gen_ai.system.message", {"content": "Be kind."}),
        ("gen_ai.user.message", {"content": "Hi"}),
        ("gen_ai.choice", {"message": json.dumps({"role": "assistant", "tool_calls": calls}), "index": 0}),
    ]
    span = {
        "name": "chat m",
        "context": {"trace_id": "t", "span_id": "s"},
        "attributes": {"gen_ai.operation.name": "chat"},
        "events": [{"name": name, "attributes": attributes} for name, attributes in events],
    }

    (turn,) = turns_of_trace([span])

    assert (turn.query, turn.tool_calls) == ("Hi", (ToolCall("f", {}, "1"),))
