"""Players that are forks of one that imported the agent: what they share, what they do not, and when there are none."""

from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.agents.contract_examples import EXAMPLES
from tests.agents.installed import skip_without

from evaldesk.engine import LocalExecutor
from evaldesk.engine.driver import zygote as host
from evaldesk.engine.worker.first_calls import FIRST_CALLS
from evaldesk.model import AgentRef, Limits, TrialResult, TrialSpec
from evaldesk.process_setup import children

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.long,
    pytest.mark.skipif(sys.platform != "linux", reason="players are forked on Linux"),
]

Write = Callable[..., AgentRef]
Make = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

IMPORTED = [name for name, each in EXAMPLES.items() if each.source and each.calls_tools and name != "crew"]


async def played(
    specs: Sequence[TrialSpec], play: Play, *, isolation: str = "process"
) -> tuple[list[TrialResult], str]:
    """The results, and why the players were no forks."""
    executor = LocalExecutor(2, 3, isolation=isolation)
    try:
        results = await play(executor, specs)
        assert bool(executor.zygote_pid) == (not executor.unforked)
        return [results[index] for index in range(len(specs))], executor.unforked
    finally:
        await executor.close()


def answer(result: TrialResult) -> str:
    assert result.status == "finished", result
    return result.transcript.turns[-1].answer


@pytest.mark.parametrize("name", IMPORTED)
async def test_forks_of_each_kind_of_agent_play_as_any_player_does(
    name: str, write_agent: Write, trial: Make, play: Play
) -> None:
    example = EXAMPLES[name]
    if example.package:
        skip_without(example.package)
    ref = replace(write_agent(example.source, name), target=f"{name}_agent:root_agent")
    specs = [replace(trial(ref, at, ("Roll a d6", "Roll a d6")), model=example.model, criteria=()) for at in range(6)]

    results, unforked = await played(specs, play)

    assert unforked == ""
    said = {turn.answer for result in results for turn in result.transcript.turns if answer(result)}
    assert len(said) == 1
    assert said < {"got 6", "I rolled a 6 sided die, and got 6."}
    calls = {tuple(call.name for turn in result.transcript.turns for call in turn.tool_calls) for result in results}
    assert calls == {("roll_die", "roll_die")}


@pytest.mark.parametrize("package", FIRST_CALLS)
async def test_what_a_package_imports_in_its_first_call_is_there_in_each_fork(
    package: str, write_agent: Write, trial: Make, play: Play
) -> None:
    skip_without(package)
    ref = write_agent(
        f"import sys, {package}\nNAMES = {tuple(FIRST_CALLS[package])}\n"
        "def agent(message):\n    return str([name for name in NAMES if name not in sys.modules])\n"
    )

    results, unforked = await played([trial(ref, index) for index in range(2)], play)

    assert (unforked, {answer(result) for result in results}) == ("", {"[]"})


async def test_a_fork_that_cannot_be_made_costs_no_other(
    write_agent: Write, trial: Make, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, asked = host.Zygote.fork, []

    async def fork(zygote: host.Zygote, mark: str, protocol: asyncio.SubprocessProtocol) -> None:
        asked.append(mark)
        if len(asked) == 2:
            raise host.ZygoteError("no process is to be had")
        await made(zygote, mark, protocol)

    monkeypatch.setattr(host.Zygote, "fork", fork)
    slow = "import asyncio\nasync def agent(message):\n    await asyncio.sleep(1)\n    return 'ok'\n"
    ref = write_agent(slow, "slow")

    results, _ = await played([trial(ref, at) for at in range(2)], play)

    assert [answer(result) for result in results] == ["ok", "ok"]
    assert len(asked) == 2


@pytest.fixture
def control() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with ours, its:
        yield ours, its


Control = tuple[socket.socket, socket.socket]


@pytest.mark.parametrize("pid", [-1, 0, 1, True, 4711.0, "4711", [4711], None])
async def test_a_zygote_can_name_no_process_but_its_children(
    pid: object, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "children", lambda _: [4711])
    zygote = host.Zygote(4710, control[0], "mark")
    fork = asyncio.create_task(zygote.fork("of a fork", asyncio.SubprocessProtocol()))
    await asyncio.sleep(0)

    control[1].send(json.dumps(["forked", pid]).encode())

    with pytest.raises(host.ZygoteError, match="not its own"):
        await fork
    zygote.close()


async def test_what_is_no_word_of_a_zygote_is_not_acted_on(control: Control) -> None:
    broken: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: broken.append(context))
    zygote = host.Zygote(4710, control[0], "mark")
    zygote._forks[4711] = fork = host.ForkedTransport(4711, zygote._forks, asyncio.SubprocessProtocol())

    for word in (b"[" * 4_000, b"{}", b"7", b"\xff", b"[]", b'["failed"]', b'["ended", 4711]', b'["ended", [1], 0]'):
        control[1].send(word)
    for status in (2**70, -1, "0", None):
        control[1].send(json.dumps(["ended", 4711, status]).encode())
    control[1].close()
    while zygote.is_up:
        await asyncio.sleep(0.001)

    assert broken == []
    assert fork.get_returncode() is None


OWN = """
    import os, random, resource, signal, sqlite3, ssl, tempfile, uuid

    seen = []

    def agent(message):
        seen.append(message)
        name = tempfile.mktemp()
        connection = sqlite3.connect(":memory:")
        drawn = (random.random(), uuid.uuid4(), ssl.RAND_bytes(8), name)
        same = (os.getpgrp() == os.getpid(), len(seen), resource.getrlimit(resource.RLIMIT_CORE), os.nice(0))
        files = sorted(os.readlink(f"/proc/self/fd/{fd}") for fd in (1, 2))
        return repr([*map(str, drawn), str(files), str(same)])
"""


async def test_each_fork_has_its_own_chance_names_pipes_and_group(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(OWN)

    results, unforked = await played([trial(ref, index) for index in range(4)], play)

    said = [ast.literal_eval(answer(result)) for result in results]
    assert unforked == ""
    assert [len(set(each)) for each in zip(*said, strict=True)] == [4] * 5 + [1]
    assert said[0][-1] == f"(True, 1, (0, 0), {min(19, os.nice(0) + 5)})"


UNSAFE = {
    "thread": "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()",
    "connection": "import socket\nkept = socket.socket()",
    "database": "import sqlite3\nkept = sqlite3.connect(':memory:')",
    "loop": "import asyncio\nkept = asyncio.get_running_loop()",
    "files while": "import tempfile\nkept = tempfile.mkdtemp()",
    "random name": "import uuid\nkept = uuid.uuid4()",
    "memory that forks would share": "import mmap\nkept = mmap.mmap(-1, 4096)",
    "random numbers of its own": "import sys, types\nsys.modules['numpy.random'] = types.ModuleType('numpy.random')",
}
OF_TRIALS_ALONE = {
    "files": "open(__file__ + '.written', 'w').close()",
    "process": "import subprocess, sys\nsubprocess.run([sys.executable, '-c', ''])",
}


@pytest.mark.parametrize("word", [*UNSAFE, *OF_TRIALS_ALONE])
async def test_an_agent_that_cannot_be_forked_is_imported_by_each_player(
    word: str, write_agent: Write, trial: Make, play: Play
) -> None:
    source = {**UNSAFE, **OF_TRIALS_ALONE}[word]
    ref = write_agent("import os\n" + source + "\n\ndef agent(message):\n    return str(os.getpid())\n")

    results, unforked = await played([trial(ref, index) for index in range(2)], play)

    assert word in unforked == host.UNFORKED[ref]
    assert len({answer(result) for result in results}) == 2


async def test_players_that_are_shared_are_forks_too(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(
        "import os, asyncio\nasync def agent(message):\n    await asyncio.sleep(0.2)\n    return str(os.getppid())\n"
    )

    results, unforked = await played([trial(ref, index) for index in range(6)], play, isolation="shared")

    assert unforked == ""
    assert os.getpid() not in {int(answer(result)) for result in results}


async def test_a_seed_that_the_agent_sets_holds_in_each_fork(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent("import random\nrandom.seed(7)\ndef agent(message):\n    return str(random.random())\n")

    results, unforked = await played([trial(ref, index) for index in range(2)], play)

    assert unforked == ""
    assert {answer(result) for result in results} == {"0.32383276483316237"}


async def test_a_fork_that_dies_hurts_no_other(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(
        """
        import asyncio, os, signal

        async def agent(message):
            if message == "die":
                os.kill(os.getpid(), signal.SIGSEGV)
            await asyncio.sleep(0.5)
            return message
        """
    )

    results, unforked = await played([trial(ref, at, (said,)) for at, said in enumerate(("a", "die", "b", "c"))], play)

    assert unforked == ""
    assert [result.status for result in results] == ["finished", "errored", "finished", "finished"]
    assert results[1].error is not None
    assert "SIGSEGV" in results[1].error.message
    assert "Fatal Python error: Segmentation fault" in results[1].error.trace


async def test_a_zygote_that_is_killed_loses_no_trial(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent("import asyncio\nasync def agent(message):\n    await asyncio.sleep(1)\n    return message\n")
    executor = LocalExecutor(2, 3, isolation="process")

    async def kill() -> int:
        while not executor.unforked and not ((zygote := executor.zygote_pid) and children(zygote)):
            await asyncio.sleep(0.05)
        os.kill(zygote, signal.SIGKILL)
        return zygote

    killing = asyncio.create_task(kill())
    results = await play(executor, [trial(ref, index) for index in range(6)])
    zygote = await killing
    await executor.close()

    assert {result.status for result in results.values()} == {"finished"}
    assert {result.attempt for result in results.values()} == {1}
    assert not os.path.exists(f"/proc/{zygote}")


async def test_nothing_is_left_when_the_forks_are_closed(
    write_agent: Write, trial: Make, play: Play, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    ref = write_agent(f"""
        import os

        def agent(message):
            pid = os.fork()
            if not pid:
                os.setsid()
                os.execvp("sleep", ["sleep", "600"])
            with open({str(told)!r}, "a") as file:
                file.write(f"{{os.getpid()}} {{pid}} ")
            return message
        """)

    _, unforked = await played([trial(ref, index) for index in range(3)], play)

    assert unforked == ""
    for pid in told.read_text().split():
        assert not os.path.exists(f"/proc/{pid}") or Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"


async def test_the_memory_of_a_fork_is_bound_as_that_of_any_player(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent("def agent(message):\n    return str(len(bytearray(int(message) * 2**20)))\n")
    limits = Limits(memory_mib=512)
    specs = [replace(trial(ref, at, (mib,)), limits=limits) for at, mib in enumerate(("2048", "1"))]

    (large, small), unforked = await played(specs, play)

    assert unforked == ""
    assert answer(small) == str(2**20)
    assert large.error is not None
    assert "MemoryError" in large.error.message
