"""A chat of thousands of turns: its page has the last ones, the rest comes piece by piece, each turn once."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.desk.chat.sessions import RECENT_TURNS
from evaldesk.model import Event, TurnRecord
from evaldesk.store import sessions as stored_sessions
from evaldesk.store.tables.columns import unpack_all

HTMX = {"HX-Request": "true"}
N = 330
TURNS = re.compile(r'<li id="turn-(\d+)"')
GAP = re.compile(r'data-gap="(\d+) (\d+)"')
LINKS = re.compile(r'hx-get="(/sessions/[^"]+/pieces\?[^"]+)"')


def said(number: int) -> TurnRecord:
    events = (Event("agent_message", text=f"Answer {number}"),)
    return TurnRecord(f"Question {number}", events, {"n": number - 1}, {"n": number}, 5.0)


@pytest.fixture
def address(chat: Any) -> str:
    sessions = chat.desk.store.sessions
    session = sessions.create("dice", "long", {"n": 0})
    for number in range(1, N + 1):
        # A person changed the state before the turn 200.
        turn = said(number)
        sessions.append_turn(
            session.id, turn if number != 200 else TurnRecord(turn.query, turn.events, {"n": 7}, {"n": 200})
        )
    return f"/sessions/{session.id}"


def numbers(page: str) -> list[int]:
    return [*map(int, TURNS.findall(page))]


def test_the_page_has_the_last_turns_and_all_pieces_have_each_turn_once(chat: Any, address: str) -> None:
    page = chat.client.get(address).text
    found, links = numbers(page), LINKS.findall(page)

    assert found == [*range(N - RECENT_TURNS + 1, N + 1)]
    assert GAP.findall(page) == [("1", str(N - RECENT_TURNS))]
    assert 'name="after" value="330"' in page
    while links:
        piece = chat.client.get(links.pop().replace("&amp;", "&"), headers=HTMX).text
        assert len(numbers(piece)) <= RECENT_TURNS
        found = [*numbers(piece), *found]
        links += LINKS.findall(piece)
    assert found == [*range(1, N + 1)]


def test_the_turn_of_the_address_is_on_its_page(chat: Any, address: str) -> None:
    for turn in (1, 2, 200, 280, 281, 330):
        page = chat.client.get(f"{address}?turn={turn}").text

        drawn = numbers(page)
        gaps = [number for first, last in GAP.findall(page) for number in range(int(first), int(last) + 1)]
        assert turn in drawn, turn
        assert sorted(drawn + gaps) == [*range(1, N + 1)], turn


def test_a_piece_of_the_middle_is_of_both_ends_of_its_gap(chat: Any, address: str) -> None:
    piece = chat.client.get(f"{address}/pieces?from=101&to=280", headers=HTMX).text

    assert numbers(piece) == [*range(101, 126), *range(256, 281)]
    assert GAP.findall(piece) == [("126", "255")]


def test_a_change_of_the_state_stands_before_its_turn_in_every_piece(chat: Any, address: str) -> None:
    pieces = [chat.client.get(f"{address}/pieces?from={first}&to=280", headers=HTMX).text for first in (191, 200, 201)]

    assert ["You changed the state:" in piece for piece in pieces] == [True, True, False]
    assert "You changed the state:" not in chat.client.get(address).text


def test_without_a_script_the_link_of_a_gap_is_the_page_of_its_first_turn(chat: Any, address: str) -> None:
    moved = chat.client.get(f"{address}/pieces?from=51&to=280")

    assert (moved.status_code, moved.headers["location"]) == (303, f"{address}?turn=51#turn-51")
    assert f'href="{address}?turn=1#turn-1"' in chat.client.get(address).text


def test_a_piece_that_is_not_there_is_not_found(chat: Any, address: str) -> None:
    for query in ("from=0&to=9", "from=9&to=8", "from=331&to=340", "from=x", ""):
        assert chat.client.get(f"{address}/pieces?{query}", headers=HTMX).status_code == 404, query

    chat.desk.store.sessions.delete(address.rpartition("/")[2])

    assert chat.client.get(f"{address}/pieces?from=1&to=9", headers=HTMX).status_code == 404


def test_a_page_of_a_long_chat_reads_few_turns(chat: Any, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []

    def counted(rows: Any, kind: Any) -> Any:
        found = unpack_all(rows, kind)
        read.append(len(found))
        return found

    monkeypatch.setattr(stored_sessions, "unpack_all", counted)

    for path in (address, f"{address}?turn=100", f"{address}/pieces?from=1&to=280", f"{address}/news?after=330&seen=x"):
        read.clear()
        assert chat.client.get(path, headers=HTMX).status_code == 200
        assert sum(read) <= 2 * (RECENT_TURNS + 1)


def test_a_new_message_brings_its_turn_alone(chat: Any, address: str) -> None:
    chat.desk.store.sessions.append_turn(address.rpartition("/")[2], said(N + 1))

    news = chat.client.get(f"{address}/news?after={N}&seen=x", headers=HTMX).text

    assert N + 1 in numbers(news)
    assert len(numbers(news)) <= 2
    assert 'name="after" value="331"' in news
