"""Doubles and recordings under google-adk's own runner."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.adk_source import ROLLER
from tests.agents.installed import skip_without

from evaldesk.engine import play_trial
from evaldesk.llm.recording import CURRENT_RECORDER
from evaldesk.model import AgentRef, Case, JsonValue, Limits, TrialResult, TrialSpec, Turn
from evaldesk.model.options import Recording

skip_without("google.adk")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what google-adk warns of is not ours to mend


def spec(recording: Recording | None = None, **extra: JsonValue) -> TrialSpec:
    case = Case("c", (Turn("Roll a d6"), Turn("Roll a d8")), extra=extra)
    ref = AgentRef("dice", "some_agent.agent:root_agent")
    return TrialSpec(1, 0, 0, case, ref, limits=Limits(60), recording=recording or Recording())


def results(result: TrialResult) -> list[Any]:
    return [
        (event.call.args, event.result, event.is_error)
        for turn in result.transcript.turns
        for event in turn.events
        if event.kind == "tool_result" and event.call
    ]


def notes(result: TrialResult, author: str) -> list[str]:
    return [event.text for turn in result.transcript.turns for event in turn.events if event.author == author]


async def test_a_double_answers_for_the_tool(loaded: Any) -> None:
    answers: JsonValue = [{"args": {"sides": 6}, "result": 4}, {"error": "the die is lost"}]

    result = await play_trial(loaded(ROLLER), spec(tool_doubles={"tools": {"roll_die": answers}}))

    assert results(result)[0] == ({"sides": 6}, 4, False)
    assert results(result)[1] == ({"sides": 8}, {"error": "the die is lost"}, True)
    assert result.transcript.final_state == {}
    assert len(notes(result, "double")) == 2


async def test_a_call_without_a_double_ends_the_trial(loaded: Any) -> None:
    answers: JsonValue = [{"args": {"sides": 20}, "result": 4}]

    result = await play_trial(loaded(ROLLER), spec(tool_doubles={"tools": {"roll_die": answers}}))

    assert result.error
    assert result.error.kind == "no_double"


async def test_a_recorded_trial_is_played_again_without_model_and_tools(loaded: Any, tmp_path: Path) -> None:
    agent = loaded(ROLLER)
    module = sys.modules[type(agent.app.root_agent.model).__module__]

    first = await play_trial(agent, spec(Recording("record", str(tmp_path))))
    n_asked = len(module.asked)
    again = await play_trial(agent, replace(spec(Recording("replay", str(tmp_path))), seed=5))

    assert again.status == "finished", again.error
    assert results(again) == results(first) == [({"sides": 6}, 6, False), ({"sides": 8}, 8, False)]
    assert [turn.answer for turn in again.transcript.turns] == ["got 6", "got 8"]
    assert again.transcript.final_state == {"rolls": [6, 8]}
    assert len(module.asked) == n_asked
    assert {(usage.is_replayed, usage.cost) for usage in again.usages} == {(True, 0.0)}
    assert not any(usage.is_replayed for usage in first.usages)
    assert len(notes(again, "recording")) == 2
    CURRENT_RECORDER.set(None)


async def test_a_call_missing_in_a_replay_is_an_error(loaded: Any, tmp_path: Path) -> None:
    result = await play_trial(loaded(ROLLER), spec(Recording("replay", str(tmp_path))))

    assert result.error
    assert result.error.kind == "not_recorded"
    CURRENT_RECORDER.set(None)
