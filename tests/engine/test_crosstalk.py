"""Trials that run at once in one worker: what one prints, keeps and says is not in another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from evaldesk.engine import LocalExecutor
from evaldesk.model import AgentRef, TrialResult, TrialSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]


async def test_prints_are_in_the_log_of_their_own_trial(
    local: LocalExecutor, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent("""
        import asyncio, logging, sys

        async def agent(message):
            for number in range(20):
                print(message, number)
                await asyncio.sleep(0)
                print(message, file=sys.stderr)
                logging.getLogger("mine").warning(message)
            return await asyncio.to_thread(shout, message)

        def shout(message):
            print("from a thread:", message)
            return message
    """)

    results = await play(local, [trial(agent, i, (f"<{i}>",)) for i in range(16)])

    for index, result in results.items():
        lines = result.logs.splitlines()
        assert len(lines) == 61
        assert all(f"<{index}>" in line for line in lines)


async def test_two_trials_at_once_share_no_state(
    local: LocalExecutor, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent("""
        import asyncio

        class agent:
            def __init__(self):
                self.heard = []

            async def reply(self, message, state):
                self.heard.append(message)
                state.setdefault("heard", []).append(message)
                await asyncio.sleep(0.001)
                return f"{self.heard} {state['heard']}"
    """)

    results = await play(local, [trial(agent, i, (f"a{i}", f"b{i}")) for i in range(24)])

    for index, result in results.items():
        heard = [f"a{index}", f"b{index}"]
        assert result.transcript.turns[1].answer == f"{heard} {heard}"


async def test_a_huge_answer_is_cut_and_said_so(
    local: LocalExecutor, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent("""
        from evaldesk.model import Event

        def agent(message):
            for number in range(24):
                yield Event("log", text="x" * 950_000)
            yield "y" * 100_000_000
    """)

    async with asyncio.timeout(300):
        results = await play(local, [trial(agent)])

    turn = results[0].transcript.turns[0]
    assert results[0].status == "finished"
    assert "more characters were cut" in turn.answer
    assert len(turn.events) == 26


async def test_what_a_trial_leaves_running_is_ended(write_agent: Write, trial: Trial, play: Play) -> None:
    agent = write_agent("""
        import asyncio

        ended = []

        async def linger():
            try:
                await asyncio.Event().wait()
            finally:
                ended.append("ended")

        async def agent(message):
            if message == "linger":
                agent.task = asyncio.create_task(linger())
                await asyncio.sleep(0)
            return f"{message} {ended}"
    """)
    executor = LocalExecutor(n_workers=1, concurrency=1, isolation="shared")

    results = await play(executor, [trial(agent, 0, ("linger",)), trial(agent, 1, ("look",))], 1)
    await executor.close()

    assert results[0].transcript.turns[0].answer == "linger []"
    assert results[1].transcript.turns[0].answer == "look ['ended']"
