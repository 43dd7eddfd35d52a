"""What every executor does, whatever it is made of."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests import fake_docker
from tests.engine.curious import CURIOUS, SECRET, looks
from tests.islands import has_island
from tests.ray_cluster import ray_address
from tests.virtual_environments import make_environment

from evaldesk.desk.runs.driver import trial_spec
from evaldesk.engine import Executor, GradeSpec, InlineExecutor, LocalExecutor, drive
from evaldesk.engine.launch import ContainerLauncher, ProcessLauncher
from evaldesk.model import (
    AgentRef,
    Case,
    Container,
    Criterion,
    Expected,
    JsonValue,
    RunConfig,
    TrialResult,
    TrialSpec,
    Turn,
)
from evaldesk.model.pinned import PINNED

pytestmark = [pytest.mark.anyio, pytest.mark.long]

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

ECHO = """
    from evaldesk.model import Event

    async def agent(message, state):
        state["n"] = state.get("n", 0) + 1
        yield Event("agent_message", text=message)
"""
WAITS = """
    import asyncio

    async def agent(message):
        await asyncio.Event().wait()
"""

HANGS_S = 300.0
"""No trial here takes so long, also where its host and its worker start on a machine that has much else to do."""
KINDS = ["inline", "local", "interpreter", "container", *(["hosts", "ray"] if has_island("ray") else [])]


@pytest.fixture(params=KINDS)
async def executor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Executor]:
    made = opened(request, tmp_path, monkeypatch)
    yield made
    await made.close()


def opened(request: pytest.FixtureRequest, root: Path, monkeypatch: pytest.MonkeyPatch) -> Executor:
    """An executor of each kind, for agents below `root`."""
    if request.param == "inline":
        return InlineExecutor(concurrency=4)
    if request.param == "interpreter":
        return LocalExecutor(concurrency=4, launcher=ProcessLauncher(sys.executable))
    if request.param == "container":
        fake_docker.need_namespaces()
        monkeypatch.setenv("PATH", f"{fake_docker.install(root / 'docker')}{os.pathsep}{os.environ['PATH']}")
        make_environment(root / "docker" / "images" / "shop_7")
        return LocalExecutor(concurrency=4, launcher=ContainerLauncher(Container("shop:7"), str(root)))
    if request.param in ("hosts", "ray"):
        from tests.integrations.ray.hosts import in_process, on_ray

        return in_process(root) if request.param == "hosts" else on_ray(ray_address(request), root, hosts=1)
    return LocalExecutor(concurrency=4)


async def test_every_trial_has_one_result(executor: Executor, write_agent: Write, trial: Trial, play: Play) -> None:
    agent = write_agent(ECHO)

    results = await play(executor, [trial(agent, i, (f"hello {i}", "again")) for i in range(20)])

    assert sorted(results) == list(range(20))
    assert {result.verdict for result in results.values()} == {"passed"}
    assert [result.transcript.final_state for result in results.values()] == [{"n": 2}] * 20


HEARD = """
    heard = []

    def agent(message, state, session):
        heard.append(message)
        state["n"] += 1
        return f"{heard} after {[(turn.query, turn.answer) for turn in session.turns]}"
"""


async def test_pinned_turns_of_a_case_are_the_history_of_the_agent_and_no_turn_of_it(
    executor: Executor, write_agent: Write, play: Play
) -> None:
    records: list[JsonValue] = [
        {"events": [{"kind": "agent_message", "text": "eins"}], "state_after": {"n": 6}},
        {"events": [{"kind": "agent_message", "text": "zwei"}]},
    ]
    answer = "['three'] after [('one', 'eins'), ('two', 'zwei')]"
    turns = (Turn("one"), Turn("two"), Turn("three", Expected(reference=answer)))
    case = Case("pinned", turns, extra={PINNED: {"turns": records}})
    config = RunConfig(write_agent(HEARD, "heard"), "set", criteria=(Criterion("response_exact", 1.0),))

    results = await play(executor, [trial_spec(config, 1, case, 0, 0)])

    result = results[0]
    assert (result.verdict, result.n_prefix_turns) == ("passed", 2), result.error
    assert [turn.query for turn in result.transcript.turns] == ["one", "two", "three"]
    assert result.transcript.final_state == {"n": 7}
    assert [score.turn for score in result.scores if score.value is not None and score.turn is not None] == [2]


async def test_an_agent_finds_no_later_message_in_its_process(
    executor: Executor, write_agent: Write, trial: Trial, play: Play
) -> None:
    if isinstance(executor, InlineExecutor):
        pytest.skip("the agent is in the process of the caller, who has the case")
    agent = write_agent(CURIOUS, "curious")

    results = await play(executor, [trial(agent, queries=("look", f"it is {SECRET}"))])

    first, second = looks(results[0])
    assert (first, second[:16]) == ("found: ", "found: in_memory")


async def test_an_agent_that_raises_is_an_error_with_a_trace(
    executor: Executor, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent("def agent(message):\n    raise ValueError('no dice')\n")

    results = await play(executor, [trial(agent)])

    error = results[0].error
    assert error is not None
    assert (results[0].verdict, error.kind, error.message) == ("errored", "agent_raised", "ValueError: no dice")
    assert "scripted_agent.py" in error.trace


async def test_an_agent_that_cannot_be_imported_is_an_error_with_a_trace(
    executor: Executor, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent("import no_such_module_at_all\n", "broken")

    results = await play(executor, [trial(agent), trial(agent, 1)])

    assert [result.status for result in results.values()] == ["errored", "errored"]
    error = results[1].error
    assert error is not None
    assert error.kind == "agent_import"
    assert "no_such_module_at_all" in error.message
    assert "broken_agent.py" in error.trace


async def test_a_trial_that_waits_too_long_times_out(
    executor: Executor, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent(WAITS, "waits")

    async with asyncio.timeout(HANGS_S):
        results = await play(executor, [trial(agent, timeout_s=0.3)])

    error = results[0].error
    assert error is not None
    assert (results[0].status, results[0].verdict, error.kind) == ("timed_out", "errored", "timed_out")
    assert error.message == "not finished within 0.3 s"
    assert "waits_agent.py" in error.trace


async def test_cancel_ends_what_is_under_way_and_takes_no_more(
    executor: Executor, write_agent: Write, trial: Trial
) -> None:
    agent = write_agent(WAITS, "waits")
    for index in range(4):
        await executor.submit(trial(agent, index))
    results = executor.results()

    async with asyncio.timeout(HANGS_S):
        await executor.cancel()
        await executor.submit(trial(agent, 4))
        found = [await anext(results) for _ in range(5)]

    assert {result.status for result in found} == {"cancelled"}
    assert sorted(result.case_index for result in found) == [0, 1, 2, 3, 4]


async def test_close_ends_the_results(executor: Executor, write_agent: Write, trial: Trial) -> None:
    agent = write_agent(WAITS, "waits")
    await executor.submit(trial(agent))

    async with asyncio.timeout(HANGS_S):
        await executor.close()
        found = [result async for result in executor.results()]

    assert [result.status for result in found] == ["cancelled"]


async def test_a_stored_trial_can_be_graded_again(
    executor: Executor, write_agent: Write, trial: Trial, play: Play
) -> None:
    spec = trial(write_agent(ECHO))
    played = (await play(executor, [spec]))[0]

    await executor.submit(GradeSpec(played, spec.case, (Criterion("tool_f1", 0.5),)))
    graded = await anext(executor.results())

    assert graded.transcript == played.transcript
    assert {score.metric for score in graded.scores} == {"tool_f1"}


async def test_an_executor_says_where_its_trials_are_played(
    executor: Executor, write_agent: Write, trial: Trial, play: Play, request: pytest.FixtureRequest
) -> None:
    await play(executor, [trial(write_agent(ECHO))])

    kinds = {place.kind for place in executor.places}
    wanted = {"inline": set(), "container": {"container"}, "hosts": {"host"}, "ray": {"host"}}
    assert kinds == wanted.get(request.node.callspec.params["executor"], {"process"})
    assert {place.state for place in executor.places} <= {"up", "starting"}
    assert sum(place.n_under_way for place in executor.places) == 0
    assert (tuple(executor.pauses), executor.end_reason) == ((), "")


async def test_a_drive_hands_out_no_more_once_cancelled(executor: Executor, write_agent: Write, trial: Trial) -> None:
    agent = write_agent(ECHO)
    found: list[TrialResult] = []

    async for result in drive((trial(agent, i) for i in range(10_000)), executor, 4):
        found.append(result)
        await executor.cancel()

    assert len({result.case_index for result in found}) == len(found) < 10_000
