"""A command that is killed at a chosen step: a call of the file layer, an SQL statement or a commit.

`python -m tests.killed_steps AT COMMAND...` is killed by SIGKILL there, or prints how many steps it had.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def killed(at: int, *command: str) -> int | None:
    """Run `evaldesk COMMAND` in a process that is killed at step `at`; the number of steps where it had fewer."""
    found = subprocess.run(
        bound_python("-m", "tests.killed_steps", str(at), *command),
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    if found.returncode == -signal.SIGKILL:
        return None
    assert found.returncode == 0, found.stdout + found.stderr
    return int(found.stdout.rpartition(b"steps: ")[2])


def _main(at: int, command: list[str]) -> None:
    from evaldesk.cli import cli

    steps = KilledSteps(at, kill=lambda: os.kill(os.getpid(), signal.SIGKILL))
    with steps.inserted():
        try:
            cli.main(command, standalone_mode=False)
        except SystemExit as ended:
            if ended.code:
                raise
    sys.stdout.write(f"\nsteps: {steps.n_calls}")


if __name__ == "__main__":
    _main(int(sys.argv[1]), sys.argv[2:])
