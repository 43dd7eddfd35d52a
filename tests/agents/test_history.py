"""Turns as chat messages."""

from __future__ import annotations

from typing import Any

from evaldesk.model import Event, ToolCall, TurnRecord, Usage
from evaldesk.model.chat import chat_messages


def _shown(*events: Event) -> list[tuple[Any, ...]]:
    messages: Any = chat_messages([TurnRecord("go", events)])
    return [
        (
            message["role"],
            message.get("content"),
            [call["id"] for call in message.get("tool_calls", ())] or message.get("tool_call_id"),
        )
        for message in messages[1:]
    ]


ONE, TWO = ToolCall("a", {}, "c1"), ToolCall("b", {}, "c2")
USAGE = Event("usage", usage=Usage("m"))


def test_calls_of_one_reply_share_a_message_and_of_two_do_not() -> None:
    called = [Event("tool_call", call=ONE), Event("tool_result", call=ONE, result=1)]
    again = [Event("tool_call", call=TWO), Event("tool_result", call=TWO, result="x")]

    together = _shown(USAGE, *called, *again, USAGE, Event("agent_message", text="done"))
    apart = _shown(USAGE, *called, USAGE, *again, USAGE, Event("agent_message", text="done"))

    assert [role for role, _, _ in together] == ["assistant", "tool", "tool", "assistant"]
    assert [role for role, _, _ in apart] == ["assistant", "tool", "assistant", "tool", "assistant"]


def test_every_call_is_answered_even_where_the_turn_was_stopped() -> None:
    shown = _shown(USAGE, Event("tool_call", call=ONE))

    assert shown == [("assistant", None, ["c1"]), ("tool", "no result: the turn was stopped", "c1")]


def test_calls_without_an_id_get_one() -> None:
    call = ToolCall("a", {})

    shown = _shown(Event("tool_call", call=call), Event("tool_result", call=call, result={"é": 1}))

    assert shown == [("assistant", None, ["call_1_0"]), ("tool", '{"é": 1}', "call_1_0")]


def test_partial_text_is_not_repeated() -> None:
    shown = _shown(Event("agent_message", text="do", is_partial=True), Event("agent_message", text="done"))

    assert shown == [("assistant", "done", None)]


def test_a_turn_without_an_answer_keeps_its_question() -> None:
    assert chat_messages([TurnRecord("go")]) == [{"role": "user", "content": "go"}]
