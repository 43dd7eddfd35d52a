"""A chat whose turns have thousands of calls: a page has the ends of such a turn, and the rest comes on scroll."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.model import Event, ToolCall, TurnRecord
from evaldesk.pages.conversation import LEAST_PARTS, PARTS_OF_PAGE

HTMX = {"HX-Request": "true"}
N = 3_000
CALLS = re.compile(r"<summary>.{0,400}?<code>search\(number=(\d+)\)</code>", re.DOTALL)
LINKS = re.compile(r'hx-get="(/sessions/[^"]+/parts\?[^"]+)"')


def turn_of(n: int) -> TurnRecord:
    calls = [ToolCall("search", {"number": at}, str(at)) for at in range(n)]
    events = [
        event
        for call in calls
        for event in (Event("tool_call", call=call), Event("tool_result", call=call, result="ok"))
    ]
    return TurnRecord("Find all.", (*events, Event("agent_message", text="All found.")), duration_ms=1_234.0)


def session_of(chat: Any, *turns: TurnRecord) -> str:
    sessions = chat.desk.store.sessions
    session = sessions.create("dice", "long", {})
    for turn in turns:
        sessions.append_turn(session.id, turn)
    return f"/sessions/{session.id}"


def links(page: str) -> list[str]:
    return [link.replace("&amp;", "&") for link in LINKS.findall(page)]


def test_the_page_has_both_ends_of_a_turn_and_the_rest_comes_once(chat: Any) -> None:
    page = chat.client.get(session_of(chat, turn_of(N))).text

    assert len(page.encode()) < 400_000
    assert "All found." in page
    assert "1.2 s" in page
    found, waiting = [*map(int, CALLS.findall(page))], links(page)
    assert len(found) == PARTS_OF_PAGE - 1
    while waiting:
        part = chat.client.get(waiting.pop(), headers=HTMX).text
        assert len(part.encode()) < 400_000
        found += map(int, CALLS.findall(part))
        waiting += links(part)
    assert sorted(found) == [*range(N)]


def test_earlier_turns_are_cut_before_the_last_one(chat: Any) -> None:
    page = chat.client.get(session_of(chat, *(turn_of(100) for _ in range(40)))).text

    assert len(page.encode()) < 400_000
    last = page.partition('<li id="turn-40"')[2]
    assert len(CALLS.findall(last)) == 100
    assert page.count("All found.") >= 40
    assert len(CALLS.findall(page)) < PARTS_OF_PAGE + 40 * LEAST_PARTS


def test_an_ordinary_chat_is_whole(chat: Any) -> None:
    page = chat.client.get(session_of(chat, *(turn_of(3) for _ in range(20)))).text

    assert len(CALLS.findall(page)) == 60
    assert links(page) == []


def test_the_events_that_have_no_row_are_counted_and_linked(chat: Any) -> None:
    page = chat.client.get(session_of(chat, turn_of(N))).text

    address, n = re.findall(
        r'<a href="(/sessions/[^"]+/timeline\?span=1)">([\d,]+) events more in the time line', page
    )[0]
    assert page.count('<td class="nowrap">') + int(n.replace(",", "")) == 2 * N + 1
    assert chat.client.get(address).status_code == 200


def test_without_a_script_the_gap_leads_to_the_time_line(chat: Any) -> None:
    address = session_of(chat, turn_of(N))

    answer = chat.client.get(f"{address}/turns/0/parts?from=51&to=90")

    assert (answer.status_code, answer.headers["location"]) == (303, f"{address}/timeline?span=1")


@pytest.mark.parametrize(
    "place",
    ["0/parts?from=0&to=9", "0/parts?from=9&to=8", "0/parts?from=9999&to=9999", "1/parts?from=1&to=2", "0/parts"],
)
def test_a_part_that_is_not_there_is_not_found(chat: Any, place: str) -> None:
    assert chat.client.get(f"{session_of(chat, turn_of(9))}/turns/{place}", headers=HTMX).status_code == 404
