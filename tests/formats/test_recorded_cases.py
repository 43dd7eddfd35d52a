"""Sessions of a file become cases that expect no time, counter or id as it was recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.formats.files import read_file
from evaldesk.formats.recorded_cases import repeatable_cases, repeatable_items
from evaldesk.model import Case, Expected, ToolCall, Turn
from evaldesk.transcripts.recorded import ReadItems

AT = 1_743_873_320.5


def session(state: dict[str, Any]) -> bytes:
    events = [
        {"invocation_id": "i", "author": "user", "content": {"parts": [{"text": "Hello"}]}, "timestamp": AT - 1},
        {
            "invocation_id": "i",
            "author": "shop",
            "content": {"parts": [{"text": "Hi."}], "role": "model"},
            "actions": {"state_delta": state},
            "timestamp": AT,
        },
    ]
    return json.dumps({"id": "s", "app_name": "shop", "user_id": "u", "state": state, "events": events}).encode()


@pytest.mark.parametrize(
    ("state", "entries"),
    [
        ({"_time": "2025-04-05 17:15:20"}, [{"state": "_time", "later": True}]),
        ({"day": "2025-04-05"}, [{"state": "day", "later": True}]),
        ({"born": "1990-04-05", "year": 2025}, None),
        ({"order": {"at": AT, "n": 1}}, [{"state": "order", "at": "/at", "later": True}]),
    ],
)
def test_times_of_an_adk_session_are_asserted_by_matchers(state: dict[str, Any], entries: Any) -> None:
    found = read_file(session(state), "one.session.json")

    assert found.evalset
    assert found.evalset.cases[0].extra.get("also_accepted") == entries
    assert any("by matchers" in sentence for sentence in found.understood) is bool(entries)


def test_sessions_of_the_same_messages_are_compared_with_each_other() -> None:
    def case(name: str, number: int, query: str = "Hello") -> Case:
        calls = (ToolCall("look", {"page": number, "size": 10}),)
        return Case(name, (Turn(query, Expected(calls, reference="Hi.")),), final_state={"seen": number, "open": True})

    (first, _, other), sentences = repeatable_cases([case("a", 4), case("b", 7), case("c", 4, "Bye")])

    assert first.extra["also_accepted"] == [
        {"turn": 1, "tool": "look", "argument": "page", "type": "integer"},
        {"state": "seen", "type": "integer"},
    ]
    assert "also_accepted" not in other.extra
    assert sentences[0].startswith("Not expected as recorded, but by matchers: a: Turn 1, look, page changes each time")


def test_sessions_of_a_large_file_are_compared_as_those_of_a_small_one() -> None:
    def case(number: int) -> Case:
        calls = (ToolCall("look", {"page": number, "size": 10}),)
        return Case(
            f"c{number}", (Turn(f"Hello {number % 3}", Expected(calls)),), final_state={"temp:n": 1, "n": number}
        )

    cases = tuple(map(case, range(40)))
    items = repeatable_items(ReadItems(len(cases), lambda first: iter(cases[first:])))

    assert tuple(items) == repeatable_cases(cases)[0]
    assert items[7] == tuple(items)[7]


def test_conversations_of_messages_expect_no_value_that_changes_each_time() -> None:
    def conversation(number: int) -> dict[str, Any]:
        function = {"name": "book", "arguments": json.dumps({"guests": 2, "nonce": number})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        return {
            "messages": [
                {"role": "user", "content": "Book"},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": f"c{number}", "content": "ok"},
                {"role": "assistant", "content": "Booked."},
            ]
        }

    lines = "\n".join(json.dumps(conversation(number)) for number in (4, 9))
    found = read_file(lines.encode(), "chats.jsonl")

    assert found.evalset
    assert [case.extra["also_accepted"] for case in found.evalset.cases] == [
        [{"turn": 1, "tool": "book", "argument": "nonce", "type": "integer"}]
    ] * 2
    assert any("chats_1: Turn 1, book, nonce changes each time" in sentence for sentence in found.understood)


def test_keys_that_only_the_framework_keeps_are_not_expected() -> None:
    case = Case("a", (Turn("Hello"),), final_state={"temp:now": 1, "_adk_x": 2, "open": True})

    ((new_case,), _) = repeatable_cases([case])

    assert new_case.final_state == {"open": True}
