"""What an imported run cannot do: its trials came in a file, and the agent that played them is not here."""

from __future__ import annotations

from evaldesk.errors import ConflictError
from evaldesk.store import RunSummary
from evaldesk.store.recorded_runs import is_playable


def check_playable(summary: RunSummary) -> None:
    """Raise ConflictError for a run whose trials came in a file."""
    if not is_playable(summary.config):
        raise ConflictError(
            f"run {summary.id} was imported: the agent that played it is not here, so no trial can be played again; "
            "run its cases with an agent of this workspace instead"
        )
