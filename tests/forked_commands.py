"""Commands of Evaldesk, each in a process of its own: a fork of one that has imported what they need.

To start Python and import everything again takes a CPU second each. A test of the start itself, or of what a process
may import, starts Python instead. `python -m tests.forked_commands` reads the commands.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from tests.bound_processes import bound_python
from tests.forked_python import (
    CAN_FORK,
    FLAGS,
    GRADER,
    ONE_THREAD,
    ROOM,
    ROOM_VARIABLE,
    WORKER,
    ForkedPython,
    import_ahead,
)
from tests.killed_steps import KilledSteps
from tests.template_database import copied_databases
from tests.unsynced import unsynced

CHECKOUT = Path(__file__).parents[1]
PATIENCE_S = 600
PLAYING = {"eval", "run", "doctor", "agents"}
"""The commands whose workers are forks of a fork of them, which has imported what a worker needs."""


class ForkedCommands:
    """Plays commands, one after the other; `within` is a command that starts another in a place of its own."""

    def __init__(self, within: Sequence[str] = ()) -> None:
        self._within = within
        self.searched: Sequence[str] = ()
        """Where the last command looked for modules at its end."""
        self._process: subprocess.Popen[bytes] | None = None

    def run(
        self, *command: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """`evaldesk COMMAND` to its end, without input."""
        found = self._played(command, cwd, environment, None)
        return subprocess.CompletedProcess(command, found["exit_code"], found["stdout"], found["stderr"])

    def killed(self, at: int, *command: str) -> int | None:
        """Run `evaldesk COMMAND`, killed by SIGKILL at step `at`; gives the number of steps where it had fewer."""
        found = self._played(command, None, None, at)
        if found["exit_code"] == -signal.SIGKILL:
            return None
        assert found["exit_code"] == 0, found
        return int(found["n_steps"])

    def close(self) -> None:
        """End the process whose forks the commands were."""
        if self._process:
            self._process.communicate()

    def _played(
        self, command: tuple[str, ...], cwd: Path | None, environment: Mapping[str, str] | None, at: int | None
    ) -> dict[str, Any]:
        if self._process is None:
            server = [*self._within, *bound_python(*FLAGS, "tests.forked_commands")]
            environment_of_server = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(CHECKOUT), ROOM_VARIABLE: "-" * ROOM}
            self._process = subprocess.Popen(
                server, env=environment_of_server, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {
            "command": command,
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(os.environ if environment is None else environment),
            "at": at,
        }
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        self.searched = found["searched"]
        return found


def _serve() -> None:
    """Fork for each line of the input, and answer with the exit code, what was said and the number of steps."""
    has_workers = False
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        asked = json.loads(line)
        if CAN_FORK and _plays(asked) and not has_workers:
            import_ahead((WORKER, "evaldesk.engine.worker.zygote", *GRADER[1:]))
            has_workers = True
        gc.freeze()
        with TemporaryFile() as said, TemporaryFile() as errors, TemporaryFile() as notes:
            child = os.fork()
            if not child:
                answers.close()
                for stream, place in enumerate((os.open(os.devnull, os.O_RDONLY), said.fileno(), errors.fileno())):
                    os.dup2(place, stream)
                try:
                    _play(asked, os.dup(notes.fileno()))
                except SystemExit as ended:
                    _end(ended)
            exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            noted = json.loads(_text(notes) or "{}")
            found = {"exit_code": exit_code, "stdout": _text(said), "stderr": _text(errors)}
        found |= {"n_steps": noted.get("n_steps"), "searched": noted.get("searched", ())}
        answers.write(json.dumps(found) + "\n")
        answers.flush()
        for name in noted.get("modules", ()):
            import_module(name)


def _play(asked: dict[str, Any], notes: int) -> None:
    """Be the command; at its end, note how many steps it had, and which modules of ours it imported."""
    signal.alarm(PATIENCE_S)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.argv = ["evaldesk", *asked["command"]]
    named = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [*named, *(place for place in sys.path if place not in ("", str(CHECKOUT)))]
    # First of all: a process with one thread is forked, and this environment is that of its workers.
    workers = ForkedPython.of_this_process() if CAN_FORK and _plays(asked) else None
    before = set(sys.modules)
    from evaldesk.cli import main

    steps = KilledSteps(asked["at"] or 0, kill=lambda: os.kill(os.getpid(), signal.SIGKILL))
    try:
        with workers.standing_in() if workers else nullcontext():
            if asked["at"] is None:
                main()
            else:
                with steps.inserted():
                    main()
    finally:
        modules = sorted(name for name in set(sys.modules) - before if name.startswith("evaldesk."))
        noted = {"n_steps": steps.n_calls, "modules": modules, "searched": sys.path}
        os.write(notes, json.dumps(noted).encode())


def _plays(asked: Mapping[str, Any]) -> bool:
    """Whether the command starts workers; those of one that is killed at a step are real."""
    return asked["at"] is None and next(iter(asked["command"]), "") in PLAYING


def _end(ended: SystemExit) -> None:
    """End as Python does, but free nothing: each object that a fork frees has the kernel copy its page first."""
    if not isinstance(ended.code, int):
        raise ended
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended.code)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


if __name__ == "__main__":
    with unsynced(), copied_databases():
        _serve()
