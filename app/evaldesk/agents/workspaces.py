"""The workspace of a trial: a folder, and commands in it with the user's permissions, without isolation.

Each command has this folder as its working folder, an environment without keys, and a process group, which is killed at
its time limit and at the end of the trial. It can reach other files and the network.
"""

from __future__ import annotations

import difflib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evaldesk.agents.group_guard import end_group, kill_group, watch_group
from evaldesk.errors import UsageError
from evaldesk.model.run import IMAGE_VARIABLE, Container

DRAIN_S = 1.0
"""Time to read the output of a killed command, while a surviving child keeps the pipe open."""
MAX_OUTPUT = 30_000
MAX_DIFF = 200_000
MAX_FILES = 2_000
MAX_FILE = 200_000

_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TERM", "SYSTEMROOT", "VIRTUAL_ENV")


def isolation(commands: Container | None = None) -> str:
    """The sentence on the isolation of a workspace's commands from this machine."""
    if commands:
        return f"the script runs as you, its commands in {commands.words}"
    image = os.environ.get(IMAGE_VARIABLE)
    return f"runs in a container of {image}" if image else "runs as you, without isolation"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a command; `output` is both streams, without its middle if long. The exit code is -1 if killed."""

    exit_code: int
    output: str
    is_timeout: bool = False


@dataclass(slots=True)
class Workspace:
    """The folder of one trial; `at_end` are callbacks that end other resources, such as a container."""

    path: Path
    env: dict[str, str]
    at_end: list[Callable[[], None]] = field(default_factory=list, repr=False)
    _groups: set[int] = field(default_factory=set, repr=False)
    # Threads of a benchmark start commands while the deadline of the trial closes the folder (decision 046).
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _baseline: dict[str, str | None] = field(default_factory=dict, repr=False)
    _is_closed: bool = field(default=False, repr=False)

    def run(
        self,
        command: str | Sequence[str],
        *,
        timeout_s: float = 60.0,
        input: str | None = None,  # noqa: A002 - the word of subprocess.run
        env: Mapping[str, str] | None = None,
    ) -> CommandResult:
        """Run a command here and wait for it; a string runs in a shell. Raises OSError when it cannot be started."""
        with self._lock:  # `close` must not miss a command that is being started
            if self._is_closed:
                raise UsageError("the trial of this workspace has ended")
            process = subprocess.Popen(
                command,
                shell=isinstance(command, str),
                cwd=self.path,
                env={**self.env, **(env or {})},
                stdin=subprocess.PIPE if input is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._groups.add(process.pid)
            watch_group(process.pid)
        try:
            output, _ = process.communicate(input, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            kill_group(process.pid)
            return CommandResult(-1, shorten(_drain_output(process)), is_timeout=True)
        return CommandResult(process.returncode, shorten(output))

    def write(self, name: str, text: str) -> Path:
        """Write a file. Raises UsageError for a name that leads out of the folder."""
        path = (self.path / name).resolve()
        if not path.is_relative_to(self.path.resolve()):
            raise UsageError(f"the file {name!r} would lie outside of the workspace")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        return path

    def remember(self) -> None:
        """Take a snapshot of the folder as the baseline of `changes`."""
        self._baseline = _contents(self.path)

    def changes(self) -> tuple[list[str], str]:
        """Names of the files that changed since `remember`, and a diff of them within bounds."""
        before, after = self._baseline, _contents(self.path)
        absent = object()
        names = [name for name in sorted({*before, *after}) if before.get(name, absent) != after.get(name, absent)]
        return names, shorten(_diff(before, after, names), MAX_DIFF)

    def kill(self) -> None:
        """Kill every command and its process group."""
        with self._lock:
            groups = tuple(self._groups)
        for group in groups:
            kill_group(group)
        while self.at_end:
            self.at_end.pop()()

    def close(self) -> None:
        """Kill every command and remove the folder."""
        with self._lock:
            self._is_closed = True
        for group in self._groups:
            end_group(group)
        shutil.rmtree(self.path, ignore_errors=True)


def _drain_output(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=DRAIN_S)[0]
    except subprocess.TimeoutExpired as error:
        assert process.stdout  # noqa: S101 - it was asked for
        process.stdout.close()
        process.wait()
        return (error.output or b"").decode("utf-8", "replace")


def open_workspace(environment: Mapping[str, str], seed: Path | None = None) -> Workspace:
    """A new folder, with a copy of the contents of `seed`. Raises UsageError if `seed` is no folder."""
    if seed is not None and not seed.is_dir():
        raise UsageError(f"{seed}: no folder to begin a workspace from")
    path = Path(tempfile.mkdtemp(prefix="evaldesk-"))
    if seed is not None:
        shutil.copytree(seed, path, symlinks=True, dirs_exist_ok=True)
    environment_subset = {name: environment[name] for name in _INHERITED_VARIABLES if name in environment}
    return Workspace(path, {**environment_subset, "TMPDIR": str(path), "PWD": str(path)})


def shorten(text: str, limit: int = MAX_OUTPUT) -> str:
    """`text` without its middle if it is longer than `limit`."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"


def _contents(folder: Path) -> dict[str, str | None]:
    """The texts of the files by name; None for a file that is too big or not UTF-8."""
    text_by_name: dict[str, str | None] = {}
    for path in sorted(folder.rglob("*")):
        if len(text_by_name) >= MAX_FILES:
            break
        if path.is_symlink() or not path.is_file() or ".git" in path.relative_to(folder).parts:
            continue
        text_by_name[str(path.relative_to(folder))] = _text(path)
    return text_by_name


def _text(path: Path) -> str | None:
    try:
        if path.stat().st_size > MAX_FILE:
            return None
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _diff(before: Mapping[str, str | None], after: Mapping[str, str | None], names: Sequence[str]) -> str:
    lines: list[str] = []
    for name in names:
        old_text, new_text = before.get(name, ""), after.get(name, "")
        if old_text is None or new_text is None:
            lines.append(f"{name}: too big, or no text\n")
            continue
        source = f"a/{name}" if name in before else "/dev/null"
        target = f"b/{name}" if name in after else "/dev/null"
        lines += difflib.unified_diff(old_text.splitlines(True), new_text.splitlines(True), source, target)
    return "".join(line if line.endswith("\n") else f"{line}\n" for line in lines)
