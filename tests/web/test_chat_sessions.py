"""Sessions of the chat: begun, kept, renamed, deleted, reopened."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from typing import Any

import pytest

from evaldesk.model import Event

STREAM = {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
ANSWER = Event("agent_message", 40, "dice", text="You rolled a 4.\nAgain?")


def test_without_a_session_the_chat_offers_the_agents(chat: Any) -> None:
    answer = chat.client.get("/sessions")

    assert answer.status_code == 200
    assert 'href="/sessions/new?agent=dice"' in answer.text


def test_the_chat_opens_at_the_session_used_last(chat: Any) -> None:
    chat.new_session()
    newest = chat.new_session()

    answer = chat.client.get("/sessions")

    assert answer.status_code == 303
    assert answer.headers["location"] == newest


def test_a_new_session_proposes_the_state_that_the_agent_names(chat: Any) -> None:
    answer = chat.client.get("/sessions/new?agent=dice")

    assert "&#34;rolls&#34;: []" in answer.text
    assert "scripted demo model" in answer.text


@pytest.mark.parametrize("address", ["/sessions/new?agent=nobody", "/sessions/none", "/sessions/none/events"])
def test_what_is_not_there_is_answered_with_a_page(chat: Any, address: str) -> None:
    answer = chat.client.get(address)

    assert answer.status_code == 404
    assert re.search(r'role="alert">.*<p>[A-Z]', answer.text, re.DOTALL)


@pytest.mark.parametrize("noun", ["turns", "cancellation", "title", "deletion", "state"])
def test_nothing_can_be_done_to_a_session_that_is_not_there(chat: Any, noun: str) -> None:
    form = {"message": "x", "title": "x", "state": "{}"}

    assert chat.client.post(f"/sessions/none/{noun}", data=form).status_code == 404


def test_a_session_whose_agent_is_gone_can_be_read_but_takes_no_message(chat: Any) -> None:
    session = f"/sessions/{chat.desk.store.sessions.create('gone', 'Old', {}).id}"

    page = chat.client.get(session)
    plain = chat.client.post(f"{session}/turns", data={"message": "Hello?"})
    script = chat.client.post(f"{session}/turns", data={"message": "Hello?"}, headers=STREAM)

    assert page.status_code == 200
    assert "gone does not load" in page.text
    assert (plain.status_code, script.status_code) == (404, 404)
    assert "Hello?</textarea>" in plain.text
    assert script.text.startswith('<div hx-swap-oob="innerHTML:#composer-note">')


@pytest.mark.parametrize("noun", ["turns", "cancellation", "title", "deletion", "restoration", "state"])
def test_what_changes_a_session_is_not_done_by_a_link(chat: Any, noun: str) -> None:
    session = chat.new_session()

    assert chat.client.get(f"{session}/{noun}").status_code == 405


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ('{\n  "a": 1,,\n}', "Line 2, column 10"),
        ("[1]", "must be an object"),
        ('{"a": NaN}', "Line 1, column"),
    ],
    ids=["comma", "list", "nan"],
)
def test_a_wrong_initial_state_is_shown_again_with_its_place(chat: Any, state: str, said: str) -> None:
    answer = chat.client.post("/sessions", data={"agent": "dice", "state": state})

    assert answer.status_code == 422
    assert said in answer.text
    assert 'aria-invalid="true"' in answer.text
    assert state.replace('"', "&#34;") in answer.text


def test_the_first_message_can_be_sent_with_a_new_session(chat: Any) -> None:
    chat.host.events = (ANSWER,)

    begun = chat.client.post("/sessions", data={"agent": "dice", "state": "{}", "message": " Roll a die\r\n"})
    chat.client.get(f"{begun.headers['location']}/events")

    page = chat.client.get(begun.headers["location"]).text
    assert begun.status_code == 303
    assert '<h2 id="title">Roll a die</h2>' in page
    assert "You rolled a 4." in page


@pytest.mark.parametrize(
    ("state", "message"), [("[1]", "Roll <a> die"), ("{}", "x" * 200_001)], ids=["state", "message"]
)
def test_a_refused_new_session_keeps_what_was_typed_and_stores_nothing(chat: Any, state: str, message: str) -> None:
    answer = chat.client.post("/sessions", data={"agent": "dice", "state": state, "title": "T", "message": message})

    assert answer.status_code == 422
    assert f"{escape(message)}</textarea>" in answer.text
    assert 'aria-invalid="true"' in answer.text
    assert chat.desk.sessions.list() == []


def test_a_session_is_there_again_after_a_restart(open_chat: Callable[..., Any], host: Any) -> None:
    host.events = (ANSWER,)
    session = open_chat().new_session('{"home": "Lisbon"}')
    chat = open_chat()
    chat.say(session, "Roll a die, and tell me whether what it shows is a prime number")

    page = open_chat().client.get(session).text

    assert "You rolled a 4." in page
    assert "&#34;home&#34;: &#34;Lisbon&#34;" in page
    assert '<h2 id="title">Roll a die, and tell me whether what it shows is a…</h2>' in page


def test_a_changed_state_is_what_the_next_turn_starts_from(chat: Any) -> None:
    chat.host.events = (ANSWER,)
    session = chat.new_session()
    chat.say(session)

    wrong = chat.client.post(f"{session}/state", data={"state": "{"})
    right = chat.client.post(f"{session}/state", data={"state": '{"rolls": [6]}'})
    stream = chat.say(session)

    assert wrong.status_code == 422
    assert "Line 1, column 2" in wrong.text
    assert right.status_code == 303
    assert chat.host.specs[-1].state == {"rolls": [6]}
    assert "You changed the state:" in stream


def test_a_session_is_renamed_deleted_and_brought_back(chat: Any) -> None:
    session = chat.new_session()

    blank = chat.client.post(f"{session}/title", data={"title": " "})
    chat.client.post(f"{session}/title", data={"title": "  Two\n dice "})
    deleted = chat.client.post(f"{session}/deletion")
    gone = chat.client.get(session)
    offer = chat.client.get(deleted.headers["location"])
    chat.client.post(f"{session}/restoration")

    assert blank.status_code == 422
    assert gone.status_code == 404
    assert f'action="{session}/restoration"' in offer.text
    assert "Two dice" in chat.client.get(session).text


def test_only_models_of_the_settings_can_be_chosen(open_chat: Callable[..., Any], host: Any) -> None:
    host.events = (ANSWER,)
    chat = open_chat(models=("vendor/small",))
    session = chat.new_session()

    page = chat.client.get(session).text
    chat.client.post(f"{session}/turns", data={"message": "x", "model": "vendor/small"}, headers=STREAM)
    refused = chat.client.post(f"{session}/turns", data={"message": "x", "model": "http://evil"}, headers=STREAM)

    assert "<option>vendor/small</option>" in page
    assert [spec.model for spec in host.specs] == ["vendor/small"]
    assert refused.status_code == 422


def test_secrets_are_neither_stored_nor_shown(open_chat: Callable[..., Any], host: Any) -> None:
    host.events = (Event("agent_message", 1, text="my key is hunter2hunter2"),)
    host.state_after = {"key": "hunter2hunter2"}
    chat = open_chat(environment={"SOME_API_KEY": "hunter2hunter2"})
    session = chat.new_session()

    shown = chat.say(session) + chat.client.get(session).text

    assert "hunter2" not in shown
    assert "[SOME_API_KEY]" in shown


def test_a_state_of_5_mb_is_shown_by_its_keys_and_read_in_parts(chat: Any) -> None:
    state = {"notes": "n" * 3_000_000 + "the end", "log": ["<e>" * 30] * 20_000, "few": 1}
    session = chat.desk.store.sessions.create("dice", "Large", state)

    page = chat.client.get(f"/sessions/{session.id}")
    part = chat.client.get(f"/sessions/{session.id}/state/value?key=notes&from=2990000")
    last = chat.client.get(f"/sessions/{session.id}/state/value?key=notes&from=99999999999")

    assert len(page.content) < 60_000
    assert 'name="state"' not in page.text
    assert f'href="/sessions/{session.id}/state/value?key=notes"' in page.text
    assert "the end" in part.text
    assert len(part.content) < 80_000
    assert last.status_code == 200
    assert chat.client.get(f"/sessions/{session.id}/state/value?key=none").status_code == 404
    assert chat.client.post(f"/sessions/{session.id}/state/value").status_code == 405
