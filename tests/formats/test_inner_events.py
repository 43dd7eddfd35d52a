"""What happened inside a tool is no step of the agent: not in a file, a comparison, a verdict or a new case."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evaldesk.diff.divergence import first_divergence
from evaldesk.diff.turn_diff import call_outcomes
from evaldesk.formats.exchange import FORMATS
from evaldesk.formats.files import load_format, read_file, write_file
from evaldesk.metrics.functions.eval_function import _actual
from evaldesk.metrics.judges.material import _steps
from evaldesk.model import Case, Criterion, Event, Expected, ToolCall, Transcript, TrialResult, Turn, TurnRecord, Usage
from evaldesk.model.chat import chat_messages
from evaldesk.transcripts.conversation_case import turn_expecting
from evaldesk.transcripts.recorded import RecordedRun, recorded_score

LOOK, SCOUT = ToolCall("look", {"at": "sea"}, "c2"), ToolCall("scout", {"topic": "sea"}, "c1")
OWN = (
    Event("user_message", author="user", text="go"),
    Event("tool_call", author="lead", call=SCOUT, at_ms=10.0),
    Event("tool_result", author="lead", call=SCOUT, result="blue", at_ms=50.0),
    Event("agent_message", author="lead", text="It is blue.", at_ms=90.0),
)
INNER = (
    Event("usage", author="scout", usage=Usage("m", tokens_in=5, tokens_out=2), within="scout", at_ms=20.0),
    Event("tool_call", author="scout", call=LOOK, within="scout", at_ms=20.0),
    Event("tool_result", author="scout", call=LOOK, result="deep", within="scout", at_ms=30.0),
    Event("agent_message", author="scout", text="deep blue", within="scout", at_ms=40.0),
)
NESTED = TurnRecord("go", (*OWN[:2], *INNER, *OWN[2:]), duration_ms=100.0)
PLAIN = TurnRecord("go", OWN, duration_ms=100.0)
WRITTEN = [name for name in FORMATS if "run" in load_format(name).writes]


def _run(turn: TurnRecord) -> RecordedRun:
    reward = Criterion("reward", 1.0)
    result = TrialResult(
        0,
        0,
        0,
        "finished",
        verdict="passed",
        stop_reason="answered",
        transcript=Transcript((turn,)),
        scores=(recorded_score(reward, 1.0, ""),),
    )
    return RecordedRun("sea", "lead", (Case("sea", (Turn("go", Expected()),)),), (result,), (reward,))


def _judged(turn: TurnRecord) -> tuple[object, ...]:
    calls = [(call.name, dict(call.args)) for call in turn.tool_calls]
    results = [
        (event.call.name, event.result) for event in turn.own_events if event.kind == "tool_result" and event.call
    ]
    return calls, results, turn.answer


@pytest.mark.parametrize("name", WRITTEN)
def test_a_file_has_the_calls_results_and_answer_that_were_judged(name: str) -> None:
    nested, plain = (read_file(write_file(_run(turn), name), "file.json", name).runs[0] for turn in (NESTED, PLAIN))

    read, expected = (run.results[0].transcript.turns for run in (nested, plain))
    assert [*map(_judged, read)] == [*map(_judged, expected)]
    assert expected or name == "osmosis-results"  # which has the rewards alone


def test_a_comparison_has_the_own_calls_alone() -> None:
    assert [call.name for call, _ in call_outcomes(NESTED)] == ["scout"]

    case = Case("sea", (Turn("go", Expected((SCOUT,), (), "It is blue.")),))
    assert first_divergence(case, Transcript((NESTED,))) is None


@pytest.mark.parametrize(
    "read",
    [turn_expecting, _steps, lambda turn: _actual(0, turn), lambda turn: chat_messages([turn])],
    ids=["a new case", "the judges", "an eval function", "the next request"],
)
def test_readers_of_a_turn_see_it_without_what_happened_inside(read: Callable[[TurnRecord], object]) -> None:
    assert read(NESTED) == read(PLAIN)
