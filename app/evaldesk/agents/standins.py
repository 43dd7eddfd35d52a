"""Stand-ins for packages that are not installed, so that agents written for them load unchanged.

The real package wins wherever it can be imported. A name that a stand-in does not have raises an error with its name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class StandinPackage:
    """A package: its top name, its modules with their sources in `kit`, and the advice for a missing name."""

    name: str
    kit: str
    modules: Mapping[str, Sequence[str]]
    advice: str


def install(*packages: StandinPackage) -> None:
    """Add import finders for the stand-ins, after those of installed packages."""
    for package in packages:
        if not any(isinstance(finder, _Finder) and finder.package is package for finder in sys.meta_path):
            sys.meta_path.append(_Finder(package))


def replace_package(name: str, file: str) -> None:
    """Replace the package `name` during the import of its `__init__.py`, `file`.

    The replacement is the installed package, else the stand-in. The folder of `file` is removed from `sys.path`.
    """
    folder = Path(file).resolve().parents[1]
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != folder]
    sys.path_importer_cache.pop(str(folder), None)
    install(EVALUATION, OPENHANDS)
    del sys.modules[name]
    importlib.import_module(name)


def is_osmosis_standin() -> bool:
    """Whether the `osmosis_ai` of this process is the stand-in; no import is made."""
    module = sys.modules.get(OSMOSIS_NAME)
    return isinstance(module, StandinModule) if module else PathFinder.find_spec(OSMOSIS_NAME) is None


class StandinModule(ModuleType):
    """A stand-in module with a helpful error for a missing name."""

    advice = ""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"Evaldesk's stand-in for {self.__name__} has no {name}; {self.advice}")


class _Finder(MetaPathFinder):
    def __init__(self, package: StandinPackage) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, _, submodule = fullname.partition(".")
        if top != self.package.name or submodule not in self.package.modules:
            return None
        spec = ModuleSpec(fullname, _Maker(self.package, submodule), origin="evaldesk")
        spec.submodule_search_locations = []
        return spec


class _Maker(Loader):
    def __init__(self, package: StandinPackage, module: str) -> None:
        self._package = package
        self._sources = package.modules[module]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = StandinModule(spec.name, f"Evaldesk's stand-in for {spec.name}.")
        vars(module)["advice"] = self._package.advice
        return module

    def exec_module(self, module: ModuleType) -> None:
        for name in self._sources:
            source = importlib.import_module(f"{self._package.kit}.{name}")
            module.__dict__.update({public: getattr(source, public) for public in source.__all__})


# Of reference/osmosis.md section 3, where `osmosis_ai` is not installed.
OSMOSIS_NAME = "osmosis_ai"

_LOOP = ("schemas", "exceptions", "loop", "tools", "serving")
_FLOW = ("workflow", "serving")
_OSMOSIS_MODULES: Mapping[str, Sequence[str]] = {
    "": ("rewards",),
    "utils": ("rewards",),
    "rollout": ("workflow", *_LOOP),  # its RolloutContext is that of agent loops
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


OSMOSIS = StandinPackage(
    OSMOSIS_NAME,
    "evaldesk.agents.osmosis.kit",
    _OSMOSIS_MODULES,
    "install the real package with `pip install osmosis-ai` where Evaldesk is started",
)

# The names that the benchmarks of OpenHands import. (reference/openhands_tau.md sections 1 and 2)
_OPENHANDS_KIT = "evaldesk.agents.openhands.kit"
_OPENHANDS_ADVICE = "start Evaldesk in the environment of OpenHands, whose own packages are used then"
_EVENTS, _CONFIG = ("events",), ("config",)

EVALUATION = StandinPackage(
    "evaluation", _OPENHANDS_KIT, {"": (), "utils": (), "utils.shared": ("shared",)}, _OPENHANDS_ADVICE
)
OPENHANDS = StandinPackage(
    "openhands",
    _OPENHANDS_KIT,
    {
        "": (),
        "agenthub": (),
        "controller": (),
        "controller.state": (),
        "controller.state.state": ("state",),
        "core": (),
        "core.config": _CONFIG,
        "core.config.agent_config": _CONFIG,
        "core.config.arg_utils": _CONFIG,
        "core.config.condenser_config": _CONFIG,
        "core.config.llm_config": _CONFIG,
        "core.config.openhands_config": _CONFIG,
        "core.config.sandbox_config": _CONFIG,
        "core.config.utils": _CONFIG,
        "core.logger": ("logger",),
        "core.main": ("controller",),
        "core.schema": ("state", "events"),
        "events": _EVENTS,
        "events.action": _EVENTS,
        "events.action.agent": _EVENTS,
        "events.action.commands": _EVENTS,
        "events.action.files": _EVENTS,
        "events.action.message": _EVENTS,
        "events.event": _EVENTS,
        "events.observation": _EVENTS,
        "events.observation.commands": _EVENTS,
        "events.observation.error": _EVENTS,
        "events.serialization": _EVENTS,
        "events.serialization.event": _EVENTS,
        "events.utils": _EVENTS,
        "llm": (),
        "llm.metrics": ("state",),
        "runtime": ("runtime",),
        "runtime.base": ("runtime",),
        "runtime.runtime": ("runtime",),
        "utils": (),
        "utils.async_utils": ("controller",),
    },
    _OPENHANDS_ADVICE,
)
