"""A case that lost part of its question or of its assertion on the way waits for a person."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk.desk.runs.plan import check_reviewed
from evaldesk.errors import FormatError, UsageError
from evaldesk.formats import read_evalset
from evaldesk.formats.files import read_file, write_file
from evaldesk.matching import required_calls
from evaldesk.matching.required_calls import RequiredCall
from evaldesk.metrics import missing_reasons
from evaldesk.model import Case, Criterion, EvalSet
from evaldesk.model.evalset import NEEDS_REVIEW, REVIEW_REASON, for_review

pytestmark = of_tools("atif", "inspect", "promptfoo", "tau")

IMAGE = {"type": "image", "source": {"media_type": "image/png", "path": "images/1.png"}}
ASKED = [{"type": "text", "text": "What is this?"}, IMAGE]


def read(file: Any, source: str = "r.json") -> EvalSet:
    found = read_file(json.dumps(file).encode(), source).evalset
    assert found
    return found


def atif(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a"}, "steps": list(steps)}


def inspect(**sample: Any) -> dict[str, Any]:
    row = {"id": 1, "epoch": 1, "input": "q", "messages": [], **sample}
    return {"version": 2, "status": "success", "eval": {"task": "t"}, "plan": {}, "samples": [row]}


def promptfoo(raw: str) -> dict[str, Any]:
    row = {"promptIdx": 0, "testIdx": 0, "prompt": {"raw": raw}, "response": {"output": "A dot."}}
    return {"evalId": "e", "results": {"version": 3, "stats": {}, "results": [row]}}


AUDIO = [{"type": "text", "text": "What is this?"}, {"type": "video_url", "video_url": {"url": "v.mp4"}}]
LOST = {
    "openai-messages": [{"role": "user", "content": AUDIO}, {"role": "assistant", "content": "A dot."}],
    "atif": atif({"source": "user", "message": ASKED}, {"source": "agent", "message": "A dot."}),
    "inspect": inspect(input=[{"role": "user", "content": ASKED}]),
    "promptfoo": promptfoo(json.dumps([{"role": "user", "content": ASKED}])),
}


@pytest.mark.parametrize("name", LOST)
def test_a_case_without_an_image_of_its_question_waits_for_a_review(name: str) -> None:
    (case,) = read(LOST[name]).cases

    assert case.turns[0].query == "What is this?"
    assert case.tags == (NEEDS_REVIEW,)
    assert case.extra[REVIEW_REASON] == "1 part of its messages that is not text could not be read"


def rewarded(*actions: Any) -> dict[str, Any]:
    return {"evaluation_criteria": {"actions": [*actions], "reward_basis": ["ACTION"]}}


def test_a_task_that_is_rewarded_for_its_calls_requires_them() -> None:
    task = {"id": "t", "user_scenario": {"instructions": "Ask."}}
    judged = rewarded({"name": "close", "arguments": {"id": 7, "why": "asked"}, "compare_args": ["id"]})

    tasks = read([task | judged, task | {"id": "u"}])

    assert [case.tags for case in tasks.cases] == [(), ()]
    assert required_calls(tasks.cases[0]) == (RequiredCall("close", {"id": 7, "why": "asked"}, ("id",)),)
    assert required_calls(tasks.cases[1]) is None
    assert missing_reasons(Criterion("required_calls", 1.0), tasks.cases) == {
        "u": "The case does not say which calls are required."
    }
    assert json.loads(write_file(tasks, "tau2")) == [task | judged, task | {"id": "u"}]


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ({"name": "reboot", "arguments": {}, "requestor": "user"}, "the simulated user's own tools"),
        ({"name": 1, "arguments": {}}, "cannot be read"),
        ({"name": "close", "arguments": [], "compare_args": ["id"]}, "cannot be read"),
        ({"name": "close", "arguments": {}, "compare_args": "id"}, "cannot be read"),
    ],
    ids=["of the user", "no name", "no arguments", "compared arguments are no list"],
)
def test_a_task_that_is_rewarded_for_calls_that_are_lost_waits_for_a_review(action: Any, reason: str) -> None:
    task = {"id": "t", "user_scenario": {"instructions": "Ask."}, **rewarded(action)}

    tasks = read([task])
    looked_at = EvalSet("s", cases=(replace(tasks.cases[0], tags=()),))

    assert tasks.cases[0].tags == (NEEDS_REVIEW,)
    assert reason in str(tasks.cases[0].extra[REVIEW_REASON])
    assert json.loads(write_file(tasks, "tau2")) == [task]
    assert read(json.loads(write_file(looked_at, "tau2"))).cases[0].tags == ()


def test_no_run_plays_a_case_before_its_review() -> None:
    case = for_review(Case("dot"), "an image of its question is lost")
    (again,) = read_evalset(write_file(EvalSet("s", cases=(case,)), "adk"), source="s.evalset.json").cases

    with pytest.raises(UsageError, match=r"not run: dot \(an image .* lost\); .* tag needs-review, in the editor"):
        check_reviewed((Case("whole"), again))
    check_reviewed((Case("whole"),))


def test_a_target_with_several_right_answers_accepts_each() -> None:
    (case,) = read(inspect(target=["bike", "bicycle"])).cases

    assert case.turns[0].expected.reference == "bike"
    assert case.extra["also_accepted"] == [{"turn": 1, "answer": "bicycle"}]


def test_context_copied_from_another_trajectory_is_no_turn() -> None:
    copied = {"source": "user", "message": "before", "is_copied_context": True}

    (case,) = read(atif(copied, {"source": "user", "message": "q"}, {"source": "agent", "message": "a"})).cases

    assert [turn.query for turn in case.turns] == ["q"]


def test_a_source_that_tells_no_call_of_a_tool_asserts_none() -> None:
    said = {"source": "user", "message": "q"}, {"source": "agent", "message": "a"}
    called = {"source": "agent", "message": "", "tool_calls": [{"function_name": "look", "arguments": {}}]}

    silent, telling = read(atif(*said)), read([atif(*said), atif(said[0], called)])

    assert [case.turns[0].expected.tool_calls for case in silent.cases] == [None]
    assert telling.cases[0].turns[0].expected.tool_calls == ()


@pytest.mark.parametrize(
    ("scenario", "words"),
    [
        ({"user_goal": "get a refund"}, r"no conversation_plan; is it 'user_goal'\? Name it conversation_plan"),
        ({"note": "x", "conversation_plans": "y"}, "is it 'conversation_plans'"),
        ({"conversation_plan": " ", "plan": "y"}, "is it 'plan'"),
    ],
    ids=["unknown", "misspelt", "blank"],
)
def test_a_scenario_whose_plan_is_misspelt_is_refused_by_the_key_that_is_near(
    scenario: dict[str, Any], words: str
) -> None:
    file = {"eval_set_id": "p", "eval_cases": [{"eval_id": "s", "conversation_scenario": scenario}]}

    with pytest.raises(FormatError, match=words):
        read_evalset(json.dumps(file).encode(), source="s.evalset.json")


def test_a_blank_cell_of_a_table_is_absent() -> None:
    found = read_file(b"system_prompt,user_prompt,ground_truth\ns,q1,\ns,q2,done\n", "rows.csv").evalset

    assert found
    assert [case.turns[0].expected.reference for case in found.cases] == [None, "done"]


def test_the_second_spelling_of_a_scenario_that_adk_reads_is_read() -> None:
    scenario = {"startingPrompt": "Hello", "conversationPlan": "Ask for a refund.", "userPersona": "polite"}
    file = {"evalSetId": "s", "evalCases": [{"evalId": "a", "conversationScenario": scenario}]}

    [case] = read(file, "s.evalset.json").cases

    assert case.scenario == {
        "starting_prompt": "Hello",
        "conversation_plan": "Ask for a refund.",
        "user_persona": "polite",
    }


def test_a_key_of_a_scenario_in_both_spellings_is_refused() -> None:
    scenario = {"starting_prompt": "Hello", "conversation_plan": "Ask.", "conversationPlan": "Answer."}

    with pytest.raises(FormatError, match="stands beside conversation_plan"):
        read({"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation_scenario": scenario}]})
