"""A command that is killed at a chosen step: a call of the file layer, an SQL statement or a commit.

`python -m tests.killed_steps` reads commands and forks for each: the imports, not the steps, take most of a start.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from sqlalchemy import Engine, event
from tests.bound_processes import bound_python
from tests.faulty_disk import FaultyDisk


class KilledSteps(FaultyDisk):
    """Kills at step `at`; the statements and commits of SQL are steps, too."""

    @contextmanager
    def inserted(self) -> Iterator[None]:
        """Count, and kill, for a while."""
        with super().inserted():
            event.listen(Engine, "before_cursor_execute", self._step)
            event.listen(Engine, "commit", self._step)
            try:
                yield
            finally:
                event.remove(Engine, "before_cursor_execute", self._step)
                event.remove(Engine, "commit", self._step)

    def _step(self, *_: object) -> None:
        self.call("sql", int)


class KilledCommands:
    """Plays commands, each in a process of its own: a fork of one that has imported what the commands before it did."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            bound_python("-m", "tests.killed_steps"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[1],
        )

    def __call__(self, at: int, *command: str) -> int | None:
        """Run `evaldesk COMMAND`, killed at step `at`; gives the number of steps where it had fewer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([at, *command]).encode() + b"\n")
        self._process.stdin.flush()
        exit_code, steps, output = json.loads(self._process.stdout.readline())
        if exit_code == -signal.SIGKILL:
            return None
        assert exit_code == 0, output
        return int(steps)

    def close(self) -> None:
        """End the process whose forks the commands were."""
        self._process.communicate()


def _serve() -> None:
    """Fork for each line of the input, `[AT, COMMAND...]`, and answer with exit code, number of steps and output."""
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        at, *command = json.loads(line)
        gc.freeze()
        with TemporaryFile() as output, TemporaryFile() as ended:
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                for stream in (1, 2):
                    os.dup2(output.fileno(), stream)
                os._exit(_played(at, command, ended.fileno()))
            exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            steps, modules = json.loads(_text(ended) or "[null, []]")
            answers.write(json.dumps([exit_code, steps, _text(output)]) + "\n")
            answers.flush()
        for name in modules:
            import_module(name)


def _played(at: int, command: list[str], ended: int) -> int:
    """Play a command; where it ends, write how many steps it had and the modules of ours that it imported."""
    from evaldesk.cli import cli

    before = set(sys.modules)
    steps = KilledSteps(at, kill=lambda: os.kill(os.getpid(), signal.SIGKILL))
    exit_code = 0
    try:
        with steps.inserted():
            cli.main(command, standalone_mode=False)
    except SystemExit as end:
        exit_code = int(end.code or 0)
    except BaseException:  # the answer holds it
        traceback.print_exc()
        exit_code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    modules = sorted(name for name in set(sys.modules) - before if name.startswith("evaldesk."))
    os.write(ended, json.dumps([steps.n_calls, modules]).encode())
    return exit_code


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


if __name__ == "__main__":
    _serve()
