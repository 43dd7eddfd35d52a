"""The lock of a process on the workspace that its desk serves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from evaldesk.process_setup import allow_open_files
from evaldesk.settings import Settings
from evaldesk.store import WorkspaceHold, hold_workspace
from evaldesk.store.lock import OPENING, address_of_holder

__all__ = ["OPENING", "desk_address", "hold_desk"]


@contextmanager
def hold_desk(settings: Settings) -> Iterator[WorkspaceHold]:
    """Let this process alone serve the workspace, with as many open files as agents need. Raises WorkspaceError."""
    allow_open_files()
    with hold_workspace(settings.state_folder, url="") as hold:
        yield hold


def desk_address(settings: Settings) -> str:
    """Where the desk of the workspace answers, OPENING while it opens; empty when none is open."""
    return address_of_holder(settings.state_folder)
