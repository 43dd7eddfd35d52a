"""Agents of google-adk in a module: `app` before `root_agent`, in the package, its `agent.py` or its YAML file."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from evaldesk.agents.discovery import YAML_NAME
from evaldesk.agents.loading import make_importable
from evaldesk.agents.missing_packages import missing_package
from evaldesk.agents.traces import user_trace
from evaldesk.errors import AgentError, NotFoundError
from evaldesk.model import AgentRef


def app_of(candidate: object, ref: AgentRef) -> Any:
    """The App itself, the App of its module, or a new App around the agent; None for any other object."""
    from google.adk.agents.base_agent import BaseAgent
    from google.adk.apps.app import App

    if isinstance(candidate, App):
        return candidate
    if not (isinstance(candidate, BaseAgent) or _is_node(candidate)):
        return None
    apps = (vars(module).get("app") for module in _modules(ref))
    own = next((app for app in apps if isinstance(app, App) and app.root_agent is candidate), None)
    return own or App(name="evaldesk", root_agent=candidate)


def part_of(root: Any, name: str) -> Any:
    """The agent called `name` in the tree under `root`. Raises AgentError with the names there are."""
    from evaldesk.integrations.adk.models import agents_of

    agents_by_name = {str(agent.name): agent for agent in agents_of(root)}
    if name not in agents_by_name:
        raise AgentError(str(NotFoundError.among(f"agent in {root.name}", name, agents_by_name)))
    return agents_by_name[name]


def yaml_agent(ref: AgentRef) -> object:
    """The agent that `root_agent.yaml` in the folder of `ref` describes; it may name tools of that folder.

    Raises AgentError.
    """
    path = Path(ref.folder, YAML_NAME)
    make_importable(path.parent.name, ref.root)
    try:
        from google.adk.agents.config_agent_utils import from_config

        return from_config(str(path))
    except Exception as error:
        fault = missing_package(error) or f"{type(error).__name__}: {error}"
        raise AgentError(f"{path.parent.name}/{YAML_NAME}: {fault}", trace=user_trace(error)) from error


_REMOTE, _NEEDED = "google.adk.agents.remote_a2a_agent", "a2a"


def fail_import_early() -> None:
    """Fail the import of remote agents early: google-adk tries it in each turn, and reads modules before it fails."""
    if _REMOTE not in sys.modules and not any(isinstance(finder, _EarlyImportFailure) for finder in sys.meta_path):
        sys.meta_path.insert(0, _EarlyImportFailure())  # first, before the finders that would read the module


class _EarlyImportFailure(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == _REMOTE and _NEEDED not in sys.modules and find_spec(_NEEDED) is None:
            raise ModuleNotFoundError(f"No module named {_NEEDED!r}", name=_NEEDED)


async def reset_data_of(ref: AgentRef) -> None:
    """Call `reset_data()` of the agent's module, if any, so that its tools start with fresh data."""
    functions = (vars(module).get("reset_data") for module in _modules(ref))
    function = next((each for each in functions if callable(each)), None)
    answer = function() if function else None
    if inspect.isawaitable(answer):
        await answer


def _modules(ref: AgentRef) -> Iterator[ModuleType]:
    """The modules that may hold `app` and `reset_data`: the package, the target module, its `agent`."""
    name = ref.target.partition(":")[0]
    for module_name in (name.rpartition(".")[0], name, f"{name}.agent"):
        module = sys.modules.get(module_name)
        if module is not None:
            yield module


def _is_node(candidate: object) -> bool:
    try:
        # Private, as google-adk exports no base of its nodes.
        from google.adk.workflow._base_node import BaseNode
    except ImportError:  # before google-adk 2
        return False
    return isinstance(candidate, BaseNode)
