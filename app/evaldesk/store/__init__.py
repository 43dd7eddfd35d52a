"""The database of a workspace: questions as methods, answers as the frozen values of `evaldesk.model.stored`."""

from evaldesk.store.labels import LabelStore
from evaldesk.store.lock import WorkspaceHold, hold_workspace
from evaldesk.store.runs.run_store import RunStore
from evaldesk.store.sessions import SessionStore
from evaldesk.store.store import Store

__all__ = ["LabelStore", "RunStore", "SessionStore", "Store", "WorkspaceHold", "hold_workspace"]
