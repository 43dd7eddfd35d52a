"""What a test may not leave to the next one: entries of `sys.path`, shadows of frameworks, variables, a working folder.

A folder left on `sys.path` that holds `agents/` is the OpenAI Agents SDK to every later test that looks for it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from tests.agents.installed import INSTALLED

from evaldesk.process_setup import SET_BY_LIBRARIES

FRAMEWORKS = ("agents", "google", "langgraph", "langchain_core", "openhands", "osmosis_ai", "pydantic_ai", "ray")
_VARIABLES: Mapping[bytes, bytes] = os.environ._data  # type: ignore[attr-defined] # twice a test: decoding takes long
_PACKAGES = tuple(INSTALLED)
_KNOWN = {*sys.stdlib_module_names, "evaldesk", "tests"}
UNSTEADY = re.compile("|".join(["PYTEST_CURRENT_TEST", r"RAY_\w+", "PYTHONBREAKPOINT", *SET_BY_LIBRARIES]))
"""Variables that pytest sets for each test, and those that packages set when they are imported, which lasts."""


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves to the next one what it should clean up; this is set up first and torn down last."""
    before = ProcessState.now()
    yield
    after = ProcessState.now()
    if before != after and (leftovers := before.leftovers(after)):
        before.restore(after)
        pytest.fail(f"the test leaves {'; '.join(leftovers)}", pytrace=False)


@pytest.fixture
def own_imports() -> Iterator[None]:
    """Forget what a test imports from folders of its own, and the places on `sys.path` where it looks for it."""
    path, modules = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        # Other objects are put there by monkeypatch, which takes them out.
        if isinstance(sys.modules[name], ModuleType) and not is_installed_module(sys.modules[name]):
            del sys.modules[name]


@dataclass(frozen=True)
class ProcessState:
    """The state of this process that tests share."""

    path: tuple[str, ...]
    frameworks: dict[str, ModuleType]
    variables: dict[bytes, bytes]
    folder: str

    @classmethod
    def now(cls) -> ProcessState:
        """The state as it is."""
        frameworks = {name: sys.modules[name] for name in FRAMEWORKS if name in sys.modules}
        variables = {**_VARIABLES}
        variables.pop(b"PYTEST_CURRENT_TEST", None)
        return cls(tuple(sys.path), frameworks, variables, os.getcwd())

    @property
    def environment(self) -> dict[str, str]:
        """The variables but for those that change by themselves."""
        names = {os.fsdecode(name): os.fsdecode(value) for name, value in self.variables.items()}
        return {name: value for name, value in names.items() if not UNSTEADY.fullmatch(name)}

    @property
    def entries(self) -> tuple[str, ...]:
        """Those of `sys.path` but for installed packages, some of which add a folder of their own."""
        return tuple(entry for entry in self.path if not entry.startswith(_PACKAGES))

    def leftovers(self, after: ProcessState) -> list[str]:
        """What is other in the later state, in words."""
        return [
            *_differences("sys.path", dict.fromkeys(self.entries, ""), dict.fromkeys(after.entries, "")),
            *(["the order of sys.path"] if _is_reordered(self.entries, after.entries) else []),
            *_differences("os.environ", self.environment, after.environment),
            *(f"sys.modules: {name}" for name in _changed_frameworks(self.frameworks, after.frameworks)),
            *([f"the working folder: {after.folder}"] if after.folder != self.folder else []),
        ]

    def restore(self, after: ProcessState) -> None:
        """Let the next test begin as this one did."""
        sys.path[:] = [*self.entries, *(entry for entry in sys.path if entry.startswith(_PACKAGES))]
        for name in _changed_frameworks(self.frameworks, after.frameworks):
            for module in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                del sys.modules[module]
        variables = self.environment
        for name in after.environment.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
        os.chdir(self.folder)


def _is_reordered(before: Sequence[str], after: Sequence[str]) -> bool:
    return before != after and sorted(before) == sorted(after)


def _differences(where: str, before: dict[str, str], after: dict[str, str]) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if before.get(name, "-") != after.get(name, "-"):
            change = "added" if name not in before else "removed" if name not in after else "changed"
            yield f"{where}: {name} {change}"


def _changed_frameworks(before: dict[str, ModuleType], after: dict[str, ModuleType]) -> Iterator[str]:
    """Frameworks that were imported anew, and folders of a test that stand in place of one; an import may stay."""
    for name in FRAMEWORKS:
        found = after.get(name)
        if found is not before.get(name) and (name in before or (found and not is_installed_module(found))):
            yield name


def is_installed_module(module: ModuleType) -> bool:
    """Whether a module is one of Python, of an installed package, of Evaldesk or of its tests."""
    name = module.__name__.partition(".")[0]
    if name in _KNOWN:
        return True
    file = getattr(module, "__file__", None)
    places = [file] if file else [*getattr(module, "__path__", ())]
    return any(Path(place).is_relative_to(folder) for place in places for folder in INSTALLED)
