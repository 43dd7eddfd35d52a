"""Workflows and graders, in both of their shapes: several samples by id (to 0.2.31), and one sample (from 0.3.0)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evaldesk.model import plain_number

__all__ = [
    "AgentWorkflow",
    "AgentWorkflowConfig",
    "AgentWorkflowContext",
    "AgentWorkflowOutput",
    "ConcurrencyConfig",
    "Grader",
    "GraderConfig",
    "GraderContext",
    "RolloutContext",
    "RolloutSample",
    "SampleSource",
    "get_rollout_context",
    "rollout_contextvar",
]

ONLY = "sample"  # the id of the one sample of the newer shape


class ConcurrencyConfig(BaseModel):
    """The maximum of concurrent rollouts; Evaldesk uses its own limit instead."""

    max_concurrent: int | None = Field(default=None, ge=1)


class AgentWorkflowConfig(BaseModel):
    """The configuration of a workflow; subclasses add fields of any type."""

    model_config = ConfigDict(extra="allow", arbitrary_types_allowed=True)

    name: str
    description: str | None = None
    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)


class GraderConfig(AgentWorkflowConfig):
    """The configuration of a grader."""


class RolloutSample(BaseModel):
    """A conversation for the grader; a removed one is not scored."""

    id: str | None = None
    messages: list[dict[str, Any]] = Field(default_factory=list)
    label: str | None = None
    reward: float | None = None
    remove_sample: bool = False
    metrics: dict[str, Any] = Field(default_factory=dict)
    extra_fields: dict[str, Any] = Field(default_factory=dict)


class AgentWorkflowOutput(BaseModel):
    """The result type of a workflow."""

    model_config = ConfigDict(extra="forbid")

    messages: list[dict[str, Any]] | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)

    @field_validator("metrics")
    @classmethod
    def _is_finite(cls, value: dict[str, float]) -> dict[str, float]:
        wrong = [name for name, number in value.items() if not math.isfinite(number)]
        if wrong:
            raise ValueError(f"metrics must be finite numbers; {wrong[0]} is not")
        return value


class SampleSource(ABC):
    """The source of a rollout's conversation after its end."""

    @abstractmethod
    def get_sample(self, *args: Any) -> Any:
        """The sample, or an awaitable of it; the older shape gets its name."""


rollout_contextvar: ContextVar[RolloutContext | None] = ContextVar("rollout_contextvar", default=None)


def get_rollout_context() -> RolloutContext | None:
    """The context of the current rollout."""
    return rollout_contextvar.get()


@dataclass
class RolloutContext:
    """The context of a rollout: the address of its model, and its registered conversations."""

    chat_completions_url: str = ""
    api_key: str | None = None
    rollout_id: str = ""
    sample_source: Any = None
    sample_sources: dict[str, Any] = field(default_factory=dict)
    registered_agents: dict[str, Any] = field(default_factory=dict)
    recorded_samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __enter__(self) -> RolloutContext:
        rollout_contextvar.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        rollout_contextvar.set(None)

    def set_sample_source(self, source: Any) -> None:
        """Register the one source of the rollout. Raises ValueError for a second one."""
        if self.sample_source is not None:
            raise ValueError("this rollout has its sample source already; build one agent or session for each rollout")
        self.sample_source = source

    def register_sample_source(self, name: str, source: Any) -> None:
        """Register a source by name. Raises ValueError for a name in use."""
        if name in self.sample_sources:
            raise ValueError(f"the name {name} is taken; give each agent or session of a workflow its own")
        self.sample_sources[name] = source

    def register_agent(self, sample_id: str, agent: Any) -> None:
        """Register an agent; its `messages` are a sample."""
        self.registered_agents[sample_id] = agent

    def record_sample(self, messages: list[dict[str, Any]], sample_id: str = ONLY) -> None:
        """Register a conversation. Raises ValueError for an id in use."""
        if sample_id in self.recorded_samples:
            raise ValueError(f"the sample {sample_id} is recorded already")
        self.recorded_samples[sample_id] = messages


@dataclass
class AgentWorkflowContext:
    """The context of a workflow."""

    prompt: list[dict[str, Any]]
    config: Any = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None

    def __class_getitem__(cls, _: Any) -> type[AgentWorkflowContext]:
        return cls


@dataclass
class GraderContext:
    """The context of a grader."""

    label: str | None = None
    samples: dict[str, RolloutSample] = field(default_factory=dict)
    project_path: str | None = None
    metadata: dict[str, Any] | None = None
    artifacts_dir: Path | None = None

    @property
    def sample(self) -> RolloutSample | None:
        """The sample; of several, the first one."""
        return next(iter(self.samples.values()), None)

    def get_samples(self) -> dict[str, RolloutSample]:
        """All samples by id."""
        return self.samples

    def set_reward(self, reward: float) -> None:
        """Set the reward of the only sample. Raises ValueError without a sample, or for a number that is not finite."""
        if self.sample is None:
            raise ValueError("there is no sample to reward")
        self.sample.reward = _finite(reward)

    def set_sample_reward(self, sample_id: str, reward: float) -> None:
        """Set the reward of a sample by its id. Raises ValueError."""
        if sample_id not in self.samples:
            raise ValueError(f"Sample {sample_id} not found")
        self.samples[sample_id].reward = _finite(reward)


TConfig = TypeVar("TConfig")


class AgentWorkflow(ABC, Generic[TConfig]):
    """An agent: `run` answers `ctx.prompt`."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    @abstractmethod
    async def run(self, ctx: Any) -> Any:
        """Run the workflow; returns messages, an AgentWorkflowOutput, or None after registering a sample."""


class Grader(ABC):
    """Computes the reward of a workflow's samples."""

    def __init__(self, config: Any = None) -> None:
        self.config = config

    @abstractmethod
    async def grade(self, ctx: Any) -> Any:
        """Grade the samples, and set the reward on `ctx`."""


def _finite(reward: Any) -> float:
    number = plain_number(reward)
    if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
        raise ValueError(f"a reward must be a finite number, got {reward!r}")
    return float(number)
