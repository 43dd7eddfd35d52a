"""Each instance of a benchmark has a process of its own: folder, environment, group, and its end."""

from __future__ import annotations

import asyncio
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.openhands.test_benchmark import log_of, row, spec

from evaldesk.engine import play_trial
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.errors import AgentError, ModelError
from evaldesk.integrations.openhands.benchmark import report_failure
from evaldesk.integrations.openhands.child import failure_fields
from evaldesk.model.transcript import reported_values

pytestmark = pytest.mark.anyio

ITS_OWN = """
import os, subprocess, sys

def process_instance(instance, metadata):
    os.environ["ONLY_MINE"] = instance.name
    with open(instance.meeting, instance.mode):  # each end waits here until the other trial has opened its own
        here = os.getcwd()
    with open(instance.held, "w") as held:
        subprocess.Popen(["sleep", "600"], stdout=held)
    with open("made.txt", "w") as made:
        made.write(sys.stdin.read() + "mine")
    print("printed by", os.environ["ONLY_MINE"])
    return {"test_result": {"cwd": here, "own": str(metadata.workspace.path)}}
"""

WAITS = """
import subprocess, time

def process_instance(instance, metadata):
    with open(instance.held, "w") as held:
        subprocess.Popen(["sleep", "600"], stdout=held)
        print("here", file=held, flush=True)
    time.sleep(600)

def teardown(workspace, case):
    with open(case.torn_down, "w") as file:
        file.write(str(workspace.path))
"""


@contextmanager
def watched(path: Path) -> Iterator[int]:
    """The reading end of a pipe with a name, which ends when every process that holds the other end is gone."""
    os.mkfifo(path)
    end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield end
    finally:
        os.close(end)


def is_over(end: int) -> bool:
    return bool(select.select([end], [], [], 60)[0]) and os.read(end, 100) == b""


async def test_user_code_has_its_own_folder_environment_and_process_group(
    loaded: Any, tmp_path: Path, capsys: Any
) -> None:
    agent = loaded(ITS_OWN, "process_instance")
    os.mkfifo(tmp_path / "meeting")
    with watched(tmp_path / "held0") as first, watched(tmp_path / "held1") as second:
        shared = {"meeting": str(tmp_path / "meeting")}
        specs = [
            spec(row(name=f"trial {n}", mode=mode, held=str(tmp_path / f"held{n}"), **shared))
            for n, mode in enumerate("rw")
        ]

        results = await asyncio.gather(*(play_trial(agent, each) for each in specs))

        assert [result.error for result in results] == [None, None]
        assert is_over(first), "what the first trial started still runs"
        assert is_over(second), "what the second trial started still runs"
    told: list[Any] = [reported_values(result.transcript)["test_result"] for result in results]
    assert [each["cwd"] for each in told] == [each["own"] for each in told]
    assert told[0]["cwd"] != told[1]["cwd"]
    assert "ONLY_MINE" not in os.environ
    assert sorted(capsys.readouterr().out.splitlines()) == ["printed by trial 0", "printed by trial 1"]
    diffs: list[Any] = [log_of(result, "workspace")[0].result for result in results]
    assert [diff["changed"] for diff in diffs] == [["made.txt"], ["made.txt"]]
    assert "+mine" in diffs[0]["diff"]


async def test_a_cancelled_instance_runs_teardown_and_leaves_no_process(
    loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaldesk.integrations.openhands.benchmark.ENDING_S", 60.0)
    monkeypatch.setattr("evaldesk.agents.in_thread.JOIN_S", 60.0)
    agent = loaded(WAITS, "process_instance")
    attempt = Attempt(clock=time.monotonic)
    with watched(tmp_path / "held") as held:
        columns = {"held": str(tmp_path / "held"), "torn_down": str(tmp_path / "torn_down")}
        task = asyncio.create_task(play_trial(agent, spec(row(**columns)), attempt=attempt))
        assert (await asyncio.to_thread(select.select, [held], [], [], 60))[0]
        assert os.read(held, 100) == b"here\n"

        attempt.stop = "cancelled"
        task.cancel()
        result = await task

        assert is_over(held), "the process it left behind still runs"
    assert result.status == "cancelled"
    assert not Path((tmp_path / "torn_down").read_text()).exists()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("os._exit(7)", "ended with exit code 7 before it was done: last words"),
        ("os.kill(os.getpid(), 9)", "was killed by SIGKILL before it was done: last words"),
    ],
)
async def test_an_instance_that_ends_its_process_is_an_error_of_its_trial(loaded: Any, does: str, said: str) -> None:
    source = f"import os\n\ndef process_instance(instance, metadata):\n    os.write(2, b'last words')\n    {does}\n"

    result = await play_trial(loaded(source, "process_instance"), spec(row()))

    assert result.error
    assert said in result.error.message


def test_a_refused_key_in_an_instance_stops_the_run() -> None:
    class AuthenticationError(Exception):
        status_code = 401

    AuthenticationError.__module__ = "openai"

    with pytest.raises(ModelError) as caught:
        report_failure(failure_fields(AuthenticationError("wrong key")), lambda event: None)

    assert (caught.value.kind, caught.value.is_fatal) == ("authentication", True)


def test_a_function_that_no_other_process_can_import_is_refused() -> None:
    from evaldesk.agents import adapt_object
    from evaldesk.model import AgentRef

    def process_instance(instance: Any, metadata: Any) -> None: ...

    with pytest.raises(AgentError, match="into a module of its own"):
        adapt_object(process_instance, AgentRef("bench", ""))
