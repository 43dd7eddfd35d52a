"""`outcome`: the ends of turns as a case expects them, and what cannot be read."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.errors import UsageError
from evaldesk.metrics.outcome import Outcome, expected_outcomes
from evaldesk.model import Case, Event, Transcript, Turn, TurnRecord
from evaldesk.model.evalset import EXPECTED_OUTCOMES
from evaldesk.model.transcript import OUTCOMES, REFUSED_BY

REFUSED = TurnRecord("a", (Event("log", text=f"{REFUSED_BY}topic"),), stop_reason="refused_by_guardrail")
ANSWERED = TurnRecord("b", (Event("agent_message", text="yes"),))


def scored(outcomes: list[Any], *records: TurnRecord) -> list[tuple[int | None, float | None, str]]:
    case = Case("c", (Turn("a"), Turn("b")), extra={EXPECTED_OUTCOMES: outcomes})
    return [(score.turn, score.value, score.reason) for score in Outcome().score(Transcript(records), case)]


def test_each_turn_with_an_expected_outcome_is_scored() -> None:
    outcomes = [{"outcome": "refused_by_guardrail", "guardrail": "topic", "turn": 1}, {"outcome": "max_turns"}]

    assert scored(outcomes, REFUSED, ANSWERED) == [
        (0, 1.0, "Ended refused by guardrail topic."),
        (1, 0.0, "Ended answered, expected max turns."),
        (None, 0.5, "1 of 2 turns ended with the expected outcome."),
    ]


def test_a_turn_that_was_never_played_does_not_end_as_expected() -> None:
    assert scored([{"outcome": "answered", "turn": 2}], REFUSED)[0] == (1, 0.0, "Never played, expected answered.")


@pytest.mark.parametrize("outcome", sorted(OUTCOMES))
def test_every_outcome_can_be_expected(outcome: Any) -> None:
    record = TurnRecord("a", (), stop_reason=outcome)

    assert scored([{"outcome": outcome}], REFUSED, record)[-1][1] == 1.0


@pytest.mark.parametrize(
    ("outcomes", "problem"),
    [
        ("refused", "expected_outcomes must be a list of outcomes, got str"),
        (["refused"], r"expected_outcomes\[0\] must be an object, got str"),
        ([{"outcome": "error"}], r"expected_outcomes\[0\]: outcome must be one of answered, .*, not 'error'"),
        ([{"outcome": "refused_by_model", "turn": 0}], "turn must be 1 or more, or absent for the last, not '0'"),
        (
            [{"outcome": "refused_by_model", "guardrail": "a"}],
            "guardrail is the name of one, with the outcome refused_by",
        ),
        ([{"outcome": "refused_by_model", "rail": "a"}], "unknown key 'rail'; there are outcome, turn and guardrail"),
    ],
)
def test_what_cannot_be_read_is_refused(outcomes: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        expected_outcomes(Case("c", extra={EXPECTED_OUTCOMES: outcomes}))
