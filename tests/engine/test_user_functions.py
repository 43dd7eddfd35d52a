"""Users who are functions, and who plays the user where nobody is named."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import pytest
from tests.engine.simulated import SCENARIO, Echo, queries, spec

from evaldesk.agents.own.litellm import LlmAgent
from evaldesk.engine import play_trial
from evaldesk.model import (
    JsonValue,
)
from evaldesk.model.options import UserConfig

pytestmark = pytest.mark.anyio


@pytest.fixture
def offered() -> Iterator[ModuleType]:
    """The agent's module, for users to be put in."""
    module = sys.modules["scenario_agents"] = ModuleType("scenario_agents")
    yield module
    del sys.modules["scenario_agents"]


async def test_a_function_of_the_agents_module_plays_the_user(offered: ModuleType) -> None:
    seen: list[Any] = []

    def user_response_fn(state: Any) -> str | None:
        seen.append((state.n_turns, state["last_message"], dict(state.state), [m["role"] for m in state.history]))
        return "more" if state.n_turns < 2 else "/exit"

    offered.user_response_fn = user_response_fn  # type: ignore[attr-defined]

    result = await play_trial(Echo(), spec({"starting_prompt": "Hello"}))

    assert (result.stop_reason, queries(result)) == ("user_satisfied", ["Hello", "more"])
    assert {turn.asked_by for turn in result.transcript.turns} == {"simulated"}
    assert seen[0] == (1, "you said Hello", {"n": 1}, ["user", "assistant"])


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([None], "user_gave_up"),
        ([3], "user_error"),
        (["a", "b", "c"], "user_cap"),
        (["", "/exit"], "user_satisfied"),
        (["", " "], "user_error"),
    ],
)
async def test_a_function_may_give_up_fail_or_never_end(
    offered: ModuleType, answers: Sequence[Any], reason: str
) -> None:
    replies = iter(answers)

    async def user_response_fn(_: Any) -> Any:
        return next(replies)

    offered.user_response_fn = user_response_fn  # type: ignore[attr-defined]

    result = await play_trial(Echo(), spec({"starting_prompt": "Hello"}, user=UserConfig(max_turns=3)))

    assert result.stop_reason == reason


async def test_a_scenario_names_one_of_the_offered_users_and_never_imports_one(offered: ModuleType) -> None:
    offered.simulated_users = {"quiet": lambda state: None}  # type: ignore[attr-defined]

    found = await play_trial(Echo(), spec({"starting_prompt": "Hello", "user": "quiet"}))
    refused = await play_trial(Echo(), spec({"starting_prompt": "Hello", "user": "os:getcwd"}))

    assert found.stop_reason == "user_gave_up"
    assert refused.error
    assert refused.error.kind == "no_user"
    assert "there are: quiet" in refused.error.message


async def test_a_scenario_without_a_user_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVALDESK_USER_MODEL", raising=False)

    result = await play_trial(Echo(), spec(SCENARIO))

    assert result.error
    assert result.error.kind == "no_user"
    assert "[user]" in result.error.message
    assert "EVALDESK_USER_MODEL" in result.error.message


async def test_the_demo_agents_have_a_scripted_user() -> None:
    def roll_die(sides: int) -> int:
        """Roll a die."""
        return sides

    agent = LlmAgent(name="dice", model="demo/dice?mistakes=0", tools=[roll_die])
    scenario: dict[str, JsonValue] = {
        "starting_prompt": "Hi!",
        "conversation_plan": "Ask the agent to roll a d6. Then ask it to roll a d20.",
        "user_persona": "NOVICE",
    }

    result = await play_trial(agent, spec(scenario))

    assert queries(result) == ["Hi!", "Roll a d6.", "Roll a d20."]
    assert [call.args for turn in result.transcript.turns for call in turn.tool_calls] == [{"sides": 6}, {"sides": 20}]
    assert result.stop_reason == "user_satisfied"
    assert {usage.role for usage in result.usages} == {"agent", "user"}
