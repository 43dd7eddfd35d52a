"""The frameworks that agents are written in: told apart without importing them, named when they are missing."""

from __future__ import annotations

from collections.abc import Mapping

EXTRAS: Mapping[str, tuple[str, str]] = {
    "google.adk": ("google-adk", "adk"),
    "google.genai": ("google-adk", "adk"),
    "google": ("google-adk", "adk"),
    "agents": ("the OpenAI Agents SDK", "openai-agents"),
    "langgraph": ("langgraph", "langgraph"),
    "langchain_core": ("langgraph", "langgraph"),
    "pydantic_ai": ("pydantic-ai", "pydantic-ai"),
}
"""The top of a module's name, the framework it belongs to, and the extra of Evaldesk that brings it."""


def is_from(found: object, package: str) -> bool:
    """Whether the type of `found`, or one it is derived from, is defined in `package`."""
    kinds = type(found).__mro__
    return any(kind.__module__ == package or kind.__module__.startswith(f"{package}.") for kind in kinds)


def missing_package(error: BaseException) -> str:
    """What to install for an import that failed; empty when it is no framework of ours that is missing."""
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if name and name.startswith("osmosis_ai."):
        return f"Evaldesk's stand-in for osmosis_ai has no {name}; pip install osmosis-ai where Evaldesk is started"
    tops = [top for top in EXTRAS if name and (name == top or name.startswith(f"{top}."))]
    if not tops:
        return ""
    framework, extra = EXTRAS[max(tops, key=len)]
    return f"it needs {framework}, which is not installed: pip install 'evaldesk[{extra}]'"
