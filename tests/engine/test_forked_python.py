"""Workers of the tests are forks; nobody can tell them from one that starts with Python."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.forked_python import ForkedPython

from evaldesk.engine import LocalExecutor
from evaldesk.engine.driver.worker_process import Purpose, WorkerProcess
from evaldesk.model import AgentRef, TrialResult, TrialSpec
from evaldesk.process_setup import children

TELLS = """
    import json, os, random, resource, signal, sys, threading

    def read(path):
        with open(path) as file:
            return file.read()

    def agent(message):
        status = dict(line.split(":", 1) for line in read("/proc/self/status").splitlines())
        told = {
            "environment": sorted(filter(None, read("/proc/self/environ").split(chr(0)))),
            "argv": sys.argv[1:],
            "orig_argv": sys.orig_argv,
            "main": sys.modules["__main__"].__spec__.name,
            "flags": str(sys.flags),
            "path": sys.path,
            "packages": sorted(name for name in sys.modules if name.partition(".")[0] not in sys.stdlib_module_names),
            "folder": os.getcwd(),
            "files": sorted(set(os.listdir("/proc/self/fd")), key=int),
            "parent": os.getppid(),
            "is_leader": os.getpgrp() == os.getsid(0) == os.getpid(),
            "signals": [status[name] for name in ("SigBlk", "SigIgn", "SigCgt")],
            "rights": [status[name] for name in ("CapEff", "CapBnd", "Umask", "NoNewPrivs")],
            "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if "RLIMIT" in name},
            "threads": sorted(thread.name.partition("-")[0] for thread in threading.enumerate()),
            "chance": random.random(),
        }
        return json.dumps(told)
"""

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="forks are of Linux only")]


@pytest.fixture
def open_file(tmp_path: Path) -> Iterator[int]:
    """A file of the tests that is open, and that a worker gets where it is not closed for it."""
    fd = os.open(tmp_path / "open", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(fd, True)
    yield fd
    os.close(fd)


@pytest.fixture
def told(write_agent: Callable[..., AgentRef], trial: Callable[..., TrialSpec], open_file: int) -> Callable[..., Any]:
    """What an agent sees in a new worker."""
    assert open_file
    spec = trial(write_agent(TELLS))

    async def tell() -> dict[str, Any]:
        executor = LocalExecutor(1, 1)
        await executor.submit(spec)
        result = await anext(executor.results())
        await executor.close()
        assert isinstance(result, TrialResult)
        return dict(json.loads(result.transcript.turns[0].answer))

    return tell


async def test_an_agent_sees_the_same_as_in_a_process_that_started_with_python(
    told: Callable[..., Any],
    forked_python: ForkedPython,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAID_LATER", "ä\n=" * 1000)
    n_before = forked_python.n_forks

    found = await told()
    n_forks = forked_python.n_forks - n_before
    with forked_python.switched_off():
        expected = await told()
        again = await told()

    assert n_forks > 0
    assert forked_python.n_forks == n_before + n_forks
    assert found["parent"] == os.getpid()
    chances = {each.pop("chance") for each in (found, expected, again)}
    assert len(chances) == 3
    for each in (found, expected):
        each["environment"] = [line for line in each["environment"] if not line.startswith("EVALDESK_WORKER=")]
    assert found == expected


async def test_no_two_forks_draw_the_same_random_numbers(told: Callable[..., Any]) -> None:
    assert len({(await told())["chance"] for _ in range(3)}) == 3


async def test_the_mark_of_a_worker_is_where_those_look_who_end_it() -> None:
    worker = WorkerProcess(print, print)
    await worker.start({**os.environ, "GIVEN": "x"})

    shown = Path(f"/proc/{worker.pid}/environ").read_bytes().split(b"\0")
    await worker.close()

    assert f"EVALDESK_WORKER={worker._mark}".encode() in shown
    assert b"GIVEN=x" in shown


async def test_a_fork_is_a_child_that_ends_with_an_exit_code() -> None:
    deaths: list[Any] = []
    worker = WorkerProcess(print, deaths.append)
    await worker.start(os.environ)
    assert worker.pid in children(os.getpid())

    os.kill(worker.pid, signal.SIGKILL)
    await worker._death

    assert [death.message for death in deaths] == ["the worker process was ended by SIGKILL"]
    assert worker.pid not in children(os.getpid())


@pytest.mark.parametrize("purpose", ["player", "grader"])
async def test_a_worker_is_forked_whatever_it_is_for(forked_python: ForkedPython, purpose: Purpose) -> None:
    n_before = forked_python.n_forks

    worker = WorkerProcess(print, print)
    await worker.start(os.environ, purpose)
    await worker.close()

    assert forked_python.n_forks - n_before == 1


@pytest.mark.parametrize("variables", [{}, {"PYTHONHASHSEED": "1"}], ids=["the same", "another"])
async def test_python_starts_anew_where_its_own_variables_differ(
    forked_python: ForkedPython, variables: Mapping[str, str]
) -> None:
    n_before = forked_python.n_forks

    worker = WorkerProcess(print, print)
    await worker.start({**os.environ, **variables})
    await worker.close()

    assert forked_python.n_forks - n_before == (0 if variables else 1)
