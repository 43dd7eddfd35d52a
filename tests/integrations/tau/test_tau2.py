"""Tasks and simulations of tau2-bench."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats import read_evalset, write_evalset
from evaldesk.integrations.tau.tau2 import Tau2Results, Tau2Tasks, write_task
from evaldesk.model import Case, Criterion, EvalSet, SessionInit, ToolCall, Turn
from evaldesk.transcripts.recorded import RecordedRun

SAMPLES = Path(__file__).parents[2] / "formats/exchange_samples"


def _tasks(data: bytes) -> EvalSet:
    evalset = Tau2Tasks.read(data, source="tasks.json").evalset
    assert evalset
    return evalset


def test_the_tasks_of_tau2_come_back_as_they_were() -> None:
    data = (SAMPLES / "tau2.json").read_bytes()

    evalset = _tasks(data)

    assert len(evalset.cases) == 2
    assert json.loads(Tau2Tasks.write(evalset)) == json.loads(data)
    assert _tasks(Tau2Tasks.write(evalset)) == evalset
    assert json.loads(Tau2Tasks.write(read_evalset(write_evalset(evalset), source="x.json"))) == json.loads(data)


def test_a_task_is_a_scenario_with_its_state_and_its_assertions_as_rubrics() -> None:
    first, second = _tasks((SAMPLES / "tau2.json").read_bytes()).cases

    assert (first.scenario or {})["conversation_plan"] == (
        "Persona: Brief\n\nDomain: tables\n\nReason for call: A table.\n\nKnown info: You are Ann.\n\n"
        "Task instructions: Take the first."
    )
    assert first.initial_state == {"tables": {"1": "free"}}
    assert first.rubrics == (
        {"rubric_id": "nl_assertion_1", "rubric_content": {"text_property": "A table is booked."}},
    )
    assert (second.scenario or {})["conversation_plan"] == "Ask for the menu."
    assert (second.tags, second.final_state) == (("menu",), {"asked": True})


@pytest.mark.parametrize(
    "change",
    [
        {"scenario": {"starting_prompt": "", "conversation_plan": "Other."}},
        {"scenario": {"starting_prompt": "Hi", "conversation_plan": "Other.", "user_persona": "EXPERT"}},
        {"rubrics": ({"rubric_id": "nl_assertion_1", "rubric_content": {"text_property": "New"}},)},
        {"rubrics": ({"rubric_id": "mine", "rubric_content": {"text_property": "New"}},)},
        {"rubrics": ()},
        {"initial_session": SessionInit("app", "ann", {"a": 2**70}, {"session_id": "s"})},
        {"initial_session": None},
        {"final_state": {}},
        {"tags": ("a", "b")},
        {"extra": {}},
    ],
    ids=str,
)
def test_an_edited_task_names_its_new_text(change: dict[str, Any]) -> None:
    evalset = _tasks((SAMPLES / "tau2.json").read_bytes())
    edited = replace(evalset.cases[0], **change)

    (again,) = _tasks(Tau2Tasks.write(EvalSet("tasks", cases=(edited,)))).cases

    assert replace(again, extra={}) == replace(edited, extra={})


def test_a_scenario_made_here_becomes_a_task_that_tau2_can_play() -> None:
    rubric: dict[str, Any] = {"rubric_id": "nl_assertion_1", "rubric_content": {"text_property": "Kind."}}
    case = Case("c", scenario={"starting_prompt": "", "conversation_plan": "Ask."}, rubrics=(rubric,))

    assert write_task(case) == {
        "id": "c",
        "user_scenario": {"instructions": "Ask."},
        "evaluation_criteria": {"nl_assertions": ["Kind."]},
    }


def test_values_that_tau2_cannot_hold_are_named() -> None:
    with pytest.raises(FormatError, match="case 'c' is a conversation"):
        Tau2Tasks.write(EvalSet("s", cases=(Case("c", (Turn("hi"),)),)))
    with pytest.raises(FormatError, match="contain no run"):
        Tau2Tasks.write(RecordedRun("r", "a", (), ()))


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ({"id": "1"}, "[0].user_scenario: expected an object, but it is missing"),
        ({"user_scenario": {"instructions": "x"}}, "[0].id: expected a number or a string, but it is missing"),
        ({"id": "1", "user_scenario": {}}, "[0].user_scenario.instructions: expected a string or an object"),
        ({"id": "1", "user_scenario": {"instructions": {"domain": 1}}}, "instructions.domain: expected a string"),
    ],
)
def test_a_task_that_is_wrong_is_refused_with_its_place(task: dict[str, Any], said: str) -> None:
    with pytest.raises(FormatError) as caught:
        Tau2Tasks.read(json.dumps([task]).encode(), source="x.json")

    assert said in str(caught.value)


def test_two_tasks_with_one_id_are_refused() -> None:
    task = {"id": "1", "user_scenario": {"instructions": "x"}}

    with pytest.raises(FormatError, match=r"\[1\].id: a task with the id '1' is there already"):
        Tau2Tasks.read(json.dumps([task, task]).encode(), source="x.json")


def _run(data: bytes) -> RecordedRun:
    (run,) = Tau2Results.read(data, source="r.json").runs
    return run


def test_simulations_become_a_run_with_trials() -> None:
    run = _run((SAMPLES / "tau2-results.json").read_bytes())

    passed, broke = run.results
    opening, turn = passed.transcript.turns
    assert (run.agent, run.model, len(run.cases)) == ("llm_agent", "gpt-4.1", 2)
    assert run.criteria == (Criterion("reward", 1.0), Criterion("reward_db"))
    assert (opening.query, opening.answer) == ("", "How can I help?")
    assert (turn.query, turn.answer, turn.tool_calls) == ("A table.", "Booked.", (ToolCall("book", {"n": 1}, "t1"),))
    assert [event.text for event in turn.events if event.kind == "log"] == [
        'The user called [{"id": "u1", "name": "look", "arguments": {}, "requestor": "user"}]',
        "A tool of the user gave: paper",
    ]
    assert (passed.verdict, passed.duration_ms, passed.stop_reason) == ("passed", 2500.0, "user_stop")
    assert [(usage.role, usage.tokens_in, usage.cost) for usage in passed.usages] == [
        ("user", 5, 0.001),
        ("agent", 50, 0.02),
    ]
    assert turn.duration_ms == 2000.0
    assert passed.scores[0].details["simulation"]["seed"] == 7  # type: ignore[index, call-overload]
    assert (broke.verdict, broke.stop_reason, broke.trial_index) == ("errored", "infrastructure_error", 1)


def test_a_reason_names_the_unmet_condition() -> None:
    whole = json.loads((SAMPLES / "tau2-results.json").read_bytes())
    whole["simulations"][0]["reward_info"] = {
        "reward": 0.0,
        "db_check": {"db_match": False},
        "communicate_checks": [{"info": "327", "met": False}, {"info": "1", "met": True}],
    }

    assert _run(json.dumps(whole).encode()).results[0].scores[0].reason == (
        "Not as it should be: the database; said: 327."
    )


def test_an_entry_without_a_task_is_left_out_with_its_place() -> None:
    whole = json.loads((SAMPLES / "tau2-results.json").read_bytes())
    whole["simulations"].append({**whole["simulations"][0], "task_id": "9"})

    found = Tau2Results.read(json.dumps(whole).encode(), source="r.json")

    assert len(found.runs[0].results) == 2
    assert found.refused == ("Left out: a simulation of a task that the file does not have, at simulations[2].",)


def test_an_index_without_its_folder_says_where_the_simulations_are() -> None:
    whole = json.loads((SAMPLES / "tau2-results.json").read_bytes())
    whole |= {"simulations": [], "simulation_index": [{"id": "s1"}]}

    found = Tau2Results.read(json.dumps(whole).encode(), source="r.json")

    assert found.runs == ()
    assert "in the folder beside this file" in found.refused[0]
