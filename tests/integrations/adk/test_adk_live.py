"""Live sessions of google-adk are played over one connection, and read as ADK's own evaluation reads them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.agents.installed import skip_without

skip_without("google.adk.live")

from google.adk.agents import LlmAgent  # noqa: E402 - only with google-adk
from google.adk.evaluation.eval_case import EvalCase, Invocation, get_all_tool_calls  # noqa: E402
from google.adk.evaluation.evaluation_generator import EvaluationGenerator  # noqa: E402
from google.adk.evaluation.simulation.static_user_simulator import StaticUserSimulator  # noqa: E402
from google.adk.events.event import Event as AdkEvent  # noqa: E402
from google.genai import types  # noqa: E402
from tests.integrations.adk.live_model import ScriptedLive, Turn, random_turns  # noqa: E402

from evaldesk.agents.agent import close_session_resources  # noqa: E402
from evaldesk.engine.worker.attempt import Attempt  # noqa: E402
from evaldesk.engine.worker.player import play_turn  # noqa: E402
from evaldesk.integrations.adk.adapter import adapt  # noqa: E402
from evaldesk.integrations.adk.live import LiveConnection, as_text, request_queue  # noqa: E402
from evaldesk.model import AgentRef, ModelOptions, Session, TurnRecord  # noqa: E402
from evaldesk.model.media import Media  # noqa: E402

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]
Shown = tuple[str, list[tuple[str, dict[str, Any]]], str]


class Roller:
    """An agent with a scripted live model, and the calls of its tool."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self.rolled: list[int] = []
        self.model = ScriptedLive(model="gemini-live", turns=list(turns), connections=[])
        self.root = LlmAgent(name="roller", model=self.model, instruction="Roll.", tools=[self.roll])

    def roll(self, sides: int) -> int:
        """Roll a die."""
        self.rolled.append(sides)
        return sides


async def played_here(
    turns: Sequence[Turn], *messages: str, timeout_s: float = 60.0
) -> tuple[Roller, list[TurnRecord]]:
    roller = Roller(turns)
    agent = adapt(roller.root, AgentRef("roller", "roller:root_agent"))
    assert agent is not None
    options = ModelOptions(live=True, live_timeout_s=timeout_s)
    session, records = Session("s", model_options=options), []
    for message in messages:
        record = await play_turn(agent, session, message, attempt=Attempt())
        session.turns.append(record)
        records.append(record)
    close_session_resources(session.memory)
    return roller, records


CALL: Turn = [
    [("said", "wait"), ("call", "roll", {"sides": 6}), ("complete",)],
    [("piece", "a "), ("sound", b"\0\1"), ("piece", "six"), ("said", "a six"), ("complete",)],
]


async def played_by_adk(turns: Sequence[Turn], *messages: str) -> list[Shown]:
    contents = [types.Content(role="user", parts=[types.Part(text=message)]) for message in messages]
    invocations = [Invocation(invocation_id=f"i{n}", user_content=each) for n, each in enumerate(contents)]
    simulator = StaticUserSimulator(static_conversation=invocations)
    found = await EvaluationGenerator._generate_inferences_from_root_agent_live(
        Roller(turns).root, simulator, live_timeout_seconds=60
    )
    return [
        (
            _text(each.user_content),
            [(call.name, dict(call.args)) for call in get_all_tool_calls(each.intermediate_data)],
            _text(each.final_response),
        )
        for each in found
    ]


def _text(content: Any) -> str:
    return "".join(part.text or "" for part in content.parts) if content else ""


def shown(record: TurnRecord) -> Shown:
    return record.query, [(call.name, dict(call.args)) for call in record.tool_calls], record.answer


async def test_random_streams_are_the_invocations_of_adk() -> None:
    assert EvalCase  # google-adk has its evaluation installed
    for seed in range(200):
        turns = random_turns(random.Random(seed))
        messages = [f"message {number}" for number in range(len(turns))]

        _, records = await played_here(turns, *messages)

        assert [shown(record) for record in records] == await played_by_adk(turns, *messages), seed


async def test_the_turns_of_a_trial_share_one_connection_and_each_tool_is_called_once() -> None:
    roller, records = await played_here([CALL, [[("text", "bye"), ("complete",)]]], "roll", "thanks")

    (connection,) = roller.model.connections
    assert connection.messages == ["roll", "thanks"]
    assert roller.rolled == [6]
    assert [record.answer for record in records] == ["a six", "bye"]
    assert [(event.kind, event.result) for event in records[0].events if event.kind == "tool_result"] == [
        ("tool_result", 6)
    ]


async def test_the_sound_of_an_answer_is_not_kept_and_its_cost_is_not_known() -> None:
    _, (record,) = await played_here([CALL], "roll")

    assert not any(event.media for event in record.events)
    (usage,) = [event.usage for event in record.events if event.usage]
    assert (usage.model, usage.cost) == ("gemini-live", None)


async def test_what_a_model_hears_is_no_answer_of_the_agent() -> None:
    turn: Turn = [[("heard", "roll please"), ("said", "no"), ("complete",)]]

    _, (record,) = await played_here([turn], "roll")

    assert [event.text for event in record.events if event.kind == "agent_message"] == ["no"]


async def test_an_interrupted_answer_that_goes_on_is_one_turn() -> None:
    turn: Turn = [[("said", "I thi"), ("interrupted",), ("said", "I think so"), ("complete",)]]

    _, (record,) = await played_here([turn], "really?")

    assert (record.answer, record.stop_reason) == ("I think so", "answered")


async def test_a_model_that_does_not_complete_its_turn_is_silent() -> None:
    _, (record,) = await played_here([[[("said", "hm")]]], "roll", timeout_s=0.2)

    assert record.error is not None
    assert record.error.kind == "live_silent"
    assert "did not complete its turn within 0.2 s" in record.error.message


async def test_the_turn_after_a_silent_one_gets_nothing_that_comes_late() -> None:
    roller, records = await played_here([[[("said", "hm")]]], "roll", "and now?", timeout_s=0.2)

    silent, following = roller.model.connections
    assert silent.messages == ["roll"]
    assert (following.messages[0], following.messages[-1]) == ("roll", "and now?")
    assert [record.error and record.error.kind for record in records] == ["live_silent", "live_silent"]


async def test_a_session_that_the_provider_closes_ends_with_the_answer_so_far() -> None:
    roller = Roller([[[("said", "so far")]]])
    connection = LiveConnection(closing_run(roller), request_queue(), asyncio.get_running_loop())
    connection.start()

    events = [event async for event in connection.turn(types.Content(role="user"), 60)]

    assert [as_text(event).content.parts[0].text for event in events] == ["so far"]
    assert not connection.is_open


async def closing_run(roller: Roller, failure: Exception | None = None) -> AsyncIterator[Any]:
    yield AdkEvent(author="roller", output_transcription=types.Transcription(text="so far", finished=True))
    if failure:
        raise failure


async def test_a_connection_that_fails_raises_its_failure_in_the_turn() -> None:
    run = closing_run(Roller([]), ConnectionError("gone"))
    connection = LiveConnection(run, request_queue(), asyncio.get_running_loop())
    connection.start()

    with pytest.raises(ConnectionError, match="gone"):
        _ = [event async for event in connection.turn(types.Content(role="user"), 60)]


async def test_a_message_with_a_sound_is_named_as_not_played() -> None:
    agent = adapt(Roller([]).root, AgentRef("roller", "roller:root_agent"))
    assert agent is not None
    sound = Media("audio/wav", "UklGRg==")
    session = Session("s", model_options=ModelOptions(live=True), media=(sound,))

    record = await play_turn(agent, session, "listen", attempt=Attempt())

    assert record.error is not None
    assert (record.error.kind, "not played live yet" in record.error.message) == ("live_sound", True)


AGENT = """
from google.adk.agents import LlmAgent
from tests.integrations.adk.live_model import ScriptedLive

def roll(sides: int) -> int:
    return sides

PARTS = [[("call", "roll", {"sides": 6}), ("complete",)], [("said", "a six"), ("complete",)]]
root_agent = LlmAgent(name="roller", model=ScriptedLive(model="gemini-live", turns=[PARTS] * 9), tools=[roll])
"""
CALLED_ONCE = {"tool_uses": [{"name": "roll", "args": {"sides": 6}}]}


def written(place: CommandFolder, config: dict[str, Any], *cases: dict[str, Any]) -> Path:
    folder = place.folder / "live_roller"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT)
    (folder / "roll.evalset.json").write_text(json.dumps({"eval_set_id": "roll", "eval_cases": cases}))
    criteria = {"tool_trajectory_avg_score": 1.0, "response_match_score": 1.0}
    (folder / "test_config.json").write_text(json.dumps({"criteria": criteria, **config}))
    return folder


def case(name: str) -> dict[str, Any]:
    answer = {"parts": [{"text": "a six"}]}
    turn = {
        "user_content": {"parts": [{"text": "roll"}]},
        "final_response": answer,
        "intermediate_data": CALLED_ONCE,
    }
    return {"eval_id": name, "conversation": [turn]}


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("config", "flags"),
    [({"live_model_config": {"timeout_seconds": 60}}, ()), ({}, ("--live", "--live-timeout-s", "60"))],
    ids=["criteria file", "flag"],
)
def test_a_criteria_file_or_a_flag_plays_live(
    place: CommandFolder, config: dict[str, Any], flags: tuple[str, ...]
) -> None:
    folder = written(place, config, case("one"))

    done = place.run("eval", folder, folder / "roll.evalset.json", *flags)

    assert done.exit_code == 0, done.output
    options = place.store().runs.summary(1).config.model_options
    assert (options.live, options.live_timeout_s) == (True, 60.0)


@pytest.mark.usefixtures("in_process")
def test_cases_whose_user_speaks_are_named_and_the_others_are_played(place: CommandFolder) -> None:
    user = {"type": "llm_audio", "model": "demo/user", "audio_model": "gemini-tts"}
    scenario = {"starting_prompt": "hello", "conversation_plan": "Ask for a roll."}
    cases = (case("written"), {"eval_id": "spoken", "conversation_scenario": scenario})
    folder = written(place, {"live_model_config": {}, "user_simulator_config": user}, *cases)

    done = place.run("eval", folder, folder / "roll.evalset.json")

    assert done.exit_code == 3, done.output
    assert "✓  written" in done.output
    assert "case 'spoken': its user speaks (type llm_audio), which is not played yet" in done.output
