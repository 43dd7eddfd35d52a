"""The agent that a person or a test names."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaldesk.agents import agent_ref, declared_refs, named_ref
from evaldesk.agents.finding import is_imported, played_on, source_folders
from evaldesk.engine.launch import container_client
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentRef, Container
from evaldesk.model.run import checked_container
from evaldesk.paths import OURS, interpreter_path
from evaldesk.settings import Environment, Settings, read_settings


def named_agent(
    spec: str,
    workspace: str | None = None,
    python: str | None = None,
    image: str | None = None,
    environment: str | None = None,
) -> AgentRef:
    """The agent that a command names: one that `evaldesk.toml` declares, a folder, `module:attr`, an address.

    It is played on the interpreter `python`, in the image `image` or in `environment`, where one is named. Raises
    UsageError.
    """
    home = Path(workspace).resolve() if workspace else Path.cwd()
    settings = read_settings(home, (home,), environment=os.environ)
    return placed(named_ref(spec, settings.agents, home), settings, python, image, environment)


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
        ref = replace(ref, python="", container=checked_container(Container(image)))
    if not python:
        found = played_on(ref, settings.python, settings.container)
        if found.container:
            container_client(found.container, os.environ)
        return found
    named = interpreter_path(os.fspath(python), Path.cwd())
    found = played_on(replace(ref, python=named, container=None))
    if not found.python and named != OURS and not is_imported(ref):
        raise UsageError(f"{ref.id} is not imported, so it has no interpreter; leave python out", field="python")
    return found


def in_environment(ref: AgentRef, settings: Settings, name: str) -> AgentRef:
    """The agent in the environment of that name in `evaldesk.toml`, or on Evaldesk's own interpreter.

    No other name leads anywhere, so that a browser reaches no path. Raises UsageError.
    """
    known = {OURS: Environment(OURS), **settings.environments}
    if name not in known:
        raise UsageError(str(NotFoundError.among("environment", name, known)), field="environment")
    if not is_imported(ref):
        raise UsageError(f"{ref.id} is not imported, so it has no environment; leave it out", field="environment")
    found = known[name]
    try:
        if found.container:
            container_client(found.container, os.environ)
            return replace(ref, python="", container=found.container)
        python = interpreter_path(found.python, settings.workspace)
    except UsageError as error:
        raise UsageError(f"environment {name}: {error}", field="environment") from error
    return played_on(replace(ref, python=python, container=None))


def declared_agents(settings: Settings, home: Path) -> list[AgentRef]:
    """The agents that the `evaldesk.toml` of `home` declares. Raises UsageError."""
    return [*declared_refs(settings.agents, home)]


def module_agent(agent_module: str, agent_name: str | None = None) -> AgentRef:
    """The agent in an importable module, which has an `agent` or is one, or at a path that names a folder.

    The module is looked up along `sys.path` and in the project of the current folder, without importing it: workers do
    that. Raises UsageError.
    """
    if Path(agent_module).is_dir() or ":" in agent_module or "/" in agent_module:
        return _with_part(agent_ref(agent_module), agent_name)
    parts = agent_module.removesuffix(".agent").split(".")
    roots = [Path(entry or ".").resolve() for entry in sys.path]
    for root in (*roots, *source_folders(Path.cwd())):
        folder = root.joinpath(*parts)
        if folder.is_dir():
            ref = agent_ref(str(folder))
            return _with_part(_under(ref, parts, folder), agent_name)
        if folder.with_suffix(".py").is_file():
            return _with_part(AgentRef(parts[-1], f"{'.'.join(parts)}:root_agent", root=str(root)), agent_name)
    raise UsageError(f"no module {agent_module!r} on sys.path has an agent; name one such as my_package.my_agent")


def _under(ref: AgentRef, parts: Sequence[str], folder: Path) -> AgentRef:
    """The same agent under the whole name of its module, so that its relative imports work."""
    module, separator, attribute = ref.target.partition(":")
    if not separator:  # a file of configuration, which is no module
        return ref
    inside = module.split(".")[len(folder.relative_to(ref.root).parts) :]
    whole = ".".join([*parts, *inside])
    return replace(ref, target=f"{whole}:{attribute}", root=str(folder.parents[len(parts) - 1]))


def _with_part(ref: AgentRef, agent_name: str | None) -> AgentRef:
    """The agent called `agent_name` inside the one that was found; a worker looks for it there."""
    if agent_name is None or agent_name == "root_agent":
        return ref
    return replace(ref, id=agent_name, part=agent_name)
