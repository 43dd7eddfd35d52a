"""Containers by docker or podman: the client, their bounds, and one for the commands of a trial.

The commands of a benchmark's script run as in OpenHands: the script is a process of this machine, and the container
is its sandbox. It has a root of its own that can be written, and nothing of this machine. The end of its
standard input ends it, so it ends with the process that started it. (decision 216)
"""

from __future__ import annotations

import io
import os
import posixpath
import secrets
import shutil
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from evaldesk.agents.group_guard import end_group, watch_group
from evaldesk.agents.workspaces import CommandResult, Workspace
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import Container
from evaldesk.process_setup import PLAYED, PLAYED_ATTRIBUTE, RESOURCE_ATTRIBUTES
from evaldesk.reading.regular_file import read_at_most

CLIENTS = ("docker", "podman")
PULL_TIMEOUT_S, FILE_TIMEOUT_S = 600.0, 120.0
MAX_COPY = 512 * 2**20
"""Bytes that are copied out of a container at once."""
HOME = "/workspace"
_WRITE = 'mkdir -p -- "$(dirname -- "$1")" && cat >"$1"'
_PROCESS = "/tmp/.evaldesk-process"  # noqa: S108 - of the container
_MARK = f"""case ",${RESOURCE_ATTRIBUTES}," in *,{PLAYED}=*) ;; *)
export {RESOURCE_ATTRIBUTES}="${{{RESOURCE_ATTRIBUTES}:+${{{RESOURCE_ATTRIBUTES}%,}},}}{PLAYED_ATTRIBUTE}";; esac"""
"""Marks the commands as played; attributes that the image has stay."""
_UP = "command -v bash || echo /bin/sh; exec cat >/dev/null 2>&1"
"""The first process of a container: it names the shell, and lives as long as its standard input."""


def container_client(container: Container, environment: Mapping[str, str]) -> str:
    """The path of docker, or of podman. Raises UsageError without either."""
    paths = (shutil.which(client, path=environment.get("PATH")) for client in CLIENTS)
    client = next(filter(None, paths), None)
    if client is None:
        raise UsageError(
            f"image = {container.image!r}: neither docker nor podman is on PATH; install one, or leave image out",
            field="image",
        )
    return client


def is_podman(client: str) -> bool:
    """Whether the client is podman; its containers have other user ids."""
    return Path(client).name == "podman"


def docker_run_command(client: str, container: Container, name: str) -> tuple[str, ...]:
    """The start of a `docker run` command: resource limits and network, without image and command."""
    return (
        # The end of stdin ends the container, which has no parent to watch: decision 124.
        *(client, "run", "--interactive", "--rm", "--init", "--name", name),
        *(() if container.network == "open" else ("--network", "none")),
        *("--cap-drop", "ALL", "--security-opt", "no-new-privileges"),
        *("--cpus", f"{container.cpus:g}", "--memory", f"{container.memory}m"),
        *("--memory-swap", f"{container.memory}m", "--pids-limit", str(container.pids)),
    )


class CommandContainer:
    """The container for the commands of one trial; all of them share its files."""

    def __init__(self, container: Container, workspace: Workspace) -> None:
        self.container = container
        self._workspace = workspace
        self._client = container_client(container, os.environ)
        self._name = f"evaldesk-{os.getpid()}-{secrets.token_hex(4)}"
        self._client_env = {name: value for name, value in os.environ.items() if not name.startswith("EVALDESK_")}
        self._process, self._shell = self._start()
        workspace.at_end.append(self._end)
        if any(workspace.path.iterdir()):
            self._unpack(workspace.path, ".", HOME)

    def _start(self) -> tuple[subprocess.Popen[bytes], str]:
        command = (
            *docker_run_command(self._client, self.container, self._name),
            *(part for name in self.container.variables if name in os.environ for part in ("--env", name)),
            *("--workdir", HOME, "--entrypoint", "/bin/sh", self.container.image, "-c", _UP),
        )
        process = subprocess.Popen(
            command,
            env=self._client_env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        watch_group(process.pid)
        # `readline` has no timeout, and a pull of the image may hang.
        timer = threading.Timer(PULL_TIMEOUT_S, process.kill)
        timer.start()
        assert process.stdout  # noqa: S101 - it was asked for
        shell = process.stdout.readline(1_000).decode("utf-8", "replace").strip()
        timer.cancel()
        if not shell:
            _, stderr = process.communicate()
            end_group(process.pid)
            last = stderr.decode("utf-8", "replace").strip()[-500:]
            raise AgentError(f"{self.container.words} for the commands did not start" + (f": {last}" if last else ""))
        return process, shell

    @property
    def state(self) -> str:
        """The path of the file with the variables of the shell."""
        return "/tmp/.evaldesk-shell"  # noqa: S108 - of the container

    def command(self, text: str) -> str:
        """The command, unchanged."""
        return text

    def run(self, script: str, timeout_s: float, variables: Mapping[str, str]) -> CommandResult:
        """Run a shell script here. At its time limit it is killed, with its process group."""
        names = (part for name in variables for part in ("--env", name))
        script = f"echo $$ >{_PROCESS}\n{_MARK}\n{script}"
        command = (self._client, "exec", *names, self._name, self._shell, "-c", script)
        result = self._workspace.run(command, timeout_s=timeout_s, env={**self._client_env, **variables})
        if result.is_timeout:
            with suppress(OSError):  # it has ended meanwhile
                self._exec(f"kill -s KILL -- -$(cat {_PROCESS})")
        return result

    def inside(self, name: str) -> str:
        """The absolute path of a name; a relative name is below the workspace."""
        return posixpath.normpath(posixpath.join(HOME, name))

    def read(self, name: str) -> str:
        """The text of a file. Raises OSError, UnicodeDecodeError."""
        return self._exec('cat -- "$1"', self.inside(name)).decode("utf-8")

    def write(self, name: str, text: str) -> None:
        """Write a file. Raises OSError."""
        with tempfile.TemporaryFile() as content:
            content.write(text.encode())
            content.seek(0)
            self._exec(_WRITE, self.inside(name), stdin=content)

    def is_folder(self, name: str) -> bool:
        """Whether a folder is there."""
        return self._exec('if test -d "$1"; then echo yes; fi', self.inside(name)) != b""

    def names(self, name: str) -> list[str]:
        """The names in a folder; folders end in a slash. Raises OSError."""
        return sorted(self._exec('ls -1Ap -- "$1"', self.inside(name)).decode("utf-8", "replace").splitlines())

    def copy_in(self, source: Path, folder: str) -> None:
        """Copy a file or a folder into a folder. Raises OSError."""
        self._unpack(source, source.name, self.inside(folder))

    def copy_file(self, source: Path, name: str) -> None:
        """Copy a file to that name. Raises OSError."""
        with source.open("rb") as content:
            self._exec(_WRITE, self.inside(name), stdin=content)

    def copy_out(self, name: str, folder: Path) -> Path:
        """The file, or a zip archive of the files of the folder, in `folder`. Raises OSError."""
        place = self.inside(name)
        last = posixpath.basename(place) or "root"
        if not self.is_folder(name):
            target = folder / last
            target.write_bytes(self._exec('cat -- "$1"', place))
            return target
        target = folder / f"{last}.zip"
        tar_stream = io.BytesIO(self._exec('tar -cf - -C "$1" .', place))
        with tarfile.open(fileobj=tar_stream) as archive, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as into:
            for member in archive:
                content = archive.extractfile(member) if member.isreg() else None
                if content is not None:
                    into.writestr(posixpath.normpath(member.name), content.read())
        return target

    def _unpack(self, source: Path, name: str, folder: str) -> None:
        with tempfile.TemporaryFile() as tar_stream:
            with tarfile.open(fileobj=tar_stream, mode="w") as archive:
                archive.add(source, name, filter=_of_root)
            tar_stream.seek(0)
            # `-o`: files belong to the user in the container, not to the owner on this machine.
            self._exec('mkdir -p -- "$1" && tar -xof - -C "$1"', folder, stdin=tar_stream)

    def _exec(self, script: str, *words: str, stdin: IO[bytes] | None = None) -> bytes:
        """The output of a short script with the parameters `words`. Raises OSError when it fails."""
        command = (self._client, "exec", *(("--interactive",) if stdin else ()), self._name, "/bin/sh", "-c", script)
        with tempfile.TemporaryFile() as errors:
            process = subprocess.Popen(
                (*command, "sh", *words),
                env=self._client_env,
                stdin=stdin or subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
            timer = threading.Timer(FILE_TIMEOUT_S, process.kill)
            timer.start()
            assert process.stdout  # noqa: S101 - it was asked for
            with process.stdout as stream:
                output = read_at_most(stream, MAX_COPY + 1)
            if len(output) > MAX_COPY:
                process.kill()
            code = process.wait()
            timer.cancel()
            errors.seek(0)
            stderr = errors.read(500).decode("utf-8", "replace").strip()
        if len(output) > MAX_COPY:
            raise OSError(f"more than {MAX_COPY // 2**20} MiB")
        if code:
            raise OSError(stderr or f"the container gave exit code {code}")
        return output

    def close(self) -> None:
        """Kill the container and its processes; the end of the trial does the same."""
        if self._end in self._workspace.at_end:
            self._workspace.at_end.remove(self._end)
            self._end()

    def _end(self) -> None:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(
                (self._client, "kill", self._name),
                env=self._client_env,
                capture_output=True,
                check=False,
                timeout=FILE_TIMEOUT_S,
            )
        end_group(self._process.pid)
        self._process.communicate()


def _of_root(file: tarfile.TarInfo) -> tarfile.TarInfo:
    """The entry without the user of this machine; `TarInfo.replace` is there from Python 3.11.4 on."""
    file.uid = file.gid = 0
    file.uname = file.gname = ""
    return file
