"""Time limits of turns and tools, and what a worker does when one is reached."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import load_agent
from evaldesk.agents.tools.functions import tool_of
from evaldesk.desk.runs.plan import RunOptions, with_defaults
from evaldesk.engine.driver.inline import InlineExecutor
from evaldesk.model import Case, Criterion, Limits, Session, TrialResult, TrialSpec, Turn
from evaldesk.settings import read_settings

pytestmark = pytest.mark.anyio

SLEEPER = """
import asyncio

async def root_agent(message):
    if message == "wait":
        await asyncio.sleep(3600)
    return "here"
"""


async def test_an_async_tool_that_does_not_end_gives_the_model_an_error() -> None:
    async def wait() -> None:
        await asyncio.sleep(3600)

    outcome = await tool_of(wait).run({}, {}, timeout_s=0.01)

    assert (outcome.result, outcome.is_error) == ("wait: not finished within 0.01 s", True)


async def test_a_blocking_tool_is_abandoned_at_its_limit() -> None:
    held = threading.Event()

    def wait() -> None:
        held.wait(60)

    outcome = await tool_of(wait).run({}, {}, timeout_s=0.01)

    held.set()
    assert (outcome.result, outcome.is_error) == ("wait: not finished within 0.01 s", True)


async def test_a_limit_does_not_change_a_tool_that_ends_in_time() -> None:
    def roll(sides: int, state: dict[str, Any]) -> int:
        state["rolled"] = sides
        return sides

    state: dict[str, Any] = {}
    outcome = await tool_of(roll).run({"sides": 6}, state, timeout_s=60)

    assert (outcome.result, outcome.is_error, state) == (6, False, {"rolled": 6})


async def test_a_timeout_of_the_tool_itself_is_reported_as_its_error() -> None:
    async def fetch() -> None:
        raise TimeoutError("the shop does not answer")

    outcome = await tool_of(fetch).run({}, {}, timeout_s=60)

    assert outcome.result == "TimeoutError: the shop does not answer"


async def test_the_tools_of_one_reply_run_at_the_same_time(loaded: Any, play: Any, endpoint: Any) -> None:
    source = f'''
import asyncio
from evaldesk import LlmAgent

here = []

async def meet(name: str) -> str:
    """Come back when both are here."""
    here.append(name)
    while len(here) < 2:
        await asyncio.sleep(0.001)
    return f"{{name}} met"

root_agent = LlmAgent(name="a", model="small", api_base="{endpoint.address}", tools=[meet])
'''
    endpoint.says("", ("c1", "meet", '{"name": "Ann"}'), ("c2", "meet", '{"name": "Bob"}')).says("done")
    session = Session("s")

    events = await asyncio.wait_for(play(loaded(source), session, "go"), 300)

    kinds = [event.kind for event in events if event.kind.startswith("tool")]
    assert kinds == ["tool_call", "tool_call", "tool_result", "tool_result"]
    assert [event.result for event in events if event.kind == "tool_result"] == ["Ann met", "Bob met"]
    assert [message["tool_call_id"] for message in endpoint.asked[1]["messages"] if message["role"] == "tool"] == [
        "c1",
        "c2",
    ]


async def test_a_turn_that_takes_too_long_ends_the_trial(tmp_path: Path) -> None:
    result = await _played(tmp_path, "hi", "wait", limits=Limits(trial_timeout_s=60, turn_timeout_s=0.05))

    assert (result.status, result.stop_reason, result.error and result.error.message) == (
        "timed_out",
        "timed_out",
        "not finished within 0.05 s",
    )
    assert [turn.stop_reason for turn in result.transcript.turns] == ["answered", "timed_out"]


async def test_each_turn_has_its_own_limit(tmp_path: Path) -> None:
    result = await _played(tmp_path, "hi", "hi", "hi", limits=Limits(trial_timeout_s=60, turn_timeout_s=30))

    assert (result.status, len(result.transcript.turns)) == ("finished", 3)


def test_the_file_names_limits_that_a_run_may_change(tmp_path: Path) -> None:
    (tmp_path / "evaldesk.toml").write_text("[limits]\nturn_timeout_s = 20\ntool_timeout_s = 5\n")
    settings = read_settings(tmp_path, (tmp_path,), environment={})

    asked = with_defaults(RunOptions(tool_timeout_s=9), settings, "").overrides

    limits = {name: asked.get(name) for name in ("timeout_s", "turn_timeout_s", "tool_timeout_s", "judge_timeout_s")}
    assert limits == {"timeout_s": 120, "turn_timeout_s": 20, "tool_timeout_s": 9, "judge_timeout_s": None}


async def _played(tmp_path: Path, *queries: str, limits: Limits) -> TrialResult:
    from evaldesk.model import AgentRef

    folder = tmp_path / "sleeper"
    folder.mkdir()
    folder.joinpath("agent.py").write_text(SLEEPER)
    ref = AgentRef("sleeper", "sleeper.agent:root_agent", root=str(tmp_path), folder=str(folder))
    load_agent(ref)
    case = Case("c", turns=tuple(Turn(query) for query in queries))
    executor = InlineExecutor(1)
    await executor.submit(TrialSpec(1, 0, 0, case, ref, (Criterion("response_match_score", 0.5),), limits))
    async for result in executor.results():
        await executor.close()
        return result
    raise AssertionError("no result")
