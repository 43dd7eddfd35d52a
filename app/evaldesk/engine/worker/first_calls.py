"""Modules that packages import in their first call alone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module

# Modules that packages import in their first call; a fork would import each again (decision 222).
FIRST_CALLS: Mapping[str, Sequence[str]] = {
    "httpx": ("anyio._backends._asyncio",),
    "openai": ("openai.resources",),
    "google.adk": (
        "google.adk.runners",
        "google.adk.agents._agent_router",
        "google.adk.artifacts.in_memory_artifact_service",
        "google.adk.auth._auth_resume",
        "google.adk.auth.auth_preprocessor",
        "google.adk.flows.llm_flows.auto_flow",
        "google.adk.models.google_llm",
        "google.adk.sessions.in_memory_session_service",
        "google.adk.telemetry.node_tracing",
        "google.adk.workflow._dynamic_node_scheduler",
        "google.adk.workflow._llm_agent_wrapper",
        "google.adk.workflow._node_runner_utils",
        "google.adk.workflow._workflow",
        "google.adk.workflow.utils._workflow_graph_utils",
        "google.adk.workflow.utils._workflow_hitl_utils",
        "evaldesk.integrations.adk.plugin",
    ),
    "litellm": (
        "litellm.litellm_core_utils.default_encoding",
        "litellm.llms.edenai.chat.transformation",
        "litellm.llms.fal_ai.cost_calculator",
        "litellm.llms.fal_ai.image_generation",
        "litellm.llms.openai_like.dynamic_config",
        "litellm.llms.vertex_ai.vertex_ai_partner_models.anthropic.transformation",
        "litellm.proxy.openai_files_endpoints.common_utils",
    ),
    "langgraph": ("langchain_core.tracers.context", "langchain_core.tracers.stdout", "langchain_core.prompt_values"),
}
"""What packages import in their first call alone, by the package: before a fork, and before a turn is timed."""


def import_first_calls() -> None:
    """Import the modules that packages import in a first call. Some versions have other modules."""
    for package, names in FIRST_CALLS.items():
        if package in sys.modules:
            for name in names:
                with suppress(ImportError):
                    import_module(name)
