"""Whether a framework is there, asked without the seconds that importing it takes."""

from __future__ import annotations

import sysconfig
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.islands import has_island

INSTALLED = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
ISLANDS = {
    "agents": "openai_agents",
    "google.adk": "adk",
    "langgraph": "langgraph",
    "osmosis_ai": "osmosis",
    "pydantic_ai": "pydantic_ai",
}
"""The islands that play a framework, by its package."""


def skip_without(package: str) -> None:
    """Skip the test, or the module that asks while it is collected, where the package is not installed."""
    if not has_package(package):
        pytest.skip(f"{package} is not installed; `make adapters` installs it", allow_module_level=True)


def has_package(package: str) -> bool:
    """Whether the package is installed, and the island that plays it is there.

    A folder of that name elsewhere, which Python takes for a package, is not it.
    """
    top = package.partition(".")[0]
    if not all(has_island(island) for name, island in ISLANDS.items() if f"{package}.".startswith(f"{name}.")):
        return False
    try:
        found = find_spec(package) if find_spec(top) else None
    except ModuleNotFoundError:  # a package between: `google` is there by another one, without `google.adk`
        found = None
    places = [*(found.submodule_search_locations or ()), found.origin or ""] if found else []
    return any(Path(place).is_relative_to(folder) for place in places for folder in INSTALLED)
