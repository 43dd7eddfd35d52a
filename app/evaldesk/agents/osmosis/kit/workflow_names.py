"""The names of workflows that `osmosis_ai.rollout` itself has; its RolloutContext is that of agent loops."""

from __future__ import annotations

from evaldesk.agents.osmosis.kit.workflow import (
    AgentWorkflow,
    AgentWorkflowConfig,
    AgentWorkflowContext,
    AgentWorkflowOutput,
    ConcurrencyConfig,
    Grader,
    GraderConfig,
    GraderContext,
    RolloutSample,
    SampleSource,
    get_rollout_context,
)

__all__ = [
    "AgentWorkflow",
    "AgentWorkflowConfig",
    "AgentWorkflowContext",
    "AgentWorkflowOutput",
    "ConcurrencyConfig",
    "Grader",
    "GraderConfig",
    "GraderContext",
    "RolloutSample",
    "SampleSource",
    "get_rollout_context",
]
