"""Traces of agents, in every shape and convention that real tools export."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats import load_evalset
from evaldesk.formats.exchange import Imported, RecordedRun
from evaldesk.formats.files import read_file, write_file
from evaldesk.formats.otel import OpenInference, OpenTelemetry
from evaldesk.formats.tau_bench import TauBench
from evaldesk.metrics import score_trial
from evaldesk.model import Case, Criterion, EvalSet, ToolCall, TurnRecord

SAMPLES = Path(__file__).parent / "exchange_samples"
OTLP: dict[str, Any] = json.loads((SAMPLES / "otel.json").read_bytes())
SDK: list[dict[str, Any]] = json.loads((SAMPLES / "openinference.json").read_bytes())


def _read(value: object) -> Imported:
    return read_file(json.dumps(value).encode(), "t.json")


def _turns(value: object) -> tuple[TurnRecord, ...]:
    return _read(value).runs[0].results[0].transcript.turns


def _shown(case: Case) -> list[tuple[Any, ...]]:
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
    assert _shown(case) == _shown(other)
    assert _responses(case) == _responses(other)


def _responses(case: Case) -> list[Any]:
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


def test_the_span_of_a_tool_alone_is_a_call_with_its_result(shared: Path) -> None:
    name = "otel_genai_tool_execution_span.json"
    (run,) = read_file((shared / "data" / "openinference" / name).read_bytes(), name).runs

    (turn,) = run.results[0].transcript.turns
    assert turn.tool_calls == (ToolCall("get_weather", {"city": "New York"}, "1234"),)


def test_visits_of_one_conversation_are_the_turns_of_one_case() -> None:
    found = _read(OTLP)

    (case,), (run,) = found.evalset.cases if found.evalset else (), found.runs
    first, second = run.results[0].transcript.turns
    assert (case.id, _shown(case)) == (
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


def _spans(value: dict[str, Any]) -> list[dict[str, Any]]:
    spans: list[dict[str, Any]] = value["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return spans


def test_json_lines_of_spans_or_of_exports_are_one_file() -> None:
    spans = _spans(OTLP)
    lines = [{"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]} for span in spans]

    data = b"\n".join(json.dumps(line).encode() for line in lines)

    assert OpenTelemetry.recognises(data, "t.jsonl")
    assert OpenTelemetry.read(data, source="t.json").runs == _read(OTLP).runs
    sdk = b"\n".join(json.dumps(span).encode() for span in SDK)
    assert OpenInference.read(sdk, source="t.json").runs == _read(SDK).runs


def test_a_tool_that_failed_is_an_error_of_the_result_and_not_of_the_trial() -> None:
    (result,) = _read(SDK).runs[0].results

    event = next(event for event in result.transcript.turns[0].events if event.kind == "tool_result")
    assert (event.is_error, event.result, result.verdict) == (True, "no dice", "unscored")


def test_phoenix_nests_the_attributes_of_its_spans() -> None:
    message = {"role": "user", "content": "Hi"}
    reply = {"role": "assistant", "contents": [{"message_content": {"type": "text", "text": "Hello"}}]}
    attributes = {"llm": {"input_messages": [{"message": message}], "output_messages": [{"message": reply}]}}
    span = {"name": "llm", "context": {"trace_id": "t", "span_id": "s"}, "span_kind": "LLM", "attributes": attributes}

    (turn,) = _turns({"data": [span]})

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

    (turn,) = _turns([span])

    assert (turn.query, turn.tool_calls) == ("Hi", (ToolCall("f", {}, "1"),))


def _chat(number: int, told: list[tuple[str, str]], said: str) -> dict[str, Any]:
    messages = {f"llm.input_messages.{n}.message.role": role for n, (role, _) in enumerate(told)}
    messages |= {f"llm.input_messages.{n}.message.content": text for n, (_, text) in enumerate(told)}
    messages |= {"llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": said}
    return {
        "name": "llm",
        "context": {"trace_id": "t", "span_id": str(number)},
        "start_time": f"2026-01-01T10:00:0{number}Z",
        "end_time": f"2026-01-01T10:00:0{number}.5Z",
        "attributes": {"openinference.span.kind": "LLM", **messages},
    }


def test_a_later_call_without_an_agent_asks_only_when_it_goes_on_with_the_conversation() -> None:
    talk = [("user", "yes"), ("assistant", "one"), ("user", "yes")]
    spans = [
        _chat(1, talk[:1], "one"),
        _chat(2, [("system", "Summarise."), ("user", "Sum it up")], "a summary"),
        _chat(3, talk, "two"),
    ]

    turns = _turns(spans)

    assert [(turn.query, turn.answer) for turn in turns] == [("yes", "a summary"), ("yes", "two")]
    assert turns[0].intermediate == (("", "one"),)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("Hi", "Hello"),
        ([{"role": "user", "content": "Hi"}], {"role": "assistant", "content": "Hello"}),
        ([{"parts": [{"text": "Hi"}]}], [{"content": {"parts": [{"text": "Hello"}], "role": "model"}}]),
    ],
    ids=["bare-text", "structured", "gemini-candidates"],
)
def test_what_instruments_write_beside_the_convention_is_read(told: object, said: object) -> None:
    attributes = {"gen_ai.input.messages": told, "gen_ai.output.messages": said, "gen_ai.system_instructions": "Kind."}
    span = {"name": "chat", "context": {"trace_id": "t", "span_id": "s"}, "attributes": attributes}

    (turn,) = _turns([span])

    assert (turn.query, turn.answer, turn.events[0].text) == ("Hi", "Hello", "Kind.")


def test_the_history_before_the_first_call_is_told_as_turns_too() -> None:
    (first, second) = _turns([_chat(1, [("user", "a"), ("assistant", "b"), ("user", "c")], "d")])

    assert [(first.query, first.answer), (second.query, second.answer)] == [("a", "b"), ("c", "d")]


def test_attributes_that_were_cut_off_are_named_and_the_rest_is_read() -> None:
    value = json.loads(json.dumps(OTLP))
    for span in _spans(value):
        if span["spanId"] == "12":
            for pair in span["attributes"]:
                if pair["key"] == "gen_ai.input.messages":
                    pair["value"] = {"stringValue": pair["value"]["stringValue"][:40]}

    found = _read(value)

    assert len(found.runs[0].results[0].transcript.turns) == 1
    assert found.refused == (
        "Left out: the messages of a model call, which cannot be read (cut off?), at "
        "resourceSpans[0].scopeSpans[0].spans[6].",
    )


def test_what_runs_inside_of_a_tool_is_not_the_agents_own() -> None:
    value = json.loads(json.dumps(OTLP))
    inner = json.loads(json.dumps(_spans(value)[4]))
    inner |= {"spanId": "31", "parentSpanId": "03"}
    _spans(value).append(inner)

    found = _read(value)

    assert found.runs == _read(OTLP).runs
    assert "a step inside of a tool" in found.refused[0]


def test_two_instruments_that_tell_of_one_call_tell_of_one() -> None:
    value = json.loads(json.dumps(OTLP))
    twin = json.loads(json.dumps(_spans(value)[4]))
    twin |= {"spanId": "41", "parentSpanId": "04"}
    _spans(value).append(twin)

    assert _read(value).runs == _read(OTLP).runs


def test_an_agent_that_failed_is_an_error_of_the_trial() -> None:
    value = json.loads(json.dumps(OTLP))
    _spans(value)[5]["status"] = {"code": "STATUS_CODE_ERROR", "message": "out of quota"}

    (result,) = _read(value).runs[0].results

    assert (result.verdict, result.error and result.error.message) == ("errored", "out of quota")


def test_circles_and_deep_trees_of_spans_are_no_trouble() -> None:
    spans: list[dict[str, Any]] = [
        {"traceId": "t", "spanId": str(n), "parentSpanId": str((n + 1) % 3000), "name": "x", "attributes": []}
        for n in range(3000)
    ]
    for span in spans[:2000]:
        span["attributes"] = [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]

    found = _read({"resourceSpans": [{"scopeSpans": [{"spans": spans + _spans(OTLP)}]}]})

    assert found.runs[0].cases[-1].id == "s1"


def test_traces_of_anything_else_are_refused() -> None:
    span = {"name": "GET /", "context": {"trace_id": "t", "span_id": "s"}, "attributes": {}}

    with pytest.raises(FormatError, match="none of 1 span tells what an agent did"):
        _read([span])
    with pytest.raises(FormatError, match=r"\[1\]: this is no span"):
        _read([span, {"x": 1}])


def test_a_run_of_ours_comes_back_with_its_trials_and_scores(shared: Path) -> None:
    data = (shared / "data" / "tau" / "gpt-4o-airline.json").read_bytes()
    (whole,) = TauBench.read(data, source="tau.json").runs
    results = tuple(result for result in whole.results if result.case_index < 2)
    run = replace(whole, cases=whole.cases[:2], results=results)

    written = write_file(run, "otel")
    (again,) = read_file(written, "tau.json").runs

    found = {(one.case_index, one.trial_index): one for one in again.results}
    assert [case.id for case in again.cases] == ["0", "1"]
    assert len(found) == len(run.results) == 8
    for other in run.results:
        one = found[other.case_index, other.trial_index]
        assert (one.verdict, one.scores[0].reason) == (other.verdict, other.scores[0].reason)
        assert _said(one.transcript.turns) == _said(other.transcript.turns)
    assert written.count(b'"gen_ai.evaluation.result"') == 8


def test_evaluations_in_a_trace_are_scores_that_inform() -> None:
    value = json.loads(json.dumps(OTLP))
    said = {"name": "relevance", "score.value": 0.7, "explanation": "near"}
    attributes = [
        {"key": f"gen_ai.evaluation.{key}", "value": {"doubleValue" if key == "score.value" else "stringValue": item}}
        for key, item in said.items()
    ]
    _spans(value)[0]["events"] = [{"name": "gen_ai.evaluation.result", "attributes": attributes}] * 2

    (run,) = _read(value).runs

    assert run.criteria == (Criterion("relevance"),)
    assert [(score.value, score.reason) for score in run.results[0].scores] == [(0.7, "near")]
    assert run.results[0].verdict == "unscored"


def test_notes_that_are_not_ours_are_no_trouble() -> None:
    for note in ("[1]", '{"case": 1}', '{"case": "c", "trial": true}', '{"case": "c", "trial": 1, "scores": [3, {}]}'):
        value = json.loads(json.dumps(OTLP))
        _spans(value)[0]["attributes"].append({"key": "evaldesk.session", "value": {"stringValue": note}})

        (result,) = _read(value).runs[0].results

        assert (result.case_index, result.trial_index, result.scores) == (0, 0, ())


def _said(turns: tuple[TurnRecord, ...]) -> list[Any]:
    return [
        (turn.query, turn.answer, turn.tool_calls, [e.result for e in turn.events if e.kind == "tool_result"])
        for turn in turns
    ]


def test_an_eval_set_cannot_be_a_trace() -> None:
    with pytest.raises(FormatError, match="export a run"):
        OpenTelemetry.write(EvalSet("s"))
    with pytest.raises(FormatError, match="only read"):
        OpenInference.write(RecordedRun("r", "a", (), ()))
