"""A session as a case."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest

from evaldesk.desk.chat.recording import changed_keys, record_session
from evaldesk.model import Event, StopReason, ToolCall, TurnRecord
from evaldesk.model.stored import StoredSession
from evaldesk.transcripts.conversation_case import turn_expecting

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def session_of(*turns: TurnRecord, title: str = "") -> StoredSession:
    return StoredSession("s", "dice", title, {"a": 1}, {}, turns, (), NOW, NOW)


def said(query: str, *events: Event, **more: object) -> TurnRecord:
    return TurnRecord(query, events, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("title", "query", "name"),
    [
        ("Zwei Städte, im Herbst!", "x", "zwei_stadte_im_herbst"),
        ("", "Roll a d6.", "roll_a_d6"),
        ("日本", "x", "session"),
        ("word " * 40, "x", "word_word_word_word_word_word_word_word_word"),
    ],
)
def test_the_name_comes_from_the_title_or_the_first_message(title: str, query: str, name: str) -> None:
    assert record_session(session_of(said(query), title=title), app_name="dice").case_id == name


def test_the_name_is_free() -> None:
    recording = record_session(session_of(said("Roll")), app_name="dice", used_ids={"roll", "roll_2"})

    assert recording.case_id == "roll_3"


@pytest.mark.parametrize("reason", [reason for reason in get_args(StopReason) if reason != "answered"])
def test_a_turn_that_broke_off_is_left_out_and_asserts_nothing_it_did_not_do(reason: StopReason) -> None:
    recording = record_session(session_of(said("Roll", stop_reason=reason)), app_name="dice")

    (recorded,) = recording.turns
    assert recorded.why_left_out
    assert recorded.turn.expected.tool_calls is None
    assert recorded.turn.expected.reference is None


def test_a_turn_without_calls_proposes_that_no_tool_may_be_called() -> None:
    recording = record_session(session_of(said("Hi", Event("agent_message", text="Hello"))), app_name="dice")

    assert recording.turns[0].turn.expected.tool_calls == ()


def test_a_turn_of_which_only_the_answer_was_seen_proposes_no_calls() -> None:
    answer = Event("agent_message", text="Hello")
    hidden, seen = said("Hi", answer, captures=("answers",)), said("Hi", answer)

    recording = record_session(session_of(hidden, seen), app_name="dice")

    assert [each.turn.expected.tool_calls for each in recording.turns] == [None, ()]
    assert [each.turn.expected.reference for each in recording.turns] == ["Hello", "Hello"]
    assert "so its calls are not expected" in recording.turns[0].warning
    assert recording.turns[1].warning == ""
    assert [turn_expecting(each).expected.tool_calls for each in (hidden, seen)] == [None, ()]


def test_ids_of_calls_are_not_kept() -> None:
    call = Event("tool_call", call=ToolCall("roll_die", {"sides": 6}, "call-1"))

    recording = record_session(session_of(said("Roll", call)), app_name="dice")

    assert recording.turns[0].turn.expected.tool_calls == (ToolCall("roll_die", {"sides": 6}),)


def test_the_final_state_is_that_of_the_last_finished_turn() -> None:
    finished = said("Roll", state_after={"a": 1, "b": 2})
    broken = said("Again", state_after={"a": 9}, stop_reason="error")

    recording = record_session(session_of(finished, broken), app_name="dice")

    assert recording.final_state == {"b": 2}
    assert "turn 1" in recording.final_hint


def test_a_state_that_was_edited_between_turns_is_said_at_its_turn_and_not_expected_at_the_end() -> None:
    first = said("Roll", state_before={"a": 1}, state_after={"a": 1, "b": 2})
    second = said("Again", state_before={"a": 7}, state_after={"a": 7, "b": 3, "c": 4})

    recording = record_session(session_of(first, second), app_name="dice")

    assert [turn.edited_keys for turn in recording.turns] == [(), ("a", "b")]
    assert recording.turns[0].warning == ""
    assert recording.turns[1].warning.startswith("You changed a, b of the state before this turn.")
    assert recording.final_state == {"c": 4}
    assert "that you did not edit" in recording.final_hint


def test_a_key_changed_when_its_json_value_did() -> None:
    assert changed_keys({"a": [1], "b": 1, "gone": 1}, {"a": [1], "b": True, "c": None}) == {"b": True, "c": None}
