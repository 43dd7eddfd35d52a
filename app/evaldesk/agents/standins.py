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


@dataclass(frozen=True, slots=True)
class StandinPackage:
    """A package: its top name, its modules with their sources in `kit`, and the advice for a missing name."""

    name: str
    kit: str
    modules: Mapping[str, Sequence[str]]
    advice: str


def install(package: StandinPackage) -> None:
    """Let an import of the package find the stand-in from now on, after everything that is installed."""
    if not any(isinstance(finder, _Finder) and finder.package is package for finder in sys.meta_path):
        sys.meta_path.append(_Finder(package))


class StandinModule(ModuleType):
    """A module that says its purpose when a name is missing."""

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
        top, _, rest = fullname.partition(".")
        if top != self.package.name or rest not in self.package.modules:
            return None
        spec = ModuleSpec(fullname, _Maker(self.package, rest), origin="evaldesk")
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
