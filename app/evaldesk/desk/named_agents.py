"""The agent that a person or a test names."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from evaldesk.agents import agent_ref, named_ref
from evaldesk.agents.discovery import source_folders
from evaldesk.engine.launch import placed
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef
from evaldesk.paths import workspace_folder
from evaldesk.settings import Settings, read_settings


def named_agent(
    spec: str,
    workspace: str | None = None,
    python: str | None = None,
    image: str | None = None,
    environment: str | None = None,
) -> AgentRef:
    """The agent that a command names: declared in `evaldesk.toml`, a folder, `module:attr`, an address.

    It is played on the interpreter `python`, in the image `image` or in `environment`, where one is named. Raises
    UsageError.
    """
    home = workspace_folder(workspace)
    settings = read_settings(home, (home,), environment=os.environ)
    return placed(named_ref(spec, settings.agents, home), settings, python, image, environment)


def placed_again(
    ref: AgentRef, settings: Settings, python: str | None, image: str | None, environment: str | None
) -> AgentRef:
    """An agent that was named before, in another place, as `named_agent`. Raises UsageError."""
    return placed(ref, settings, python, image, environment)


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
    module_name = ".".join([*parts, *inside])
    return replace(ref, target=f"{module_name}:{attribute}", root=str(folder.parents[len(parts) - 1]))


def _with_part(ref: AgentRef, agent_name: str | None) -> AgentRef:
    """The agent called `agent_name` inside another one; a worker looks for it there."""
    if agent_name is None or agent_name == "root_agent":
        return ref
    return replace(ref, id=agent_name, part=agent_name)
