"""Recorded transcripts as agents, and trials that are played again from what models and tools answered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import agent_ref, load_agent
from evaldesk.agents.litellm import LlmAgent
from evaldesk.engine import play_trial
from evaldesk.errors import AgentError, UsageError
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    JsonValue,
    Limits,
    ModelOptions,
    Session,
    ToolCall,
    Transcript,
    TrialResult,
    TrialSpec,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.model.recording import Recording
from evaldesk.settings import read_settings
from evaldesk.wire import to_json

pytestmark = pytest.mark.anyio

ROLLED: list[int] = []


def roll_die(sides: int, state: dict[str, JsonValue]) -> int:
    """Roll a die."""
    ROLLED.append(sides)
    state["n"] = len(ROLLED)
    state.pop("gone", None)
    return len(ROLLED)


@pytest.fixture(autouse=True)
def fresh() -> None:
    ROLLED.clear()
    CURRENT_RECORDER.set(None)


@pytest.fixture
def trial(endpoint: Any, tmp_path: Path) -> Any:
    def trial(mode: Any, index: int = 0, *queries: str, **fields: Any) -> TrialSpec:
        turns = tuple(Turn(query) for query in queries or ("Roll",))
        case = Case("c", turns)
        options = ModelOptions(base_url=endpoint.address, n_retries=0)
        recording = Recording(mode, str(tmp_path / "recordings"))
        ref = AgentRef("dice", "dice:agent")
        return TrialSpec(
            1, 0, index, case, ref, limits=Limits(30), model_options=options, recording=recording, seed=index, **fields
        )

    return trial


AGENT = LlmAgent(name="dice", model="small", instruction="Roll {gone?}.", tools=[roll_die])


def told(result: TrialResult) -> list[Any]:
    return [
        (event.kind, event.text, event.result, event.call and event.call.name)
        for turn in result.transcript.turns
        for event in turn.events
        if event.kind not in {"usage", "log"}
    ]


async def test_a_recorded_trial_is_played_again_without_model_and_tools(endpoint: Any, trial: Any) -> None:
    endpoint.says("", ("c1", "roll_die", '{"sides": 6}')).says("got 1")
    first = await play_trial(AGENT, trial("record"))

    again = await play_trial(AGENT, replace(trial("replay"), seed=99))

    assert again.status == "finished", again.error
    assert told(again) == told(first)
    assert (len(endpoint.asked), ROLLED) == (2, [6])
    assert again.transcript.final_state == first.transcript.final_state == {"n": 1}


async def test_replayed_answers_are_marked_and_cost_nothing(endpoint: Any, trial: Any) -> None:
    endpoint.says("", ("c1", "roll_die", '{"sides": 6}')).says("got 1")
    first = await play_trial(AGENT, trial("auto"))

    again = await play_trial(AGENT, trial("auto"))

    assert [usage.is_replayed for usage in first.usages] == [False, False]
    assert [usage.is_replayed for usage in again.usages] == [True, True]
    assert [(usage.tokens_in, usage.cost) for usage in again.usages] == [(11, 0.0), (11, 0.0)]
    notes = [event.text for event in again.transcript.turns[0].events if event.author == "recording"]
    assert notes == ["roll_die was answered from the recording"]


async def test_each_trial_index_has_answers_of_its_own(endpoint: Any, trial: Any) -> None:
    for index in range(2):
        endpoint.says(f"answer {index}")
        await play_trial(AGENT, trial("record", index))

    again = [await play_trial(AGENT, trial("replay", index)) for index in range(3)]

    assert [result.transcript.turns[0].answer for result in again[:2]] == ["answer 0", "answer 1"]
    assert again[2].error
    assert again[2].error.kind == "not_recorded"
    assert "trial 3" in again[2].error.message


async def test_the_same_question_twice_has_two_answers(endpoint: Any, tmp_path: Path, play: Any) -> None:
    agent = replace(AGENT, tools=[])
    options = ModelOptions(base_url=endpoint.address)
    endpoint.says("first").says("second")

    async def answers(mode: Any) -> list[str]:
        CURRENT_RECORDER.set(Recorder(Recording(mode, str(tmp_path)), 0))
        said = [await play(agent, Session("s", model_options=options), "hi") for _ in range(2)]
        return [event.text for events in said for event in events if event.kind == "agent_message"]

    assert await answers("record") == await answers("replay") == ["first", "second"]


async def test_a_replay_never_asks_and_auto_asks_for_what_is_missing(endpoint: Any, trial: Any) -> None:
    endpoint.says("one").says("two")
    await play_trial(AGENT, trial("record", 0, "a"))

    missing = await play_trial(AGENT, trial("replay", 0, "a", "b"))
    asked = await play_trial(AGENT, trial("auto", 0, "a", "b"))

    assert (missing.status, missing.error and missing.error.kind) == ("errored", "not_recorded")
    assert [usage.is_replayed for usage in asked.usages] == [True, False]
    assert [turn.answer for turn in asked.transcript.turns] == ["one", "two"]
    assert len(endpoint.asked) == 2


async def test_another_instruction_is_another_question(endpoint: Any, trial: Any) -> None:
    endpoint.says("one")
    await play_trial(AGENT, trial("record"))

    result = await play_trial(replace(AGENT, instruction="Roll twice."), trial("replay"))

    assert result.error
    assert "look for what differs" in result.error.message


async def test_a_streamed_answer_comes_as_one_piece(endpoint: Any, tmp_path: Path, play: Any) -> None:
    endpoint.streams("he", "llo")
    session = Session("s", is_streaming=True, model_options=ModelOptions(base_url=endpoint.address))
    CURRENT_RECORDER.set(Recorder(Recording("record", str(tmp_path)), 0))
    await play(AGENT, session, "hi")
    session.turns.clear()
    CURRENT_RECORDER.set(Recorder(Recording("replay", str(tmp_path)), 0))

    events = await play(AGENT, session, "hi")

    assert [event.text for event in events if event.kind == "agent_message"] == ["hello", "hello"]


async def test_no_secret_reaches_the_recording(endpoint: Any, trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SERVICE_API_KEY", "very-secret-value-1234")
    endpoint.says("the key is very-secret-value-1234")

    spec = trial("record")
    await play_trial(AGENT, spec)

    kept = b"".join(path.read_bytes() for path in Path(spec.recording.folder).rglob("*.json"))
    assert kept
    assert b"very-secret-value" not in kept


async def test_a_torn_recording_is_said(endpoint: Any, trial: Any) -> None:
    endpoint.says("one")
    spec = trial("record")
    await play_trial(AGENT, spec)
    for path in Path(spec.recording.folder).rglob("*.json"):
        path.write_bytes(b'{"text": ')

    result = await play_trial(AGENT, trial("replay"))

    assert result.error
    assert "cannot be read" in result.error.message


def test_the_configuration_says_whether_runs_record(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('recording = "auto"\n')

    assert read_settings(tmp_path, (), environment={}).recording.mode == "auto"
    assert read_settings(tmp_path, (), environment={"EVALDESK_RECORDING": "replay"}).recording.mode == "replay"
    with pytest.raises(UsageError, match=r"one of off, record, replay, auto, not .on."):
        read_settings(tmp_path, (), environment={"EVALDESK_RECORDING": "on"})


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


async def test_trials_are_found_by_case_and_index(tmp_path: Path) -> None:
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

    assert [event.kind for event in first] == ["log", "tool_call", "tool_result", "agent_message"]
    assert first[2].call == first[1].call == ToolCall("look", {"a": 1}, "c1")
    assert [event.text for event in second if event.kind == "agent_message"] == ["seven"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("3", "without turns or trials"),
        ("[1]", "message 1 has no role"),
        ('{"turns": [{"events": 3}]}', "no recording"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "t.json").write_text(text)

    with pytest.raises(AgentError, match=said):
        load_agent(agent_ref(f"replay:{tmp_path / 't.json'}"))
