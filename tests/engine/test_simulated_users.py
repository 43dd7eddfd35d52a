"""Simulated users in processes of their own: their calls are of the trial, and their failures are theirs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.agents.endpoint import served

from evaldesk.engine import LocalExecutor, drive
from evaldesk.model import AgentRef, Case, JsonValue, Limits, ModelOptions, TrialResult, TrialSpec
from evaldesk.model.options import Recording, UserConfig

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
SCENARIO: dict[str, JsonValue] = {"starting_prompt": "Hello", "conversation_plan": "Book a flight. Then leave."}
ECHO = """
import os

def agent(message, state):
    state['n'] = state.get('n', 0) + 1
    return f'you said {message}'
"""


async def played(specs: Sequence[TrialSpec]) -> list[TrialResult]:
    executor = LocalExecutor(1, 1)
    try:
        return [result async for result in drive(specs, executor, 1)]
    finally:
        await executor.close()


def spec(
    ref: AgentRef, index: int = 0, user: UserConfig | None = None, recording: Recording | None = None
) -> TrialSpec:
    own, case = recording or Recording(), Case("c", scenario=SCENARIO)
    return TrialSpec(1, index, 0, case, ref, (), Limits(60.0), user=user or UserConfig(), recording=own)


async def test_calls_of_the_users_model_are_of_the_trial_with_their_prompts(
    write_agent: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    ref = write_agent(ECHO)
    with served() as endpoint:
        endpoint.says("Book it.").says("</finished>")
        user = UserConfig("openai/small", ModelOptions(base_url=endpoint.address))
        recorded = Recording("record", str(tmp_path / "calls"))

        (result,) = await played([spec(ref, user=user, recording=recorded)])

    assert result.error is None
    assert [turn.query for turn in result.transcript.turns] == ["Hello", "Book it."]
    assert (result.stop_reason, result.transcript.final_state) == ("user_satisfied", {"n": 2})
    assert [(usage.role, usage.tokens_in) for usage in result.usages if usage.role == "user"] == [("user", 11)] * 2
    assert result.prompts
    assert [(call.role, call.turn) for call in result.prompts.calls] == [("user", 1), ("user", 2)]
    assert "you said Hello" in str(result.prompts.messages(0))
    (again,) = await played([spec(ref, user=user, recording=Recording("replay", str(tmp_path / "calls")))])
    assert [turn.query for turn in again.transcript.turns] == ["Hello", "Book it."]
    assert {usage.is_replayed for usage in again.usages if usage.role == "user"} == {True}


DYING = (
    ECHO
    + '''

def user_response_fn(state):
    """Dies in the first trial, and is satisfied in others."""
    if not os.path.exists(__file__ + ".died"):
        open(__file__ + ".died", "w").close()
        os._exit(3)
    return "/exit"
'''
)


async def test_a_user_whose_process_dies_is_the_error_of_its_trial_alone(write_agent: Write) -> None:
    ref = write_agent(DYING)

    first, second = await played([spec(ref), spec(ref, 1)])

    assert first.error
    assert (first.status, first.error.kind) == ("errored", "user_error")
    assert "exit code 3" in first.error.message
    assert (second.status, second.stop_reason) == ("finished", "user_satisfied")


async def test_a_user_that_does_not_answer_ends_with_the_trial(write_agent: Write) -> None:
    source = ECHO + "\nimport asyncio\n\nasync def user_response_fn(state):\n    await asyncio.Event().wait()\n"
    ref = write_agent(source)
    case = Case("c", scenario=SCENARIO)

    (result,) = await played([TrialSpec(1, 0, 0, case, ref, (), Limits(2.0))])

    assert result.status in ("timed_out", "errored")
    assert [turn.query for turn in result.transcript.turns] == ["Hello"]
