"""The version of a case: what it asks and asserts, and nothing else."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from evaldesk.matching.case_version import case_version
from evaldesk.model import Case, Expected, ToolCall, Turn
from evaldesk.model.evalset import SessionInit
from evaldesk.model.media import Media

CALL = ToolCall("roll", {"sides": 6, "n": 1}, id="call_1")
TURN = Turn("Roll.", Expected((CALL,), (("agent", "So."),), "You rolled 3."), ({"rubric": "polite"},))
CASE = Case(
    "roll",
    (TURN,),
    initial_session=SessionInit("dice", "user", {"n": 1}),
    final_state={"rolls": [3]},
    rubrics=({"rubric": "short"},),
    tags=("smoke",),
    extra={"level": "easy"},
)


def turn(**changes: object) -> Case:
    """The case with another turn."""
    return replace(CASE, turns=(replace(TURN, **changes),))  # type: ignore[arg-type]


def expecting(**changes: object) -> Case:
    """The case with another expectation."""
    return turn(expected=replace(TURN.expected, **changes))  # type: ignore[arg-type]


SAME = {
    "another id": replace(CASE, id="rolling"),
    "tags": replace(CASE, tags=()),
    "a time stamp": replace(CASE, extra={**CASE.extra, "creation_timestamp": 17.5}),
    "a time stamp of a turn": turn(extra={"creation_timestamp": 17.5, "invocation_id": "e-1"}),
    "quarantine": replace(CASE, extra={**CASE.extra, "quarantine": {"until": "2027-01-01"}}),
    "its number of trials": replace(CASE, extra={**CASE.extra, "n": 7}),
    "its own number of trials": replace(CASE, extra={**CASE.extra, "trials": 3}),
    "the layout of its file": replace(CASE, extra={**CASE.extra, "$form": {"keys": ["evalId"]}}),
    "another agent": replace(CASE, initial_session=SessionInit("cards", "user", {"n": 1})),
    "the id of a recorded call": expecting(tool_calls=(replace(CALL, id="call_2"),)),
    "the order of keys": expecting(tool_calls=(replace(CALL, args={"n": 1, "sides": 6}),)),
}
OTHER = {
    "its message": turn(query="Roll again."),
    "an image": turn(media=(Media("image/png", "iVBORw0KGgo="),)),
    "an argument": expecting(tool_calls=(replace(CALL, args={"sides": 20, "n": 1}),)),
    "no call": expecting(tool_calls=()),
    "nothing of calls": expecting(tool_calls=None),
    "a key of a call": expecting(tool_calls=(replace(CALL, extra={"any_order": True}),)),
    "a message between": expecting(intermediate=()),
    "its reference": expecting(reference="You rolled 4."),
    "no reference": expecting(reference=None),
    "a key of an expectation": expecting(extra={"any_of": ["3", "4"]}),
    "a rubric of a turn": turn(rubrics=()),
    "a key of a turn": turn(extra={"waits": True}),
    "another turn": replace(CASE, turns=(TURN, TURN)),
    "a scenario": replace(CASE, turns=(), scenario={"conversation_plan": "Roll."}),
    "its state": replace(CASE, initial_session=SessionInit("dice", "user", {"n": 2})),
    "its user": replace(CASE, initial_session=SessionInit("dice", "anna", {"n": 1})),
    "no session": replace(CASE, initial_session=None),
    "its final state": replace(CASE, final_state=None),
    "a rubric": replace(CASE, rubrics=()),
    "a column": replace(CASE, extra={"level": "hard"}),
}


@pytest.mark.parametrize("case", SAME.values(), ids=SAME)
def test_a_change_beside_messages_and_assertions_is_the_same_version(case: Case) -> None:
    assert case_version(case) == case_version(CASE)


@pytest.mark.parametrize("case", OTHER.values(), ids=OTHER)
def test_a_changed_message_or_assertion_is_another_version(case: Case) -> None:
    assert case_version(case) != case_version(CASE)


def test_media_in_the_store_are_the_same_as_here() -> None:
    image = Media("image/png", "iVBORw0KGgo=")

    assert case_version(turn(media=(image,))) == case_version(turn(media=(image.held(),)))


@pytest.mark.parametrize("kind", [Case, Turn, Expected, ToolCall, SessionInit], ids=lambda kind: kind.__name__)
def test_a_new_field_is_put_into_the_version_or_left_out_on_purpose(kind: type) -> None:
    known = {
        Case: "id turns scenario initial_session final_state rubrics tags extra",
        Turn: "query expected rubrics extra media",
        Expected: "tool_calls intermediate reference extra",
        ToolCall: "name args id extra",
        SessionInit: "app_name user_id state extra",
    }

    assert [field.name for field in fields(kind)] == known[kind].split()
