"""Processes that an agent starts end with its player, whatever group or session they are in."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.virtual_environments import make_environment

from evaldesk.agents import group_guard
from evaldesk.engine import ChatPlayers, LocalExecutor
from evaldesk.engine.launch import OWN, ProcessLauncher
from evaldesk.model import AgentRef, TrialResult, TrialSpec, TurnSpec
from evaldesk.process_setup import _own_group, end_marked, mark_process

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="daemons are found by /proc")]

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

# The daemon is started by a shell that ends at once, in a session of its own; one that is cleared knows no variable.
AGENT = """
    import os, pathlib, resource, signal, subprocess, time

    HERE = pathlib.Path(__file__).parent

    def agent(message):
        pid = HERE / "pid"
        script = f"setsid sleep 86400 >/dev/null 2>&1 & echo $! > {pid}.new; mv {pid}.new {pid}"
        environment = {"PATH": os.environ["PATH"]} if "cleared" in message else None
        if "reset" in message:
            most = resource.getrlimit(10)[1]
            resource.setrlimit(10, (most, most))
        subprocess.run(["sh", "-c", script], env=environment, check=True)
        if "exit" in message:
            os._exit(3)
        if "kill" in message:
            os.kill(os.getpid(), signal.SIGKILL)
        return message
"""


def is_running(pid: int) -> bool:
    """Whether the process is there and is not only waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("message", ["stay", "stay cleared", "exit", "exit cleared", "kill", "kill cleared"])
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


@pytest.mark.parametrize("place", ["forks", "another interpreter", "a chat"])
async def test_a_daemon_without_variables_ends_with_a_killed_player_of_each_kind(
    place: str, write_agent: Write, trial: Trial, play: Play, host: ChatPlayers, tmp_path: Path
) -> None:
    agent = write_agent(AGENT)
    if place == "a chat":
        async for _ in host.play_turn(TurnSpec("s", agent, "kill cleared")):
            pass
    else:
        is_forked = place == "forks"
        launcher = OWN if is_forked else ProcessLauncher(str(make_environment(tmp_path / "venv")))
        executor = LocalExecutor(1, 1, launcher=launcher, isolation="process" if is_forked else "shared")
        await play(executor, [trial(agent, 0, ("kill cleared",))], 1)
        assert bool(executor.zygote_pid) == is_forked
        await executor.close()

    daemon = int((Path(agent.folder) / "pid").read_text())
    while is_running(daemon):
        await asyncio.sleep(0.01)


@pytest.mark.skipif(not _own_group(), reason="this person may not make control groups")
@pytest.mark.parametrize("message", ["kill cleared reset", "exit cleared reset"])
async def test_a_daemon_without_any_mark_ends_with_a_killed_player_by_its_control_group(
    message: str, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent(AGENT)
    executor = LocalExecutor(1, 1, isolation="shared")

    await play(executor, [trial(agent, 0, (message,))], 1)
    await executor.close()

    daemon = int((Path(agent.folder) / "pid").read_text())
    while is_running(daemon):
        await asyncio.sleep(0.01)


def test_the_guard_of_commands_outlives_the_worker_that_started_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_guard, "_guard", None)
    mark = "c0ffee" * 5
    mark_process(os.getpid(), mark)
    try:
        left = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(86400)"],
            env={"PATH": os.environ["PATH"]},
            start_new_session=True,
        )
        guard = group_guard._running_guard()
    finally:
        mark_process(os.getpid(), "")

    end_marked(mark)

    assert left.wait() == -signal.SIGKILL
    assert guard.poll() is None
    group_guard._close(guard)


async def test_a_worker_that_is_gone_before_it_is_given_work_is_replaced(
    host: ChatPlayers, write_agent: Write, trial: Trial, play: Play
) -> None:
    agent = write_agent("agent = lambda message: message\n")
    await host.describe(agent)
    (pid,) = host.worker_pids
    worker = host._players[agent].worker
    worker.kill("is not needed")
    while worker.is_up:
        await asyncio.sleep(0.01)

    executor = LocalExecutor(n_workers=1, concurrency=1, players=[worker])
    results = await play(executor, [trial(agent)], 1)
    (player, _) = executor.worker_pids
    await executor.close()

    assert results[0].status == "finished"
    assert player != pid
