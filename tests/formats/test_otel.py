"""Traces of agents, in every shape and convention that real tools export."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.formats.otel import OpenInference, OpenTelemetry
from evaldesk.model import Case, ToolCall

from .traces_read import OTLP, SAMPLES, read, spans_of, turns_of_trace

SDK: list[dict[str, Any]] = json.loads((SAMPLES / "openinference.json").read_bytes())


def shown(case: Case) -> list[tuple[Any, ...]]:
    return [
        (turn.query, [(c.name, c.args, c.id) for c in turn.expected.tool_calls or ()], turn.expected.reference)
        for turn in case.turns
    ]


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


ASKED = json.dumps(
    [
        {"role": "user", "parts": [{"type": "text", "content": "Roll a die."}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "1", "name": "roll", "arguments": {"sides": 6}}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "1", "response": "four"}]},
    ]
)
REPLY = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "A four."}]}])
TEXT_ALONE = json.dumps({"text": "A four.", "finish_reason": "stop"})
OF_OTEL = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 9, "gen_ai.usage.output_tokens": 2}
OF_OPENINFERENCE = {"openinference.span.kind": "LLM", "llm.token_count.prompt": 9, "llm.token_count.completion": 2}
CONVENTIONS = {
    "messages": OF_OTEL | {"gen_ai.input.messages": ASKED, "gen_ai.output.messages": REPLY},
    "prompt and completion": OF_OTEL | {"gen_ai.prompt": ASKED, "gen_ai.completion": TEXT_ALONE},
    "input and output": OF_OPENINFERENCE | {"input.value": ASKED, "output.value": TEXT_ALONE},
}


@pytest.mark.parametrize("attributes", CONVENTIONS.values(), ids=CONVENTIONS)
def test_every_convention_tells_the_same_of_the_same_call(attributes: dict[str, Any]) -> None:
    (run,) = read(attributes).runs

    (turn,) = run.results[0].transcript.turns
    assert (turn.query, turn.tool_calls) == ("Roll a die.", (ToolCall("roll", {"sides": 6}, "1"),))
    assert turn.answer == "A four."
    assert [event.result for event in turn.events if event.kind == "tool_result"] == ["four"]
    assert run.results[0].tokens == 11


def test_the_span_of_a_tool_alone_is_a_call_with_its_result() -> None:
    names = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "roll", "gen_ai.tool.call.id": "1"}

    (turn,) = turns_of_trace(names | {"input": '{"sides": 6}', "output": "four"})

    assert turn.tool_calls == (ToolCall("roll", {"sides": 6}, "1"),)
    assert [event.result for event in turn.events if event.kind == "tool_result"] == ["four"]


def test_an_export_of_tempo_tells_the_same_as_its_spans() -> None:
    assert read({"batches": OTLP["resourceSpans"]}).runs == read(OTLP).runs


def traced_turns(*turns: tuple[str, list[str], str]) -> list[dict[str, Any]]:
    """One trace for each turn: its tools run before its model call, as in a retrieval, and an agent is around both."""
    spans: list[dict[str, Any]] = []
    history: list[dict[str, Any]] = []
    for number, (question, tools, answer) in enumerate(turns):
        history.append({"role": "user", "parts": [{"type": "text", "content": question}]})
        reply = {"role": "assistant", "parts": [{"type": "text", "content": answer}]}
        own = {"gen_ai.conversation.id": "shop", "gen_ai.agent.name": "shop"}
        rows = [
            ("agent", None, 0, 9, {"gen_ai.operation.name": "invoke_agent", **own}),
            *(
                (name, "agent", 1 + at, 2 + at, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name})
                for at, name in enumerate(tools)
            ),
            (
                "chat",
                "agent",
                7,
                8,
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.input.messages": json.dumps(history),
                    "gen_ai.output.messages": json.dumps([reply]),
                    **own,
                },
            ),
        ]
        for name, parent, start, end, attributes in rows:
            spans.append(
                {
                    "traceId": f"{number + 1:032x}",
                    "spanId": f"{number:08x}{len(spans) + 1:08x}",
                    "name": name,
                    "startTimeUnixNano": str((number * 20 + start) * 10**9),
                    "endTimeUnixNano": str((number * 20 + end) * 10**9),
                    "attributes": [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()],
                }
            )
            if parent:
                root = next(each for each in spans if each["traceId"] == spans[-1]["traceId"])
                spans[-1]["parentSpanId"] = root["spanId"]
        history.append(reply)
    return spans


def test_tools_that_run_before_the_model_is_asked_are_of_the_turn_that_they_begin() -> None:
    turns = (("Where is it?", ["look_up"], "On its way."), ("And now?", ["look_up", "ask_carrier"], "Delivered."))

    (run,) = read({"resourceSpans": [{"scopeSpans": [{"spans": traced_turns(*turns)}]}]}).runs

    found = run.results[0].transcript.turns
    assert [(turn.query, [call.name for call in turn.tool_calls], turn.answer) for turn in found] == [*turns]
