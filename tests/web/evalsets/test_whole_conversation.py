"""What a case expects of its whole conversation, edited in the form: required texts and rubrics."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from evaldesk.metrics import missing_reasons, score_trial
from evaldesk.model import Case, Criterion, Event, Expected, ToolCall, Transcript, Turn, TurnRecord
from evaldesk.pages.case_whole import accepted_text, outputs_text, rubrics_text, with_whole
from evaldesk.pages.typed import Problems
from evaldesk.web.cases.checks import case_from
from evaldesk.web.cases.drafts import draft_of

CASE = "roll/and check"
TYPED: dict[str, Any] = {
    "rubric_id": "short",
    "rubric_content": {"text_property": "It is\nshort."},
    "type": "FINAL_RESPONSE_QUALITY",
}
OUTPUTS = Criterion("required_outputs", 1.0)
RUBRICS = Criterion("rubric_based_final_response_quality_v1", 1.0, {"judge_model": "demo/judge"})


def edited(case: Case, outputs: str | None = None, rubrics: str | None = None) -> tuple[Case, Problems]:
    problems = Problems()
    return with_whole(case, case, [], (outputs, rubrics), problems), problems


def test_what_is_typed_is_stored_and_used_by_the_metrics(pages: Any, calc: str) -> None:
    address = str(pages.case_address(calc, CASE))
    typed = {"outputs": "total of 7\r\n\r\n  done ", "rubrics": "It is polite.\r\nshort: It is short."}

    assert pages.post(address, pages.fields(address) | typed).status_code == 303

    stored = pages.stored()["eval_cases"][0]
    assert stored["required_outputs"] == ["total of 7", "done"]
    assert stored["rubrics"] == [
        {"rubric_id": "rubric_1", "rubric_content": {"text_property": "It is polite."}},
        {"rubric_id": "short", "rubric_content": {"text_property": "It is short."}},
    ]
    fields = pages.fields(address)
    assert fields["outputs"].splitlines() == ["total of 7", "done"]
    assert fields["rubrics"].splitlines() == ["rubric_1: It is polite.", "short: It is short."]


def test_a_case_from_the_form_can_be_judged_by_both_metrics() -> None:
    bare = Case("c", (Turn("q"),))
    case, problems = edited(bare, "7", "It is short.")
    played = Transcript((TurnRecord("q", (Event("agent_message", text="It is 7."),)),))

    assert len(problems) == 0
    assert missing_reasons(OUTPUTS, [bare]).get(bare.id)
    assert missing_reasons(RUBRICS, [bare]).get(bare.id)
    assert missing_reasons(RUBRICS, [case]).get(case.id) is None
    assert score_trial(played, case, [OUTPUTS])[0].value == 1.0


@pytest.mark.parametrize(
    ("extra", "text", "left"),
    [
        ({"outputs": ["a"]}, "a\nb", {"outputs": ["a", "b"]}),
        ({"outputs": ["a"]}, "", {}),
        ({"outputs": []}, "", {"outputs": []}),
        ({"x": 1}, "a", {"x": 1, "required_outputs": ["a"]}),
        ({"required_outputs": "a"}, "", {"required_outputs": "a"}),
        (
            {"evaluation_criteria": {"communicate_info": ["a"]}},
            "",
            {"evaluation_criteria": {"communicate_info": ["a"]}, "required_outputs": []},
        ),
    ],
)
def test_required_texts_stay_under_the_key_that_the_case_has(
    extra: dict[str, Any], text: str, left: dict[str, Any]
) -> None:
    case, _ = edited(Case("c", extra=extra), text)

    assert case.extra == left


def test_lines_that_were_not_touched_keep_all_that_the_file_says_of_them() -> None:
    odd: dict[str, Any] = {"rubricId": "odd", "n": 7}
    case = Case("c", rubrics=(TYPED, odd), extra={"required_outputs": [1, " two\nlines "]})

    same, _ = edited(case, outputs_text(case), rubrics_text(case))
    more, _ = edited(case, None, f"{rubrics_text(case)}\nnew: It is new.")

    assert same == case
    assert rubrics_text(case).splitlines()[0] == "short: It is short."
    assert more.rubrics[:2] == (TYPED, odd)
    assert more.rubrics[2]["rubric_id"] == "new"


@pytest.mark.parametrize(
    ("outputs", "rubrics", "field", "said"),
    [
        (None, "a: One.\na: Two.", "rubrics", "a is there twice"),
        ("\n".join(map(str, range(101))), None, "outputs", "At most 100 lines; these are 101."),
    ],
)
def test_what_cannot_be_is_said_beside_its_field(
    outputs: str | None, rubrics: str | None, field: str, said: str
) -> None:
    _, problems = edited(Case("c"), outputs, rubrics)

    assert said in problems.get(field)


def test_what_a_case_accepts_goes_with_its_turns_and_calls_in_the_form() -> None:
    roll = ToolCall("roll", {"n": 1})
    entry: dict[str, Any] = {"tool": "roll", "argument": "n", "ignore": True}
    accepts: list[Any] = [entry | {"turn": 1}, entry | {"turn": 2, "call": 2}]
    turns = Turn("a", Expected((roll,))), Turn("b", Expected((roll, roll, roll)))
    case = Case("c", turns, extra={"also_accepted": accepts})
    draft = draft_of(case)
    assert case_from(draft, case) == (case, Problems())

    draft.turns.pop(0)
    draft.turns[0].calls[0].is_kept = False
    now, problems = case_from(draft, case)

    assert not problems
    assert now.extra["also_accepted"] == [{"turn": 1, "tool": "roll", "call": 1, "argument": "n", "ignore": True}]


BOOKS = (ToolCall("book", {"city": "Rome"}), ToolCall("book", {"city": "Bari"}))
TWICE = Case("c", (Turn("q", Expected(BOOKS)),), extra={"also_accepted": [{"turn": 1, "answer": "yes"}]})
OF_ONE = '{"turn": 1, "tool": "book", "argument": "city", "any_of": ["Lyon", "</textarea>"], "call": 1}'


def test_accepted_values_are_typed_with_the_call_that_they_are_for(pages: Any, calc: str) -> None:
    address = str(pages.case_address(calc, CASE))
    fields = pages.fields(address)
    assert fields["accepted"] == ""
    tool = pages.stored()["eval_cases"][0]["conversation"][0]["intermediate_data"]["tool_uses"][0]["name"]
    line = json.dumps({"turn": 1, "tool": tool, "argument": "<b>", "ignore": True, "call": 1})

    assert pages.post(address, fields | {"accepted": f"\r\n{line}\r\n"}).status_code == 303

    assert pages.stored()["eval_cases"][0]["also_accepted"] == [json.loads(line)]
    page = pages.get(address).text
    assert "&lt;b&gt;" in page
    assert pages.fields(address)["accepted"] == line
    assert pages.post(address, pages.fields(address) | {"accepted": ""}).status_code == 303
    assert "also_accepted" not in pages.stored()["eval_cases"][0]


def test_accepted_values_hold_for_the_call_that_they_name() -> None:
    problems = Problems()
    case = with_whole(TWICE, TWICE, [(0, [0, 1])], (None, None), problems, OF_ONE)

    assert len(problems) == 0
    played = [[ToolCall("book", {"city": city}) for city in cities] for cities in (("Rome", "Lyon"), ("Lyon", "Bari"))]
    records = [TurnRecord("q", tuple(Event("tool_call", call=call) for call in calls)) for calls in played]
    scores = [score_trial(Transcript((each,)), case, [Criterion("tool_trajectory_avg_score", 1.0)]) for each in records]
    assert [found[0].value for found in scores] == [1.0, 0.0]


def test_accepted_values_that_nobody_changed_go_with_their_turn() -> None:
    two = replace(TWICE, turns=(Turn("first"), *TWICE.turns), extra={"also_accepted": [{"turn": 2, "answer": "yes"}]})
    after = replace(two, turns=two.turns[1:])
    text = accepted_text(two)

    case = with_whole(two, after, [(1, [0, 1])], (None, None), Problems(), text)

    assert case.extra == {"also_accepted": [{"turn": 1, "answer": "yes"}]}


@pytest.mark.parametrize(
    ("typed", "why"),
    [
        ("{", "line 1"),
        ("[]", "also_accepted[0]"),
        ('{"turn": 1, "answer": "a"}\n{"turn": 2, "answer": "b"}', "also_accepted[1]"),
        (OF_ONE.replace('"call": 1', '"call": -1'), "call"),
        ("\n".join([OF_ONE] * 101), "At most 100 lines"),
        ("[" * 10_000, "line 1"),
    ],
)
def test_accepted_values_that_cannot_be_read_come_back_beside_their_field(typed: str, why: str) -> None:
    problems = Problems()

    case = with_whole(TWICE, TWICE, [(0, [0, 1])], (None, None), problems, typed)

    assert why in (problems.get("accepted") or "")
    assert typed.startswith(OF_ONE) or case == TWICE


def test_accepted_values_that_the_form_cannot_hold_stay_as_they_are() -> None:
    odd_ones: tuple[Any, ...] = ("x", {"turn": 1}, [{"turn": 1, "answer": "x" * 30_000}], [{"turn": 1}] * 101)
    for odd in odd_ones:
        case = replace(TWICE, extra={"also_accepted": odd})

        assert accepted_text(case) is None
        assert case_from(draft_of(case), case)[0] == case
