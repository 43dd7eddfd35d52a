"""A run, its trials, and the two values that cross to a worker and back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evaldesk.model.evalset import Case
from evaldesk.model.json_value import JsonObject
from evaldesk.model.options import Limits, ModelOptions
from evaldesk.model.recording import Recording
from evaldesk.model.score import Criterion, Score, Verdict
from evaldesk.model.transcript import ErrorRecord, Transcript, TurnRecord, Usage
from evaldesk.model.user import UserConfig

TrialStatus: TypeAlias = Literal["finished", "errored", "timed_out", "cancelled"]
RunStatus: TypeAlias = Literal["pending", "running", "stopping", "stopped", "finished", "failed"]

DEFAULT_CRITERIA: tuple[Criterion, ...] = (
    Criterion("tool_trajectory_avg_score", 1.0),
    Criterion("response_match_score", 0.8),
)


@dataclass(frozen=True, slots=True)
class AgentRef:
    """How a worker finds an agent: `target` is `module:attr`, imported with `root` first on `sys.path`.

    `folder` is where the agent's own files are (watched for edits). `kind` names an adapter, or is empty to let
    the adapters look at the object. `declared` is the agent's table of `evaldesk.toml` as JSON text; an agent that
    is made of its table alone has no target. `part` names an agent inside the tree of the one that is found, or what
    its module calls so; empty is the agent itself.
    """

    id: str
    target: str
    root: str = ""
    folder: str = ""
    kind: str = ""
    declared: str = ""
    part: str = ""


@dataclass(frozen=True, slots=True)
class ToolDescription:
    """A tool as the agent shows it to its model; `parameters` is a JSON schema."""

    name: str
    description: str = ""
    parameters: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentDescription:
    """What an agent says of itself; `initial_state` is what it proposes a session to start from.

    `missing` names what its turns will lack: environment variables of keys, and packages. `is_direct`: its model is
    at an endpoint of its own, which is called without LiteLLM.
    """

    name: str
    kind: str
    description: str = ""
    instruction: str = ""
    model: str | None = None
    tools: tuple[ToolDescription, ...] = ()
    is_demo: bool = False
    initial_state: JsonObject = field(default_factory=dict)
    sub_agents: tuple[AgentDescription, ...] = ()
    missing: tuple[str, ...] = ()
    is_direct: bool = False


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """Everything a worker needs for one attempt at one case. `attempt` counts from 1."""

    run_id: int
    case_index: int
    trial_index: int
    case: Case
    agent: AgentRef
    criteria: tuple[Criterion, ...] = DEFAULT_CRITERIA
    limits: Limits = field(default_factory=Limits)
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    user: UserConfig = field(default_factory=UserConfig)
    recording: Recording = field(default_factory=Recording)
    seed: int = 0
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class TurnSpec:
    """Everything a worker needs to play one turn of a chat session; the worker may be a fresh one each time."""

    session_id: str
    agent: AgentRef
    message: str
    state: JsonObject = field(default_factory=dict)
    turns: tuple[TurnRecord, ...] = ()
    app_name: str = ""
    user_id: str = "user"
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    limits: Limits = field(default_factory=Limits)
    seed: int | None = None
    timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What became of one trial. `logs` is what the agent printed, bounded; `cost` None means unknown."""

    run_id: int
    case_index: int
    trial_index: int
    status: TrialStatus
    verdict: Verdict
    stop_reason: str = ""
    transcript: Transcript = field(default_factory=Transcript)
    scores: tuple[Score, ...] = ()
    usages: tuple[Usage, ...] = ()
    duration_ms: float = 0.0
    error: ErrorRecord | None = None
    logs: str = ""
    attempt: int = 1

    @property
    def tokens(self) -> int:
        """Tokens in and out of every model call."""
        return sum(usage.tokens_in + usage.tokens_out for usage in self.usages)

    @property
    def cost(self) -> float | None:
        """US dollars over all model calls; None as soon as one price is unknown, and when no model was called."""
        costs = [usage.cost for usage in self.usages]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if costs and len(known) == len(costs) else None


@dataclass(frozen=True, slots=True)
class RunConfig:
    """A run's configuration, frozen when it starts.

    `n` is the number of trials of each case. `pass_threshold` is the share of scored trials that must pass for a
    case to count as passed. `evalset_version` is the content hash of the file at the start. `source_run_id` names the
    run whose stored trials are scored again; None where trials are played.
    """

    agent: AgentRef
    evalset_id: str
    evalset_path: str = ""
    evalset_version: str = ""
    n: int = 1
    criteria: tuple[Criterion, ...] = DEFAULT_CRITERIA
    pass_threshold: float = 1.0
    concurrency: int = 4
    limits: Limits = field(default_factory=Limits)
    model: str | None = None
    model_options: ModelOptions = field(default_factory=ModelOptions)
    user: UserConfig = field(default_factory=UserConfig)
    recording: Recording = field(default_factory=Recording)
    agent_version: str = ""
    agent_model: str | None = None
    seed: int = 0
    note: str = ""
    errors_are_failures: bool = False
    evaldesk_version: str = ""
    source_run_id: int | None = None
