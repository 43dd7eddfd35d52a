"""Stand-ins for packages that are not installed, so that agents written for them load unchanged.

The real package wins wherever it can be imported. A name that a stand-in does not have raises an error with its name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import cast

from evaldesk.registry import import_target, is_present


@dataclass(frozen=True, slots=True)
class StandinPackage:
    """A package: its top name, its modules with their sources in `kit`, and the advice for a missing name."""

    name: str
    kit: str
    modules: Mapping[str, Sequence[str]]
    advice: str


STANDINS: Mapping[str, str] = {
    "osmosis": "evaldesk.integrations.osmosis.standins:PACKAGES",
    "openhands": "evaldesk.integrations.openhands.standins:PACKAGES",
}
"""The stand-ins of each tool, by the `package.module:attr` of its packages."""


def install_standins(*tools: str) -> None:
    """Add import finders for the stand-ins of the tools, or of all tools, after those of installed packages."""
    for target in filter(is_present, [STANDINS[tool] for tool in tools or STANDINS]):
        install(*cast("Sequence[StandinPackage]", import_target(target)))


def install(*packages: StandinPackage) -> None:
    """Add import finders for the stand-ins, after those of installed packages."""
    for package in packages:
        if not any(isinstance(finder, _Finder) and finder.package is package for finder in sys.meta_path):
            sys.meta_path.append(_Finder(package))


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
