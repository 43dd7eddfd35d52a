"""`evaldesk eval` in a terminal: the bar moves, Ctrl-C once finishes what is in flight, twice stops at once."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

AGENT = '''
def root_agent(message, state):
    """Says that it has begun, and answers when it is let."""
    with open(state["begun"], "w") as begun:
        begun.write(message)
    with open(state["may_end"]) as may_end:
        return may_end.read()
'''
IN_TERMINAL = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); from evaldesk.cli import main; main()"
CTRL_C = b"\x03"


class Terminal:
    """A command with a terminal of its own."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._ours, theirs = pty.openpty()
        environment = os.environ | {"TERM": "xterm", "COLUMNS": "120"}
        command = [sys.executable, "-c", IN_TERMINAL, *arguments]
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command, cwd=folder, env=environment, start_new_session=True, stdin=theirs, stdout=theirs, stderr=theirs
        )
        os.close(theirs)
        self.said = ""

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def read_until(self, pattern: str) -> None:
        while not re.search(pattern, self.said):
            piece = self._read()
            assert piece, f"{pattern!r} never came: {self.said}"

    def end(self) -> int:
        while self._read():
            pass
        return self.process.wait()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def _read(self) -> str:
        _wait_for(self._ours)
        try:
            piece = os.read(self._ours, 4096).decode("utf-8", "replace")
        except OSError:  # the other end is gone
            return ""
        self.said += piece
        return piece


def _wait_for(descriptor: int) -> None:
    """Wait until there is something to read; a bound for a test that would hang, far beyond what any machine takes."""
    assert select.select([descriptor], [], [], 120)[0], "nothing came for two minutes"


def _begun(pipe: Path) -> str:
    """What the agent writes when its turn begins."""
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        _wait_for(descriptor)
        os.set_blocking(descriptor, True)
        return os.read(descriptor, 100).decode()
    finally:
        os.close(descriptor)


@pytest.fixture
def gate(place: CommandFolder) -> tuple[Path, Path]:
    """Two pipes: the agent writes into the first when a turn begins, and answers with what comes out of the second."""
    pipes = place.folder / "begun", place.folder / "may_end"
    for pipe in pipes:
        os.mkfifo(pipe)
    return pipes


@pytest.fixture
def terminal(place: CommandFolder, gate: tuple[Path, Path]) -> Iterator[Terminal]:
    (place.agent / "agent.py").write_text(AGENT)
    path = place.evalset("first", {"one": "yes", "two": "yes", "three": "yes"})
    value = json.loads(path.read_text())
    state = {"begun": str(gate[0]), "may_end": str(gate[1])}
    for case in value["eval_cases"]:
        case["session_input"] = {"app_name": "a", "user_id": "u", "state": state}
    path.write_text(json.dumps(value))
    opened = Terminal(["eval", str(place.agent), str(path), "--concurrency", "1", "--timeout", "8"], place.folder)
    yield opened
    opened.close()


@pytest.mark.server
def test_ctrl_c_once_finishes_what_is_in_flight(
    place: CommandFolder, gate: tuple[Path, Path], terminal: Terminal
) -> None:
    begun, may_end = gate
    assert _begun(begun) == "one"
    may_end.write_text("yes")
    assert _begun(begun) == "two"
    terminal.read_until("1 of 3 done, 1 passed|1 of 3 done, 0 passed")

    terminal.press(CTRL_C)
    terminal.read_until("Finishing the running trials; press Ctrl-C again to stop at once")
    may_end.write_text("yes")

    assert terminal.end() == 130, terminal.said
    assert "Stopped: 2 of 3 trials are done and stored. Continue with: evaldesk run resume 1" in terminal.said
    with place.store() as store:
        summary = store.runs.summary(1)
    assert (summary.status, summary.n_done, summary.n_todo) == ("stopped", 2, 1)


@pytest.mark.server
def test_ctrl_c_twice_stops_at_once(place: CommandFolder, gate: tuple[Path, Path], terminal: Terminal) -> None:
    assert _begun(gate[0]) == "one"

    terminal.press(CTRL_C)
    terminal.read_until("Finishing the running trials")
    terminal.press(CTRL_C)

    assert terminal.end() == 130, terminal.said
    assert "Stopped: 0 of 3 trials are done and stored" in terminal.said
    with place.store() as store:
        assert store.runs.summary(1).status == "stopped"
