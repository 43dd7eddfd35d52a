"""The form by which a person decides about what an agent waits for, as a browser without a script uses it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.web.conftest import STREAM, ChatDesk, ScriptedHost

from evaldesk.model import Decision, Event, ToolCall, TurnRecord, TurnSpec, Waiting

CALL = ToolCall("refund", {"order": 7}, "c1")
REFUND = Waiting("c1", "refund", {"order": 7, "note": "<b>broken</b>"}, question="Is it <i>right</i>?")
MANAGER = Waiting("c2", "ask_manager", {}, ("answer",))


@pytest.fixture
def waits(chat: ChatDesk, host: ScriptedHost, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a session whose last turn waits, and a host that answers with the decisions it was given."""

    async def play(spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        host.specs.append(spec)
        said = Event("agent_message", text=f"{len(spec.decisions)} decided")
        yield said
        waited = spec.resumed.events if spec.resumed else ()
        yield TurnRecord(spec.message, (*waited, said), spec.state, spec.state)

    monkeypatch.setattr(host, "play_turn", play)

    def made(*waiting: Waiting) -> str:
        address = chat.new_session()
        events = (Event("tool_call", call=CALL), *(Event("waiting", waiting=each) for each in waiting))
        record = TurnRecord("refund 7", events, {}, {}, 10.0, "awaiting_approval")
        chat.desk.store.sessions.append_turn(address.rpartition("/")[2], record)
        return address

    return made


def fields(page: str) -> dict[str, str]:
    [form] = re.findall(r'<form class="panel"[^>]*/decisions".*?</form>', page, re.DOTALL)
    return dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', form))


def test_the_page_shows_what_waits_with_its_arguments_and_choices(chat: ChatDesk, waits: Any) -> None:
    page = chat.client.get(waits(REFUND)).text

    assert "dice waits for your decision" in page
    assert "&lt;b&gt;broken&lt;/b&gt;" in page
    assert "<b>broken</b>" not in page
    assert "Is it &lt;i&gt;right&lt;/i&gt;?" in page
    assert re.findall(r'name="choice-0" value="(\w+)"', page) == ["approve", "deny", "answer"]
    form = page[page.index("waits for your decision") :]
    assert form.index('value="approve"') < form.index("<details><summary") < form.index('name="reason-0"')
    assert all(
        re.search(rf"<details>(?:(?!</details>).)*name=\"{name}-0\"", form, re.DOTALL) for name in ("reason", "answer")
    )
    assert "waiting for a decision" in page


def test_everything_that_a_person_approves_is_there_to_be_read(chat: ChatDesk, waits: Any) -> None:
    letter = "It arrived broken. " * 100 + "Pay 9,000 EUR."

    page = chat.client.get(waits(Waiting("c1", "refund", {"letter": letter, "copies": list(range(150))}))).text
    form = page[page.index("waits for your decision") :]

    assert form.count(letter) == 2  # in the tree, and in the raw text
    assert "149" in form


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ({"choice-0": "approve", "reason-0": "x", "answer-0": "y"}, Decision("approve")),
        ({"choice-0": "deny", "reason-0": "  Too much. "}, Decision("deny", reason="Too much.")),
        ({"choice-0": "answer", "answer-0": '{"ticket": 7}'}, Decision("answer", answer={"ticket": 7})),
        ({"choice-0": "answer", "answer-0": "yes, do it"}, Decision("answer", answer="yes, do it")),
        ({"choice-0": "answer", "answer-0": '"7"'}, Decision("answer", answer="7")),
    ],
)
def test_a_decision_goes_to_the_player_and_the_turn_is_gone_on_with(
    chat: ChatDesk, waits: Any, typed: dict[str, str], decision: Decision
) -> None:
    session = waits(REFUND)

    answer = chat.client.post(f"{session}/decisions", data=fields(chat.client.get(session).text) | typed)
    chat.client.get(f"{session}/events?after=0", headers=STREAM)
    page = chat.client.get(session).text

    assert (answer.status_code, answer.headers["location"]) == (303, f"{session}#turn-1")
    assert [spec.decisions for spec in chat.host.specs] == [(decision,)]
    assert "1 decided" in page
    assert 'id="turn-2"' not in page
    assert "waits for your decision" not in page


def test_two_things_are_decided_together(chat: ChatDesk, waits: Any) -> None:
    session = waits(REFUND, MANAGER)
    hidden = fields(chat.client.get(session).text)

    half = chat.client.post(f"{session}/decisions", data=hidden)
    typed = {"choice-0": "deny", "answer-1": "5"}
    whole = chat.client.post(f"{session}/decisions", data=hidden | typed)

    assert hidden["choice-1"] == "answer"
    assert half.status_code == 422
    assert "Decide every waiting call" in half.text
    assert whole.status_code == 303
    assert [spec.decisions for spec in chat.host.specs] == [(Decision("deny"), Decision("answer", answer=5))]


def test_an_old_page_decides_nothing(chat: ChatDesk, waits: Any) -> None:
    session = waits(REFUND)
    old = fields(chat.client.get(session).text)
    chat.client.post(f"{session}/decisions", data=old | {"choice-0": "approve"})

    again = chat.client.post(f"{session}/decisions", data=old | {"choice-0": "approve"})

    assert again.status_code == 409
    assert len(chat.host.specs) == 1


@pytest.mark.parametrize("typed", [{}, {"choice-0": "maybe"}, {"choice-9": "approve"}, {"choice-x": "approve"}])
def test_a_form_without_a_decision_is_refused(chat: ChatDesk, waits: Any, typed: dict[str, str]) -> None:
    session = waits(REFUND)

    answer = chat.client.post(f"{session}/decisions", data=fields(chat.client.get(session).text) | typed)

    assert answer.status_code == 422
    assert chat.host.specs == []


def test_other_ways_to_ask_are_refused(chat: ChatDesk, waits: Any) -> None:
    session = waits(REFUND)

    assert chat.client.get(f"{session}/decisions").status_code == 405
    assert chat.client.post("/sessions/none/decisions").status_code == 404
    foreign = chat.client.post(f"{session}/decisions", headers={"Origin": "http://evil.example"})
    assert foreign.status_code == 403


def test_the_stream_of_a_turn_that_waits_brings_the_form(chat: ChatDesk, host: ScriptedHost, monkeypatch: Any) -> None:
    async def play(spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        event = Event("waiting", waiting=REFUND)
        yield event
        yield TurnRecord(spec.message, (event,), spec.state, spec.state, 1.0, "awaiting_approval")

    monkeypatch.setattr(host, "play_turn", play)

    stream = chat.say(chat.new_session(), "refund 7")

    assert 'hx-swap-oob="innerHTML:#deciding"' in stream
    assert "dice waits for your decision" in stream
    assert "dice: waits for a decision" in stream
