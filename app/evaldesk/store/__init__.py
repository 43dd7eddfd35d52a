"""The database of a workspace: questions as methods, answers as frozen values."""

from evaldesk.store.labels import LabelStore
from evaldesk.store.lock import WorkspaceHold, hold_workspace
from evaldesk.store.runs import RunStore
from evaldesk.store.sessions import SessionStore
from evaldesk.store.store import Store
from evaldesk.store.values import (
    AddedCase,
    CaseFilter,
    CaseOutcome,
    CaseRow,
    CaseSort,
    ErrorGroup,
    Label,
    LabelFilter,
    LabelledTrial,
    LabelPair,
    LastStrip,
    MetricRow,
    Neighbours,
    PendingTrial,
    RunSummary,
    SessionSummary,
    StoredSession,
    TrialKey,
    TurnLabel,
)

__all__ = [
    "AddedCase",
    "CaseFilter",
    "CaseOutcome",
    "CaseRow",
    "CaseSort",
    "ErrorGroup",
    "Label",
    "LabelFilter",
    "LabelPair",
    "LabelStore",
    "LabelledTrial",
    "LastStrip",
    "MetricRow",
    "Neighbours",
    "PendingTrial",
    "RunStore",
    "RunSummary",
    "SessionStore",
    "SessionSummary",
    "Store",
    "StoredSession",
    "TrialKey",
    "TurnLabel",
    "WorkspaceHold",
    "hold_workspace",
]
