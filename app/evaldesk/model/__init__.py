"""Floor 0: the values that cross floors. Standard library only, frozen dataclasses."""

from evaldesk.model.evalset import Case, EvalSet, Expected, SessionInit, ToolCall, Turn
from evaldesk.model.json_value import JsonObject, JsonValue
from evaldesk.model.options import Limits, ModelOptions
from evaldesk.model.run import (
    DEFAULT_CRITERIA,
    AgentDescription,
    AgentRef,
    RunConfig,
    RunStatus,
    ToolDescription,
    TrialResult,
    TrialSpec,
    TrialStatus,
    TurnSpec,
)
from evaldesk.model.score import VERDICTS, Criterion, Score, Verdict, adk_verdict, trial_verdict
from evaldesk.model.transcript import (
    Change,
    ErrorRecord,
    Event,
    EventKind,
    Role,
    Session,
    StopReason,
    Transcript,
    TurnRecord,
    Usage,
)

__all__ = [
    "DEFAULT_CRITERIA",
    "VERDICTS",
    "AgentDescription",
    "AgentRef",
    "Case",
    "Change",
    "Criterion",
    "ErrorRecord",
    "EvalSet",
    "Event",
    "EventKind",
    "Expected",
    "JsonObject",
    "JsonValue",
    "Limits",
    "ModelOptions",
    "Role",
    "RunConfig",
    "RunStatus",
    "Score",
    "Session",
    "SessionInit",
    "StopReason",
    "ToolCall",
    "ToolDescription",
    "Transcript",
    "TrialResult",
    "TrialSpec",
    "TrialStatus",
    "Turn",
    "TurnRecord",
    "TurnSpec",
    "Usage",
    "Verdict",
    "adk_verdict",
    "trial_verdict",
]
