"""Workers that wait for a run."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evaldesk import workers_ahead
from evaldesk.engine import LocalExecutor, WarmPool
from evaldesk.engine.driver.worker_process import Answer, Death, WorkerProcess
from evaldesk.engine.driver.zygote import Zygote
from evaldesk.engine.frames import Fork
from evaldesk.engine.launch import OWN, ProcessLauncher
from evaldesk.model import AgentRef, Case, Criterion, TrialSpec, Turn
from evaldesk.process_setup import children
from evaldesk.workers_ahead import WorkerAhead


async def _filled(warm_pool: WarmPool) -> None:
    warm_pool.fill("grader")
    assert warm_pool._filling is not None
    await asyncio.wait_for(warm_pool._filling, 300)


def _ignore(_: Answer | Death) -> None:
    """Nobody listens."""


@pytest.mark.anyio
async def test_a_run_is_played_by_the_worker_that_waited(tmp_path: Path) -> None:
    (tmp_path / "waiter.py").write_text("def root_agent(message, state):\n    return message\n")
    warm_pool = WarmPool(1)
    await _filled(warm_pool)
    waiting = warm_pool._idle[0].pid
    executor = LocalExecutor(1, 2, warm_pool=warm_pool)
    agent = AgentRef("waiter", "waiter:root_agent", str(tmp_path))

    for index in range(3):
        await executor.submit(TrialSpec(1, 0, index, Case("echo", (Turn("hello"),)), agent))
        result = await anext(executor.results())
        assert result.transcript.turns[0].answer == "hello"
    pids = executor.worker_pids
    await executor.close()
    await warm_pool.close()

    assert pids[0] == waiting  # the other is the grader


@pytest.mark.anyio
async def test_a_warm_worker_that_dies_is_not_handed_out() -> None:
    warm_pool = WarmPool(1)
    await _filled(warm_pool)
    worker = warm_pool._idle[0]

    os.kill(worker.pid, signal.SIGKILL)
    await asyncio.wait_for(worker._death, 300)

    assert warm_pool.take(_ignore, _ignore) is None
    await warm_pool.close()


@pytest.mark.anyio
async def test_nothing_is_started_unless_it_is_asked_for() -> None:
    warm_pool = WarmPool(2)

    warm_pool.refill()

    assert warm_pool.take(_ignore, _ignore) is None
    await warm_pool.close()


WHOLE = (
    "from nltk.metrics.association import fisher_exact; from rouge_score.rouge_scorer import RougeScorer; import numpy"
)


@pytest.mark.server
@pytest.mark.parametrize(
    "before", ["", "import nltk.stem, sys; del sys.modules['nltk']", WHOLE], ids=["", "part", "whole"]
)
def test_rouge_is_warm_without_its_heavy_parts_and_leaves_them_whole_to_others(before: str) -> None:
    code = f"""
import sys
{before}
from evaldesk.metrics.responses.rouge import preload, rouge1, score_rouge2, score_rouge_l
preload()
assert {before!r} or not {{"nltk", "scipy", "rouge_score"}} & set(sys.modules)
texts = ("rolling two dice", "he rolled two dice")
print(rouge1(*texts), score_rouge2(*texts).fmeasure, score_rouge_l(*texts).fmeasure)
{WHOLE}
RougeScorer(["rougeLsum"]).score_multi(["a die"], "a die")["rougeLsum"]
assert fisher_exact and numpy.argmax([1, 2]) == 1
"""

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert printed.stdout == "0.8571428571428571 0.8 0.8571428571428571\n"


StartAhead = Callable[[], dict[str, WorkerAhead]]
AHEAD = pytest.mark.skipif(sys.platform != "linux", reason="workers are started ahead on Linux")
PATIENCE_S = 60


@pytest.fixture
def start_ahead() -> Iterator[StartAhead]:
    """Starts a player and a grader that wait, from inside of a test: pytest changes the environment before it."""

    def start() -> dict[str, WorkerAhead]:
        workers_ahead.start_ahead("player", "grader")
        return workers_ahead._idle_workers

    yield start
    workers_ahead.end_ahead()


@AHEAD
@pytest.mark.anyio
async def test_a_worker_that_was_started_ahead_is_taken_and_its_end_is_told(start_ahead: StartAhead) -> None:
    ahead = start_ahead()
    waiting = {purpose: worker.process.pid for purpose, worker in ahead.items()}
    deaths: asyncio.Queue[Death] = asyncio.Queue()
    player, grader = WorkerProcess(_ignore, deaths.put_nowait), WorkerProcess(_ignore, deaths.put_nowait)

    await player.start(os.environ, can_fork=True)
    await grader.start(os.environ, "grader")

    assert {"player": player.pid, "grader": grader.pid} == waiting
    assert not ahead
    os.kill(grader.pid, signal.SIGKILL)
    death = await asyncio.wait_for(deaths.get(), PATIENCE_S)
    assert death.message == "the worker process was ended by SIGKILL"
    await player.close()
    assert not player.is_up


@AHEAD
@pytest.mark.anyio
async def test_a_worker_whose_start_is_cancelled_while_it_is_taken_is_ended(
    start_ahead: StartAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = start_ahead()["player"].process
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "connect_read_pipe", lambda *_: asyncio.sleep(PATIENCE_S), raising=False)
    starting = asyncio.create_task(WorkerProcess(_ignore, print).start(os.environ, can_fork=True))
    await asyncio.sleep(0.01)

    starting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ProcessLookupError):
        os.kill(waiting.pid, 0)
    await asyncio.sleep(0)
    assert waiting.stdin is not None
    assert waiting.stdin.closed


@AHEAD
def test_a_worker_that_waits_is_ended_before_the_next_one_is_started(start_ahead: StartAhead) -> None:
    first = start_ahead()["grader"].process

    second = start_ahead()["grader"].process

    assert first.returncode is not None
    assert second.poll() is None


@AHEAD
@pytest.mark.anyio
async def test_a_player_that_was_started_ahead_can_be_forked(start_ahead: StartAhead, tmp_path: Path) -> None:
    start_ahead()
    (tmp_path / "forked.py").write_text("def root_agent(message):\n    return message\n")
    agent = AgentRef("forked", "forked:root_agent", str(tmp_path))
    player = WorkerProcess(_ignore, _ignore)
    await player.start(os.environ, can_fork=True)

    found = await player.make_zygote(Fork(1, agent))

    assert isinstance(found, Zygote), found
    fork = WorkerProcess(_ignore, _ignore)
    await fork.start(os.environ, zygote=found)
    assert fork.pid in children(player.pid)
    await fork.close()
    found.close()
    await player.close()


@AHEAD
@pytest.mark.anyio
@pytest.mark.parametrize("change", ["environment", "folder", "purpose", "interpreter", "death"])
async def test_a_worker_is_taken_only_where_it_is_the_one_that_would_be_started(
    start_ahead: StartAhead, change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = start_ahead()
    waiting = ahead["player"].process
    launcher = OWN
    if change == "environment":
        monkeypatch.setenv("SET_MEANWHILE", "1")
    elif change == "folder":
        monkeypatch.chdir(tmp_path)
    elif change == "interpreter":
        launcher = ProcessLauncher(sys.executable)
    elif change == "death":
        waiting.kill()
        waiting.wait()
    worker = WorkerProcess(_ignore, _ignore)

    await worker.start(os.environ, launcher=launcher, can_fork=change != "purpose")

    assert worker.pid != waiting.pid
    await worker.close()


@AHEAD
def test_workers_that_nobody_took_are_ended(start_ahead: StartAhead) -> None:
    ahead = start_ahead()
    player, grader = (ahead[purpose].process for purpose in ("player", "grader"))

    workers_ahead.end_ahead("player")

    assert (player.returncode, grader.poll()) == (-signal.SIGKILL, None)
    workers_ahead.end_ahead()
    assert grader.returncode == -signal.SIGKILL
    assert workers_ahead.take_ahead("grader", os.environ) is None


@AHEAD
def test_a_worker_that_was_started_ahead_has_no_token_of_the_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALDESK_TOKEN", "of-the-desk")
    workers_ahead.start_ahead("grader")

    process = workers_ahead._idle_workers["grader"].process
    told = Path(f"/proc/{process.pid}/environ")
    while b"EVALDESK_WORKER=" not in (seen := told.read_bytes()) and process.poll() is None:
        time.sleep(0.001)  # the kernel tells nothing of a process that is becoming another program

    workers_ahead.end_ahead()
    assert b"EVALDESK_WORKER=" in seen
    assert b"of-the-desk" not in seen


@AHEAD
@pytest.mark.parametrize("kernel", ["old", "without"])
def test_no_worker_is_started_ahead_where_its_end_would_not_be_seen(
    kernel: str, start_ahead: StartAhead, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refused)
    if kernel == "without":
        monkeypatch.delattr(os, "pidfd_open")

    assert start_ahead() == {}


@pytest.mark.anyio
async def test_a_grader_gets_ready_while_the_first_trial_is_played(tmp_path: Path) -> None:
    told = tmp_path / "told"
    source = f"import os, time\n\ndef root_agent(message):\n    while not os.path.exists({str(told)!r}):\n"
    (tmp_path / "waits_for_it.py").write_text(f"{source}        time.sleep(0.01)\n    return message\n")
    executor = LocalExecutor(1, 1)
    agent = AgentRef("waits", "waits_for_it:root_agent", str(tmp_path))
    case = Case("echo", (Turn("hello"),))

    await executor.submit(TrialSpec(1, 0, 0, case, agent, criteria=(Criterion("response_match_score", 0.5),)))
    async with asyncio.timeout(PATIENCE_S):
        while not executor._graders.pids:
            await asyncio.sleep(0.01)
    graders = executor._graders.pids
    told.touch()
    await anext(executor.results())

    assert executor._graders.pids == graders
    await executor.close()


@pytest.mark.anyio
async def test_trials_without_criteria_start_no_grader(tmp_path: Path) -> None:
    (tmp_path / "ungraded.py").write_text("def root_agent(message):\n    return message\n")
    agent = AgentRef("echo", "ungraded:root_agent", str(tmp_path))
    executor = LocalExecutor(1, 1)

    await executor.submit(TrialSpec(1, 0, 0, Case("echo", (Turn("hello"),)), agent, criteria=()))
    await anext(executor.results())

    assert len(executor.worker_pids) == 1
    await executor.close()


@pytest.mark.anyio
async def test_a_run_of_one_trial_starts_one_player_and_one_grader_however_many_it_may_have(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("def root_agent(message):\n    return message\n")
    agent = AgentRef("alone", "alone:root_agent", str(tmp_path))
    executor = LocalExecutor(8, 100)

    await executor.submit(TrialSpec(1, 0, 0, Case("echo", (Turn("hello"),)), agent))
    await anext(executor.results())

    assert (len(executor._players.pids), len(executor._graders.pids), executor.zygote_pid) == (1, 1, 0)
    await executor.close()
