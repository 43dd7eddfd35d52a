"""Recorded transcripts as agents."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import agent_ref, load_agent
from evaldesk.engine import play_trial
from evaldesk.errors import AgentError
from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Limits,
    Session,
    ToolCall,
    Transcript,
    TrialSpec,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.wire import to_json

pytestmark = pytest.mark.anyio


def transcript(*answers: str) -> Transcript:
    call = ToolCall("roll_die", {"sides": 6}, "c1")
    turns = []
    for index, answer in enumerate(answers):
        events = (
            Event("user_message", text=f"q{index}"),
            Event("usage", usage=Usage("m", tokens_in=3, cost=0.5)),
            Event("tool_call", call=call),
            Event("tool_result", call=call, result=4),
            Event("agent_message", text=answer),
        )
        turns.append(TurnRecord(f"q{index}", events))
    return Transcript(tuple(turns))


async def test_a_recorded_transcript_answers_as_it_did(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(to_json(transcript("one", "two")))
    agent = load_agent(agent_ref(f"replay:{tmp_path / 't.json'}"))
    spec = TrialSpec(1, 0, 0, Case("any", (Turn("q0"), Turn("q1"))), AgentRef("r", ""), limits=Limits(30))

    result = await play_trial(agent, spec)
    again = await play_trial(agent, replace(spec, trial_index=1))

    assert [turn.answer for turn in result.transcript.turns] == ["one", "two"]
    assert [(usage.cost, usage.is_replayed) for usage in result.usages] == [(0.0, True)] * 2
    assert again.error
    assert "the recording has no case 'any', trial 2" in again.error.message
    assert "replayed from t.json, turn 1" in [event.text for event in result.transcript.turns[0].events]


async def test_trials_are_matched_by_case_and_index(tmp_path: Path) -> None:
    trials = [
        {"case_id": case, "trial_index": index, "transcript": transcript(f"{case}{index}")}
        for case in ("a", "b")
        for index in range(2)
    ]
    (tmp_path / "t.json").write_bytes(to_json({"trials": trials}))
    agent = load_agent(agent_ref(f"replay:{tmp_path / 't.json'}"))

    async def answer(case: str, index: int) -> str:
        spec = TrialSpec(1, 0, index, Case(case, (Turn("q0"),)), AgentRef("r", ""), limits=Limits(30))
        result = await play_trial(agent, spec)
        return result.error.message if result.error else result.transcript.turns[0].answer

    assert await answer("b", 1) == "b1"
    assert await answer("a", 0) == "a0"
    assert "case 'b', trial 3" in await answer("b", 2)


async def test_another_question_is_an_error_and_no_answer(tmp_path: Path, play: Any) -> None:
    (tmp_path / "t.json").write_bytes(to_json(transcript("one")))
    agent = load_agent(agent_ref(f"replay:{tmp_path / 't.json'}"))

    [event] = await play(agent, Session("s"), "something else")

    assert event.error.kind == "not_recorded"
    assert "another question at turn 1: 'q0', not 'something else'" in event.error.message


async def test_a_list_of_chat_messages_is_a_recording(tmp_path: Path, play: Any) -> None:
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "7"},
        {"role": "assistant", "content": "seven"},
        {"role": "user", "content": "bye"},
        {"role": "assistant", "content": "seven"},
    ]
    (tmp_path / "t.json").write_text(json.dumps(messages))
    agent = load_agent(agent_ref(f"replay:{tmp_path / 't.json'}"))
    session = Session("s")

    first = await play(agent, session, "hi")
    second = await play(agent, session, "bye")

    assert [event.kind for event in first] == ["log", "log", "tool_call", "tool_result", "agent_message"]
    assert first[3].call == first[2].call == ToolCall("look", {"a": 1}, "c1")
    assert [event.text for event in second if event.kind == "agent_message"] == ["seven"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("3", "without turns or trials"),
        ("[1]", r"\[0\]: expected an object"),
        ('{"turns": [{"events": 3}]}', "no recording"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.json").write_text(text)

    with pytest.raises(AgentError, match=said):
        load_agent(agent_ref(f"replay:{tmp_path / 't.json'}"))
