"""A stand-in for the package `osmosis_ai` where it is not installed, so that agents written for it load unchanged.

The real package wins wherever it can be imported. The names are those of reference/osmosis.md section 3; one that is
not there says so by its name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

NAME = "osmosis_ai"

_KIT = "evaldesk.agents.osmosis.kit"
_LOOP = ("schemas", "exceptions", "loop", "tools", "serving")
_FLOW = ("workflow", "serving")
_MODULES: Mapping[str, Sequence[str]] = {
    "": ("rewards",),
    "utils": ("rewards",),
    "rollout": (*_LOOP, "workflow_names"),
    "rollout.core": ("schemas", "exceptions", "loop"),
    "rollout.core.base": ("schemas", "loop"),
    "rollout.core.schemas": ("schemas",),
    "rollout.core.exceptions": ("exceptions",),
    "rollout.core.llm_client": ("loop",),
    "rollout.client": ("loop",),
    "rollout.tools": ("tools", "exceptions"),
    "rollout.utils": ("tools",),
    "rollout.server": ("serving",),
    "rollout.server.app": ("serving",),
    "rollout.agent_workflow": _FLOW,
    "rollout.grader": _FLOW,
    "rollout.context": _FLOW,
    "rollout.types": (*_FLOW, "schemas"),
    "rollout.backend": _FLOW,
    "rollout.backend.local": _FLOW,
    "rollout.backend.local.backend": _FLOW,
    "rollout.integrations": (),
    "rollout.integrations.agents": (),
    "rollout.integrations.agents.openai_agents": ("openai_agents",),
    "rollout.integrations.openai_agents": ("openai_agents",),
}


def install() -> None:
    """Let `import osmosis_ai` find the stand-in from now on, after everything that is installed."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())


def is_standin() -> bool:
    """Whether the `osmosis_ai` of this process is ours; a module that is not imported yet is only looked up."""
    loaded = sys.modules.get(NAME)
    return isinstance(loaded, _Standin) if loaded else PathFinder.find_spec(NAME) is None


class _Standin(ModuleType):
    """A module that says its purpose when a name is missing."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"Evaldesk's stand-in for {self.__name__} has no {name}; install the real package with "
            "`pip install osmosis-ai` where Evaldesk is started"
        )


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, rest = fullname.partition(".")
        if top != NAME or rest not in _MODULES:
            return None
        spec = ModuleSpec(fullname, _Maker(_MODULES[rest]), origin="evaldesk")
        spec.submodule_search_locations = []
        return spec


class _Maker(Loader):
    def __init__(self, sources: Sequence[str]) -> None:
        self._sources = sources

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Standin(spec.name, f"Evaldesk's stand-in for {spec.name}.")

    def exec_module(self, module: ModuleType) -> None:
        for name in self._sources:
            source = importlib.import_module(f"{_KIT}.{name}")
            module.__dict__.update({public: getattr(source, public) for public in source.__all__})
