"""Sessions of a file become cases that expect no time, counter or id as it was recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from evaldesk.formats.files import read_file
from evaldesk.formats.recorded_cases import repeatable_cases
from evaldesk.model import Case, Expected, ToolCall, Turn

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


def test_keys_that_only_the_framework_keeps_are_not_expected() -> None:
    case = Case("a", (Turn("Hello"),), final_state={"temp:now": 1, "_adk_x": 2, "open": True})

    ((new_case,), _) = repeatable_cases([case])

    assert new_case.final_state == {"open": True}
