"""What every executor does, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from evaldesk.engine import Executor, GradeSpec, InlineExecutor, LocalExecutor, drive
from evaldesk.model import AgentRef, Criterion, TrialResult, TrialSpec

pytestmark = pytest.mark.anyio

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


@pytest.fixture(params=[InlineExecutor, LocalExecutor])
async def executor(request: pytest.FixtureRequest) -> AsyncIterator[Executor]:
    made: Executor = request.param(concurrency=4)
    yield made
    await made.close()


async def test_every_trial_has_one_result(executor: Executor, write_agent: Write, trial: Trial, play: Play) -> None:
    agent = write_agent(ECHO)

    results = await play(executor, [trial(agent, i, (f"hello {i}", "again")) for i in range(20)])

    assert sorted(results) == list(range(20))
    assert {result.verdict for result in results.values()} == {"passed"}
    assert [result.transcript.final_state for result in results.values()] == [{"n": 2}] * 20


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

    async with asyncio.timeout(20):
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

    async with asyncio.timeout(20):
        await executor.cancel()
        await executor.submit(trial(agent, 4))
        found = [await anext(results) for _ in range(5)]

    assert {result.status for result in found} == {"cancelled"}
    assert sorted(result.case_index for result in found) == [0, 1, 2, 3, 4]


async def test_close_ends_the_results(executor: Executor, write_agent: Write, trial: Trial) -> None:
    agent = write_agent(WAITS, "waits")
    await executor.submit(trial(agent))

    async with asyncio.timeout(20):
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


async def test_a_drive_hands_out_no_more_once_cancelled(executor: Executor, write_agent: Write, trial: Trial) -> None:
    agent = write_agent(ECHO)
    found: list[TrialResult] = []

    async for result in drive((trial(agent, i) for i in range(10_000)), executor, 4):
        found.append(result)
        await executor.cancel()

    assert len({result.case_index for result in found}) == len(found) < 10_000
