"""Agents that crash, hang and print: none of it reaches another trial."""

from __future__ import annotations

import asyncio
import os
import random
import runpy
import signal
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from evaldesk.engine import LocalExecutor, drive
from evaldesk.engine.driver import worker_process
from evaldesk.engine.failures import place_of
from evaldesk.model import AgentRef, TrialResult, TrialSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Trial = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

MOODY = """
    import asyncio, ctypes, os, re, signal, sys, threading, time

    async def agent(message, state):
        print("said", message)
        if message == "exit":
            os._exit(7)
        if message == "segfault":
            ctypes.string_at(0)
        if message == "sys.exit":
            sys.exit(3)
        if message == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if message == "close everything":
            os.closerange(0, 200)
            time.sleep(600)
        if message == "hold the GIL":
            re.match("(a+)+$", "a" * 64 + "b")
        if message == "block":
            time.sleep(600)
        if message == "spin":
            while True:
                pass
        if message == "wait":
            await asyncio.Event().wait()
        if message == "refuse":
            while True:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    pass
        if message == "close the loop":
            asyncio.get_running_loop().stop()
        if message == "garbage":
            for fd in (1, 2):
                os.write(fd, bytes(range(256)) * 4096)
            sys.stdout.buffer.write(b"\\xff\\xfe{}")
        if message == "fork":
            if os.fork() == 0:
                time.sleep(600)
        if message == "task that exits":
            asyncio.create_task(leave())
            await asyncio.sleep(0)
        if message == "look around":
            return f"{sys.stdin.read()!r} {os.environ.get('EVALDESK_TOKEN')}"
        return message

    async def leave():
        raise SystemExit
"""


@pytest.fixture
def moody(write_agent: Write) -> AgentRef:
    return write_agent(MOODY, "moody")


@pytest.mark.parametrize(
    ("message", "said", "trace"),
    [
        pytest.param("exit", "the worker process ended with exit code 7", "", id="os._exit"),
        pytest.param("segfault", "the worker process was ended by SIGSEGV", "moody_agent.py", id="segfault"),
        pytest.param("kill", "the worker process was ended by SIGKILL", "", id="kill"),
        pytest.param("close everything", "the worker process ", "", id="close"),
    ],
)
async def test_who_kills_the_worker_is_errored_and_the_others_finish(
    local: LocalExecutor, moody: AgentRef, trial: Trial, play: Play, message: str, said: str, trace: str
) -> None:
    specs = [trial(moody, i, (message if i == 5 else f"hello {i}",)) for i in range(20)]

    async with asyncio.timeout(300):
        results = await play(local, specs)

    error = results.pop(5).error
    assert error is not None
    assert error.kind == "worker_died"
    assert error.message.startswith(said)
    assert trace in error.trace
    assert len(results) == 19
    assert {result.verdict for result in results.values()} == {"passed"}


@pytest.mark.parametrize("message", ["wait", "block", "spin", "refuse"])
async def test_a_trial_that_never_answers_ends_in_time_beside_others_that_finish(
    local: LocalExecutor, moody: AgentRef, trial: Trial, play: Play, message: str
) -> None:
    specs = [trial(moody, i, (f"hello {i}",)) for i in range(12)]
    specs[3] = trial(moody, 3, (message,), timeout_s=1.0)

    async with asyncio.timeout(300):
        results = await play(local, specs)

    hung = results.pop(3)
    assert hung.error is not None
    assert (hung.status, hung.stop_reason, hung.error.kind) == ("timed_out", "timed_out", "timed_out")
    assert ("selectors.py" if message == "refuse" else "moody_agent.py") in hung.error.trace
    assert hung.duration_ms < 120_000
    assert [event.text for event in hung.transcript.turns[0].events if event.kind == "user_message"] == [message]
    assert {result.verdict for result in results.values()} == {"passed"}


async def test_a_worker_that_holds_the_gil_is_killed_and_says_where_it_stood(
    monkeypatch: pytest.MonkeyPatch, moody: AgentRef, trial: Trial, play: Play
) -> None:
    monkeypatch.setattr(worker_process, "SILENT_AND_OVERDUE_S", 1.0)
    monkeypatch.setattr(worker_process, "OVERDUE_S", 0.5)
    executor = LocalExecutor(n_workers=1, concurrency=2)
    specs = [trial(moody, 0, ("hold the GIL",), timeout_s=0.5), trial(moody, 1, ("hello",))]

    async with asyncio.timeout(300):
        results = await play(executor, specs)
        await executor.close()

    error = results[0].error
    assert error is not None
    assert (results[0].status, error.kind) == ("timed_out", "timed_out")
    assert "moody_agent.py" in error.trace
    assert results[1].verdict == "passed"


async def test_a_tool_that_blocks_delays_no_other_trial(write_agent: Write, trial: Trial, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    agent = write_agent(f"""
        def agent(message):
            if message == "block":
                open({str(gate)!r}).read()
            return message
    """)
    executor = LocalExecutor(n_workers=1, concurrency=2)
    order: list[int] = []

    async with asyncio.timeout(300):
        specs = [trial(agent, 0, ("block",)), *(trial(agent, i) for i in range(1, 9))]
        async for result in drive(specs, executor, 2):
            order.append(result.case_index)
            if len(order) == 8:
                gate.write_text("go on")
        await executor.close()

    assert order == [1, 2, 3, 4, 5, 6, 7, 8, 0]


@pytest.mark.parametrize("message", ["sys.exit", "close the loop", "garbage", "fork", "task that exits"])
async def test_what_does_not_end_the_worker_leaves_it_as_it_was(
    moody: AgentRef, trial: Trial, play: Play, message: str
) -> None:
    executor = LocalExecutor(n_workers=1, concurrency=1)
    await play(executor, [trial(moody, 0)])
    pids = executor.worker_pids

    async with asyncio.timeout(300):
        results = await play(executor, [trial(moody, 0, (message,)), trial(moody, 1)])

    assert executor.worker_pids == pids
    assert results[0].verdict == ("errored" if message == "sys.exit" else "passed")
    assert results[1].verdict == "passed"
    await executor.close()


async def test_user_code_finds_no_input_and_no_token(
    monkeypatch: pytest.MonkeyPatch, moody: AgentRef, trial: Trial, play: Play
) -> None:
    monkeypatch.setenv("EVALDESK_TOKEN", "secret")
    executor = LocalExecutor(n_workers=1, concurrency=1)

    results = await play(executor, [trial(moody, 0, ("look around",))])
    await executor.close()

    assert results[0].transcript.turns[0].answer == "'' None"


async def test_every_trial_has_one_result_though_workers_are_killed(
    local: LocalExecutor, write_agent: Write, trial: Trial
) -> None:
    chance = random.Random(20261121)
    agent = write_agent("""
        import asyncio

        async def agent(message):
            await asyncio.sleep(0.005)
            return message
    """)
    found: list[TrialResult] = []
    n_kills = 0

    async with asyncio.timeout(300):
        async for result in drive([trial(agent, i) for i in range(200)], local, 8):
            found.append(result)
            if local.worker_pids and len(found) % 20 == 10:
                n_kills += killed(chance.choice(local.worker_pids))

    assert n_kills > 3
    assert sorted(result.case_index for result in found) == list(range(200))
    died = [result for result in found if result.status != "finished"]
    assert len(died) <= n_kills
    assert {result.error.kind for result in died if result.error} <= {"worker_died"}
    assert all(result.attempt <= 2 for result in found)


def killed(pid: int) -> bool:
    """Kill a worker; False where it was gone already."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


async def test_a_worker_that_cannot_start_ends_the_trials_with_what_it_printed(
    moody: AgentRef, trial: Trial, play: Play
) -> None:
    executor = LocalExecutor(2, 4, environment={**os.environ, "PYTHONHOME": "/nowhere"})

    async with asyncio.timeout(300):
        results = await play(executor, [trial(moody, i) for i in range(6)])
        await executor.close()

    assert len(results) == 6
    assert {result.status for result in results.values()} == {"errored"}
    error = results[0].error
    assert error is not None
    assert error.kind == "worker_start"
    assert "encodings" in error.trace


async def test_the_place_of_a_thread_begins_with_the_users_own_frame(tmp_path: Path) -> None:
    stands, goes = threading.Event(), threading.Event()
    path = tmp_path / "slow_agent.py"
    path.write_text("stands.set()\ngoes.wait()\n")
    names = {"stands": stands, "goes": goes}
    thread = threading.Thread(target=runpy.run_path, args=(str(path), names))
    thread.start()
    stands.wait()

    place = place_of(thread)

    goes.set()
    thread.join()
    assert "slow_agent.py" in place.splitlines()[0]
