"""What holds for every eval set and every run that the formats of other tools can hold."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.islands import of_tools

from evaldesk.formats.files import names_for, read_file, write_file
from evaldesk.model import (
    AskedBy,
    Case,
    Criterion,
    ErrorRecord,
    EvalSet,
    JsonValue,
    Score,
    SessionInit,
    ToolCall,
    Turn,
    TurnRecord,
    Usage,
    Verdict,
)
from evaldesk.model.json_text import json_or_text
from evaldesk.transcripts.adk import unwrap_result, wrap_result
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import RecordedRun, recorded_trial

pytestmark = of_tools("atif", "openhands", "osmosis", "tau")

FORMATS_PAGE = Path(__file__).resolve().parents[2] / "docs" / "formats.md"

texts = st.text(max_size=12)
words = st.text('abc é"\\{}[]\n', min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(texts, json_values, max_size=2)
rubrics = st.lists(
    st.builds(lambda n, t: {"rubric_id": n, "rubric_content": {"text_property": t}}, texts, texts), max_size=2
).map(tuple)
scenarios = st.builds(lambda p, q: {"starting_prompt": p, "conversation_plan": q}, st.just("") | texts, texts)
tasks = st.builds(
    Case,
    id=texts,
    scenario=scenarios | objects,
    initial_session=st.none() | st.builds(SessionInit, texts, texts, objects),
    final_state=st.none() | objects,
    rubrics=rubrics,
    tags=st.lists(texts, max_size=2).map(tuple),
    extra=st.dictionaries(st.sampled_from(["x", "Ticket", "ключ"]), json_values, max_size=2),
)


@given(st.lists(tasks, max_size=3, unique_by=lambda case: case.id).map(tuple))
@settings(max_examples=25)
def test_tasks_of_tau2_come_back_as_they_were(cases: tuple[Case, ...]) -> None:
    evalset = EvalSet("s", cases=cases)

    again = read_file(write_file(evalset, "tau2"), "s.json", "tau2").evalset

    assert again
    assert [_shown(case) for case in again.cases] == [_shown(case) for case in cases]


def _shown(case: Case) -> tuple[Any, ...]:
    kept = {key: value for key, value in case.extra.items() if key not in ("user_scenario", "evaluation_criteria")}
    return case.id, case.scenario, case.initial_session, case.final_state, case.rubrics, case.tags, kept


@st.composite
def _replies(draw: st.DrawFn) -> list[Message]:
    """One reply of an agent, with calls and their results in some order."""
    calls = tuple(
        ToolCall(draw(words), draw(st.dictionaries(words, st.integers() | words, max_size=2)), f"id{number}")
        for number in range(draw(st.integers(0, 2)))
    )
    usage = Usage("m", tokens_in=draw(st.integers(0, 99)), tokens_out=draw(st.integers(0, 99)))
    said = Message("agent", draw(words | st.just("")) if calls else draw(words), calls=calls, usage=usage)
    answered = draw(st.permutations(calls))
    results = [Message("tool", author=call.name, call_id=call.id, result=draw(words)) for call in answered]
    again = [
        Message("tool", author=call.name, call_id=call.id, result="later") for call in answered if draw(st.booleans())
    ]
    return [said, *results, *again]


@st.composite
def _sessions(draw: st.DrawFn) -> tuple[TurnRecord, ...]:
    messages: list[Message] = []
    at_ms, number = 0.0, 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append(Message("user", draw(words), at_ms=at_ms))
        for reply in draw(st.lists(_replies(), min_size=1, max_size=3)):
            for message in reply:
                at_ms += 10.0
                messages.append(_unique(message, number, at_ms))
            number += 1
        at_ms += 10.0
    speakers = st.sampled_from((None, *get_args(AskedBy)))
    return tuple(replace(turn, asked_by=draw(speakers)) for turn in turns_of(messages))


def _unique(message: Message, number: int, at_ms: float) -> Message:
    """The message with ids that occur once in its session, as models give them."""
    calls = tuple(ToolCall(call.name, call.args, f"{number}{call.id}") for call in message.calls)
    call_id = f"{number}{message.call_id}" if message.call_id else None
    return Message(
        message.speaker,
        message.text,
        message.author,
        calls=calls,
        call_id=call_id,
        result=message.result,
        usage=message.usage,
        at_ms=at_ms,
    )


@st.composite
def _runs(draw: st.DrawFn) -> RecordedRun:
    n_cases, n_trials = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    results = []
    for case_index in range(n_cases):
        for trial_index in range(n_trials):
            error = draw(st.none() | st.builds(ErrorRecord, words, words))
            value = draw(st.sampled_from([0.0, 0.5, 1.0]))
            scores = () if error else (Score("m", value, None, 1.0, value >= 1.0, draw(texts)),)
            turns = draw(_sessions() | st.just(()))
            trial = recorded_trial(turns, scores=scores, criteria=(Criterion("m", 1.0),), error=error)
            results.append(replace(trial, case_index=case_index, trial_index=trial_index))
    cases = tuple(Case(case_id) for case_id in ("case", "case#1")[:n_cases])
    return RecordedRun("r", "agent", cases, tuple(results), (Criterion("m", 1.0),), "m")


@given(_runs(), st.sampled_from(["otel", "atif"]))
@settings(max_examples=25)
def test_runs_come_back_with_whole_conversations_and_scores(run: RecordedRun, name: str) -> None:
    (again,) = read_file(write_file(run, name), "r.json", name).runs

    found = {(result.case_index, result.trial_index): result for result in again.results}
    assert [case.id for case in again.cases] == [case.id for case in run.cases]
    assert len(found) == len(run.results)
    for result in run.results:
        one = found[result.case_index, result.trial_index]
        assert [_said(turn) for turn in one.transcript.turns] == [_said(turn) for turn in result.transcript.turns]
        assert (one.verdict, one.scores, one.tokens) == (result.verdict, result.scores, result.tokens)


results = json_values | json_values.map(json.dumps) | st.sampled_from(["NaN", " {} ", '{"a":', "Error: x", "1e999"])
AS_TEXT = {
    "openhands": "results of tools come as text",
    "atif": "results of tools come as text",
}
"""The formats that hold no result but text, and the words of docs/formats.md for it."""


@pytest.mark.parametrize("name", [name for name in names_for("run") if name != "osmosis-results"])  # no transcripts
@given(
    result=results | st.builds(lambda key, value: {key: value}, st.sampled_from(["result", "error"]), results),
    duration_ms=st.none() | st.sampled_from([0.0, 5.0]),
    is_error=st.booleans(),
    is_alone=st.booleans(),
)
@settings(max_examples=40)
def test_a_result_of_a_tool_comes_back_or_its_loss_is_named(
    name: str, result: JsonValue, duration_ms: float | None, *, is_error: bool, is_alone: bool
) -> None:
    call = Message("agent", calls=() if is_alone else (ToolCall("look", {}, "1"),), at_ms=10.0)
    told = Message("tool", "", "look", call_id="1", result=result, is_error=is_error, duration_ms=duration_ms)
    turns = turns_of([Message("user", "q", at_ms=0.0), call, replace(told, at_ms=20.0), Message("agent", "a")])
    run = RecordedRun("r", "a", (Case("c", (Turn("q"),)),), (recorded_trial(turns),))

    (again,) = read_file(write_file(run, name), "r.jsonl", name).runs

    (found,) = (event for event in again.results[0].transcript.turns[0].events if event.kind == "tool_result")
    if name == "otel":
        assert _exact(found.result) == _exact(result)
        assert (found.duration_ms, found.is_error) == (duration_ms, is_error)
    elif name == "adk-results":
        assert _exact(found.result) == _exact(unwrap_result(wrap_result(result)))
    else:
        assert found.result == json_or_text(result)
        row = next(line for line in FORMATS_PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |"))
        assert AS_TEXT[name] in row


def _exact(value: JsonValue) -> str:
    """As JSON, which tells 1 from 1.0 and from true."""
    return json.dumps(value)


def _any_score(metric: str) -> list[Score]:
    judged = [Score(metric, value, None, 1.0, value >= 1.0) for value in (0.0, 1.0)]
    stated = [Score(metric, None, None, 1.0, passed) for passed in (None, False, True)]
    left = Score(metric, threshold=1.0, is_applicable=False)
    return [*judged, *stated, left, Score(metric, threshold=1.0, error=ErrorRecord("raised", "no judge"))]


@pytest.mark.parametrize("name", ["otel", "atif", "osmosis-results", "openhands"])
def test_the_verdict_of_a_trial_comes_back_with_any_scores(name: str) -> None:
    criteria = (Criterion("m", 1.0), Criterion("other", 1.0))
    results = tuple(
        replace(recorded_trial((), scores=scores, criteria=criteria), case_index=index, trial_index=0)
        for index, scores in enumerate(product(_any_score("m"), _any_score("other")))
    )
    cases = tuple(Case(f"case {index}", turns=(Turn("hello"),)) for index in range(len(results)))
    run = RecordedRun("r", "agent", cases, results, criteria, "m")

    (again,) = read_file(write_file(run, name), "r.json", name).runs

    assert len({result.verdict for result in results}) == 4
    found = {again.cases[result.case_index].id: result.verdict for result in again.results}
    assert found == {cases[result.case_index].id: result.verdict for result in results}


@pytest.mark.parametrize("verdict", ["passed", "failed", "unscored"])
@pytest.mark.parametrize("name", ["otel", "atif", "adk-results"])
def test_a_verdict_that_the_scores_do_not_say_comes_back(name: str, verdict: Verdict) -> None:
    scores = (Score("m", 1.0, None, 1.0, True), Score("not evaluated", threshold=1.0))
    trial = replace(recorded_trial(turns_of([Message("user", "q")]), scores=scores), verdict=verdict)
    run = RecordedRun("r", "agent", (Case("c", (Turn("q"),)),), (trial,))

    (again,) = read_file(write_file(run, name), "r.json", name).runs

    assert again.results[0].verdict == verdict


@pytest.mark.parametrize(
    ("name", "n_reasoning"),
    [("otel", 7), ("adk-results", 7), ("openhands", 7), ("atif", 0)],
    ids=lambda each: f"{each}",
)
def test_tokens_of_the_cache_and_of_reasoning_come_back(name: str, n_reasoning: int) -> None:
    usage = Usage("m", tokens_in=100, tokens_out=20, tokens_cached=64, tokens_reasoning=7)
    turns = turns_of([Message("user", "q"), Message("agent", "a", usage=usage)])
    run = RecordedRun("r", "agent", (Case("c", (Turn("q"),)),), (recorded_trial(turns),))

    (again,) = read_file(write_file(run, name), "r.jsonl", name).runs

    (found,) = again.results[0].usages
    assert (found.tokens_in, found.tokens_out) == (100, 20)
    assert (found.tokens_cached, found.tokens_reasoning) == (64, n_reasoning)


@pytest.mark.parametrize("name", ["otel", "adk-results", "openhands", "atif"])
def test_tokens_that_are_stated_for_a_whole_trial_come_back(name: str) -> None:
    usage = Usage("m", tokens_in=100, tokens_out=20)
    turns = turns_of([Message("user", "q"), Message("agent", "a")])
    run = RecordedRun("r", "agent", (Case("c", (Turn("q"),)),), (recorded_trial(turns, usages=[usage]),))

    (again,) = read_file(write_file(run, name), "r.jsonl", name).runs

    assert again.results[0].tokens == 120


@pytest.mark.parametrize("name", ["otel", "adk-results", "openhands", "atif"])
@pytest.mark.parametrize("words", ["", "Done."], ids=["none", "answer"])
def test_thoughts_are_no_calls_and_only_words_after_the_last_call_are_an_answer(name: str, words: str) -> None:
    call = ToolCall("submit", {}, "1")
    replies = [
        Message("agent", "I finish.", thought="Hm.", calls=(call,)),
        *([Message("agent", words)] if words else []),
    ]
    run = RecordedRun(
        "r", "a", (Case("c", (Turn("q"),)),), (recorded_trial(turns_of([Message("user", "q"), *replies])),)
    )

    (again,) = read_file(write_file(run, name), "r.jsonl", name).runs

    (turn,) = again.results[0].transcript.turns
    assert (turn.answer, [text for _, text in turn.intermediate]) == (words, ["I finish."])
    assert [made.name for made in turn.tool_calls] == ["submit"]


def _said(turn: TurnRecord) -> tuple[Any, ...]:
    results = [(event.call and event.call.id, event.result) for event in turn.events if event.kind == "tool_result"]
    texts = [text for _, text in turn.intermediate]
    return turn.query, turn.asked_by, turn.answer, texts, turn.tool_calls, sorted(results, key=str)
