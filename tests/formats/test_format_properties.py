"""What holds for every eval set, and for every file that somebody may hand us."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evaldesk.errors import FormatError
from evaldesk.formats import (
    EVALSET_FORMS,
    case_from_json,
    case_to_json,
    evalset_format,
    format_of,
    losses,
    read_evalset,
    write_evalset,
)
from evaldesk.model import Case, EvalSet, Expected, SessionInit, ToolCall, Turn
from evaldesk.reading.shape import same_json

texts = st.text(max_size=20)
# Keys that nobody understands; short ones, so that none nearly spells a key we know.
odd_keys = st.sampled_from(["x", "zz", "My Key", "ключ", "$form2", "q1"])
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, json_values, max_size=3)
extras = st.dictionaries(odd_keys, json_values, max_size=2)
calls = st.builds(ToolCall, texts, objects, st.none() | texts, extras)
messages = st.lists(st.tuples(texts, texts), max_size=2).map(tuple)
expectations = st.builds(
    Expected,
    st.none() | st.lists(calls, max_size=2).map(tuple),
    messages,
    st.none() | texts,
)
rubrics = st.lists(objects, max_size=2).map(tuple)
turns = st.builds(Turn, texts, expectations, rubrics, extras)
sessions = st.builds(SessionInit, texts, texts, objects, extras)
conversations = st.builds(
    Case,
    id=texts,
    turns=st.lists(turns, max_size=2).map(tuple),
    initial_session=st.none() | sessions,
    final_state=st.none() | objects,
    rubrics=rubrics,
    tags=st.lists(texts, max_size=2).map(tuple),
    extra=extras,
)
planned = st.builds(
    lambda values, plan: {**values, "conversation_plan": plan}, objects, st.text(min_size=1).filter(str.strip)
)
scenarios = st.builds(Case, id=texts, scenario=planned, initial_session=st.none() | sessions, extra=extras)
evalsets = st.builds(
    EvalSet,
    texts,
    st.none() | texts,
    st.none() | texts,
    st.lists(conversations | scenarios, max_size=2).map(tuple),
    extras,
)


@given(json_values, json_values)
@example([1], [1.0]).via("types of numbers")
@example({"a": 1, "b": 2}, {"b": 2, "a": 1}).via("order of keys")
@example([2**70], [2**70]).via("beyond 64 bits")
@example([True], [1]).via("a boolean")
@example([-0.0], [0.0]).via("signs of zero")
def test_values_are_the_same_that_are_written_alike(one: Any, other: Any) -> None:
    assert same_json(one, other) == (json.dumps(one) == json.dumps(other))
    assert same_json(one, json.loads(json.dumps(one)))


@given(evalsets)
@settings(deadline=None)
def test_a_written_eval_set_is_read_as_the_same(evalset: EvalSet) -> None:
    assert read_evalset(write_evalset(evalset), source="s.evalset.json") == evalset


@given(conversations | scenarios)
@settings(deadline=None)
def test_the_raw_view_of_any_case_reads_back_as_that_case(case: Case) -> None:
    assert case_from_json(case_to_json(case), "case") == case


@given(st.lists(conversations, max_size=2).map(tuple))
@settings(deadline=None)
def test_the_old_form_gives_back_every_value_without_a_loss_note(cases: tuple[Case, ...]) -> None:
    evalset = EvalSet("s", cases=cases)

    again = read_evalset(write_evalset(evalset, "adk-old"), source="s.json")

    assert losses(evalset, "adk-old") == ()
    assert [_said(case) for case in again.cases] == [_said(case) for case in cases]


@given(st.lists(conversations, min_size=1, max_size=2).map(tuple))
@settings(deadline=None)
def test_an_old_file_says_the_same_after_moving_to_the_new_form(cases: tuple[Case, ...]) -> None:
    old = read_evalset(write_evalset(EvalSet("s", cases=cases), "adk-old"), source="s.json")

    again = read_evalset(write_evalset(old, "adk"), source="s.json")

    assert [_said(case) for case in again.cases] == [_said(case) for case in cases]
    assert again == read_evalset(write_evalset(again), source="s.json")


# Text that looks like an eval set somewhere, so that the readers get to work.
known_keys = st.sampled_from(
    [
        *("eval_set_id", "eval_cases", "eval_id", "conversation", "conversation_scenario", "session_input", "state"),
        *("user_content", "parts", "text", "final_response", "intermediate_data", "tool_uses", "name", "args", "id"),
        *("invocation_events", "author", "content", "function_call", "functionResponse", "intermediate_responses"),
        *("query", "data", "expected_tool_use", "tool_name", "tool_input", "reference", "initial_session", "tags"),
        *("evalId", "userContent", "$form", "thought", "rubrics", "role"),
    ]
)
alike = st.recursive(
    json_values,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(known_keys, inner, max_size=5),
    max_leaves=20,
)


@given(st.binary(max_size=200) | alike.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=100)
def test_no_bytes_raise_anything_but_a_format_error(data: bytes) -> None:
    with suppress(FormatError):
        evalset = read_evalset(data, source="x.json")
        write_evalset(evalset)
    with suppress(FormatError):
        format_of(data, "x.json")


turn_objects = st.dictionaries(known_keys, alike, max_size=4).map(
    lambda turn: {"user_content": {"parts": [{"text": "q"}], "role": "user"}, **turn}
)


@given(turn_objects)
@settings(max_examples=100)
def test_every_readable_file_is_written_back_in_full(turn: dict[str, Any]) -> None:
    value = {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation": [turn]}]}
    try:
        evalset = read_evalset(json.dumps(value).encode(), source="x.json")
    except FormatError:
        return

    written = write_evalset(evalset)

    assert json.dumps(json.loads(written)) == json.dumps(value)
    assert read_evalset(written, source="x.json") == replace(evalset, extra={})


@pytest.mark.parametrize("name", list(EVALSET_FORMS))
def test_every_format_keeps_its_contract(name: str) -> None:
    evalset = EvalSet("s", cases=(Case("s", (Turn("hi", Expected((ToolCall("f", {"a": 1}),), (), "r")),)),))

    data = write_evalset(evalset, name)
    again = read_evalset(data, source="s.json")

    assert format_of(data, "s.json") == evalset_format(again) == name
    assert losses(evalset, name) == ()
    assert again.cases[0].turns == evalset.cases[0].turns
    assert write_evalset(again, name) == data


def _said(case: Case) -> tuple[Any, ...]:
    session = case.initial_session
    turns = [
        (
            turn.query,
            turn.expected.reference,
            turn.expected.intermediate,
            turn.rubrics,
            turn.expected.tool_calls and [(call.name, call.args, call.id) for call in turn.expected.tool_calls],
        )
        for turn in case.turns
    ]
    start = session and (session.app_name, session.user_id, session.state)
    return case.id, turns, start, case.final_state, case.rubrics, case.tags
