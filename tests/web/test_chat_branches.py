"""Branches of a chat: a message sent again or changed in a session of its own, while the earlier one stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from tests.web.conftest import ChatDesk, ScriptedHost

from evaldesk.model import ErrorRecord, Event, TurnRecord
from evaldesk.model.media import media_of

PICTURE = media_of("image/png", b"\x89PNG\r\n\x1a\n1", name="die.png")


def id_of(address: str) -> str:
    return address.rpartition("/")[2].partition("#")[0]


@pytest.fixture
def three_turns(chat: ChatDesk) -> str:
    """The address of a session of three turns, each of which counts; the second came with a picture."""
    session = chat.new_session('{"n": 0}')
    for at in range(3):
        media = (PICTURE,) if at == 1 else ()
        said = (Event("agent_message", text=f"answer {at}"),)
        record = TurnRecord(f"message {at}", said, {"n": at}, {"n": at + 1}, 10.0, media=media)
        chat.desk.store.sessions.append_turn(id_of(session), record)
    return session


def branch(chat: ChatDesk, session: str, turn: int, **fields: Any) -> str:
    answer = chat.client.post(f"{session}/branches", data={"turn": str(turn), **fields})
    assert answer.status_code == 303, answer.text
    address = str(answer.headers["location"])
    while chat.desk.sessions.find_running_turn(id_of(address)):
        chat.client.get(f"/sessions/{id_of(address)}/events?after=0", headers={"accept": "text/event-stream"})
    return address


@pytest.mark.parametrize("turn", [1, 2, 3])
def test_a_retry_plays_the_message_from_the_turns_and_the_state_before_it(
    chat: ChatDesk, host: ScriptedHost, three_turns: str, turn: int
) -> None:
    host.events = [Event("agent_message", text="another answer")]
    before = chat.desk.sessions.get(id_of(three_turns))

    address = branch(chat, three_turns, turn)

    (spec,) = host.specs
    assert (spec.message, spec.state, [each.query for each in spec.turns]) == (
        f"message {turn - 1}",
        {"n": turn - 1},
        [f"message {at}" for at in range(turn - 1)],
    )
    new = chat.desk.sessions.get(id_of(address))
    assert [each.query for each in new.turns] == [f"message {at}" for at in range(turn)]
    assert new.turns[: turn - 1] == before.turns[: turn - 1]
    assert (new.turns[-1].answer, new.initial_state, new.agent_id) == ("another answer", {"n": 0}, before.agent_id)
    assert (new.branch_of, new.branch_turn) == (before.id, turn - 1)
    assert chat.desk.sessions.get(before.id) == before


def test_an_edited_message_is_sent_in_the_branch_with_the_files_of_its_turn(
    chat: ChatDesk, host: ScriptedHost, three_turns: str
) -> None:
    form = chat.client.get(f"{three_turns}/turns/1/message").text
    assert re.search(r"<textarea[^>]*>\nmessage 1</textarea>", form)
    assert "1 file of the turn is sent with it." in form

    address = branch(chat, three_turns, 2, message="another message")

    (spec,) = host.specs
    assert (spec.message, [each.content() for each in spec.media]) == ("another message", [PICTURE.content()])
    page = chat.client.get(address).text
    assert f'<a href="{three_turns}#turn-2">branch at turn 2</a>' in page
    chat.desk.sessions.delete(id_of(three_turns))
    chat.desk.store.sessions.remove_deleted(chat.desk.store.sessions.deleted()[0][2])
    assert chat.desk.store.media.with_bytes(chat.desk.sessions.get(id_of(address)).turns[1].media)[0].data


def test_an_errored_turn_offers_both_and_every_other_one_too(chat: ChatDesk) -> None:
    session = chat.new_session()
    error = TurnRecord("hi", (Event("error", error=ErrorRecord("agent_raised", "no")),), stop_reason="error")
    for record in (TurnRecord("hello", (Event("agent_message", text="yes"),)), error):
        chat.desk.store.sessions.append_turn(id_of(session), record)

    page = chat.client.get(session).text

    assert page.count(f'action="{session}/branches"') == 2
    assert page.count("data-errored") == 1
    assert f'href="{session}/turns/1/message"' in page


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, 422),
        ({"turn": "0"}, 422),
        ({"turn": "x"}, 422),
        ({"turn": "4"}, 404),
        ({"turn": "2", "message": " "}, 303),
        ({"turn": "1", "message": " "}, 422),
        ({"turn": "1", "message": "x" * 200_001}, 422),
    ],
    ids=json.dumps,
)
def test_a_branch_that_cannot_begin_leaves_no_session(
    chat: ChatDesk, three_turns: str, fields: dict[str, str], status: int
) -> None:
    n_sessions = len(chat.desk.sessions.list())

    answer = chat.client.post(f"{three_turns}/branches", data=fields)

    assert answer.status_code == status
    assert len(chat.desk.sessions.list()) == n_sessions + (status == 303)
