"""The runtime of a benchmark: commands in a container, or without isolation in the workspace of the trial.

Without a container `/workspace`, the folder of OpenHands' containers, is replaced by the workspace in commands and
paths. The working folder and the exported variables of the shell persist from command to command.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaldesk.agents.containers import CommandContainer
from evaldesk.agents.workspaces import CommandResult, Workspace
from evaldesk.errors import UsageError
from evaldesk.integrations.openhands.kit.config import OpenHandsConfig
from evaldesk.integrations.openhands.kit.events import (
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
from evaldesk.integrations.openhands.kit.trial import InstanceTrial, current_trial
from evaldesk.model import Container
from evaldesk.model.run import EACH_IMAGE, checked_container

__all__ = ["Runtime"]

SANDBOX_FOLDER = "/workspace"
_IN_SANDBOX = re.compile(r"(?<![\w./-])/workspace(?=$|[/\s\"'`;:,)&|<>])")
_SCRIPT = """\
. {state} >/dev/null 2>&1
cd -- "$(cat {state}-folder 2>/dev/null || pwd)"
{command}
__code=$?
export -p >{state} 2>/dev/null
pwd >{state}-folder 2>/dev/null
exit $__code
"""


class Runtime:
    """The runtime of one trial: runs actions in its workspace."""

    def __init__(self, config: OpenHandsConfig | None = None) -> None:
        trial = current_trial()
        self.config = config or OpenHandsConfig()
        self.sid = "default"
        self.workspace = trial.workspace
        self.log_of_trial = trial.log
        self._shell_folder = Path(tempfile.mkdtemp(prefix="evaldesk-shell-"))
        self._place = (
            _open_container(self.config, trial) if trial.commands else Folder(trial.workspace, self._shell_folder)
        )
        self._env: dict[str, str] = dict(self.config.sandbox.runtime_startup_env_vars)

    async def connect(self) -> None:
        """Do nothing: the workspace exists already."""

    def close(self) -> None:
        """Kill running commands, and remove the temporary folder."""
        self.workspace.kill()
        self._place.close()
        shutil.rmtree(self._shell_folder, ignore_errors=True)

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
        """Run the action; an action of a browser gives an ErrorObservation, any other one a NullObservation."""
        handler = next((do for kind, do in _HANDLERS.items() if isinstance(action, kind)), None)
        if handler is not None:
            return handler(self, action)
        if isinstance(action, BrowseURLAction | BrowseInteractiveAction):
            return ErrorObservation("There is no browser here.")
        return NullObservation("")

    run = run_action

    def copy_to(self, host_src: str, sandbox_dest: str, recursive: bool = False) -> None:
        """Copy a file or a folder into the workspace. Raises UsageError for a place outside of it, OSError."""
        source = Path(host_src)
        if source.is_dir() or sandbox_dest.endswith("/") or self._place.is_folder(sandbox_dest):
            self._place.copy_in(source, sandbox_dest)
        else:
            self._place.copy_file(source, sandbox_dest)

    def copy_from(self, path: str) -> Path:
        """The file, or a zip archive of the folder. Raises UsageError for a place outside of the workspace, OSError."""
        return self._place.copy_out(path, self._shell_folder)

    def list_files(self, path: str | None = None) -> list[str]:
        """The names in a folder of the workspace; folders end in a slash. Raises OSError."""
        return self._place.names(path or SANDBOX_FOLDER)

    def read(self, action: FileReadAction) -> Observation:
        """The text of a file."""
        try:
            return FileReadObservation(self._place.read(action.path), path=action.path)
        except (OSError, UnicodeDecodeError, UsageError) as error:
            return ErrorObservation(f"{action.path} cannot be read: {error}")

    def write(self, action: FileWriteAction) -> Observation:
        """Write a file."""
        try:
            self._place.write(action.path, action.content)
        except (OSError, UsageError) as error:
            return ErrorObservation(f"{action.path} cannot be written: {error}")
        return FileWriteObservation("", path=action.path)

    def edit(self, action: FileEditAction) -> Observation:
        """View, create or change a file by the commands of OpenHands' editor."""
        try:
            return FileReadObservation(self._edit_file(action), path=action.path)
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
        """Acknowledge a thought."""
        return AgentThinkObservation("Your thought has been logged.")

    def _shell(self, command: str, timeout: float | None, cwd: str | None) -> tuple[str, int, bool]:
        text = self._place.command(command)
        if cwd:
            text = f"cd {shlex.quote(self._place.inside(cwd))} && {text}"
        script = _SCRIPT.format(state=shlex.quote(self._place.state), command=text)
        result = self._place.run(script, float(timeout or self.config.sandbox.timeout), self._env)
        return result.output, result.exit_code, result.is_timeout

    def _edit_file(self, action: FileEditAction) -> str:
        if action.command == "create":
            self._place.write(action.path, action.file_text or "")
            return f"File created successfully at: {action.path}"
        if action.command == "view" and self._place.is_folder(action.path):
            return "\n".join(self.list_files(action.path))
        text = self._place.read(action.path)
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
        self._place.write(action.path, text)
        return f"The file {action.path} has been edited."


class Folder:
    """The workspace of the trial as the place of commands and files, with the user's permissions."""

    def __init__(self, workspace: Workspace, shell_folder: Path) -> None:
        self._workspace = workspace
        self._root = str(workspace.path)
        self.state = str(shell_folder / "state")

    def close(self) -> None:
        """Do nothing: the folder belongs to the trial."""

    def command(self, text: str) -> str:
        """The command with the workspace in place of `/workspace`."""
        return _IN_SANDBOX.sub(lambda _: self._root, text)

    def run(self, script: str, timeout_s: float, variables: Mapping[str, str]) -> CommandResult:
        """Run a script of the shell in the folder."""
        shell = shutil.which("bash") or "/bin/sh"
        result = self._workspace.run([shell, "-c", script], timeout_s=timeout_s, env=variables)
        return replace(result, output=result.output.replace(self._root, SANDBOX_FOLDER))

    def inside(self, name: str) -> str:
        """The absolute path of a name in the workspace. Raises UsageError for a path outside of it."""
        root = self._workspace.path.resolve()
        inside = name.removeprefix(SANDBOX_FOLDER).lstrip("/") if name.startswith(SANDBOX_FOLDER) else name
        path = (root / inside).resolve()
        if not path.is_relative_to(root):
            raise UsageError(f"{name} lies outside of the workspace")
        return str(path)

    def read(self, name: str) -> str:
        """The text of a file. Raises OSError, UnicodeDecodeError."""
        return Path(self.inside(name)).read_text("utf-8")

    def write(self, name: str, text: str) -> None:
        """Write a file. Raises OSError."""
        self._prepare_path(name).write_text(text, "utf-8")

    def is_folder(self, name: str) -> bool:
        """Whether a folder is there."""
        return Path(self.inside(name)).is_dir()

    def names(self, name: str) -> list[str]:
        """The names in a folder; folders end in a slash. Raises OSError."""
        return sorted(f"{each.name}/" if each.is_dir() else each.name for each in Path(self.inside(name)).iterdir())

    def copy_in(self, source: Path, folder: str) -> None:
        """Copy a file or a folder into a folder. Raises OSError."""
        target = self._prepare_path(f"{folder}/{source.name}")
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)

    def copy_file(self, source: Path, name: str) -> None:
        """Copy a file to that name. Raises OSError."""
        shutil.copy(source, self._prepare_path(name))

    def copy_out(self, name: str, folder: Path) -> Path:
        """The file itself, or a zip archive of the folder in `folder`. Raises OSError."""
        source = Path(self.inside(name))
        return Path(shutil.make_archive(str(folder / source.name), "zip", source)) if source.is_dir() else source

    def _prepare_path(self, name: str) -> Path:
        """The path of a new file; its folder is created."""
        path = Path(self.inside(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def _open_container(config: OpenHandsConfig, trial: InstanceTrial) -> CommandContainer:
    """A container of the run's image, else of the benchmark's. Raises UsageError, AgentError."""
    configured = trial.commands or Container()
    image = configured.image if configured.image != EACH_IMAGE else config.sandbox.base_container_image
    if not image:
        raise UsageError("the benchmark names no image: set sandbox.base_container_image of its configuration")
    container = checked_container(replace(configured, image=image))
    trial.log(f"commands run in {container.sentence}")
    return CommandContainer(container, trial.workspace)


_HANDLERS: dict[type[Action], Callable[[Runtime, Any], Observation]] = {
    CmdRunAction: Runtime.run_command,
    IPythonRunCellAction: Runtime.run_ipython,
    FileReadAction: Runtime.read,
    FileWriteAction: Runtime.write,
    FileEditAction: Runtime.edit,
    AgentThinkAction: Runtime.think,
}
