"""The form of a scenario case: of ADK, of tau-bench and tau2, as a browser without a script edits them."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tests.islands import of_tools
from tests.web.evalsets.conftest import fields_of

Pages = Any
Json = dict[str, Any]

ADK: Json = {
    "eval_id": "plan",
    "x_owner": "ann",
    "conversation_scenario": {
        "x_first": [1, {"b": None}],
        "starting_prompt": "Hi,\r\nI need  a table",
        "conversation_plan": "Goal: A table for two.\n\nAsk for seven.\n\nThank the agent. ",
        "user_persona": {"id": "NOVICE", "behaviors": [{"name": "slow"}], "x": 1.50},
        "max_turns": 7,
        "user": "ann",
    },
    "required_calls": [{"name": "book", "arguments": {"n": 2, "at": [7, None]}, "compare_args": ["n"], "x_id": "a"}],
    "session_input": {"app_name": "tables", "user_id": "u", "state": {"a": 1}},
    "human_decisions": [],
}
TAU2: Json = {
    "eval_id": "0",
    "conversation_scenario": {
        "starting_prompt": "",
        "conversation_plan": "Persona: Brief\n\nDomain: tables\n\nReason for call: A table.\n\nTask instructions: Now.",
    },
    "user_scenario": {
        "x_kept": True,
        "persona": "Brief",
        "instructions": {"domain": "tables", "reason_for_call": "A table.", "task_instructions": "Now.", "x": [2]},
    },
    "evaluation_criteria": {
        "actions": [
            {"action_id": "0_0", "name": "book", "arguments": {"n": 1}, "info": None},
            {"action_id": "0_1", "name": "pay", "arguments": {"id": "7"}, "info": None},
        ],
        "nl_assertions": ["A table is booked."],
        "reward_basis": ["DB", "ACTION"],
    },
}
TAU: Json = {
    "eval_id": "3",
    "conversation_scenario": {"starting_prompt": "", "conversation_plan": "Book a table."},
    "actions": [{"name": "book", "kwargs": {"n": 1}, "x": 0}],
    "outputs": ["42"],
}
CASES = pytest.mark.parametrize("case", [ADK, TAU2, TAU], ids=["adk", "tau2", "tau-bench"])


def address_of(pages: Pages, case: Json) -> str:
    set_id = pages.write("s.evalset.json", {"eval_set_id": "s", "x": 1, "eval_cases": [case]})
    return str(pages.case_address(set_id, case["eval_id"]))


def stored(pages: Pages) -> Json:
    case: Json = pages.stored("s.evalset.json")["eval_cases"][0]
    return case


@CASES
def test_a_form_that_nobody_changed_leaves_the_file_as_it_is(pages: Pages, case: Json) -> None:
    address = address_of(pages, case)
    data = (pages.folder / "s.evalset.json").read_bytes()

    answer = pages.post(address, pages.fields(address))

    assert answer.status_code == 303
    assert (pages.folder / "s.evalset.json").read_bytes() == data


@CASES
@pytest.mark.parametrize("name", ["opening", "persona", "goal", "plan", "limit", "player", "user_model"])
def test_a_changed_text_is_all_that_changes_and_is_read_back(pages: Pages, case: Json, name: str) -> None:
    address = address_of(pages, case)
    fields = pages.fields(address)
    text = "9" if name == "limit" else f"New {name}"

    answer = pages.post(address, fields | {name: text})

    assert answer.status_code == 303
    now = pages.fields(address)
    assert now[name] == text
    assert {key: value for key, value in now.items() if key not in (name, "version")} == {
        key: value for key, value in fields.items() if key not in (name, "version")
    }
    keys_of_texts = ("conversation_scenario", "user_scenario")
    assert {key: value for key, value in stored(pages).items() if key not in keys_of_texts} == {
        key: value for key, value in case.items() if key not in keys_of_texts
    }


def test_a_task_of_tau2_changes_its_plan_and_its_sections_together(pages: Pages) -> None:
    address = address_of(pages, TAU2)
    assert pages.fields(address)["goal"] == "A table."

    pages.post(address, pages.fields(address) | {"known_info": "You are Ann.", "persona": ""})

    case = stored(pages)
    assert case["user_scenario"] == {
        "x_kept": True,
        "persona": "",
        "instructions": TAU2["user_scenario"]["instructions"] | {"known_info": "You are Ann."},
    }
    assert case["conversation_scenario"]["conversation_plan"] == (
        "Domain: tables\n\nReason for call: A table.\n\nKnown info: You are Ann.\n\nTask instructions: Now."
    )


@of_tools("tau")
def test_an_edited_task_of_tau2_is_exported_as_one(pages: Pages) -> None:
    address = address_of(pages, TAU2)
    pages.post(address, pages.fields(address) | {"goal": "A quiet table.", "action-0-arg-0-value": "2"})

    (task,) = json.loads(pages.desk.evalsets.export(address.split("/")[2], "tau2").data)

    assert task["user_scenario"]["instructions"] == TAU2["user_scenario"]["instructions"] | {
        "reason_for_call": "A quiet table."
    }
    assert task["evaluation_criteria"]["actions"][0]["arguments"] == {"n": 2}
    assert "conversation_scenario" not in task


def test_a_scenario_that_went_its_own_way_leaves_the_task_alone(pages: Pages) -> None:
    case = copy.deepcopy(TAU2)
    case["conversation_scenario"]["conversation_plan"] = "Another plan."
    address = address_of(pages, case)
    assert pages.fields(address)["plan"] == "Another plan."

    pages.post(address, pages.fields(address) | {"plan": "A third plan."})

    assert stored(pages) == case | {
        "conversation_scenario": {"starting_prompt": "", "conversation_plan": "A third plan."}
    }


@pytest.mark.parametrize(
    ("case", "place"),
    [(ADK, ("required_calls",)), (TAU2, ("evaluation_criteria", "actions")), (TAU, ("actions",))],
    ids=["adk", "tau2", "tau-bench"],
)
def test_required_actions_are_added_changed_and_deleted_where_they_stand(
    pages: Pages, case: Json, place: tuple[str, ...]
) -> None:
    address = address_of(pages, case)
    key = "kwargs" if case is TAU else "arguments"

    def rows(of: Json) -> Any:
        for each in place:
            of = of[each]
        return of

    n = len(rows(case))
    fields = pages.fields(address) | {
        "action-0-arg-0-value": "5",
        f"action-{n}-name": "say",
        f"action-{n}-arg-0-name": "word",
        f"action-{n}-arg-0-value": '"é"',
    }

    answer = pages.post(address, fields)

    assert answer.status_code == 303
    first = rows(case)[0]
    expected = [first | {key: first[key] | {"n": 5}}, *rows(case)[1:], {"name": "say", key: {"word": "é"}}]
    assert rows(stored(pages)) == expected
    emptied = {name: value for name, value in pages.fields(address).items() if not name.startswith("action-")}
    pages.post(address, emptied)
    assert (rows(stored(pages)) if case is TAU2 else stored(pages).get(place[0], [])) == []


def test_a_list_of_actions_that_no_form_can_show_stays(pages: Pages) -> None:
    case = TAU | {"actions": [{"name": "book", "kwargs": "n=1"}, 7]}
    address = address_of(pages, case)

    fields = pages.fields(address)
    pages.post(address, fields | {"plan": "Other."})

    assert "actions" not in fields
    assert stored(pages)["actions"] == case["actions"]


@pytest.mark.parametrize(
    ("typed", "field", "sentence"),
    [
        ({"plan": " ", "goal": "", "player": ""}, "plan", "Enter the wish of the user"),
        ({"limit": "many"}, "limit", "Enter a whole number from 1 to 1,000"),
        ({"user_model": "https://x/y"}, "user_model", "Enter the name of a model"),
        ({"user_model": "x" * 201}, "user_model", "Enter the name of a model"),
        ({"limit": "0"}, "limit", "Enter a whole number from 1 to 1,000"),
        ({"limit": "١"}, "limit", "Enter a whole number from 1 to 1,000"),
        ({"limit": "9" * 5_000}, "limit", "Enter a whole number from 1 to 1,000"),
        ({"persona": '{"id": }'}, "persona", "Line 1, column 8"),
        ({"action-0-name": ""}, "action-0-name", "Name the tool."),
        ({"action-0-arg-0-value": "Paris"}, "action-0-arg-0-value", "This is not JSON."),
    ],
    ids=["plan", "words", "address", "model", "zero", "digit", "long", "persona", "tool", "argument"],
)
def test_a_fault_is_said_at_its_field_and_nothing_is_saved(
    pages: Pages, typed: dict[str, str], field: str, sentence: str
) -> None:
    address = address_of(pages, ADK)

    answer = pages.post(address, pages.fields(address) | typed)

    assert answer.status_code == 422
    assert f'<a href="#{field}">' in answer.text
    assert sentence in answer.text
    assert stored(pages) == ADK


def test_buttons_change_the_shape_of_the_actions(pages: Pages) -> None:
    address = address_of(pages, TAU2)
    fields = pages.fields(address)

    moved = fields_of(pages.post(address, fields | {"op": "action-0-down"}).text)
    longer = pages.post(address, fields | {"op": "action-add"}).text
    other = pages.post(address, fields | {"op": "turn-add"})

    assert [moved[f"action-{at}-name"] for at in (0, 1)] == ["pay", "book"]
    assert 'aria-label="Tool of required call 3"' in longer
    assert other.status_code < 500
    assert stored(pages) == TAU2


def test_a_new_scenario_is_written_in_the_form(pages: Pages, calc: str) -> None:
    address = f"/evalsets/{calc}/cases/new"
    fields = pages.fields(f"{address}?kind=scenario")
    typed = {"case": "asks", "opening": "Hello", "goal": "A die roll.", "plan": "Ask twice.", "limit": "4"}

    refused = pages.post(address, fields | {"case": "asks"})
    answer = pages.post(address, fields | typed)

    assert refused.status_code == 422
    assert answer.status_code == 303
    case = pages.stored()["eval_cases"][-1]
    assert case["conversation_scenario"] == {
        "starting_prompt": "Hello",
        "conversation_plan": "Goal: A die roll.\n\nAsk twice.",
        "max_turns": 4,
    }
    assert "conversation" not in case


def test_hostile_texts_come_back_as_they_were_typed(pages: Pages) -> None:
    address = address_of(pages, TAU)
    text = '</textarea><script>alert(1)</script> "quotes" \u202e {{ 7 * 7 }}'

    pages.post(address, pages.fields(address) | {"plan": text, "opening": text, "player": "x" * 300})

    assert stored(pages)["conversation_scenario"] == {
        "starting_prompt": text,
        "conversation_plan": text,
        "user": "x" * 300,
    }
    assert pages.fields(address)["plan"] == text
    assert "<script>alert" not in pages.get(address).text


@pytest.mark.parametrize(
    "plan", ["Goal: ", "Goal: a\n\n", "Goal: a\n\n\nb", "Goal: a\r\n\r\nb", "Goal:a", "goal: a\n\nb"]
)
def test_a_plan_that_only_looks_like_a_goal_is_kept(pages: Pages, plan: str) -> None:
    case = TAU | {"conversation_scenario": {"starting_prompt": "", "conversation_plan": plan}}
    address = address_of(pages, case)

    pages.post(address, pages.fields(address) | {"opening": "Hi"})

    assert stored(pages)["conversation_scenario"]["conversation_plan"] == plan


def test_a_large_scenario_is_shown_as_raw_json(pages: Pages) -> None:
    case = TAU | {"conversation_scenario": {"starting_prompt": "", "conversation_plan": "é" * 1_500_000}}
    address = address_of(pages, case)

    answer = pages.get(address)

    assert answer.headers["location"] == f"{address}/json"
