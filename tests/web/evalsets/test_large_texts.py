"""Long messages, answers and arguments stay at the server: no form of a case is larger than one may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from tests.web.evalsets.conftest import fields_of

from evaldesk.model import Event, ToolCall, TurnRecord
from evaldesk.web.guard import MAX_BODY

pytestmark = pytest.mark.long

Pages = Any

MESSAGE = "Ask\r\n" + "m" * 2_000_000 + "\r\nÄ€😀\x00\r"
SAID = "\n\nWait. " + "w" * 1_000_000
ANSWER = "  Done.\n" + "é" * 500_000 + "\n\n"
ARGUMENT = "a" * 1_000_000 + "\r\n"
CALL = ToolCall("store", {"text": ARGUMENT}, "c1")
RESULT = "r" * 5_000_000
STATE = {"log": "s" * 1_000_000}


@pytest.fixture
def session(pages: Pages) -> str:
    """The page that adds a session with messages, an answer, a tool result and a state of megabytes."""
    sessions = pages.desk.store.sessions
    made = sessions.create("dice", "Long", STATE)
    events = (
        Event("agent_message", 0, "dice", SAID),
        Event("tool_call", 1, "dice", call=CALL),
        Event("tool_result", 2, "dice", call=CALL, result={"found": RESULT}),
        Event("agent_message", 3, "dice", ANSWER),
    )
    sessions.append_turn(made.id, TurnRecord(MESSAGE, events, STATE, {**STATE, "n": 1}))
    short = (Event("agent_message", 0, "dice", "One\r\ntwo\rthree\n"),)
    sessions.append_turn(made.id, TurnRecord("Short\r\nlines\0\r\n", short, STATE, {**STATE, "n": 1}))
    return f"/sessions/{made.id}/case"


def added(pages: Pages) -> Any:
    """The case that was added last, as the desk reads it."""
    (evalset,) = pages.desk.evalsets.list()
    return pages.desk.evalsets.read(evalset.id)[0].cases[-1]


def test_long_messages_answers_and_tool_results_become_a_case_byte_for_byte(pages: Pages, session: str) -> None:
    page, fields = pages.get(session), pages.fields(session)

    answer = pages.post(session, fields)

    first, second = added(pages).turns
    assert answer.status_code == 303
    assert (first.query, first.expected.reference) == (MESSAGE, ANSWER)
    assert first.expected.intermediate == (("dice", SAID),)
    assert first.expected.tool_calls == (ToolCall("store", {"text": ARGUMENT}),)
    assert (second.query, second.expected.reference) == ("Short\r\nlines\0\r\n", "One\r\ntwo\rthree\n")
    assert added(pages).initial_state == STATE
    assert (len(page.content) < 200_000, len(urlencode(fields)) < 10_000) == (True, True)


def test_the_preview_and_a_refused_form_are_short_too(pages: Pages, session: str) -> None:
    fields = pages.fields(session)
    preview = pages.client.post(f"{session}/preview", data=fields, headers={"HX-Target": "aside#saved"})
    refused = pages.post(session, fields | {"case": ""})

    pages.post(session, fields_of(refused.text) | {"case": "again"})

    assert (len(preview.content) < 200_000, len(refused.content) < 200_000) == (True, True)
    assert (added(pages).id, added(pages).turns[0].query) == ("again", MESSAGE)


def test_the_beginning_of_a_long_text_is_shown(pages: Pages, session: str) -> None:
    text = pages.get(session).text

    assert "It begins: Ask mmm" in text
    assert "It begins: Wait. www" in text
    assert "It begins: Done. ééé" in text


def test_a_long_answer_that_is_unticked_is_not_judged(pages: Pages, session: str) -> None:
    fields = pages.fields(session)
    del fields["turn-0-reference-kept"], fields["turn-0-intermediate-0-kept"]

    pages.post(session, fields)

    assert added(pages).turns[0].expected.reference is None
    assert added(pages).turns[0].expected.intermediate == ()


@pytest.mark.parametrize("name", ["turn-0-query", "turn-0-reference", "turn-0-intermediate-0-text"])
def test_a_text_that_changed_meanwhile_is_named_and_not_saved(pages: Pages, session: str, name: str) -> None:
    answer = pages.post(session, pages.fields(session) | {f"{name}-digest": "0" * 64})

    assert answer.status_code == 422
    assert f'id="{name}-error"' in answer.text
    assert "changed meanwhile" in answer.text
    assert not pages.desk.evalsets.list()


def test_a_long_text_of_a_case_stays_in_its_file(pages: Pages, session: str) -> None:
    pages.post(session, pages.fields(session))
    (evalset,) = pages.desk.evalsets.list()
    address = pages.case_address(evalset.id, added(pages).id)
    before, fields = added(pages), pages.fields(address)

    moved = pages.post(address, fields | {"op": "turn-1-up"})
    answer = pages.post(address, fields_of(moved.text) | {"tags": "slow"})

    assert answer.status_code == 303
    assert len(moved.content) < 200_000
    assert added(pages).tags == ("slow",)
    assert added(pages).turns == tuple(reversed(before.turns))


def of_many_turns() -> list[TurnRecord]:
    return [TurnRecord(f"Turn {index}", (Event("agent_message", 1, "dice", "Yes."),), {}, {}) for index in range(300)]


def of_many_calls() -> list[TurnRecord]:
    calls = tuple(Event("tool_call", 0, "dice", call=ToolCall("roll", {"n": index})) for index in range(150))
    return [
        TurnRecord(
            "Roll",
            (
                *calls,
                Event("agent_message", 1, "dice", "Yes."),
            ),
            {},
            {},
        )
    ]


def of_many_characters() -> list[TurnRecord]:
    events = tuple(Event("agent_message", 0, "dice", "€" * 300) for _ in range(90))
    return [TurnRecord(f"Talk {index}", events, {}, {}) for index in range(50)]


@pytest.mark.parametrize("records", [of_many_turns, of_many_calls, of_many_characters])
def test_a_session_that_no_form_can_send_is_added_whole(pages: Pages, records: Callable[[], list[TurnRecord]]) -> None:
    sessions = pages.desk.store.sessions
    made = sessions.create("dice", "Whole", {"a": 1})
    for record in records():
        sessions.append_turn(made.id, record)
    address = f"/sessions/{made.id}/case"
    page, fields = pages.get(address), pages.fields(address)

    preview = pages.client.post(f"{address}/preview", data=fields, headers={"HX-Target": "aside#saved"})
    answer = pages.post(address, fields | {"case": "whole", "tags": "long"})

    assert "too long to edit here" in page.text
    assert preview.status_code == 200
    assert (answer.status_code, added(pages).id, added(pages).tags) == (303, "whole", ("long",))
    recorded = [(turn.query, turn.tool_calls, turn.intermediate, turn.answer) for turn in records()]
    found = [
        (turn.query, turn.expected.tool_calls, turn.expected.intermediate, turn.expected.reference)
        for turn in added(pages).turns
    ]
    assert found == recorded


def test_a_whole_session_keeps_the_name_that_was_refused_and_leaves_out_unfinished_turns(pages: Pages) -> None:
    sessions = pages.desk.store.sessions
    made = sessions.create("dice", "Whole", {})
    for record in of_many_turns():
        sessions.append_turn(made.id, record)
    sessions.append_turn(made.id, TurnRecord("Broken", (), {}, {}, 1.0, "error"))
    address = f"/sessions/{made.id}/case"

    refused = pages.post(address, pages.fields(address) | {"case": "", "tags": "kept"})
    pages.post(address, fields_of(refused.text) | {"case": "named"})

    assert refused.status_code == 422
    assert (added(pages).id, added(pages).tags, len(added(pages).turns)) == ("named", ("kept",), 300)


def test_a_case_of_many_small_parts_opens_as_raw_json(pages: Pages) -> None:
    use = {"name": "roll", "args": {}}
    said = {"user_content": {"parts": [{"text": "q"}]}, "intermediate_data": {"tool_uses": [use] * 150}}
    cases = [{"eval_id": "many", "conversation": [said]}]
    set_id = pages.write("many.evalset.json", {"eval_set_id": "many", "eval_cases": cases})

    answer = pages.get(pages.case_address(set_id, "many"))

    assert answer.headers["location"].endswith("/json")


@pytest.mark.parametrize("character", ["x", "é", "€", "😀", "\n", '"', "\x01", "%"])
@pytest.mark.parametrize("n_turns", [1, 4, 8])
def test_a_form_that_is_shown_may_be_sent(pages: Pages, character: str, n_turns: int) -> None:
    texts = [character * 990] * 100
    said = {
        "user_content": {"parts": [{"text": "Ask"}]},
        "intermediate_data": {"intermediate_responses": [["dice", [{"text": text}]] for text in texts]},
    }
    case = {"eval_id": "talk", "conversation": [said] * n_turns}
    set_id = pages.write("talk.evalset.json", {"eval_set_id": "talk", "eval_cases": [case]})
    address = pages.case_address(set_id, "talk")
    page = pages.get(address)

    if page.status_code == 303:
        assert page.headers["location"].endswith("/json")
    else:
        assert len(urlencode(fields_of(page.text))) <= MAX_BODY - 1_000_000
        assert pages.post(address, fields_of(page.text) | {"tags": "sent"}).status_code == 303
