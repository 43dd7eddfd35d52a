"""An agent knows the present alone: no later message, plan or decision of its user is in its process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.engine.curious import CURIOUS, SECRET, looks

from evaldesk.engine import LocalExecutor, drive, sandbox
from evaldesk.engine.launch import OWN, Launcher, SandboxLauncher
from evaldesk.model import AgentRef, Case, JsonValue, Limits, TrialResult, TrialSpec, Turn
from evaldesk.model.evalset import DECISIONS
from evaldesk.model.options import UserConfig

pytestmark = pytest.mark.anyio

NOTHING = "found: "
TURNS = (Turn("What do you find?"), Turn(f"The word is {SECRET}."), Turn("And now?"))
PLAN: dict[str, JsonValue] = {
    "starting_prompt": "Hello!",
    "conversation_plan": f"Ask for the time. Then ask for {SECRET}.",
}
OF_MODULE = '''

def user_response_fn(state):
    """Sends the plan of the scenario with its third message."""
    return [None, "What do you find?", state.scenario["conversation_plan"], "/exit"][state.n_turns]
'''


@pytest.fixture
def write(tmp_path: Path, own_imports: None) -> Callable[[str], AgentRef]:
    """Writes the source of an agent to a module of its own."""

    def write_source(source: str) -> AgentRef:
        folder = tmp_path / "curious"
        folder.mkdir()
        (folder / "curious_agent.py").write_text(source)
        return AgentRef("curious", "curious_agent:agent", root=str(folder), folder=str(folder))

    return write_source


async def played(
    ref: AgentRef,
    cases: Sequence[Case],
    isolation: str = "shared",
    launcher: Launcher = OWN,
    user: UserConfig | None = None,
) -> list[TrialResult]:
    specs = [
        TrialSpec(1, index, 0, case, ref, (), Limits(60.0), user=user or UserConfig())
        for index, case in enumerate(cases)
    ]
    executor = LocalExecutor(1, 1, isolation=isolation, launcher=launcher)
    try:
        return [result async for result in drive(specs, executor, 1)]
    finally:
        await executor.close()


@pytest.mark.parametrize("isolation", ["shared", "process", "auto"])
async def test_a_later_message_is_in_no_process_of_an_agent(isolation: str, write: Callable[[str], AgentRef]) -> None:
    (result,) = await played(write(CURIOUS), [Case("c", TURNS)], isolation)

    first, second, _ = looks(result)
    assert first == NOTHING
    assert second.startswith("found: in_memory in_objects in_frames")  # so the agent looks well
    assert [turn.query for turn in result.transcript.turns] == [turn.query for turn in TURNS]


async def test_players_that_are_forked_have_no_later_message(write: Callable[[str], AgentRef]) -> None:
    results = await played(write(CURIOUS), [Case("a", TURNS), Case("b", TURNS)], "process")

    assert [looks(result)[0] for result in results] == [NOTHING] * 2


@pytest.mark.skipif(bool(sandbox.problem()), reason="no user namespaces on this machine")
async def test_a_later_message_is_in_no_sandbox(write: Callable[[str], AgentRef], tmp_path: Path) -> None:
    launcher = SandboxLauncher(OWN, (str(tmp_path / "evalsets"),), (), ())

    (result,) = await played(write(CURIOUS), [Case("c", TURNS)], "sandbox", launcher)

    assert looks(result)[0] == NOTHING


async def test_decisions_of_a_later_turn_are_in_no_process_of_an_agent(write: Callable[[str], AgentRef]) -> None:
    decisions: list[JsonValue] = [{"turn": 2, "tool": "pay", "decision": "deny", "reason": SECRET}]
    turns = (TURNS[0], Turn("And now?"))

    (result,) = await played(write(CURIOUS), [Case("c", turns, extra={DECISIONS: decisions})])

    first, second = looks(result)
    assert first == NOTHING
    assert second != NOTHING


@pytest.mark.parametrize("isolation", ["shared", "process"])
async def test_the_plan_of_a_simulated_user_is_in_no_process_of_an_agent(
    isolation: str, write: Callable[[str], AgentRef]
) -> None:
    user = UserConfig(model="demo/user")

    (result,) = await played(write(CURIOUS), [Case("c", scenario=PLAN)], isolation, user=user)

    assert looks(result)[:2] == [NOTHING] * 2
    assert SECRET.lower() in result.transcript.turns[2].query.lower()
    assert {turn.asked_by for turn in result.transcript.turns} == {"simulated"}


async def test_a_function_of_the_agents_module_plays_its_user_in_another_process(
    write: Callable[[str], AgentRef],
) -> None:
    (result,) = await played(write(CURIOUS + OF_MODULE), [Case("c", scenario=PLAN)])

    assert [turn.query for turn in result.transcript.turns][:2] == ["Hello!", "What do you find?"]
    assert looks(result)[:2] == [NOTHING] * 2
    assert SECRET in result.transcript.turns[2].query
    assert result.stop_reason == "user_satisfied"
