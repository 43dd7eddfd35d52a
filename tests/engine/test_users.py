"""Simulated users: who says what, why they stop, and what it cost."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.engine.simulated import SCENARIO, Echo, queries, spec

from evaldesk.agents.trial_context import CURRENT_TRIAL
from evaldesk.agents.users import users
from evaldesk.engine import grade, play_trial
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.errors import ModelError
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.model import (
    Criterion,
    Event,
    Session,
    Usage,
)
from evaldesk.model.options import UserConfig

pytestmark = pytest.mark.anyio


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

        monkeypatch.setattr(users, "complete", complete)
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

    monkeypatch.setattr(users, "complete", complete)
    attempt = Attempt(clock=itertools.count(1.0).__next__)
    task = asyncio.create_task(play_trial(Echo(), spec(SCENARIO, user=USER), attempt=attempt))
    await asked.wait()
    attempt.stop = "cancelled"
    task.cancel()

    result = await task

    assert (result.status, queries(result)) == ("cancelled", ["Hello"])


async def test_metrics_that_need_turns_stay_unscored_with_the_reason(says: Callable[..., list[ModelCall]]) -> None:
    says("###STOP###")
    criteria = (Criterion("tool_trajectory_avg_score", 1.0), Criterion("response_exact", 1.0))
    trial = replace(spec(SCENARIO, user=USER), criteria=criteria)

    graded = await grade(await play_trial(Echo(), trial), trial.case, criteria)

    assert graded.verdict == "unscored"
    assert all(score.value is None and "No turn of this case" in score.reason for score in graded.scores)
