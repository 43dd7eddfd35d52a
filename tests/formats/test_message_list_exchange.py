"""Lists of messages in the shapes of OpenAI and Anthropic become cases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.files import read_file, write_file
from evaldesk.model import Case, EvalSet, Expected, SessionInit, ToolCall, Turn
from evaldesk.transcripts.conversation_case import calls_with_results

CALL = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "You add."},
    {"role": "user", "content": "Add"},
    {"role": "assistant", "content": "I do.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c", "content": "4"},
    {"role": "assistant", "content": "It is 4."},
    {"role": "user", "content": "Thanks"},
    {"role": "assistant", "content": "Welcome."},
]
ANTHROPIC: dict[str, Any] = {
    "system": "You add.",
    "messages": [
        {"role": "user", "content": "Add"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "text", "text": "I do."},
                {"type": "tool_use", "id": "c", "name": "add", "input": {"a": 2}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "4"}]},
        {"role": "assistant", "content": "It is 4."},
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": "Welcome."},
    ],
}


def cases_of(value: Any, name: str = "talk.json") -> tuple[Case, ...]:
    evalset = read_file(value if isinstance(value, bytes) else json.dumps(value).encode(), name).evalset
    assert evalset is not None
    return tuple(evalset.cases)


@pytest.mark.parametrize("value", [OPENAI, {"messages": OPENAI}, [{"messages": OPENAI}], ANTHROPIC])
def test_a_conversation_becomes_a_case_that_expects_it(value: Any) -> None:
    (case,) = cases_of(value)

    first, second = case.turns
    assert case.id == "talk_1"
    assert case.extra["system_prompt"] == "You add."
    assert (first.query, first.expected.intermediate, first.expected.reference) == ("Add", (("", "I do."),), "It is 4.")
    assert [(call.name, call.args, call.id) for call in first.expected.tool_calls or ()] == [("add", {"a": 2}, None)]
    assert first.expected.extra["tool_responses"] == [{"name": "add", "response": {"result": "4"}}]
    assert second == Turn("Thanks", Expected((), reference="Welcome."))


def test_a_conversation_without_tools_asserts_nothing_of_them() -> None:
    (case,) = cases_of([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}])

    assert case.turns == (Turn("Hi", Expected(None, reference="Hello.")),)


def test_each_line_is_a_case_under_its_own_name() -> None:
    lines = [{"id": "a", "messages": OPENAI, "topic": "sums"}, {"messages": OPENAI[1:2]}]

    first, second = cases_of("\n".join(map(json.dumps, lines)).encode(), "talks.jsonl")

    assert (first.id, second.id) == ("a", "talks_2")
    assert first.extra == {"system_prompt": "You add.", "topic": "sums"}
    assert second.turns[0].expected.reference is None


@pytest.mark.parametrize("target", ["openai-messages", "anthropic-messages"])
def test_one_shape_is_written_in_the_other(target: str) -> None:
    found = read_file(json.dumps(ANTHROPIC).encode(), "talk.json").evalset
    assert found is not None

    again = cases_of(write_file(found, target), "talk.json")

    assert again == found.cases


def test_pictures_are_left_out_with_a_note() -> None:
    picture = {"type": "image", "source": {"type": "base64"}}
    message = {"role": "user", "content": [picture, {"type": "text", "text": "What is this?"}]}
    value = {"system": "x", "messages": [message]}

    imported = read_file(json.dumps(value).encode(), "talk.json")

    assert any("not text" in sentence for sentence in imported.refused)
    assert cases_of(value)[0].turns[0].query == "What is this?"


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ([*OPENAI, {"role": "user", "content": 7}], "[7].content"),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "tool_calls": [{}]}],
            "[1].tool_calls[0]",
        ),
        (
            {"system": "s", "messages": [{"role": "user", "content": [{"type": "tool_use"}]}]},
            "messages[0].content[0].name",
        ),
    ],
)
def test_an_error_says_where(value: Any, place: str) -> None:
    with pytest.raises(FormatError) as caught:
        cases_of(value)

    assert caught.value.path.startswith(place)
    assert caught.value.line


def test_two_conversations_of_one_name_are_refused() -> None:
    with pytest.raises(FormatError, match="two conversations called 'a'"):
        cases_of([{"id": "a", "messages": OPENAI}, {"id": "a", "messages": OPENAI}])


@pytest.mark.parametrize(
    ("case", "word"),
    [
        (Case("a", scenario={"starting_prompt": "x"}), "scenario"),
        (Case("a", (Turn("x"),), initial_session=SessionInit(state={"k": 1})), "state"),
        (Case("a", (Turn("x", Expected(intermediate=(("a", "b"),))),)), "no answer after"),
        (Case("a", (Turn("x", Expected(())), Turn("y"))), "turn 1: neither a call nor an answer"),
    ],
)
def test_a_case_that_messages_cannot_hold_is_refused_by_name(case: Case, word: str) -> None:
    with pytest.raises(FormatError, match="case 'a'") as caught:
        write_file(EvalSet("s", cases=(case,)), "openai-messages")

    assert word in str(caught.value)


@pytest.mark.parametrize("answered", ["ab", "ba", "b", ""])
@pytest.mark.parametrize(("has_calls_named", "has_results_named"), [(True, True), (True, False), (False, True)])
def test_results_of_one_tool_stay_with_their_calls(
    answered: str, *, has_calls_named: bool, has_results_named: bool
) -> None:
    calls = tuple(ToolCall("look", {"at": each}, each if has_calls_named else None) for each in "ab")
    named = [{"id": each} if has_results_named else {} for each in answered]
    responses: list[Any] = [
        {"name": "look", "response": {"result": each}, **one} for each, one in zip(answered, named, strict=True)
    ]
    turn = Turn("q", Expected(calls, extra={"tool_responses": responses}))

    found = [result for _, _, result in calls_with_results(0, turn)]

    by_id = [each if each in answered else None for each in "ab"]
    in_order = [*answered, None, None][:2]
    assert found == (by_id if has_calls_named and has_results_named else in_order)
