"""Trials that are played again from what models and tools answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents.own.litellm import LlmAgent
from evaldesk.engine import play_trial
from evaldesk.engine.worker.prompts import sent_by_us
from evaldesk.errors import UsageError
from evaldesk.llm.call import SAMPLING, ModelCall
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.model import (
    AgentRef,
    Case,
    JsonValue,
    Limits,
    ModelOptions,
    Session,
    TrialResult,
    TrialSpec,
    Turn,
)
from evaldesk.model.options import Recording
from evaldesk.settings import read_settings

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


async def test_a_repeated_question_has_two_answers(endpoint: Any, tmp_path: Path, play: Any) -> None:
    agent = replace(AGENT, tools=[])
    options = ModelOptions(base_url=endpoint.address)
    endpoint.says("first").says("second")

    async def answers(mode: Any) -> list[str]:
        CURRENT_RECORDER.set(Recorder(Recording(mode, str(tmp_path)), 0))
        said = [await play(agent, Session("s", model_options=options), "hi") for _ in range(2)]
        return [event.text for events in said for event in events if event.kind == "agent_message"]

    assert await answers("record") == await answers("replay") == ["first", "second"]


async def test_a_replay_makes_no_calls_and_auto_makes_missing_ones(endpoint: Any, trial: Any) -> None:
    endpoint.says("one").says("two")
    await play_trial(AGENT, trial("record", 0, "a"))

    missing = await play_trial(AGENT, trial("replay", 0, "a", "b"))
    asked = await play_trial(AGENT, trial("auto", 0, "a", "b"))

    assert (missing.status, missing.error and missing.error.kind) == ("errored", "not_recorded")
    assert [usage.is_replayed for usage in asked.usages] == [True, False]
    assert [turn.answer for turn in asked.transcript.turns] == ["one", "two"]
    assert len(endpoint.asked) == 2


async def test_another_instruction_has_another_recording_key(endpoint: Any, trial: Any) -> None:
    endpoint.says("one")
    await play_trial(AGENT, trial("record"))

    result = await play_trial(replace(AGENT, instruction="Roll twice."), trial("replay"))

    assert result.error
    assert "look for a change since" in result.error.message


@pytest.mark.parametrize("name", SAMPLING)
async def test_another_setting_has_another_recording_key_and_is_named(endpoint: Any, trial: Any, name: str) -> None:
    value = "low" if name == "reasoning_effort" else 1
    endpoint.says("answer")
    await play_trial(AGENT, trial("record"))
    spec = trial("replay")

    again = await play_trial(AGENT, replace(spec, model_options=replace(spec.model_options, **{name: value})))

    assert again.error
    assert again.error.kind == "not_recorded"
    assert sent_by_us(ModelCall("small", (), **{name: value})).settings == {"model": "small", name: value}  # type: ignore[arg-type]


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


async def test_a_truncated_recording_is_an_error(endpoint: Any, trial: Any) -> None:
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
