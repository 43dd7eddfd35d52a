"""Ctrl-C while a run is played in the shell."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from evaldesk.cli.eval.playing import EXIT_INTERRUPTED, Interruption
from evaldesk.errors import WorkspaceError


class StuckRuns:
    """Runs that cannot be stopped: the disk is full, and their state cannot be stored."""

    def __init__(self) -> None:
        self.asked: list[bool] = []

    async def stop(self, run_id: int, *, cancel: bool) -> None:
        self.asked.append(cancel)
        await asyncio.Event().wait()


def test_the_third_ends_what_waits_for_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)

    async def pressed(times: int) -> list[bool]:
        runs: Any = StuckRuns()
        interruption = Interruption(runs, lambda line: None)
        interruption.run_id = 1
        for _ in range(times):
            interruption()
            await asyncio.sleep(0)
        return list(runs.asked)

    assert (asyncio.run(pressed(2)), ended) == ([False, True], [])

    asyncio.run(pressed(3))

    assert ended == [EXIT_INTERRUPTED]


def test_a_stop_that_a_full_disk_does_not_store_says_so_and_how_to_end_without_it() -> None:
    said: list[str] = []

    class RefusedRuns:
        async def stop(self, run_id: int, *, cancel: bool) -> None:
            raise WorkspaceError("the disk is full")

    async def pressed(times: int) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(str(context)))
        runs: Any = RefusedRuns()
        interruption = Interruption(runs, said.append)
        interruption.run_id = 1
        for _ in range(times):
            interruption()
            await asyncio.sleep(0)
        gc.collect()  # a task whose exception nobody took says so now

    asyncio.run(pressed(2))

    assert said == [
        "Finishing the running trials; press Ctrl-C again to stop at once",
        "Stopped, but not stored: the disk is full; press Ctrl-C twice more to end without what is not stored",
        "Stopping",
        "Stopped, but not stored: the disk is full; press Ctrl-C again to end without what is not stored",
    ]


PRESSED = """
import os, signal, sys
from importlib.abc import MetaPathFinder

module = sys.argv.pop(1)

class Presses(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # where tests run it may be ignored
sys.meta_path.insert(0, Presses())
from evaldesk.__main__ import main
main()
"""


@pytest.mark.parametrize("module", ["evaldesk.cli", "click", "evaldesk.errors", "evaldesk.cli.runs.group"])
def test_while_the_command_is_imported_it_ends_as_it_does_later(module: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PRESSED, module, "run", "list"]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (EXIT_INTERRUPTED, "", "\nStopped.\n")


def test_nothing_is_imported_before_the_command_can_be_interrupted() -> None:
    names = "import sys; before = set(sys.modules); import {}; print(*sorted(set(sys.modules) - before))"
    scripts = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
    module, _, function = scripts["evaldesk"].partition(":")

    found = subprocess.check_output([sys.executable, "-c", names.format(module)], text=True)

    assert (function, found.split()) == ("main", ["__future__", "evaldesk", module])
