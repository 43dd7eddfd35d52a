"""Tools that answer what the case says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents.own.litellm import LlmAgent
from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, Event, JsonValue, Limits, TrialResult, TrialSpec, Turn

pytestmark = pytest.mark.anyio


def roll_die(sides: int, state: dict[str, JsonValue]) -> int:
    """Roll a die."""
    state["rolled"] = True
    return sides


def lucky(sides: int, state: dict[str, JsonValue]) -> int:
    state["lucky"] = sides
    return 1


tool_doubles = {"lucky": lucky}

AGENT = LlmAgent(name="dice", model="demo/dice?mistakes=0", tools=[roll_die])
REF = AgentRef("dice", f"{__name__}:AGENT")


async def played(doubles: Any, query: str = "Roll a d6") -> TrialResult:
    case = Case("c", tuple(Turn(part) for part in query.split("; ")), extra={"tool_doubles": doubles})
    return await play_trial(AGENT, TrialSpec(1, 0, 0, case, REF, limits=Limits(30)))


def results(result: TrialResult) -> list[tuple[Any, bool]]:
    return [(event.result, event.is_error) for event in events(result) if event.kind == "tool_result"]


def events(result: TrialResult) -> list[Event]:
    return [event for turn in result.transcript.turns for event in turn.events]


def rules(*answers: Any, **more: Any) -> Any:
    return {"tools": {"roll_die": list(answers)}, **more}


async def test_a_fixed_answer_replaces_the_tool_and_is_labelled() -> None:
    result = await played(rules({"result": 4}))

    assert result.status == "finished", result.error
    assert results(result) == [(4, False)]
    assert result.transcript.final_state == {}
    assert [event.text for event in events(result) if event.author == "double"] == [
        "roll_die was answered by a double of the case (answer 1)"
    ]
    assert "4" in result.transcript.turns[0].answer


async def test_the_first_answer_whose_arguments_match_counts() -> None:
    doubles = rules({"args": {"sides": 6}, "result": 1}, {"args": {"sides": 20}, "result": 2}, {"result": 3})

    result = await played(doubles, "Roll a d20; Roll a d6; Roll a d8")

    assert results(result) == [(2, False), (1, False), (3, False)]


async def test_exact_arguments_tolerate_no_other() -> None:
    doubles = rules({"args": {}, "match": "exact", "result": 1}, {"args": {}, "result": 2})

    assert results(await played(doubles)) == [(2, False)]


async def test_answers_can_be_used_up_one_after_the_other() -> None:
    doubles = rules({"result": 1, "times": 1}, {"error": "the die is lost", "times": 1}, unmatched="pass_through")

    result = await played(doubles, "Roll a d6; Roll a d6; Roll a d6")

    assert results(result) == [(1, False), ("the die is lost", True), (6, False)]
    assert result.transcript.final_state == {"rolled": True}


async def test_a_function_of_the_agents_module_answers_and_may_change_the_state() -> None:
    result = await played(rules({"function": "lucky", "delay_ms": 1}))

    assert results(result) == [(1, False)]
    assert result.transcript.final_state == {"lucky": 6}
    assert all((event.duration_ms or 0) >= 1 for event in events(result) if event.kind == "tool_result")


async def test_two_trials_use_up_their_own_answers() -> None:
    doubles = rules({"result": 1, "times": 1})

    first, second = await played(doubles), await played(doubles)

    assert results(first) == results(second) == [(1, False)]


@pytest.mark.parametrize(
    ("doubles", "given"),
    [
        (rules({"args": {"sides": 8}, "result": 1}, unmatched="refuse"), ("roll_die is not available", True)),
        (rules({"args": {"sides": 8}, "result": 1}, unmatched="pass_through"), (6, False)),
        ({"tools": {"other": [{"result": 1}]}}, (6, False)),
        ({"tools": {}, "unmatched": "refuse"}, ("roll_die is not available", True)),
    ],
    ids=["refuse", "pass_through", "another_tool", "refuse_all"],
)
async def test_a_call_without_an_answer_does_what_the_case_says(doubles: Any, given: Any) -> None:
    assert results(await played(doubles)) == [given]


@pytest.mark.parametrize("more", [{}, {"unmatched": "fail"}], ids=["by_default", "as_said"])
async def test_a_call_that_fits_no_answer_ends_the_trial(more: Any) -> None:
    result = await played(rules({"args": {"sides": 8}, "result": 1}, **more))

    assert result.status == "errored"
    assert result.error
    assert result.error.kind == "no_double"
    assert 'no double for roll_die({"sides":6})' in result.error.message


@pytest.mark.parametrize(
    ("doubles", "said"),
    [
        (
            {"tools": {"roll_die": [{"result": 1, "error": "x"}]}},
            r"tool_doubles.tools.roll_die\[0\]: an answer has exactly",
        ),
        ({"tools": {"roll_die": [{}]}}, "an answer has exactly one of"),
        ({"tools": {"roll_die": [{"function": "os:system"}]}}, "no function named 'os:system'.*there are: lucky"),
        ({"tools": {"roll_die": [{"result": 1, "times": 0}]}}, "times must be at least 1"),
        ({"tools": {"roll_die": [{"result": 1, "delay_ms": -1}]}}, "delay_ms must be"),
        ({"tools": {"roll_die": [{"reslt": 1}]}}, "unknown field `reslt`"),
        ({"unmatched": "explode"}, "explode"),
        ([], "Expected `object`"),
    ],
)
async def test_doubles_that_make_no_sense_are_refused_by_place(doubles: Any, said: str) -> None:
    result = await played(doubles)

    assert result.error
    assert result.error.kind == "bad_case"
    assert re.search(said, result.error.message)


async def test_code_that_calls_its_tools_itself_can_ask_for_the_double() -> None:
    import evaldesk
    from evaldesk.agents.tools.doubles import CURRENT_DOUBLES, read_doubles

    CURRENT_DOUBLES.set(read_doubles(Case("c", extra={"tool_doubles": rules({"result": 1, "times": 1})}), ""))

    outcomes = [await evaldesk.call_tool(roll_die, {"sides": 6}, {}) for _ in range(1)]
    CURRENT_DOUBLES.set(None)
    outcomes.append(await evaldesk.call_tool(roll_die, {"sides": 6}, {}))

    assert [outcome.result for outcome in outcomes] == [1, 6]


def test_the_example_of_the_documentation_is_read() -> None:
    from evaldesk.agents.tools.doubles import read_doubles

    text = (Path(__file__).parents[2] / "docs" / "tool-doubles.md").read_text("utf-8")
    [example] = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    case = Case("c", extra=json.loads(example))

    doubles = read_doubles(case, REF.target)

    assert doubles
    assert set(doubles.plan.tools) == {"roll_die", "get_weather"}
