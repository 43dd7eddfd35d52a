"""The place where an agent is played, and how a worker process comes to be there: its command and environment."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol, TypeAlias

from evaldesk.agents.containers import PULL_TIMEOUT_S, container_client, docker_run_command, is_podman
from evaldesk.agents.discovery import is_imported, with_place
from evaldesk.engine.sandbox import FLAG as SANDBOX_FLAG
from evaldesk.engine.sandbox import bubblewrap_command, has_bubblewrap, plan_text, problem
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.llm.price_list import VARIABLE as PRICE_LIST
from evaldesk.llm.price_list import price_list
from evaldesk.model import AgentRef, Container
from evaldesk.model.options import LINK_LOCAL_VARIABLE
from evaldesk.model.run import IMAGE_VARIABLE, PlaceKind, checked_container
from evaldesk.paths import OURS, PACKAGE, interpreter_path
from evaldesk.process_setup import WORKER_VARIABLE
from evaldesk.settings import Environment, Settings
from evaldesk.workers_ahead import COMMAND, SECRETS, own_environment

FileIdentity: TypeAlias = tuple[str, tuple[int, int]]
"""The path of a file with its device and number; of an absent one zeros."""

BOOT = str(Path(__file__).resolve().with_name("boot.py"))
# Another interpreter would take our packages for its own: decision 088.
OF_OUR_PYTHON = ("PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__")
"""Variables that lead an interpreter to the packages of another one."""
INSIDE = "/opt/evaldesk"
"""The folder of a container in which our package and the agent's root are found."""
SCRATCH = "/tmp"  # noqa: S108 - of the container
START_TIMEOUT_S = 60.0
MAX_PLAN = 100_000
"""Characters of a sandbox's plan: Linux takes no longer argument than 131,072 bytes."""
MAX_COVERS = 500
"""Files and folders that are left out of a container, each by a mount of its own."""
NO_PARENT = 0
"""In the place of the parent's process id, for a worker that cannot see it."""


@dataclass(frozen=True, slots=True)
class Launch:
    """One worker to start: its command, its environment, and the command that cleans up after a lost one.

    `mark` is in the environment of the worker, and so in that of every process that it starts.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    end: tuple[str, ...] = ()
    mark: str = ""


class Launcher(Protocol):
    """The place of workers. `words` name a worker in a sentence."""

    @property
    def words(self) -> str:
        """`the worker process`."""

    @property
    def kind(self) -> PlaceKind:
        """The kind of place: process, sandbox or container."""

    @property
    def can_fork(self) -> bool:
        """Whether a worker may be forked for others."""

    def place(self, machine: str) -> str:
        """The place of the workers on that machine, in words."""

    @property
    def start_timeout_s(self) -> float:
        """Seconds after which a worker that is not up is given up."""

    @property
    def is_stale(self) -> bool:
        """Whether a worker that starts now has other walls than the forks of an earlier one."""

    def launch(self, environment: Mapping[str, str], purpose: str) -> Launch:
        """A worker; `environment` is the environment of the run. Raises UsageError where there is no place for one."""


@dataclass(frozen=True, slots=True)
class ProcessLauncher:
    """Starts workers as processes on Evaldesk's own interpreter, or on the agent's, whose path is `python`."""

    python: str = ""
    start_timeout_s: float = START_TIMEOUT_S
    kind: PlaceKind = "process"
    can_fork: bool = sys.platform == "linux"
    is_stale: bool = False

    def place(self, machine: str) -> str:
        """The machine; with the interpreter, where it is not ours."""
        return f"{machine}, {self.python}" if self.python else machine

    @property
    def words(self) -> str:
        """The interpreter is named where it is not ours."""
        return f"the player on {self.python}" if self.python else "the worker process"

    def launch(self, base_environment: Mapping[str, str], purpose: str) -> Launch:
        """A process of this machine, which ends with this one."""
        command = (self.python, "-X", "faulthandler", BOOT) if self.python else COMMAND
        mark = secrets.token_hex(16)
        environment = {**self._environment(base_environment), WORKER_VARIABLE: mark}
        return Launch((*command, str(os.getpid()), purpose), environment, mark=mark)

    def _environment(self, base_environment: Mapping[str, str]) -> dict[str, str]:
        """On the agent's interpreter that of its activated virtual environment."""
        environment = own_environment(base_environment)
        if self.python:
            environment = {name: value for name, value in environment.items() if name not in OF_OUR_PYTHON}
            folder = os.path.dirname(self.python)
            environment["PATH"] = os.pathsep.join(filter(None, (folder, base_environment.get("PATH"))))
            if Path(folder).with_name("pyvenv.cfg").is_file():
                environment["VIRTUAL_ENV"] = os.path.dirname(folder)
            environment[PRICE_LIST] = price_list()
        return environment


OWN = ProcessLauncher()


@dataclass(frozen=True, slots=True)
class SandboxLauncher:
    """Starts each worker as `process` does, and hides files from it before it imports anything of the agent.

    Paths in `hidden` are covered but for `visible` ones inside; folders that are `read_only` cannot be
    written. Where the machine allows namespaces to bubblewrap alone, it makes the sandbox. Variables that are
    `left_out` are not given to it. `identities` are those of the hidden files when they were looked for.
    """

    process: ProcessLauncher
    hidden_paths: tuple[str, ...]
    visible: tuple[str, ...]
    read_only: tuple[str, ...]
    identities: tuple[FileIdentity, ...] = ()
    left_out: tuple[str, ...] = ()
    start_timeout_s: float = START_TIMEOUT_S
    kind: PlaceKind = "process"

    @property
    def can_fork(self) -> bool:
        """Whether a player may be forked: not behind bubblewrap, whose process is another."""
        return self.process.can_fork and not sandbox_problem()

    @property
    def is_stale(self) -> bool:
        """Whether a hidden file was saved anew, by which the kernel takes away its cover in all earlier sandboxes."""
        return any(_identity(path) != identity for path, identity in self.identities)

    @property
    def words(self) -> str:
        """The interpreter is named where it is not ours."""
        return f"{self.process.words} in a sandbox"

    def place(self, machine: str) -> str:
        """The machine; with the interpreter, where it is not ours."""
        return f"{self.process.place(machine)}, in a sandbox"

    def launch(self, environment: Mapping[str, str], purpose: str) -> Launch:
        """A process of this machine, which ends with this one. Raises UsageError where no sandbox can be made."""
        own = self.process.launch(
            {name: value for name, value in environment.items() if name not in self.left_out}, purpose
        )
        python = (self.process.python or sys.executable, "-X", "faulthandler", BOOT)
        if not sandbox_problem():
            plan = plan_text([*self.hidden_paths], [*self.visible], [*self.read_only])
            if len(plan) > MAX_PLAN:
                raise UsageError(f"{len(self.hidden_paths)} paths are too many to hide; use isolation = 'container'")
            return replace(own, command=(*python, SANDBOX_FLAG, plan, str(os.getpid()), purpose))
        check_sandbox()
        command = bubblewrap_command(self.hidden_paths, self.visible, self.read_only)
        return replace(own, command=(*command, *python, str(NO_PARENT), purpose))


def file_identities(paths: Iterable[str]) -> Iterator[FileIdentity]:
    """The files among some paths, each with its device and number."""
    yield from ((path, _identity(path)) for path in paths if os.path.isfile(path))


def _identity(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


@cache
def sandbox_problem() -> str:
    """Why this process cannot put another into a sandbox by itself; empty where it can."""
    return problem()


def check_sandbox() -> None:
    """Raise UsageError where neither this process nor bubblewrap can make a sandbox."""
    why = sandbox_problem()
    if why and not has_bubblewrap():
        raise UsageError(
            f"isolation = 'sandbox' cannot be had: {why}. Install bubblewrap (`bwrap`), or use isolation = 'container'",
            field="isolation",
        )


@dataclass(frozen=True, slots=True)
class ContainerLauncher:
    """Starts each worker in a container of its own, by docker or podman.

    The container has the image, Evaldesk's package read-only, and a copy of the agent's `root` at its own path; what
    the agent writes there is gone with the container. `hidden_paths`, relative to the root, are empty there.
    """

    container: Container
    root: str
    hidden_paths: tuple[str, ...] = ()
    start_timeout_s: float = PULL_TIMEOUT_S
    kind: PlaceKind = "container"
    can_fork: bool = False
    is_stale: bool = False

    def place(self, machine: str) -> str:
        """The machine with the image."""
        return f"{machine}, {self.container.image}"

    @property
    def words(self) -> str:
        """With the image."""
        return f"the player in {self.container.words}"

    def launch(self, base_environment: Mapping[str, str], purpose: str) -> Launch:
        """`docker run`; values of variables are in the environment of the client and never in a command line."""
        client, name = (
            container_client(self.container, base_environment),
            f"evaldesk-{os.getpid()}-{secrets.token_hex(4)}",
        )
        environment = {each: value for each, value in base_environment.items() if each not in SECRETS}
        prices = price_list()
        places = {str(PACKAGE): f"{INSIDE}/evaldesk", self.root: f"{INSIDE}/root", prices: f"{INSIDE}/prices.json"}
        own = {
            "HOME": SCRATCH,
            IMAGE_VARIABLE: self.container.image,
            PRICE_LIST: f"{INSIDE}/prices.json" if prices else "",
            LINK_LOCAL_VARIABLE: base_environment.get(LINK_LOCAL_VARIABLE, ""),
        }
        if self.container.network == "model-only":
            from evaldesk.engine.model_door import door_for, variables  # a server, for those who ask for it

            places[door_for(base_environment).folder] = f"{INSIDE}/door"
            own |= variables(base_environment, self.container.variables)
        command = (
            *(*docker_run_command(client, self.container, name), "--read-only"),
            *("--user", f"{os.getuid()}:{os.getgid()}", *(("--userns", "keep-id") if is_podman(client) else ())),
            *(part for place, inside in places.items() if place for part in ("--mount", _mount(place, inside))),
            *self._covers(),
            *(part for each in (SCRATCH, self.root) if each for part in ("--tmpfs", f"{each}:rw,exec,mode=1777")),
            *(part for each, value in own.items() for part in ("--env", f"{each}={value}")),
            *(part for each in self.container.variables if each in base_environment for part in ("--env", each)),
            *("--workdir", SCRATCH, "--entrypoint", "python3", self.container.image),
            *("-X", "faulthandler", f"{INSIDE}/evaldesk/engine/boot.py"),
            *(("--copy", f"{INSIDE}/root", self.root) if self.root else ()),
            *(("--door", f"{INSIDE}/door") if self.container.network == "model-only" else ()),
            *(str(NO_PARENT), purpose),
        )
        return Launch(command, environment, (client, "kill", name))

    def _covers(self) -> Iterator[str]:
        """Empty folders and files over the hidden ones, which the copy leaves out. Raises UsageError for too many."""
        if len(self.hidden_paths) > MAX_COVERS:
            raise UsageError(
                f"{len(self.hidden_paths):,} files of eval sets below {self.root} are more than the {MAX_COVERS:,} "
                "that a container can leave out; keep them in one folder, or outside of the agent's",
                field="isolation",
            )
        for path in self.hidden_paths:
            inside = f"{INSIDE}/root/{path}"
            if os.path.isdir(os.path.join(self.root, path)):
                yield from ("--tmpfs", f"{inside}:ro,mode=555")
            else:
                yield from ("--mount", _mount(os.devnull, inside))


def launcher_of(agent: AgentRef) -> Launcher:
    """The place where the agent is played."""
    if agent.container:
        return ContainerLauncher(agent.container, agent.root)
    return ProcessLauncher(agent.python) if agent.python else OWN


def _mount(source: str, target: str) -> str:
    if unfit := next((each for each in (source, target) if "," in each or '"' in each), ""):
        raise UsageError(
            f"{unfit}: a file or folder that is given to a container has no comma and no quotation mark in its name"
        )
    return f"type=bind,source={source},target={target},readonly"


def placed(
    ref: AgentRef,
    settings: Settings,
    python: str | os.PathLike[str] | None = None,
    image: str | None = None,
    environment: str | None = None,
) -> AgentRef:
    """The agent on the interpreter or in the image that a person names, else as `evaldesk.toml` or its project has it.

    `environment` is a name of `evaldesk.toml` for one of them. Raises UsageError for a path without an interpreter, for
    an agent that is not imported, and for an image where no container can be started.
    """
    if environment:
        if python or image:
            raise UsageError("environment names an interpreter or an image; leave python and image out", field="image")
        return in_environment(ref, settings, environment)
    if python and image:
        raise UsageError(
            "python is an interpreter of this machine, and image has its own; leave one out", field="image"
        )
    if image:
        if not is_imported(ref):
            raise UsageError(f"{ref.id} is not imported, so it has no container; leave image out", field="image")
        ref = replace(ref, python="", container=checked_container(Container(image)), commands=None)
    if not python:
        placed_ref = with_place(ref, settings.python, settings.container)
        for container in filter(None, (placed_ref.container, placed_ref.commands)):
            container_client(container, os.environ)
        return placed_ref
    interpreter = interpreter_path(os.fspath(python), Path.cwd())
    placed_ref = with_place(
        replace(ref, python=interpreter, container=None), container=replace(settings.container, image="")
    )
    if not placed_ref.python and interpreter != OURS and not is_imported(ref):
        raise UsageError(f"{ref.id} is not imported, so it has no interpreter; leave python out", field="python")
    return placed_ref


def in_environment(ref: AgentRef, settings: Settings, name: str) -> AgentRef:
    """The agent in the environment of that name in `evaldesk.toml`, or on Evaldesk's own interpreter.

    No other name leads anywhere, so that a browser reaches no path. Raises UsageError.
    """
    environments = {OURS: Environment(OURS), **settings.environments}
    if name not in environments:
        raise UsageError(str(NotFoundError.among("environment", name, environments)), field="environment")
    if not is_imported(ref):
        raise UsageError(f"{ref.id} is not imported, so it has no environment; leave it out", field="environment")
    environment = environments[name]
    try:
        if environment.container:
            container_client(environment.container, os.environ)
            return replace(ref, python="", container=environment.container, commands=None)
        python = interpreter_path(environment.python, settings.workspace)
    except UsageError as error:
        raise UsageError(f"environment {name}: {error}", field="environment") from error
    return with_place(replace(ref, python=python, container=None), container=replace(settings.container, image=""))
