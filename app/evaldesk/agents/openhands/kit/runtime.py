"""A runtime whose commands run in the workspace of the trial: as you, without isolation.

`/workspace`, the folder of OpenHands' containers, stands for the workspace in commands and paths. The folder and the
exported variables of the shell last from one command to the next.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from evaldesk.agents.openhands.kit.config import OpenHandsConfig
from evaldesk.agents.openhands.kit.events import (
    Action,
    AgentThinkAction,
    AgentThinkObservation,
    BrowseInteractiveAction,
    BrowseURLAction,
    CmdOutputMetadata,
    CmdOutputObservation,
    CmdRunAction,
    ErrorObservation,
    FileEditAction,
    FileReadAction,
    FileReadObservation,
    FileWriteAction,
    FileWriteObservation,
    IPythonRunCellAction,
    IPythonRunCellObservation,
    NullObservation,
    Observation,
)
from evaldesk.agents.openhands.kit.trial import current
from evaldesk.errors import UsageError

__all__ = ["Runtime"]

SANDBOX_FOLDER = "/workspace"
_IN_SANDBOX = re.compile(r"(?<![\w./-])/workspace(?=$|[/\s\"'`;:,)&|<>])")
_SCRIPT = """\
. {state} >/dev/null 2>&1
{command}
__code=$?
{{ export -p; printf 'cd %q\\n' "$PWD"; }} >{state} 2>/dev/null
exit $__code
"""


class Runtime:
    """The place where actions are done."""

    def __init__(self, config: OpenHandsConfig | None = None) -> None:
        trial = current()
        self.config = config or OpenHandsConfig()
        self.sid = "default"
        self.workspace = trial.workspace
        self.log_of_trial = trial.log
        self._state = Path(tempfile.mkdtemp(prefix="evaldesk-shell-"), "state")
        self._env: dict[str, str] = dict(self.config.sandbox.runtime_startup_env_vars)

    async def connect(self) -> None:
        """Nothing: the workspace is there."""

    def close(self) -> None:
        """End the commands that still run."""
        self.workspace.kill()
        shutil.rmtree(self._state.parent, ignore_errors=True)

    @property
    def workspace_root(self) -> Path:
        """The folder of the trial."""
        return self.workspace.path

    def add_env_vars(self, env_vars: Mapping[str, str]) -> None:
        """Set variables for the commands from now on."""
        self._env.update(env_vars)

    def log(self, level: str, message: str) -> None:
        """Add a line to the log of the trial."""
        self.log_of_trial(f"{level}: {message}")

    def run_action(self, action: Action) -> Observation:
        """Do the action and give its result; an action without a place here gives an ErrorObservation."""
        done = next((do for kind, do in _DONE.items() if isinstance(action, kind)), None)
        if done is not None:
            return done(self, action)
        if isinstance(action, BrowseURLAction | BrowseInteractiveAction):
            return ErrorObservation("There is no browser here.")
        return NullObservation("")

    run = run_action

    def copy_to(self, host_src: str, sandbox_dest: str, recursive: bool = False) -> None:
        """Copy a file or a folder into the workspace. Raises UsageError for a place outside of it."""
        target = self._path(sandbox_dest)
        if Path(host_src).is_dir():
            shutil.copytree(host_src, target / Path(host_src).name, dirs_exist_ok=True)
            return
        target = target / Path(host_src).name if target.is_dir() or sandbox_dest.endswith("/") else target
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(host_src, target)

    def copy_from(self, path: str) -> Path:
        """The file in the workspace, or a zip archive of the folder. Raises UsageError for a place outside of it."""
        found = self._path(path)
        if found.is_dir():
            return Path(shutil.make_archive(str(self._state.parent / found.name), "zip", found))
        return found

    def list_files(self, path: str | None = None) -> list[str]:
        """The names in a folder of the workspace; folders end in a slash."""
        folder = self._path(path or SANDBOX_FOLDER)
        return sorted(f"{each.name}/" if each.is_dir() else each.name for each in folder.iterdir())

    def read(self, action: FileReadAction) -> Observation:
        """The text of a file."""
        try:
            return FileReadObservation(self._path(action.path).read_text("utf-8"), path=action.path)
        except (OSError, UnicodeDecodeError, UsageError) as error:
            return ErrorObservation(f"{action.path} cannot be read: {error}")

    def write(self, action: FileWriteAction) -> Observation:
        """Write a file."""
        try:
            self._write(action.path, action.content)
        except (OSError, UsageError) as error:
            return ErrorObservation(f"{action.path} cannot be written: {error}")
        return FileWriteObservation("", path=action.path)

    def edit(self, action: FileEditAction) -> Observation:
        """View, create or change a file by the commands of OpenHands' editor."""
        try:
            return FileReadObservation(self._edited(action), path=action.path)
        except (OSError, UnicodeDecodeError, UsageError) as error:
            return ErrorObservation(f"{action.path}: {error}")

    def run_command(self, action: CmdRunAction) -> Observation:
        """Run a command in the shell of this runtime."""
        if action.is_input:
            return ErrorObservation("Commands get no input here.")
        output, code, is_late = self._shell(action.command, action.timeout, action.cwd)
        if is_late:
            output += "\n[The command was killed at its time limit.]"
        metadata = CmdOutputMetadata(exit_code=code, working_dir=SANDBOX_FOLDER)
        return CmdOutputObservation(output, command=action.command, metadata=metadata, hidden=action.hidden)

    def run_ipython(self, action: IPythonRunCellAction) -> Observation:
        """Run Python code in a process of its own."""
        output, _, _ = self._shell(f"python3 -c {shlex.quote(action.code)}", action.timeout, None)
        return IPythonRunCellObservation(output, code=action.code)

    def think(self, action: AgentThinkAction) -> Observation:
        """Keep a thought."""
        return AgentThinkObservation("Your thought has been logged.")

    def _shell(self, command: str, timeout: float | None, cwd: str | None) -> tuple[str, int, bool]:
        root = str(self.workspace.path)
        text = _IN_SANDBOX.sub(lambda _: root, command)
        if cwd:
            text = f"cd {shlex.quote(str(self._path(cwd)))} && {text}"
        script = _SCRIPT.format(state=shlex.quote(str(self._state)), command=text)
        shell = shutil.which("bash") or "/bin/sh"
        limit = float(timeout or self.config.sandbox.timeout)
        ended = self.workspace.run([shell, "-c", script], timeout_s=limit, env=self._env)
        return ended.output.replace(root, SANDBOX_FOLDER), ended.exit_code, ended.is_timeout

    def _path(self, name: str) -> Path:
        """The place in the workspace that a name means. Raises UsageError for one outside of it."""
        root = self.workspace.path.resolve()
        inside = name.removeprefix(SANDBOX_FOLDER).lstrip("/") if name.startswith(SANDBOX_FOLDER) else name
        found = (root / inside).resolve()
        if not found.is_relative_to(root):
            raise UsageError(f"{name} lies outside of the workspace")
        return found

    def _write(self, name: str, text: str) -> None:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def _edited(self, action: FileEditAction) -> str:
        path = self._path(action.path)
        if action.command == "create":
            self._write(action.path, action.file_text or "")
            return f"File created successfully at: {action.path}"
        if action.command == "view" and path.is_dir():
            return "\n".join(self.list_files(action.path))
        text = path.read_text("utf-8")
        if action.command == "view":
            return "".join(f"{number:6}\t{line}" for number, line in enumerate(text.splitlines(True), 1))
        if action.command == "str_replace":
            n_found = text.count(action.old_str or "") if action.old_str else 0
            if n_found != 1:
                raise UsageError(f"old_str occurs {n_found} times; it must occur once")
            text = text.replace(action.old_str or "", action.new_str or "")
        elif action.command == "insert":
            lines = text.splitlines(True)
            place = action.insert_line or 0
            if not 0 <= place <= len(lines):
                raise UsageError(f"insert_line must be 0 to {len(lines)}")
            lines.insert(place, f"{action.new_str or ''}\n")
            text = "".join(lines)
        else:
            raise UsageError(f"there is no command {action.command!r}; there are view, create, str_replace and insert")
        self._write(action.path, text)
        return f"The file {action.path} has been edited."


_DONE: dict[type[Action], Callable[[Runtime, Any], Observation]] = {
    CmdRunAction: Runtime.run_command,
    IPythonRunCellAction: Runtime.run_ipython,
    FileReadAction: Runtime.read,
    FileWriteAction: Runtime.write,
    FileEditAction: Runtime.edit,
    AgentThinkAction: Runtime.think,
}
