"""Trials with a process or a container of their own: nothing is shared, and memory and processes are bounded."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from evaldesk.engine import LocalExecutor
from evaldesk.model import AgentRef, Limits, TrialResult, TrialSpec

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Make = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

AGENT = """
    import os, subprocess, time

    seen = []

    def agent(message):
        what, _, number = message.partition(" ")
        if what == "leak":
            seen.append(message)
            os.environ["LEAKED"] = "yes"
            os.chdir("/")
            return f"{os.getpid()} {len(seen)}"
        if what == "look":
            return f"{os.getpid()} {len(seen)} {os.environ.get('LEAKED')} {os.getcwd() == '/'}"
        if what == "use":
            return str(len(bytearray(int(number) * 2**20)))
        if what == "start":
            started = [subprocess.Popen(["sleep", "600"]) for _ in range(int(number))]
            if int(number) > 2:
                started[0].wait()
            for each in started:
                each.kill()
                each.wait()
            return f"{number} at once"
        return message
"""
HOLDS_MEMORY = """
import resource
resource.setrlimit(resource.RLIMIT_DATA, (2**28, 2**28))
try:
    bytearray(2**30)
except MemoryError:
    print("held")
"""


async def played(specs: list[TrialSpec], play: Play, *, isolation: str = "process") -> list[TrialResult]:
    executor = LocalExecutor(1, 2, isolation=isolation)
    try:
        results = await play(executor, specs)
    finally:
        await executor.close()
    return [results[index] for index in range(len(specs))]


def said(result: TrialResult) -> list[str]:
    assert result.status == "finished", result
    return [event.text for turn in result.transcript.turns for event in turn.events if event.kind == "agent_message"]


async def test_each_trial_has_a_process_of_its_own(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(AGENT)

    results = await played([trial(ref, index, ("leak", "leak")) for index in range(3)], play)

    answers = [said(result) for result in results]
    assert [[text.split()[1] for text in each] for each in answers] == [["1", "2"]] * 3
    assert len({each[0].split()[0] for each in answers}) == 3


async def test_the_next_trial_finds_nothing_of_the_one_before(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(AGENT)
    executor = LocalExecutor(1, 1, isolation="process")

    results = await play(executor, [trial(ref, 0, ("leak",)), trial(ref, 1, ("look",))])
    await executor.close()

    assert said(results[1])[0].split()[1:] == ["0", "None", "False"]
    assert {result.attempt for result in results.values()} == {1}


async def test_shared_players_are_used_again(write_agent: Write, trial: Make, play: Play) -> None:
    ref = write_agent(AGENT)

    results = await played([trial(ref, index, ("hello",)) for index in range(3)], play, isolation="shared")

    assert [said(result) for result in results] == [["hello"]] * 3


async def test_a_trial_has_no_more_than_its_memory(write_agent: Write, trial: Make, play: Play) -> None:
    probe = subprocess.run([sys.executable, "-c", HOLDS_MEMORY], capture_output=True, text=True, check=False)
    if probe.stdout.strip() != "held":
        pytest.skip("this kernel does not bound the memory of a process")
    limits = Limits(memory_mib=512)
    specs = [replace(trial(write_agent(AGENT), at, (f"use {mib}",)), limits=limits) for at, mib in enumerate((2048, 1))]

    large, small = await played(specs, play)

    assert said(small) == [str(2**20)]
    assert large.status == "errored"
    assert large.error is not None
    assert "MemoryError" in large.error.message


@pytest.mark.skipif(sys.platform != "linux", reason="the processes below another are listed on Linux")
async def test_a_trial_has_no_more_than_its_processes(write_agent: Write, trial: Make, play: Play) -> None:
    limits = Limits(processes=2)
    specs = [replace(trial(write_agent(AGENT), at, (f"start {n}",)), limits=limits) for at, n in enumerate((4, 2))]

    many, few = await played(specs, play)

    assert said(few) == ["2 at once"]
    assert many.status == "errored"
    assert many.error is not None
    assert re.search("was ended: the agent had started [34] processes, and 2 may run at once", many.error.message)
