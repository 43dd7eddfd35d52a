"""ADK's new form: what an edit changes in the file, and what it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace

from evaldesk.formats import (
    shown_extra,
    write_evalset,
)
from evaldesk.model import SessionInit, ToolCall

from .adk_sets import EVENTS, read, set_of, turn_of, written_turn


def test_editing_a_text_keeps_pictures_thoughts_and_roles() -> None:
    picture = {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}
    query = {"role": "user", "parts": [picture, {"text": "what is this?", "video_metadata": None}]}
    answer = {"parts": [{"text": "hm", "thought": True}, {"text": "a cat"}], "role": None}
    turn = turn_of({"user_content": query, "final_response": answer})
    assert (turn.query, turn.expected.reference) == ("what is this?", "hm\na cat")

    edited = replace(turn, query="and this?", expected=replace(turn.expected, reference="hm\na dog"))

    assert written_turn(edited) == {
        "user_content": {"role": "user", "parts": [picture, {"text": "and this?", "video_metadata": None}]},
        "final_response": {"parts": [{"text": "hm", "thought": True}, {"text": "a dog"}], "role": None},
    }


def test_removing_a_reference_keeps_its_other_parts() -> None:
    call = {"function_call": {"name": "ask", "args": {}}}
    turn = turn_of({"final_response": {"parts": [{"text": "x"}, call], "role": "model"}})

    written = written_turn(replace(turn, expected=replace(turn.expected, reference=None)))

    assert written["final_response"] == {"parts": [call], "role": "model"}


def test_editing_one_recorded_call_leaves_the_other_events_alone() -> None:
    turn = turn_of({"intermediate_data": EVENTS})
    assert turn.expected.intermediate == (("agent", "let me roll"),)
    roll, check = turn.expected.tool_calls or ()

    edited = replace(turn, expected=replace(turn.expected, tool_calls=(replace(roll, args={"sides": 20}), check)))

    events = json.loads(json.dumps(EVENTS).replace('"sides": 6', '"sides": 20'))
    assert written_turn(edited)["intermediate_data"] == events


def test_removing_a_recorded_call_removes_its_result_with_it() -> None:
    turn = turn_of({"intermediate_data": EVENTS})
    _, check = turn.expected.tool_calls or ()

    edited = replace(turn, expected=replace(turn.expected, tool_calls=(check,)))

    text = json.dumps(written_turn(edited))
    assert "c1" not in text
    assert text.count("c2") == 2


def test_adding_a_call_to_events_puts_it_after_the_one_before_it() -> None:
    turn = turn_of({"intermediate_data": EVENTS})
    calls = (*(turn.expected.tool_calls or ()), ToolCall("again", {"n": 1}))

    events = written_turn(replace(turn, expected=replace(turn.expected, tool_calls=calls)))["intermediate_data"]

    parts = events["invocation_events"][0]["content"]["parts"]
    assert [part["function_call"]["name"] for part in parts if "function_call" in part] == ["roll", "check", "again"]


def test_no_longer_asserting_recorded_calls_keeps_the_results_of_tools() -> None:
    turn = turn_of({"intermediate_data": EVENTS})

    data = written_turn(replace(turn, expected=replace(turn.expected, tool_calls=None)))["intermediate_data"]

    assert [response["id"] for response in data["tool_responses"]] == ["c1", "c2"]
    assert "tool_uses" not in data


def test_an_edit_that_python_calls_equal_is_still_an_edit() -> None:
    turn = turn_of({"intermediate_data": {"toolUses": [{"args": {"n": 1}, "name": "f", "id": None}]}})
    call = (turn.expected.tool_calls or ())[0]

    edited = replace(turn, expected=replace(turn.expected, tool_calls=(replace(call, args={"n": True}),)))

    assert written_turn(edited)["intermediate_data"] == {"toolUses": [{"args": {"n": True}, "name": "f", "id": None}]}


def test_editing_one_answer_of_a_sub_agent_leaves_pictures_and_the_other_answers_alone() -> None:
    picture = {"inline_data": {"mime_type": "image/png", "data": "AAAA"}}
    same, other = ["dice", [{"text": "I roll", "note": 1}]], ["dice", [picture, {"text": "a 4"}]]
    turn = turn_of({"intermediate_data": {"intermediate_responses": [same, other]}})
    assert turn.expected.intermediate == (("dice", "I roll"), ("dice", "a 4"))

    answers = (("dice", "I roll"), ("dice", "a 5"), ("judge", "fine"))
    written = written_turn(replace(turn, expected=replace(turn.expected, intermediate=answers)))

    assert written["intermediate_data"]["intermediate_responses"] == [
        same,
        ["dice", [picture, {"text": "a 5"}]],
        ["judge", [{"text": "fine"}]],
    ]


def test_unknown_keys_stay_at_their_level_through_an_edit() -> None:
    raw = set_of(
        {"app_details": {"x": 1}, "intermediate_data": {"tool_uses": [{"name": "f", "args": {}, "why": 1}], "note": 2}},
        session_input={"app_name": "a", "user_id": "u", "state": {}, "session_id": "pinned"},
        labels={"team": "x"},
        rubrics=None,
    )
    raw["owner"] = "me"
    evalset = read(raw)
    case = evalset.cases[0]
    assert shown_extra(evalset.extra) == {"owner": "me"}
    assert shown_extra(case.extra) == {"labels": {"team": "x"}}

    turn = replace(case.turns[0], query="changed")
    session = replace(case.initial_session or SessionInit(), state={"k": 1})
    edited = replace(evalset, cases=(replace(case, turns=(turn,), initial_session=session, tags=("new",)),))

    wanted = json.loads(json.dumps(raw).replace('"hi"', '"changed"').replace('"state": {}', '"state": {"k": 1}'))
    wanted["eval_cases"][0]["tags"] = ["new"]
    assert json.loads(write_evalset(edited)) == wanted


def test_a_key_called_like_our_own_note_is_kept() -> None:
    raw = set_of({}, **{"$form": {"theirs": 1}})

    assert json.loads(write_evalset(read(raw))) == raw


def test_tags_that_are_not_a_list_of_texts_are_somebody_elses() -> None:
    raw = set_of({}, tags={"a": 1})
    evalset = read(raw)

    assert evalset.cases[0].tags == ()
    assert json.loads(write_evalset(evalset)) == raw


def test_a_scenario_is_kept_as_it_stands() -> None:
    scenario = {"starting_prompt": "p", "conversation_plan": "q", "user_persona": "NOVICE", "more": [1]}
    raw = {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation_scenario": scenario}]}
    evalset = read(raw)

    assert (evalset.cases[0].scenario, evalset.cases[0].turns) == (scenario, ())
    assert json.loads(write_evalset(evalset)) == raw
