"""Traces that tell things twice, late, cut off, in circles, or not at all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.files import read_file, write_file
from evaldesk.formats.otel import OpenInference, OpenTelemetry
from evaldesk.model import Criterion, EvalSet, TurnRecord
from evaldesk.transcripts.recorded import RecordedRun

from .run_of_two_tasks import run_of_two_tasks
from .traces_read import OTLP, read, spans_of, turns_of_trace


def chat(number: int, told: list[tuple[str, str]], said: str) -> dict[str, Any]:
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
        chat(1, talk[:1], "one"),
        chat(2, [("system", "Summarise."), ("user", "Sum it up")], "a summary"),
        chat(3, talk, "two"),
    ]

    turns = turns_of_trace(spans)

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
def test_attributes_of_instruments_beside_the_convention_are_read(told: object, said: object) -> None:
    attributes = {"gen_ai.input.messages": told, "gen_ai.output.messages": said, "gen_ai.system_instructions": "Kind."}
    span = {"name": "chat", "context": {"trace_id": "t", "span_id": "s"}, "attributes": attributes}

    (turn,) = turns_of_trace([span])

    assert (turn.query, turn.answer, turn.events[0].text) == ("Hi", "Hello", "Kind.")


def test_the_history_before_the_first_call_becomes_turns_too() -> None:
    (first, second) = turns_of_trace([chat(1, [("user", "a"), ("assistant", "b"), ("user", "c")], "d")])

    assert [(first.query, first.answer), (second.query, second.answer)] == [("a", "b"), ("c", "d")]


def test_attributes_that_were_cut_off_are_named_and_the_rest_is_read() -> None:
    value = json.loads(json.dumps(OTLP))
    for span in spans_of(value):
        if span["spanId"] == "12":
            for pair in span["attributes"]:
                if pair["key"] == "gen_ai.input.messages":
                    pair["value"] = {"stringValue": pair["value"]["stringValue"][:40]}

    found = read(value)

    assert len(found.runs[0].results[0].transcript.turns) == 1
    assert found.refused == (
        "Left out: the messages of a model call, which cannot be read (cut off?), at "
        "resourceSpans[0].scopeSpans[0].spans[6].",
    )


def test_model_calls_inside_of_a_tool_are_not_the_agents_own_but_their_tokens_count() -> None:
    value = json.loads(json.dumps(OTLP))
    inner = json.loads(json.dumps(spans_of(value)[4]))
    inner |= {"spanId": "31", "parentSpanId": "03"}
    spans_of(value).append(inner)

    found = read(value)

    turns, alone = (each.runs[0].results[0].transcript.turns for each in (found, read(OTLP)))
    assert found.runs[0].cases == read(OTLP).runs[0].cases
    assert [[e for e in turn.events if not e.within] for turn in turns] == [[*turn.events] for turn in alone]
    [counted] = [event for turn in turns for event in turn.events if event.within]
    assert (counted.kind, counted.within) == ("usage", "roll")
    assert "a step inside of a tool" in found.refused[0]


def test_two_instruments_that_tell_of_one_call_tell_of_one() -> None:
    value = json.loads(json.dumps(OTLP))
    twin = json.loads(json.dumps(spans_of(value)[4]))
    twin |= {"spanId": "41", "parentSpanId": "04"}
    spans_of(value).append(twin)

    assert read(value).runs == read(OTLP).runs


def test_an_agent_that_failed_is_an_error_of_the_trial() -> None:
    value = json.loads(json.dumps(OTLP))
    spans_of(value)[5]["status"] = {"code": "STATUS_CODE_ERROR", "message": "out of quota"}

    (result,) = read(value).runs[0].results

    assert (result.verdict, result.error and result.error.message) == ("errored", "out of quota")


def test_circles_and_deep_trees_of_spans_are_no_trouble() -> None:
    spans: list[dict[str, Any]] = [
        {"traceId": "t", "spanId": str(n), "parentSpanId": str((n + 1) % 3000), "name": "x", "attributes": []}
        for n in range(3000)
    ]
    for span in spans[:2000]:
        span["attributes"] = [{"key": "gen_ai.operation.name", "value": {"stringValue": "execute_tool"}}]

    found = read({"resourceSpans": [{"scopeSpans": [{"spans": spans + spans_of(OTLP)}]}]})

    assert found.runs[0].cases[-1].id == "s1"


def test_traces_of_anything_else_are_refused() -> None:
    span = {"name": "GET /", "context": {"trace_id": "t", "span_id": "s"}, "attributes": {}}

    with pytest.raises(FormatError, match="none of 1 span describes the work of an agent"):
        read([span])
    with pytest.raises(FormatError, match=r"\[1\]: this is not a span"):
        read([span, {"x": 1}])


def test_a_run_of_ours_comes_back_with_its_trials_and_scores() -> None:
    run = run_of_two_tasks()

    written = write_file(run, "otel")
    (again,) = read_file(written, "tau.json").runs

    found = {(one.case_index, one.trial_index): one for one in again.results}
    assert [case.id for case in again.cases] == ["0", "1"]
    assert len(found) == len(run.results) == 4
    for other in run.results:
        one = found[other.case_index, other.trial_index]
        assert (one.verdict, one.scores[0].reason) == (other.verdict, other.scores[0].reason)
        assert said_in(one.transcript.turns) == said_in(other.transcript.turns)
    assert written.count(b'"gen_ai.evaluation.result"') == 4


def test_evaluations_in_a_trace_are_scores_that_inform() -> None:
    value = json.loads(json.dumps(OTLP))
    said = {"name": "relevance", "score.value": 0.7, "explanation": "near"}
    attributes = [
        {"key": f"gen_ai.evaluation.{key}", "value": {"doubleValue" if key == "score.value" else "stringValue": item}}
        for key, item in said.items()
    ]
    spans_of(value)[0]["events"] = [{"name": "gen_ai.evaluation.result", "attributes": attributes}] * 2

    (run,) = read(value).runs

    assert run.criteria == (Criterion("relevance"),)
    assert [(score.value, score.reason) for score in run.results[0].scores] == [(0.7, "near")]
    assert run.results[0].verdict == "unscored"


def test_notes_that_are_not_ours_are_no_trouble() -> None:
    for note in ("[1]", '{"case": 1}', '{"case": "c", "trial": true}', '{"case": "c", "trial": 1, "scores": [3, {}]}'):
        value = json.loads(json.dumps(OTLP))
        spans_of(value)[0]["attributes"].append({"key": "evaldesk.session", "value": {"stringValue": note}})

        (result,) = read(value).runs[0].results

        assert (result.case_index, result.trial_index, result.scores) == (0, 0, ())


def said_in(turns: tuple[TurnRecord, ...]) -> list[Any]:
    return [
        (turn.query, turn.answer, turn.tool_calls, [e.result for e in turn.events if e.kind == "tool_result"])
        for turn in turns
    ]


def test_an_eval_set_cannot_be_a_trace() -> None:
    with pytest.raises(FormatError, match="export a run"):
        OpenTelemetry.write(EvalSet("s"))
    with pytest.raises(FormatError, match="only read"):
        OpenInference.write(RecordedRun("r", "a", (), ()))
