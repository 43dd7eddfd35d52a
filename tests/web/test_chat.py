"""Chatting: sessions, messages, the streamed answer, and what a person does with them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.model import Change, ErrorRecord, Event, ToolCall, Usage
from evaldesk.web.routes import sessions as routes

STREAM = {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
ROLL = ToolCall("roll_die", {"sides": 6}, "call-1")
ANSWER = Event("agent_message", 40, "dice", text="You rolled a 4.\nAgain?")
ROLLED = (
    Event("tool_call", 10, call=ROLL),
    Event("tool_result", 22, call=ROLL, result=4, duration_ms=12),
    Event("state_delta", 23, changes=(Change("rolls", [], [4]),)),
    Event("usage", 40, usage=Usage("demo/dice", tokens_in=1204, tokens_out=61, cost=0.0, duration_ms=20)),
    ANSWER,
)


def test_a_foreign_page_cannot_send_a_message(chat: Any) -> None:
    session = chat.new_session()

    answer = chat.client.post(f"{session}/turns", data={"message": "x"}, headers={"Origin": "http://evil.example"})

    assert answer.status_code == 403
    assert chat.host.specs == []


def test_older_sessions_are_on_pages_of_their_own(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = [chat.new_session() for _ in range(3)]
    listed = chat.desk.store.sessions.list
    monkeypatch.setattr(routes, "PAGE_SIZE", 2)
    monkeypatch.setattr(chat.desk.store.sessions, "list", lambda before, limit: listed(before=before, limit=2))

    newest = chat.client.get(sessions[2]).text
    older = re.search(r'href="([^"]+)" rel="next">Older sessions<', newest)
    assert older
    oldest = chat.client.get(older[1]).text

    assert [f'<a href="{address}"' in newest for address in sessions] == [False, True, True]
    assert f'<a href="{sessions[0]}"' in oldest
    assert "Older sessions" not in oldest


def test_the_answer_to_a_message_is_a_stream_that_ends_with_the_stored_turn(chat: Any) -> None:
    chat.host.events = ROLLED
    chat.host.state_after = {"rolls": [4]}
    session = chat.new_session('{"rolls": []}')

    stream = chat.say(session)

    assert "roll_die(sides=6)" in stream
    assert 'hx-swap-oob="beforeend:#turns"' in stream
    assert "You rolled a 4.\ndata: Again?" in stream
    assert stream.endswith("event: done\ndata: done\n\n")
    page = chat.client.get(session).text
    assert "You rolled a 4.\nAgain?</p>" in page
    assert "<b>You</b>" in page
    assert "<del>[]</del> <ins>[4]</ins>" in page
    assert "1,204 in, 61 out" in page
    assert f'href="{session}/case"' in page


def test_a_page_is_given_the_turns_that_another_page_played(chat: Any) -> None:
    chat.host.events = (ANSWER,)
    session = chat.new_session()
    chat.say(session, "from one page")

    told = chat.client.post(f"{session}/turns", data={"message": "from another", "after": "0"}, headers=STREAM).text
    more = chat.client.post(f"{session}/turns", data={"message": "and on", "after": "2"}, headers=STREAM).text

    assert [n for n in (1, 2, 3) if f'<li id="turn-{n}" data-row' in told.partition("beforeend:#turns")[2]] == [1, 2]
    assert [n for n in (1, 2, 3) if f'<li id="turn-{n}" data-row' in more.partition("beforeend:#turns")[2]] == [3]
    assert '<input type="hidden" name="after" value="3">' in more


def test_parts_of_a_stream_carry_no_attribute_that_htmx_would_obey(chat: Any) -> None:
    chat.host.events = ROLLED

    stream = chat.say(chat.new_session())

    assert set(re.findall(r"\shx-[a-z:-]+", stream)) == {" hx-swap-oob"}


def test_what_an_agent_says_is_text_and_never_markup(chat: Any) -> None:
    hostile = '<img src=x onerror=alert(1)><hx-partial hx-target="body">'
    call = ToolCall(hostile, {hostile: hostile}, "c")
    chat.host.events = (
        Event("tool_call", 1, call=call),
        Event("tool_result", 2, call=call, result=hostile, duration_ms=1),
        Event("state_delta", 3, changes=(Change(hostile, None, hostile, was_present=False),)),
        Event("log", 3, text=hostile),
        Event("agent_message", 4, hostile, text=hostile),
        Event("error", 5, error=ErrorRecord("kind", hostile, hostile)),
    )
    session = chat.new_session()

    shown = chat.say(session, hostile) + chat.client.get(session).text

    assert "onerror" in shown
    assert "<img" not in shown
    assert "<hx-partial" not in shown


def test_a_browser_without_a_script_is_sent_back_to_the_turn(chat: Any) -> None:
    session = chat.new_session()

    answer = chat.client.post(f"{session}/turns", data={"message": "Roll"})

    assert answer.status_code == 303
    assert answer.headers["location"] == f"{session}#turn-1"


@pytest.mark.parametrize("headers", [STREAM, {}], ids=["script", "plain"])
def test_an_empty_message_is_refused_beside_the_composer(chat: Any, headers: dict[str, str]) -> None:
    session = chat.new_session()

    answer = chat.client.post(f"{session}/turns", data={"message": "  \n"}, headers=headers)

    assert answer.status_code == 422
    assert "A message needs text or a file." in answer.text
    assert chat.host.specs == []


def test_a_running_turn_is_shown_can_be_stopped_and_is_kept(chat: Any) -> None:
    chat.host.events = ROLLED[:1]
    chat.host.waits = True
    session = chat.new_session()
    chat.client.post(f"{session}/turns", data={"message": "Roll for ever"})

    page = chat.client.get(session).text
    second = chat.client.post(f"{session}/turns", data={"message": "And now?"})
    stopped = chat.client.post(f"{session}/cancellation", headers={"HX-Request": "true"})
    stream = chat.client.get(f"{session}/events?after=0").text

    assert "Roll for ever" in page
    assert "data-stop" in page
    assert f'hx-sse:connect="{session}/events?after=0"' in page
    assert second.status_code == 409
    assert "still answering" in second.text
    assert "And now?" in second.text
    assert stopped.status_code == 204
    assert "This turn was stopped" in stream
    assert stream.endswith("event: done\ndata: done\n\n")
    assert "This turn was stopped" in chat.client.get(session).text


def test_while_a_turn_runs_its_session_is_neither_edited_nor_deleted(chat: Any) -> None:
    chat.host.waits = True
    session = chat.new_session()
    chat.client.post(f"{session}/turns", data={"message": "Roll"})

    edited = chat.client.post(f"{session}/state", data={"state": '{"a": 1}'})
    deleted = chat.client.post(f"{session}/deletion")

    assert (edited.status_code, deleted.status_code) == (409, 409)


def test_stopping_where_nothing_runs_changes_nothing(chat: Any) -> None:
    session = chat.new_session()

    assert chat.client.post(f"{session}/cancellation").status_code == 303


def test_an_agent_that_raises_shows_its_trace_and_the_session_goes_on(chat: Any) -> None:
    chat.host.raises = RuntimeError("the tool said no\nTraceback: agent.py, line 9")
    session = chat.new_session()

    broken = chat.say(session)
    chat.host.raises, chat.host.events = None, (ANSWER,)
    well = chat.say(session)

    first_thing = f'data-kind="primary" href="{session}/case"'
    assert (first_thing in broken, first_thing in well) == (False, True)
    assert "The turn errored" in broken
    assert "agent.py, line 9" in broken
    assert "You rolled a 4." in well
    assert chat.client.get(session).text.count('<li id="turn-') == 2


def test_too_many_open_streams_are_told_to_come_back(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    session = chat.new_session()
    monkeypatch.setattr("evaldesk.web.live.MAX_STREAMS", 0)

    watched = chat.client.get(f"{session}/events?after=0")
    sent = chat.client.post(f"{session}/turns", data={"message": "x"}, headers=STREAM)

    assert (watched.status_code, watched.headers["retry-after"]) == (503, "5")
    assert (sent.status_code, chat.host.specs) == (503, [])
    assert "composer-note" in sent.text


def test_tokens_of_a_turn_with_a_call_that_tells_none_are_at_least_so_many(chat: Any) -> None:
    session, least = chat.new_session(), Event("usage", 40, usage=Usage("unknown", is_least=True))
    said = ". Tokens are at least so many, a call did not tell its own: turn 2, 3<"

    pages = []
    for events in (ROLLED, (*ROLLED, least), (*ROLLED, least)):
        chat.host.events = events
        chat.say(session)
        pages.append(chat.client.get(session).text)

    assert [said in page for page in pages] == [False, False, True]
    assert "at least 0 in, 0 out" in pages[1]
