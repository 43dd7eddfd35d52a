"""Evaldesk: make eval sets, run them, and decide. Public names are loaded on first use."""

from __future__ import annotations

__version__ = "0.1.0"

_PUBLIC = {
    "AgentEvaluator": "evaldesk.testing.agent_evaluator",
    "Event": "evaldesk.model",
    "LlmAgent": "evaldesk.agents.own.litellm",
    "Media": "evaldesk.model.media",
    "ToolCall": "evaldesk.model",
    "Usage": "evaldesk.model",
    "Waiting": "evaldesk.model",
    "call_tool": "evaldesk.agents.tools.doubles",
    "dump_evalset": "evaldesk.formats",
    "evaluate": "evaldesk.desk.runs.evaluating",
    "evaluate_async": "evaldesk.desk.runs.evaluating",
    "load_evalset": "evaldesk.formats",
    "match_trajectory": "evaldesk.matching",
    "pass_at_k": "evaldesk.statistics.intervals",
    "pass_hat_k": "evaldesk.statistics.intervals",
    "rouge1": "evaldesk.metrics",
}

__all__ = ["__version__", *_PUBLIC]  # noqa: PLE0604


def __getattr__(name: str) -> object:
    from importlib import import_module  # it takes time, in which Ctrl-C would show a trace

    if name not in _PUBLIC:
        raise AttributeError(f"module 'evaldesk' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PUBLIC[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
