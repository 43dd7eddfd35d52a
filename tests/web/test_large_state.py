"""A session's state that is too large for a form is downloaded, edited elsewhere and put back as a file."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from sqlalchemy import update
from tests.web.conftest import ChatDesk

from evaldesk.model import JsonObject
from evaldesk.store.tables.sessions import SESSION

LARGE: JsonObject = {"notes": "n" * 5_000_000, "rolls": []}


def large_session(chat: ChatDesk) -> str:
    return f"/sessions/{chat.desk.store.sessions.create('dice', 'Large', LARGE).id}"


def test_a_large_state_is_replaced_by_a_file(chat: ChatDesk) -> None:
    session = large_session(chat)
    page = chat.client.get(session)
    downloaded = chat.client.get(f"{session}/state/file")
    state = downloaded.json() | {"rolls": [6]}

    answer = chat.client.post(f"{session}/state", files={"file": ("state.json", json.dumps(state))})

    assert f'href="{session}/state/file"' in page.text
    assert len(page.content) < 100_000
    assert downloaded.headers["content-disposition"] == 'attachment; filename="state.json"'
    assert answer.status_code == 303
    assert chat.desk.sessions.get(session.rpartition("/")[2]).state == {**LARGE, "rolls": [6]}


@pytest.mark.parametrize(
    ("data", "said"),
    [(b"[1]", "must be an object"), (b'{"a": 1,}', "Line 1"), (b"\xff", "not UTF-8"), (b'{"a": NaN}', "Line 1")],
)
def test_a_file_that_is_no_state_is_refused_beside_the_field(chat: ChatDesk, data: bytes, said: str) -> None:
    session = large_session(chat)

    answer = chat.client.post(f"{session}/state", files={"file": ("state.json", data)})

    assert answer.status_code == 422
    assert said in answer.text
    assert 'id="state-error"' in answer.text
    assert chat.desk.sessions.get(session.rpartition("/")[2]).state == LARGE


def test_a_large_file_that_is_refused_does_not_come_back_with_the_page(chat: ChatDesk) -> None:
    session = large_session(chat)

    answer = chat.client.post(f"{session}/state", files={"file": ("state.json", b'{"a": "' + b"x" * 3_000_000)})

    assert answer.status_code == 422
    assert len(answer.content) < 100_000


def test_a_form_without_a_file_leaves_the_state(chat: ChatDesk) -> None:
    session = large_session(chat)

    answer = chat.client.post(f"{session}/state", files={"file": ("", b"")})

    assert answer.status_code == 422
    assert chat.desk.sessions.get(session.rpartition("/")[2]).state == LARGE


def test_the_id_of_a_session_that_came_with_a_repository_reaches_no_header(chat: ChatDesk) -> None:
    made = large_session(chat).rpartition("/")[2]
    hostile = 'x"\r\nSet-Cookie: a=b; Ж'
    with chat.desk.store._database.writing() as connection:
        connection.execute(update(SESSION).where(SESSION.c.id == made).values(id=hostile))

    answer = chat.client.get(f"/sessions/{quote(hostile)}/state/file")

    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == 'attachment; filename="state.json"'
    assert "set-cookie" not in answer.headers
