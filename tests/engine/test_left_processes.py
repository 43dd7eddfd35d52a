"""Processes that an agent starts end with its player, whatever group or session they are in."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from evaldesk.engine import AgentHost, LocalExecutor
from evaldesk.model import AgentRef, TrialResult, TrialSpec

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="daemons are found by /proc")]

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

# The daemon is started by a shell that ends at once, in a session of its own.
AGENT = """
    import os, pathlib, signal, subprocess, time

    HERE = pathlib.Path(__file__).parent

    def agent(message):
        pid = HERE / "pid"
        script = f"setsid sleep 86400 >/dev/null 2>&1 & echo $! > {pid}.new; mv {pid}.new {pid}"
        environment = {"PATH": os.environ["PATH"]} if "cleared" in message else None
        subprocess.run(["sh", "-c", script], env=environment, check=True)
        if message == "exit":
            os._exit(3)
        if message == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return message
"""


def is_running(pid: int) -> bool:
    """Whether the process is there and is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("message", ["stay", "stay cleared", "exit", "kill"])
async def test_a_daemon_ends_with_the_player_of_its_agent(
    message: str, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent(AGENT)
    executor = LocalExecutor(n_workers=1, concurrency=1)

    await play(executor, [trial(agent, 0, (message,))], 1)
    daemon = int((Path(agent.folder) / "pid").read_text())
    if message.startswith("stay"):
        assert is_running(daemon)
    await executor.close()

    while is_running(daemon):
        await asyncio.sleep(0.01)


async def test_a_worker_that_is_gone_before_it_is_given_work_is_replaced(
    host: AgentHost, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent("agent = lambda message: message\n")
    await host.describe(agent)
    (pid,) = host.worker_pids
    worker = host._hosted[agent].worker
    worker.kill("is not needed")
    while worker.is_up:
        await asyncio.sleep(0.01)

    executor = LocalExecutor(n_workers=1, concurrency=1, players=[worker])
    results = await play(executor, [trial(agent)], 1)
    (player, _) = executor.worker_pids
    await executor.close()

    assert results[0].status == "finished"
    assert player != pid
