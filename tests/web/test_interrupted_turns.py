"""The page of a session whose turn was interrupted, or is played by another process."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from httpx2 import Response
from tests.web.conftest import STREAM, ChatDesk, ScriptedHost

from evaldesk.desk.process_owner import current_owner
from evaldesk.model import Event, TurnRecord, Waiting
from evaldesk.model.stored import OpenTurn
from evaldesk.settings import Settings

HERE = current_owner().split(" ")[1]


def leave(chat: ChatDesk, session: str) -> None:
    """Store a turn as a process that died leaves it."""
    session_id = session.rpartition("/")[2]
    owner = f"mark 999999999 {HERE} 1"
    turn = OpenTurn(0, owner, "Roll a die", "", "person", datetime(2026, 11, 23, tzinfo=UTC))
    chat.desk.store.sessions.begin_turn(session_id, turn, title="Dice")
    pieces = [Event("agent_message", text=text, is_partial=True) for text in ("It is ", "a <b>4</b>")]
    chat.desk.store.sessions.append_events(session_id, owner, 0, pieces)


def test_the_page_shows_what_was_said_and_offers_to_ask_again(chat: ChatDesk) -> None:
    session = chat.new_session()
    leave(chat, session)

    page = chat.client.get(session).text

    assert "Roll a die" in page
    assert "It is a &lt;b&gt;4&lt;/b&gt;" in page
    assert f'action="{session}/interrupted-turn"' in page
    assert "/events?after=" not in page


def test_the_list_of_sessions_counts_the_turn(chat: ChatDesk, host: ScriptedHost) -> None:
    session = chat.new_session()
    leave(chat, session)
    host.events = [Event("agent_message", text="A 6")]

    before = chat.client.get(session).text
    chat.client.post(f"{session}/interrupted-turn")
    chat.client.get(f"{session}/events?after=0", headers=STREAM)
    after = chat.client.get(session).text

    assert "0 turns" not in before + after
    assert ", 1 turn," in before
    assert ", 1 turn," in after


def test_asking_again_replaces_the_turn(chat: ChatDesk, host: ScriptedHost) -> None:
    session = chat.new_session()
    leave(chat, session)
    host.events = [Event("agent_message", text="A 6")]

    answer = chat.client.post(f"{session}/interrupted-turn")
    chat.client.get(f"{session}/events?after=0", headers=STREAM)
    page = chat.client.get(session).text

    assert (answer.status_code, answer.headers["location"]) == (303, f"{session}#turn-1")
    assert [spec.message for spec in host.specs] == ["Roll a die"]
    assert page.count('id="turn-1"') == 1
    assert "It is a" not in page
    assert "A 6" in page
    assert "interrupted-turn" not in page


def test_another_message_keeps_the_turn_and_takes_the_offer_away(chat: ChatDesk, host: ScriptedHost) -> None:
    session = chat.new_session()
    leave(chat, session)
    host.events = [Event("agent_message", text="A 6")]

    stream = chat.say(session, "And now?")
    page = chat.client.get(session).text

    assert 'hx-swap-oob="innerHTML:#interrupted"></div>' in stream
    assert page.index("It is a") < page.index("And now?")
    assert "interrupted-turn" not in page


def test_asking_again_without_an_interrupted_turn_is_refused(chat: ChatDesk) -> None:
    session = chat.new_session()

    answer = chat.client.post(f"{session}/interrupted-turn")

    assert answer.status_code == 409
    assert "was not interrupted" in answer.text
    assert chat.client.post("/sessions/nothing/interrupted-turn").status_code == 404
    assert chat.client.get(f"{session}/interrupted-turn").status_code == 405


def test_the_turn_of_another_living_process_is_shown_and_not_offered(
    chat: ChatDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chat.new_session()
    leave(chat, session)
    monkeypatch.setattr("evaldesk.desk.chat.running_turn.is_at_work", lambda *_, **__: True)

    page = chat.client.get(session).text
    refused = chat.client.post(f"{session}/turns", data={"message": "Hi"})

    assert "interrupted-turn" not in page
    assert "Another Evaldesk plays this turn" in page
    assert f'hx-sse:connect="{session}/events?after=0"' in page
    assert refused.status_code == 409


def test_the_turn_of_another_living_process_streams_in_as_it_is_stored(
    chat: ChatDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chat.new_session()
    leave(chat, session)
    monkeypatch.setattr("evaldesk.desk.chat.running_turn.is_at_work", lambda *_, **__: True)
    monkeypatch.setattr("evaldesk.desk.chat.sessions.LOOK_S", 0.0)
    sessions, session_id = chat.desk.store.sessions, session.rpartition("/")[2]
    owner, look = f"mark 999999999 {HERE} 1", sessions.open_turn
    said = Event("agent_message", text="It is a 4, as I said")
    steps: list[Callable[[], object]] = [
        lambda: None,
        lambda: sessions.append_events(session_id, owner, 1, [Event("agent_message", text=", truly", is_partial=True)]),
        lambda: None,
        lambda: sessions.append_turn(session_id, TurnRecord("Roll a die", (said,), {}, {}), owner=owner),
    ]

    def looked(asked: str) -> OpenTurn | None:
        steps.pop(0)()
        return look(asked)

    monkeypatch.setattr(sessions, "open_turn", looked)
    stream = chat.client.get(f"{session}/events?after=0", headers=STREAM).text

    frames = [frame for frame in stream.split("\n\n") if frame.startswith("data:")]
    assert [("truly" in frame, "as I said" in frame) for frame in frames[:3]] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert ["Another Evaldesk plays this turn" in frame for frame in frames] == [True, False, False, False]
    assert 'hx-swap-oob="innerHTML:#composer-note"></div>' in frames[-1]
    assert steps == []


def test_a_turn_whose_process_is_lost_ends_and_is_offered_again(
    chat: ChatDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chat.new_session()
    leave(chat, session)
    is_there = iter([True, True])
    monkeypatch.setattr("evaldesk.desk.chat.running_turn.is_at_work", lambda *_, **__: next(is_there, False))
    monkeypatch.setattr("evaldesk.desk.chat.sessions.LOOK_S", 0.0)

    stream = chat.client.get(f"{session}/events?after=0", headers=STREAM).text

    assert "Ask again" in stream
    assert stream.rstrip().endswith("data: done")


def test_a_conversation_that_another_process_simulates_is_followed_to_its_next_turn(
    chat: ChatDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chat.new_session()
    session_id, sessions = session.rpartition("/")[2], chat.desk.store.sessions
    monkeypatch.setattr("evaldesk.desk.chat.running_turn.is_at_work", lambda *_, **__: True)
    for name, value in (("desk.chat.sessions.LOOK_S", 0.0), ("web.routes.turns.NEXT_TURN_S", 0.2)):
        monkeypatch.setattr(f"evaldesk.{name}", value)
    moment, look = datetime(2026, 11, 23, tzinfo=UTC), sessions.open_turn

    def begin(index: int, message: str) -> None:
        owner = f"mark{index} 999999999 {HERE} 1"
        sessions.begin_turn(session_id, OpenTurn(index, owner, message, "", "simulated", moment))

    def end(index: int, message: str) -> None:
        record = TurnRecord(message, (Event("agent_message", text=f"answer to {message}"),), {}, {})
        sessions.append_turn(session_id, record, owner=f"mark{index} 999999999 {HERE} 1")

    begin(0, "one")
    steps: list[Callable[[], None]] = [
        lambda: None,
        lambda: end(0, "one"),
        lambda: None,
        lambda: begin(1, "two"),
        lambda: end(1, "two"),
    ]

    def looked(asked: str) -> OpenTurn | None:
        if steps:
            steps.pop(0)()
        return look(asked)

    monkeypatch.setattr(sessions, "open_turn", looked)
    stream = chat.client.get(f"{session}/events?after=0", headers=STREAM).text

    added = [part.partition("</div>")[0] for part in stream.split('hx-swap-oob="beforeend:#turns">')[1:]]
    assert [[n for n in (1, 2) if f'id="turn-{n}"' in part] for part in added if part] == [[1], [2]]
    assert "answer to two" in stream


def news(chat: ChatDesk, session: str, page: str) -> Response:
    """The answer to what the script of a session's page asks every two seconds, with what that page knows."""
    known = re.findall(r'<input type="hidden" name="(after|seen)" value="([^"]*)">', page)
    answer: Response = chat.client.get(f"{session}/news", params=dict(known))
    return answer


def begin_elsewhere(chat: ChatDesk, session: str, index: int, resumed: TurnRecord | None = None) -> str:
    owner = f"mark{index} 999999999 {HERE} 1"
    turn = OpenTurn(index, owner, "Roll a die", "", "person", datetime(2026, 11, 23, tzinfo=UTC))
    chat.desk.store.sessions.begin_turn(session.rpartition("/")[2], turn, open_record=resumed)
    return owner


def end_elsewhere(chat: ChatDesk, session: str, owner: str, text: str = "A 6") -> None:
    record = TurnRecord("Roll a die", (Event("agent_message", text=text),), {}, {})
    chat.desk.store.sessions.append_turn(session.rpartition("/")[2], record, owner=owner)


@pytest.fixture
def shared(chat: ChatDesk, monkeypatch: pytest.MonkeyPatch) -> ChatDesk:
    """A desk whose database others have, too, and whose other processes are all at work."""
    monkeypatch.setattr(Settings, "is_shared", True)
    monkeypatch.setattr("evaldesk.desk.chat.running_turn.is_at_work", lambda *_, **__: True)
    return chat


def test_a_page_on_which_nothing_runs_streams_what_another_desk_begins(shared: ChatDesk) -> None:
    session = shared.new_session()
    shared.say(session)
    page = shared.client.get(session).text

    before = news(shared, session, page)
    owner = begin_elsewhere(shared, session, 1)
    begun = news(shared, session, page)
    live = shared.client.get(session).text
    end_elsewhere(shared, session, owner)
    ended = news(shared, session, page)

    assert f'hx-get="{session}/news"' in page
    assert (before.status_code, before.text) == (200, "")
    assert f'hx-sse:connect="{session}/events?after=1"' in begun.text
    assert begun.text.count('id="turn-2"') == 1
    assert 'name="after"' not in live  # it has the stream
    assert shared.client.get(f"{session}/news").text == ""
    assert "hx-sse:connect" not in ended.text
    assert "A 6" in ended.text
    assert news(shared, session, ended.text).text == ""


def test_turns_that_a_page_shows_already_are_replaced(shared: ChatDesk) -> None:
    session = shared.new_session()
    page = shared.client.get(session).text
    for index in range(2):
        end_elsewhere(shared, session, begin_elsewhere(shared, session, index), f"answer {index}")

    stream = shared.client.get(f"{session}/events?after=0", headers=STREAM).text
    asked = news(shared, session, page).text

    for text in (stream, asked):
        for number in (1, 2):
            gone = text.index(f'hx-swap-oob="delete:#turns > #turn-{number}"')
            assert gone < text.index(f'<li id="turn-{number}"')


def test_a_turn_that_another_desk_decided_about_is_followed_to_its_end(shared: ChatDesk, host: ScriptedHost) -> None:
    session = shared.new_session()
    session_id, sessions = session.rpartition("/")[2], shared.desk.store.sessions
    asks = Event("waiting", waiting=Waiting("c1", "refund"))
    waited = TurnRecord("Refund it", (asks,), {}, {}, 1.0, "awaiting_approval")
    sessions.append_turn(session_id, waited)
    page = shared.client.get(session).text

    owner = begin_elsewhere(shared, session, 0, waited)
    begun = news(shared, session, page).text
    end_elsewhere(shared, session, owner, "Refunded")
    ended = news(shared, session, page).text

    assert 'hx-swap-oob="delete:#turns > #turn-1"' in begun
    assert f'hx-sse:connect="{session}/events?after=0"' in begun
    assert 'hx-swap-oob="delete:#turns > #turn-1"' in ended
    assert "Refunded" in ended


def test_only_a_shared_database_is_asked_for_news(chat: ChatDesk) -> None:
    session = chat.new_session()

    assert "/news" not in chat.client.get(session).text
    assert chat.client.get("/sessions/nothing/news", params={"seen": "1"}).status_code == 404
    assert chat.client.post(f"{session}/news").status_code == 405


def test_a_restarted_desk_finds_the_turn(open_chat: Callable[..., ChatDesk]) -> None:
    first = open_chat()
    session = first.new_session()
    leave(first, session)

    page = open_chat().client.get(session).text

    assert "Ask again" in page
