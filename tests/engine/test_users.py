"""Simulated users: who says what, why they stop, and what it cost."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from evaldesk.agents import users_model
from evaldesk.agents.litellm import LlmAgent
from evaldesk.agents.trial_context import CURRENT_TRIAL
from evaldesk.agents.users import UserState
from evaldesk.agents.users_model import instructions_of
from evaldesk.engine import grade, play_trial
from evaldesk.engine.attempt import Attempt
from evaldesk.errors import ModelError, UsageError
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Case,
    Criterion,
    Event,
    JsonValue,
    Limits,
    Session,
    TrialResult,
    TrialSpec,
    Usage,
)
from evaldesk.model.user import UserConfig, UserStop
from evaldesk.settings import read_settings
from evaldesk.wire import from_json, to_json

pytestmark = pytest.mark.anyio

REF = AgentRef("echo", "scenario_agents:agent")
SCENARIO: dict[str, JsonValue] = {"starting_prompt": "Hello", "conversation_plan": "Book a flight. Then leave."}


class Echo:
    """Answers what it was told, and keeps what it saw."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []

    def describe(self) -> AgentDescription:
        return AgentDescription("echo", "test")

    async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
        self.sessions.append(session)
        session.state["n"] = len(session.turns) + 1
        yield Event("agent_message", text=f"you said {message}")


def spec(scenario: dict[str, JsonValue], **fields: Any) -> TrialSpec:
    return TrialSpec(1, 0, 0, Case("c", scenario=scenario), REF, limits=Limits(30), **fields)


def queries(result: TrialResult) -> list[str]:
    return [turn.query for turn in result.transcript.turns]


@pytest.fixture
def offered() -> Iterator[ModuleType]:
    """The agent's module, for users to be put in."""
    module = sys.modules["scenario_agents"] = ModuleType("scenario_agents")
    yield module
    del sys.modules["scenario_agents"]


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ModelCall]]:
    """Has the user's model answer these texts, one after the other; gives what it was asked."""

    def says(*texts: str | Exception) -> list[ModelCall]:
        asked: list[ModelCall] = []

        async def complete(call: ModelCall, *_: Any, **__: Any) -> ModelReply:
            text = texts[len(asked)]
            asked.append(call)
            if isinstance(text, Exception):
                raise text
            return ModelReply(text, (), Usage(call.model, tokens_in=7, tokens_out=3, cost=0.5))

        monkeypatch.setattr(users_model, "complete", complete)
        return asked

    return says


USER = UserConfig("openai/small")


async def test_a_model_plays_the_user_until_it_is_satisfied(says: Callable[..., list[ModelCall]]) -> None:
    asked = says("Book a flight to Rome", "</finished>")

    result = await play_trial(Echo(), spec(SCENARIO, user=USER))

    assert (result.status, result.stop_reason) == ("finished", "user_satisfied")
    assert queries(result) == ["Hello", "Book a flight to Rome"]
    assert [message["content"] for message in asked[1].messages[1:]] == [
        "Hello! How can I help you today?",
        "Hello",
        "you said Hello",
        "Book a flight to Rome",
        "you said Book a flight to Rome",
    ]


async def test_its_calls_are_counted_as_the_users(says: Callable[..., list[ModelCall]]) -> None:
    says("more", "</finished>")

    result = await play_trial(Echo(), spec(SCENARIO, user=USER))

    assert [(usage.role, usage.tokens_in, usage.cost) for usage in result.usages] == [("user", 7, 0.5)] * 2
    last = result.transcript.turns[-1]
    assert last.events[-1].author == "simulated user"
    assert last.answer == "you said more"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("###STOP###", "user_satisfied"),
        ("###give-up###", "user_gave_up"),
        ("###OUT-OF-SCOPE###", "user_out_of_scope"),
        ("###TRANSFER###", "user_transferred"),
        ("  </finished> \n", "user_satisfied"),
    ],
)
async def test_each_way_to_stop_has_a_reason_of_its_own(
    says: Callable[..., list[ModelCall]], said: str, reason: str
) -> None:
    says(said)

    result = await play_trial(Echo(), spec(SCENARIO, user=USER))

    assert (result.status, result.stop_reason, queries(result)) == ("finished", reason, ["Hello"])


async def test_a_stop_signal_beside_words_waits_for_the_agents_answer(says: Callable[..., list[ModelCall]]) -> None:
    asked = says("Yes, book it. ###STOP###")

    result = await play_trial(Echo(), spec(SCENARIO, user=USER))

    assert queries(result) == ["Hello", "Yes, book it."]
    assert result.stop_reason == "user_satisfied"
    assert len(asked) == 1


async def test_the_cap_is_a_reason_of_its_own(says: Callable[..., list[ModelCall]]) -> None:
    says("a", "b", "c")

    result = await play_trial(Echo(), spec(SCENARIO, user=replace(USER, max_turns=3)))

    assert (result.status, result.stop_reason, queries(result)) == ("finished", "user_cap", ["Hello", "a", "b"])


async def test_a_case_can_have_a_cap_of_its_own(says: Callable[..., list[ModelCall]]) -> None:
    says("a", "b", "c")

    result = await play_trial(Echo(), spec({**SCENARIO, "max_turns": 2}, user=USER))

    assert queries(result) == ["Hello", "a"]


async def test_an_empty_reply_is_asked_for_once_more(says: Callable[..., list[ModelCall]]) -> None:
    asked = says(" ", "a", "</finished>")

    result = await play_trial(Echo(), spec(SCENARIO, user=USER))

    assert queries(result) == ["Hello", "a"]
    assert len(asked) == 3
    assert sum(usage.role == "user" for usage in result.usages) == 3


async def test_a_user_who_stays_silent_is_the_users_error(says: Callable[..., list[ModelCall]]) -> None:
    says("", "")

    result = await play_trial(Echo(), spec(SCENARIO, user=USER))

    assert (result.status, result.verdict, result.stop_reason) == ("errored", "errored", "user_error")
    assert result.error
    assert result.error.kind == "user_error"
    assert len(result.usages) == 2


async def test_a_model_that_fails_is_the_users_error_and_a_fatal_one_keeps_its_kind(
    says: Callable[..., list[ModelCall]],
) -> None:
    says(ModelError("overloaded", kind="server_error"))
    passing = await play_trial(Echo(), spec(SCENARIO, user=USER))
    says(ModelError("no key", kind="authentication", is_fatal=True))
    fatal = await play_trial(Echo(), spec(SCENARIO, user=USER))

    assert [result.stop_reason for result in (passing, fatal)] == ["user_error", "user_error"]
    assert passing.error
    assert fatal.error
    assert [passing.error.kind, fatal.error.kind] == ["user_error", "authentication"]
    assert passing.error.message == "the simulated user: overloaded"


async def test_without_a_starting_prompt_the_user_opens(says: Callable[..., list[ModelCall]]) -> None:
    asked = says("I need a flight", "###STOP###")

    result = await play_trial(Echo(), spec({"starting_prompt": "", "conversation_plan": "Fly."}, user=USER))

    assert queries(result) == ["I need a flight"]
    assert [message["role"] for message in asked[0].messages] == ["system", "user"]


async def test_the_agent_sees_nothing_of_the_scenario(says: Callable[..., list[ModelCall]]) -> None:
    says("more", "###STOP###")
    agent = Echo()

    await play_trial(agent, spec({**SCENARIO, "conversation_plan": "a secret plan"}, user=USER))

    for session in agent.sessions:
        shown = [session.state, session.memory, session.user_id, [turn.query for turn in session.turns]]
        assert "secret" not in repr(shown)
    trial = CURRENT_TRIAL.get()
    assert trial
    assert "secret" not in repr(trial.columns)


async def test_the_agent_that_fails_ends_it(says: Callable[..., list[ModelCall]]) -> None:
    class Broken(Echo):
        async def reply(self, session: Session, message: str) -> AsyncIterator[Event]:
            raise ValueError("broken")
            yield

    asked = says()

    result = await play_trial(Broken(), spec(SCENARIO, user=USER))

    assert (result.status, result.stop_reason, asked) == ("errored", "error", [])


async def test_a_user_who_is_waited_for_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def complete(*_: Any, **__: Any) -> ModelReply:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(users_model, "complete", complete)
    attempt = Attempt(clock=itertools.count(1.0).__next__)
    task = asyncio.create_task(play_trial(Echo(), spec(SCENARIO, user=USER), attempt=attempt))
    await asked.wait()
    attempt.stop = "cancelled"
    task.cancel()

    result = await task

    assert (result.status, queries(result)) == ("cancelled", ["Hello"])


async def test_a_function_of_the_agents_module_plays_the_user(offered: ModuleType) -> None:
    seen: list[Any] = []

    def user_response_fn(state: Any) -> str | None:
        seen.append((state.n_turns, state["last_message"], dict(state.state), [m["role"] for m in state.history]))
        return "more" if state.n_turns < 2 else "/exit"

    offered.user_response_fn = user_response_fn  # type: ignore[attr-defined]

    result = await play_trial(Echo(), spec({"starting_prompt": "Hello"}))

    assert (result.stop_reason, queries(result)) == ("user_satisfied", ["Hello", "more"])
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


async def test_metrics_that_need_turns_stay_unscored_with_the_reason(says: Callable[..., list[ModelCall]]) -> None:
    says("###STOP###")
    criteria = (Criterion("tool_trajectory_avg_score", 1.0), Criterion("response_exact", 1.0))
    trial = replace(spec(SCENARIO, user=USER), criteria=criteria)

    graded = await grade(await play_trial(Echo(), trial), trial.case, criteria)

    assert graded.verdict == "unscored"
    assert all(score.value is None and "No turn of this case" in score.reason for score in graded.scores)


@pytest.mark.parametrize(
    ("persona", "shown"),
    [
        ("EXPERT", "know the subject well"),
        ("a pirate", "a pirate"),
        (
            {"id": "p", "description": "terse", "behaviors": [{"name": "short", "behavior_instructions": ["3 words"]}]},
            "terse\n- short: \n  - 3 words",
        ),
        (None, "ordinary person"),
    ],
)
def test_the_instructions_hold_plan_and_persona(persona: Any, shown: str) -> None:
    text = instructions_of({**SCENARIO, "user_persona": persona}, UserConfig())

    assert shown in text
    assert "Book a flight. Then leave." in text
    assert "{{" not in text


def test_instructions_of_ones_own_must_hold_the_plan_and_the_signal() -> None:
    own = UserConfig(instructions="Plan: {{conversation_plan}}. End: {{ stop_signal }}.", stop_signal="BYE")

    assert instructions_of({"conversation_plan": "fly"}, own) == "Plan: fly. End: BYE."
    with pytest.raises(UsageError, match="stop_signal"):
        UserConfig(instructions="{{ conversation_plan }}")


def test_the_configuration_file_names_the_user(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text(
        '[user]\nmodel = "openai/x"\nmax_turns = 5\n[user.options]\ntemperature = 0\n'
    )

    user = read_settings(tmp_path, (), environment={}).user

    assert (user.model, user.max_turns, user.options.temperature) == ("openai/x", 5, 0)
    assert from_json(to_json(user), UserConfig) == user


def test_a_wrong_key_of_the_user_is_named(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text('[user]\nmodl = "x"\n')

    with pytest.raises(UsageError, match=r"\[user\] may have the keys"):
        read_settings(tmp_path, (), environment={})


def test_the_documentation_shows_what_is_read(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulated-users.md").read_text("utf-8")
    (tmp_path / "evaldesk.toml").write_text(re.findall(r"```toml\n(.*?)```", text, re.DOTALL)[0])
    (case,) = re.findall(r"```json\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0], names)  # noqa: S102 - our own documentation

    user = read_settings(tmp_path, (), environment={}).user
    instructions = instructions_of(json.loads(case)["conversation_scenario"], user)

    assert (user.max_turns, user.options.api_key_env) == (12, "USER_MODEL_KEY")
    assert "You ordered a lamp last week." in instructions
    assert names["user_response_fn"](UserState([], {}, "It is refunded.", 2)) == "/exit"
    assert names["user_response_fn"](UserState([], {}, "No.", 3)) is None
    assert all(f"`{reason}`" in text for reason in get_args(UserStop))
