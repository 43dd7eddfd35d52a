"""What counts as the answer of a turn."""

from __future__ import annotations

from evaldesk.model import Event, ToolCall, TurnRecord

CALL = Event("tool_call", call=ToolCall("look"))
RESULT = Event("tool_result", call=ToolCall("look"), result=1)


def _said(text: str) -> Event:
    return Event("agent_message", author="a", text=text)


def test_the_last_message_is_the_answer_and_earlier_ones_are_intermediate() -> None:
    turn = TurnRecord("q", (_said("let me look"), CALL, RESULT, _said("it is 1")))

    assert (turn.answer, turn.intermediate) == ("it is 1", (("a", "let me look"),))


def test_text_beside_a_tool_call_is_no_answer() -> None:
    turn = TurnRecord("q", (_said("let me look"), CALL, RESULT), stop_reason="max_turns")

    assert (turn.answer, turn.intermediate) == ("", (("a", "let me look"),))


def test_a_turn_at_its_limit_has_no_answer() -> None:
    turn = TurnRecord("q", (CALL, RESULT, _said("still at it")), stop_reason="max_turns")

    assert (turn.answer, turn.intermediate) == ("", (("a", "still at it"),))


def test_a_silent_turn_has_no_answer() -> None:
    assert TurnRecord("q", (CALL, RESULT)).answer == ""
