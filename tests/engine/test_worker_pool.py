"""Workers that do not come up, or go at the worst moment; no process is started here."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from evaldesk.engine import ChatPlayers, LocalExecutor, executors
from evaldesk.engine.driver import pool
from evaldesk.engine.driver.chat_players import AgentPlayer
from evaldesk.engine.driver.worker_process import Death, WorkerProcess, WorkerStartError
from evaldesk.engine.frames import Describe, GradeSpec, Ready
from evaldesk.errors import AgentError
from evaldesk.model import AgentRef, Case, Criterion, TrialResult, TrialSpec
from evaldesk.wire import to_json

pytestmark = pytest.mark.anyio

AGENT = AgentRef("nobody", "nobody:agent")
NO_PID = 999_999_999
MANY = 20


class OneWorker:
    """The first that is made comes up and never answers; the others cannot be started."""

    n_starts = 0
    n_given = 0
    pid = NO_PID

    def __init__(self, *callbacks: Callable[..., None]) -> None:
        self.sent: list[object] = []

    async def start(self, environment: Mapping[str, str], purpose: str, launcher: object, *, zygote: object) -> None:
        OneWorker.n_starts += 1
        if 1 < OneWorker.n_starts < MANY:
            raise WorkerStartError("no process can be made", "")

    def send(self, frame: object, timeout_s: float | None = None, most_s: float = 0.0) -> None:
        self.sent.append(frame)

    async def close(self) -> None:
        """Nothing is to be ended."""


async def test_a_machine_without_room_for_more_workers_is_not_asked_without_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OneWorker, "n_starts", 0)
    monkeypatch.setattr(pool, "WorkerProcess", OneWorker)
    executor = LocalExecutor(n_workers=2, concurrency=4)
    await executor.submit(TrialSpec(1, 0, 0, Case("c"), AGENT, criteria=()))
    await asyncio.sleep(0)  # another might come at once, for which the first player would be forked
    await asyncio.wait(executor._players._tasks)

    for index in range(1, 4):
        await executor.submit(TrialSpec(1, index, 0, Case("c"), AGENT, criteria=()))
    while executor._players._tasks:
        await asyncio.wait(executor._players._tasks)

    assert OneWorker.n_starts == 1 + pool.MAX_FAILED_STARTS
    await executor.close()


async def test_who_waits_for_the_check_of_functions_may_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OneWorker, "n_starts", 0)
    monkeypatch.setattr(pool, "WorkerProcess", OneWorker)
    executor = LocalExecutor(n_workers=1, concurrency=1)
    criteria = (Criterion("reward", 1.0, {"function": "rewards:reward"}),)
    waiting = asyncio.create_task(executor.submit(TrialSpec(1, 0, 0, Case("c"), AGENT, criteria)))
    while not executor._graders.pids:
        await asyncio.sleep(0.001)

    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.wait_for(executor.submit(TrialSpec(1, 1, 0, Case("c"), AGENT)), 300)
    await executor.close()
    assert (await anext(executor.results())).status == "cancelled"


class Grader(OneWorker):
    """Comes up and answers nothing but what a test lets it answer."""

    made: list[Grader] = []  # noqa: RUF012 - emptied by the test

    def __init__(self, on_answer: Callable[[object], None], on_death: Callable[[Death], None]) -> None:
        super().__init__()
        self.answer = on_answer
        self.made.append(self)

    async def start(self, environment: Mapping[str, str], purpose: str, launcher: object, *, zygote: object) -> None:
        """It is up at once."""


@pytest.mark.parametrize(("slow_after_s", "n_graders"), [(1e9, 1), (1e-9, 2)], ids=["answers", "is slow"])
async def test_another_grader_is_started_where_the_first_is_slow_and_not_where_much_comes_at_once(
    monkeypatch: pytest.MonkeyPatch, slow_after_s: float, n_graders: int
) -> None:
    monkeypatch.setattr(Grader, "made", [])
    monkeypatch.setattr(pool, "WorkerProcess", Grader)
    monkeypatch.setattr(executors, "SLOW_GRADER_S", slow_after_s)
    executor = LocalExecutor(n_workers=2, concurrency=100)
    criteria = (Criterion("response_exact", 0.0),)
    spec = GradeSpec(TrialResult(1, 0, 0, "finished", "unscored"), Case("c"), criteria, is_first=True)

    for _ in range(100):
        await executor.submit(spec)
    while len(Grader.made) < n_graders:
        await asyncio.sleep(0.001)

    assert len(Grader.made) == n_graders
    assert sum(len(each.sent) for each in Grader.made) <= 50 * n_graders  # a thread for each
    await executor.close()


class ShortLived:
    """The transport of a process that is ready, and gone before anybody could say so."""

    def __init__(self, protocol: Any) -> None:
        protocol.connection_made(self)
        protocol.pipe_data_received(1, to_json(Ready(NO_PID)) + b"\n")
        protocol.process_exited()
        protocol.pipe_connection_lost(1, None)
        asyncio.get_running_loop().call_soon(protocol.pipe_connection_lost, 2, None)

    def get_pid(self) -> int:
        return NO_PID

    def get_returncode(self) -> int:
        return -9

    def get_pipe_transport(self, fd: int) -> None:
        """No pipe is left."""

    def close(self) -> None:
        """Nothing is open."""


async def test_a_worker_that_goes_as_it_comes_up_is_the_error_of_its_start_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def spawned(protocol: Callable[[], Any], *command: str, **options: Any) -> None:
        ShortLived(protocol())

    monkeypatch.setattr(asyncio.get_running_loop(), "subprocess_exec", spawned, raising=False)
    deaths: list[Death] = []
    worker = WorkerProcess(lambda _: None, deaths.append)

    with pytest.raises(WorkerStartError, match="ended by SIGKILL"):
        await worker.start(os.environ)

    assert deaths == []


@pytest.mark.parametrize("refusal", [BlockingIOError("no more processes"), RuntimeError("can't start new thread")])
async def test_a_machine_that_makes_no_process_is_said(monkeypatch: pytest.MonkeyPatch, refusal: Exception) -> None:
    async def spawned(*_: object, **__: object) -> None:
        raise refusal

    monkeypatch.setattr(asyncio.get_running_loop(), "subprocess_exec", spawned, raising=False)

    with pytest.raises(WorkerStartError, match=f"cannot be started: .*{refusal}"):
        await WorkerProcess(lambda _: None, lambda _: None).start(os.environ)


async def test_who_is_cancelled_twice_leaves_no_question_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = AgentPlayer("v1")
    monkeypatch.setattr(agent, "worker", OneWorker())
    asked = agent.ask(Describe(1, AGENT), 60.0)
    asking = asyncio.ensure_future(anext(asked))
    await asyncio.sleep(0)
    was_idle = agent.is_idle

    asking.cancel()
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking

    assert (was_idle, agent.is_idle) == (False, True)


async def test_a_host_that_closes_while_a_worker_starts_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ChatPlayers()

    async def start(self: AgentPlayer, environment: Mapping[str, str], launcher: object) -> None:
        await host.close()

    monkeypatch.setattr(AgentPlayer, "start", start)

    with pytest.raises(AgentError, match="was closed while the worker started"):
        await host.describe(AGENT)

    assert host._players == {}


async def test_trials_beside_one_that_killed_their_worker_say_why_they_were_played_again(
    write_agent: Callable[..., AgentRef],
    trial: Callable[..., TrialSpec],
    play: Callable[..., Awaitable[dict[int, TrialResult]]],
) -> None:
    executor = LocalExecutor(n_workers=1, concurrency=4)
    deadly = """
        import asyncio, os, pathlib

        DEAD = pathlib.Path(__file__).with_name("dead")
        here = []

        async def agent(message):
            is_again = DEAD.exists()
            here.append(message)
            while not is_again:
                if message == "die" and len(here) == 4:
                    DEAD.touch()
                    os._exit(7)
                await asyncio.sleep(0.01)
            if message == "die":
                os._exit(7)
            return message
    """
    agent = write_agent(deadly, "deadly")
    try:
        async with asyncio.timeout(300):
            results = await play(executor, [trial(agent, 0, ("die",)), *(trial(agent, i) for i in range(1, 4))])
        place = executor.places[0]
    finally:
        await executor.close()

    why = "the worker process ended with exit code 7"
    assert [(results[i].attempt, results[i].losses) for i in range(4)] == [(2, (why,))] * 4
    assert [results[i].status for i in range(4)] == ["errored", "finished", "finished", "finished"]
    assert all(results[i].is_least for i in range(4))  # nobody tells which models were asked before the loss
    assert (place.kind, place.name, place.note) == ("process", socket.gethostname(), f"lost a worker: {why}")
