"""`intermediate_response_match`: ADK's `expected_intermediate_agent_responses`, scored when asked."""

from __future__ import annotations

import json

import pytest

from evaldesk.formats import read_evalset
from evaldesk.metrics import score_trial
from evaldesk.model import Criterion, Event, Score, Transcript, TurnRecord

CRITERION = Criterion("intermediate_response_match", 0.8)
FIRST, SECOND = ("root", "I ask the weather agent."), ("weather", "It is sunny in Paris.")


def scored(expected: list[tuple[str, str]], given: list[tuple[str, str]]) -> Score:
    turn = {
        "query": "Weather?",
        "expected_tool_use": [],
        "expected_intermediate_agent_responses": [{"author": author, "text": text} for author, text in expected],
        "reference": "Sunny.",
    }
    case = read_evalset(json.dumps([turn]).encode(), source="a.test.json").cases[0]
    said = [*given, ("root", "Sunny.")]
    events = tuple(Event("agent_message", at_ms=0, author=author, text=text) for author, text in said)
    return score_trial(Transcript((TurnRecord("Weather?", events),)), case, [CRITERION])[-1]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ([FIRST, SECOND], 1.0),
        ([FIRST, ("other", "More."), SECOND], 1.0),
        ([SECOND, FIRST], 0.5),
        ([FIRST], 0.5),
        ([("weather", FIRST[1]), ("root", SECOND[1])], 0.0),
        ([FIRST, ("weather", "It is sunny in Rome.")], 0.9),
        ([], 0.0),
    ],
    ids=["same", "one more", "other order", "one is missing", "other authors", "other words", "none"],
)
def test_expected_responses_are_found_in_order_and_by_author(given: list[tuple[str, str]], value: float) -> None:
    assert scored([FIRST, SECOND], given).value == pytest.approx(value)


def test_a_response_without_an_author_goes_with_any() -> None:
    assert scored([("", SECOND[1])], [SECOND]).value == 1.0


def test_an_empty_list_asserts_nothing() -> None:
    score = scored([], [FIRST])

    assert (score.value, score.verdict) == (None, "not_applicable")


def test_the_reason_names_the_worst_response() -> None:
    reason = scored([FIRST, SECOND], [FIRST]).reason

    assert reason == "2 expected, 1 given; lowest is 0.00 of weather: It is sunny in Paris."
