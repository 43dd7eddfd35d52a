"""Add a session to an eval set, as a browser without a script does it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from evaldesk.model import Decision, ErrorRecord, Event, StopReason, ToolCall, TurnRecord, Waiting

Pages = Any


@pytest.fixture
def session(pages: Pages) -> str:
    """The id of a session: a turn with a call, a turn without, and one that broke off."""
    sessions = pages.desk.store.sessions
    start: dict[str, Any] = {"sides": 6, "rolls": []}
    after: dict[str, Any] = {"sides": 6, "rolls": [4]}
    made = sessions.create("dice", "Roll & check", start)
    call = Event("tool_call", 1, "dice", call=ToolCall("roll_die", {"sides": 6, "note": "a"}, "call-77"))
    first = Event("agent_message", 0, "dice", "Let me roll.")
    answer = Event("agent_message", 2, "dice", "You rolled 4.")
    sessions.append_turn(made.id, TurnRecord("Roll", (first, call, answer), start, after))
    sessions.append_turn(made.id, TurnRecord("Thanks", (Event("agent_message", 1, "dice", "Welcome."),), after, after))
    broken = (Event("error", 1, error=ErrorRecord("agent", "boom")),)
    sessions.append_turn(made.id, TurnRecord("Again", broken, after, {"sides": 7}, 1.0, "error"))
    return str(made.id)


@pytest.fixture
def address(session: str) -> str:
    return f"/sessions/{session}/case"


def test_the_page_proposes_a_name_what_was_finished_and_the_states(pages: Pages, calc: str, address: str) -> None:
    fields = pages.fields(address)

    assert fields["case"] == "roll_check"
    assert fields["evalset"] == calc
    assert (fields["turn-0-calls"], fields["turn-1-calls"]) == ("calls", "no_tool")
    assert ("turn-0-kept" in fields, "turn-2-kept" in fields) == (True, False)
    assert '"rolls": []' in fields["initial"]
    assert fields["final"] == '{\r\n  "rolls": [4]\r\n}'
    assert "it ended in an error" in pages.get(address).text


def test_a_state_that_was_edited_between_turns_is_said_at_its_turn(pages: Pages, calc: str) -> None:
    sessions = pages.desk.store.sessions
    made = sessions.create("dice", "Roll", {"user": "Ada"})
    sessions.append_turn(made.id, TurnRecord("Roll", (), {"user": "Ada"}, {"user": "Ada"}))
    sessions.append_turn(made.id, TurnRecord("Again", (), {"<b>": 1}, {"<b>": 1, "rolls": [4]}))
    address = f"/sessions/{made.id}/case"

    page = pages.get(address).text

    assert page.count("of the state before this turn. A trial does not do that.") == 1
    assert "You changed user, &lt;b&gt; of the state" in page.partition('id="turn-1"')[2]
    assert pages.fields(address)["final"] == '{\r\n  "rolls": [4]\r\n}'


def test_the_decisions_of_the_chat_become_those_of_the_case(pages: Pages, calc: str) -> None:
    sessions = pages.desk.store.sessions
    made = sessions.create("dice", "Refund", {})
    waiting = Waiting("c1", "refund", {"order": 7})
    reasons: dict[str, StopReason] = {"stopped": "cancelled", "refund": "answered"}
    for query, reason in reasons.items():
        decided = Event("decision", waiting=waiting, decision=Decision("deny", "refund", reason=query))
        events = (Event("waiting", waiting=waiting), decided, Event("agent_message", text="done"))
        sessions.append_turn(made.id, TurnRecord(query, events, {}, {}, 1.0, reason))
    address = f"/sessions/{made.id}/case"

    fields = pages.fields(address)
    answer = pages.post(address, fields)

    assert fields["turn-1-decision-0-value"] == "refund"
    assert answer.status_code == 303
    assert pages.stored()["eval_cases"][2]["human_decisions"] == [
        {"turn": 1, "tool": "refund", "decision": "deny", "reason": "refund"}
    ]


def test_what_is_shown_is_what_is_saved_with_the_state_the_session_started_from(
    pages: Pages, calc: str, session: str, address: str
) -> None:
    answer = pages.post(address, pages.fields(address))

    case = pages.stored()["eval_cases"][2]
    first, second = case["conversation"]
    assert answer.status_code == 303
    assert case["session_input"] == {"app_name": "dice", "user_id": "user", "state": {"sides": 6, "rolls": []}}
    assert case["final_session_state"] == {"rolls": [4]}
    assert first["intermediate_data"]["tool_uses"] == [{"name": "roll_die", "args": {"sides": 6, "note": "a"}}]
    assert first["intermediate_data"]["intermediate_responses"] == [["dice", [{"text": "Let me roll."}]]]
    assert first["final_response"]["parts"] == [{"text": "You rolled 4."}]
    assert second["intermediate_data"]["tool_uses"] == []
    added = pages.desk.store.sessions.get(session).added_to
    assert [(each.evalset_id, each.case_id) for each in added] == [(calc, "roll_check")]


def test_after_saving_the_set_offers_to_run_the_case(pages: Pages, calc: str, address: str) -> None:
    answer = pages.post(address, pages.fields(address))

    text = pages.get(answer.headers["location"]).text

    assert "was added to calc" in text
    assert f"/runs/new?evalset={calc}&amp;case=roll_check&amp;n=5&amp;agent=dice" in text


def test_add_and_run_asks_by_which_agent_where_the_sessions_own_is_gone(pages: Pages, calc: str, address: str) -> None:
    answer = pages.post(address, pages.fields(address) | {"then": "run"})

    assert answer.headers["location"] == f"/runs/new?evalset={calc}&case=roll_check&n=5&agent=dice"


def test_what_is_unticked_is_left_out_and_what_is_edited_is_saved(pages: Pages, calc: str, address: str) -> None:
    fields = pages.fields(address) | {
        "case": "mine",
        "turn-0-call-0-arg-0-value": "20",
        "turn-0-reference": "",
        "initial": "{}",
        "final": "",
        "tags": "smoke",
    }
    fields = fields | {"op": "turn-0-call-0-arg-1-delete"}
    del fields["turn-1-kept"], fields["turn-0-intermediate-0-kept"]

    dropped = pages.post(address, fields)
    del fields["op"], fields["turn-0-call-0-arg-1-name"], fields["turn-0-call-0-arg-1-value"]
    pages.post(address, fields)

    case = pages.stored()["eval_cases"][2]
    (turn,) = case["conversation"]
    assert "turn-0-call-0-arg-1-value" not in dropped.text
    assert case["eval_id"] == "mine"
    assert case["tags"] == ["smoke"]
    assert "final_session_state" not in case
    assert "final_response" not in turn
    assert turn["intermediate_data"] == {"tool_uses": [{"name": "roll_die", "args": {"sides": 20}}]}


def test_the_focus_goes_on_where_an_argument_was_dropped(pages: Pages, calc: str, address: str) -> None:
    fields = pages.fields(address) | {"op": "turn-0-call-0-arg-0-delete"}
    focused = re.compile(r'<(?:input|textarea)[^>]*name="([^"]+)"[^>]* autofocus')
    n_args = sum(bool(re.fullmatch(r"turn-0-call-0-arg-\d+-name", name)) for name in fields)

    for n_left in reversed(range(n_args)):
        page = pages.post(address, fields)
        expected = "turn-0-call-0-arg-0-value" if n_left else "turn-0-call-0-kept"
        assert focused.findall(page.text) == [expected]
        del fields[f"turn-0-call-0-arg-{n_left}-name"], fields[f"turn-0-call-0-arg-{n_left}-value"]


def test_unticking_the_only_call_of_these_calls_is_a_problem(pages: Pages, calc: str, address: str) -> None:
    fields = pages.fields(address)
    del fields["turn-0-call-0-kept"]

    assert pages.post(address, fields).status_code == 422


def test_unticking_every_turn_is_a_problem(pages: Pages, calc: str, address: str) -> None:
    fields = {name: value for name, value in pages.fields(address).items() if not name.endswith("-kept")}

    answer = pages.post(address, fields)

    assert answer.status_code == 422
    assert "at least one turn" in answer.text


@pytest.mark.parametrize(
    ("choice", "names"),
    [("free", ["roll_check", "roll_check_2"]), ("overwrite", ["roll_check"])],
)
def test_a_case_name_that_exists_is_answered_with_a_choice(
    pages: Pages, calc: str, address: str, choice: str, names: list[str]
) -> None:
    typed = pages.fields(address) | {"turn-0-reference": "typed"}
    pages.post(address, typed)

    asked = pages.post(address, typed)
    answer = pages.post(address, typed | {"choice": choice})

    assert asked.status_code == 409
    assert "Keep both, this one as roll_check_2" in asked.text
    assert "typed" in asked.text
    assert answer.status_code == 303
    assert [case["eval_id"] for case in pages.stored()["eval_cases"][2:]] == names


def test_the_proposed_name_is_free_in_the_chosen_set(pages: Pages, calc: str, address: str) -> None:
    pages.post(address, pages.fields(address))

    assert pages.fields(f"{address}?evalset={calc}")["case"] == "roll_check_2"


def test_a_new_set_is_made_with_the_case(pages: Pages, calc: str, address: str) -> None:
    answer = pages.post(address, pages.fields(address) | {"evalset": "new", "new-set": "mine"})

    assert answer.status_code == 303
    assert [case["eval_id"] for case in pages.stored("mine.evalset.json")["eval_cases"]] == ["roll_check"]


@pytest.mark.parametrize(("name", "status"), [("calc", 409), ("../x", 422), ("", 422)])
def test_a_new_set_that_cannot_be_is_a_problem_of_its_field(
    pages: Pages, calc: str, address: str, name: str, status: int
) -> None:
    answer = pages.post(address, pages.fields(address) | {"evalset": "new", "new-set": name})

    assert answer.status_code == status
    assert 'id="new-set-error"' in answer.text
    assert [path.name for path in pages.folder.iterdir()] == ["calc.evalset.json"]


def test_without_any_set_a_new_one_is_proposed(pages: Pages, address: str) -> None:
    fields = pages.fields(address)

    assert (fields["evalset"], fields["new-set"]) == ("new", "dice")


def test_the_preview_says_what_would_be_saved_and_saves_nothing(pages: Pages, calc: str, address: str) -> None:
    fields = pages.fields(address)
    del fields["turn-1-kept"]
    before = pages.stored()

    answer = pages.client.post(f"{address}/preview", data=fields, headers={"HX-Target": "aside#saved"})

    assert "1 of 3" in answer.text
    assert "<html" not in answer.text
    assert pages.stored() == before


def test_without_a_script_the_preview_is_the_whole_form(pages: Pages, calc: str, address: str) -> None:
    answer = pages.client.post(f"{address}/preview", data=pages.fields(address))

    assert (answer.status_code, "<html" in answer.text) == (200, True)


def test_a_secret_in_what_would_be_saved_is_pointed_out_without_showing_it_again(
    pages: Pages, calc: str, address: str
) -> None:
    fields = pages.fields(address) | {"turn-0-reference": "the key is very-secret-value"}

    answer = pages.client.post(f"{address}/preview", data=fields, headers={"HX-Target": "aside#saved"})

    assert "check before saving" in answer.text
    assert "[MODEL_API_KEY]" in answer.text


def test_a_session_without_turns_says_what_to_do(pages: Pages) -> None:
    empty = pages.desk.store.sessions.create("dice", "", {})

    assert "No turns yet" in pages.get(f"/sessions/{empty.id}/case").text


def test_a_session_that_is_not_there_is_404(pages: Pages) -> None:
    assert pages.get("/sessions/nothing/case").status_code == 404
    assert pages.post("/sessions/nothing/case").status_code == 404
    assert pages.get("/sessions/nothing/case/preview").status_code == 405


@pytest.fixture
def large_session(pages: Pages) -> str:
    """The id of a session with a state of 5 MB, of which a turn changed a key of 2 MB."""
    start: dict[str, Any] = {"notes": "n" * 3_000_000, "log": ["e" * 100] * 20_000, "rolls": []}
    made = pages.desk.store.sessions.create("dice", "Large", start)
    answer = Event("agent_message", 1, "dice", "Done.")
    after = {**start, "log": ["f" * 100] * 20_000}
    pages.desk.store.sessions.append_turn(made.id, TurnRecord("Roll", (answer,), start, after))
    return str(made.id)


@pytest.mark.long
def test_a_state_of_5_mb_becomes_a_case_and_never_travels(pages: Pages, calc: str, large_session: str) -> None:
    address = f"/sessions/{large_session}/case"
    page = pages.get(address)
    fields = pages.fields(address)

    answer = pages.post(address, fields | {"evalset": calc, "case": "large"})

    assert len(page.content) < 150_000
    assert sum(map(len, fields.values())) < 5_000
    assert answer.status_code == 303
    saved = next(case for case in pages.stored()["eval_cases"] if case["eval_id"] == "large")
    assert saved["session_input"]["state"]["notes"] == "n" * 3_000_000
    assert saved["final_session_state"] == {"log": ["f" * 100] * 20_000}


@pytest.mark.long
def test_a_large_state_that_is_unticked_is_left_out(pages: Pages, calc: str, large_session: str) -> None:
    address = f"/sessions/{large_session}/case"
    fields = pages.fields(address)
    del fields["initial-kept"], fields["final-kept"]

    pages.post(address, fields | {"evalset": calc, "case": "small"})

    saved = next(case for case in pages.stored()["eval_cases"] if case["eval_id"] == "small")
    assert "final_session_state" not in saved
    assert not saved["session_input"].get("state")


@pytest.mark.long
def test_a_large_state_that_changed_meanwhile_is_not_saved(pages: Pages, calc: str, large_session: str) -> None:
    address = f"/sessions/{large_session}/case"
    fields = pages.fields(address)

    answer = pages.post(address, fields | {"evalset": calc, "case": "large", "initial-digest": "0" * 64})

    assert answer.status_code == 422
    assert "changed meanwhile" in answer.text
    assert all(case["eval_id"] != "large" for case in pages.stored()["eval_cases"])
