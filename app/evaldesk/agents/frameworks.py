"""The frameworks that agents are written in: told apart without importing them, named when they are missing."""

from __future__ import annotations

from evaldesk.agents.kinds import AGENTS


def is_from(found: object, package: str) -> bool:
    """Whether the type of `found`, or one it is derived from, is defined in `package`."""
    kinds = type(found).__mro__
    return any(kind.__module__ == package or kind.__module__.startswith(f"{package}.") for kind in kinds)


def missing_package(error: BaseException) -> str:
    """The package to install for an import that failed; empty when no framework of ours is missing."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name and name.startswith("osmosis_ai."):
        return f"Evaldesk's stand-in for osmosis_ai has no {name}; pip install osmosis-ai where Evaldesk is started"
    kind = AGENTS.of_module(name) if name else None
    return f"it needs {kind.title}, which is not installed: pip install 'evaldesk[{kind.extra}]'" if kind else ""
