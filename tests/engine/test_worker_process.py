"""A worker process on its own: it never outlives its parent and leaves nobody behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from evaldesk.engine.driver.worker_process import Death, WorkerProcess
from evaldesk.engine.frames import MAX_FRAME, play_frame
from evaldesk.model import AgentRef, TrialSpec
from evaldesk.wire import LineCutter

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]

pytestmark = pytest.mark.usefixtures("started_anew")

PARENT = """
    import asyncio, os, sys
    from evaldesk.engine.driver.worker_process import WorkerProcess

    async def main():
        worker = WorkerProcess(print, print)
        await worker.start(os.environ)
        print(worker.pid, flush=True)
        await asyncio.Event().wait()

    asyncio.run(main())
"""


def test_a_worker_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(PARENT)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    worker = os.pidfd_open(pid)

    parent.kill()
    parent.wait(300)
    parent.stdout.close()

    assert has_ended(worker, timeout_s=300)


@pytest.mark.anyio
async def test_children_of_an_agent_end_with_the_worker(write_agent: Write, trial: Trial, tmp_path: Path) -> None:
    told = tmp_path / "child"
    os.mkfifo(told)
    agent = write_agent(f"""
        import os, subprocess, sys, time

        def agent(message):
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            with open({str(told)!r}, "w") as pipe:
                pipe.write(str(child.pid))
            time.sleep(600)
    """)
    worker = WorkerProcess(lambda _: None, lambda _: None)
    await worker.start(os.environ)
    worker.send(play_frame(1, trial(agent)))
    child = os.pidfd_open(int(await asyncio.to_thread(told.read_text)))

    async with asyncio.timeout(300):
        await worker.close()

    assert has_ended(child, timeout_s=300)


@pytest.mark.anyio
async def test_a_worker_that_is_killed_says_where_it_stood(write_agent: Write, trial: Trial, tmp_path: Path) -> None:
    """It stands still in its agent: stacks of threads that run while they are written may be cut short."""
    told = tmp_path / "standing"
    os.mkfifo(told)
    agent = write_agent(f"""
        import time

        def agent(message):
            with open({str(told)!r}, "w") as pipe:
                pipe.write("here")
            time.sleep(600)
    """)
    deaths: asyncio.Queue[Death] = asyncio.Queue()
    worker = WorkerProcess(lambda _: None, deaths.put_nowait)
    await worker.start(os.environ)
    worker.send(play_frame(1, trial(agent)))
    await asyncio.to_thread(told.read_text)

    async with asyncio.timeout(300):
        worker.kill("was asked to go")
        death = await deaths.get()

    assert death.message == "the worker process was asked to go"
    assert "evaldesk/engine/worker/main.py" in death.output
    assert "in agent" in death.output
    await worker.close()


@pytest.mark.anyio
async def test_a_worker_dies_once() -> None:
    deaths: list[Death] = []
    worker = WorkerProcess(lambda _: None, deaths.append)
    await worker.start(os.environ)
    gone = os.pidfd_open(worker.pid)

    os.kill(worker.pid, signal.SIGKILL)
    async with asyncio.timeout(300):
        await asyncio.to_thread(has_ended, gone, timeout_s=300)
        while not deaths:
            await asyncio.sleep(0.001)
        await worker.close()

    assert [death.message for death in deaths] == ["the worker process was ended by SIGKILL"]


def test_a_line_without_end_is_refused() -> None:
    lines = LineCutter(MAX_FRAME)
    lines.feed(b"x" * MAX_FRAME)

    with pytest.raises(ValueError, match="a line of more than"):
        lines.feed(b"x")


@pytest.mark.parametrize("module", ["evaldesk.engine", "evaldesk.engine.worker.main"])
def test_importing_the_engine_imports_nothing_heavy(module: str) -> None:
    heavy = ("litellm", "rouge_score", "nltk", "pandas", "plotly", "scipy", "numpy", "sqlmodel", "sqlalchemy")
    source = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"

    found = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)

    assert found.stdout == "[]\n"


def has_ended(pidfd: int, *, timeout_s: float) -> bool:
    """Whether the process ends in time; closes the descriptor."""
    import select

    try:
        return bool(select.select([pidfd], [], [], timeout_s)[0])
    finally:
        os.close(pidfd)
