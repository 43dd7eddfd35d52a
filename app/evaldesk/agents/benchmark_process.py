"""A process of its own for one instance: its folder, its environment, its process group, all killed at the end.

Code that asks for the current folder, changes the environment or starts programs by itself so does it for its own
trial alone. (docs/benchmarks.md)
"""

from __future__ import annotations

import contextvars
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from evaldesk.agents.benchmark_metadata import Task
from evaldesk.agents.group_guard import end_group, kill_group, watch
from evaldesk.agents.protocol import MAX_BYTES
from evaldesk.errors import AgentError
from evaldesk.wire import plain_text, to_json

MODULE = "evaldesk.agents.benchmark_child"
ENDING_S = 5.0
"""Seconds that `teardown` may take after the trial was cancelled, or its time was up."""

PRINTING_S = 5.0  # a process that left the group may hold the pipe for ever

_N_LAST = 2_000


class InstanceProcess:
    """A process that works on `task`, in the folder of the task's workspace."""

    def __init__(self, task: Task, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-P", "-m", MODULE),
            cwd=task.folder,
            env={**environment, "PWD": task.folder, "TMPDIR": task.folder},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        watch(self._process.pid)
        self._task = task
        self._is_started = False
        self._last = ""
        self._killer = threading.Timer(ENDING_S, kill_group, (self._process.pid,))
        self._killer.daemon = True
        copied = contextvars.copy_context()
        self._printing = threading.Thread(target=copied.run, args=(self._print,), daemon=True)
        self._printing.start()

    def talk(self, on_ready: Callable[[], None], on_log: Callable[[str], None]) -> dict[str, Any]:
        """Have the task done; what the process says last, `output` or `failed`. Raises AgentError when it ends before.

        `on_ready` is called when the workspace is set up, before the instance is processed.
        """
        self._write(to_json(self._task))
        while True:
            said = self._read()
            if "started" in said:
                self._is_started = True
            elif "ready" in said:
                on_ready()
                self._write(b"")
            elif "log" in said:
                on_log(said["log"])
            else:
                return said

    def interrupt(self) -> None:
        """Have it come to an end: a SIGINT for it alone, and the group is killed where that does not help."""
        if not self._is_started:
            kill_group(self._process.pid)
            return
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGINT)
        if not self._killer.is_alive():
            self._killer.start()

    def close(self) -> None:
        """Kill it, and whatever it started in its group."""
        self._killer.cancel()
        end_group(self._process.pid)
        self._process.wait()
        self._printing.join(PRINTING_S)
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                with suppress(BrokenPipeError):
                    stream.close()

    def _write(self, line: bytes) -> None:
        assert self._process.stdin  # noqa: S101 - it was asked for
        with suppress(BrokenPipeError):  # its end is seen where it is read
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout  # noqa: S101 - it was asked for
        line = self._process.stdout.readline(MAX_BYTES)
        if not line:
            raise AgentError(self._ending())
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError as error:
            raise AgentError(f"process_instance returned more than {MAX_BYTES // 2**20} MiB") from error
        return found

    def _ending(self) -> str:
        code = self._process.wait()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        self._printing.join(PRINTING_S)
        last = self._last.strip()
        return f"the process of the instance {how} before it was done" + (f": {last}" if last else "")

    def _print(self) -> None:
        assert self._process.stderr  # noqa: S101 - it was asked for
        with self._process.stderr as stream:
            for line in iter(lambda: stream.readline(10_000), b""):
                text = plain_text(line.decode("utf-8", "replace"))
                self._last = (self._last + text)[-_N_LAST:]
                sys.stdout.write(text)
