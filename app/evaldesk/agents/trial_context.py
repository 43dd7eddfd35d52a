"""The trial of the turn, for adapters that need the case.

It is not part of the session, because the user's agent must not see the case.
"""

from __future__ import annotations

from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass

from evaldesk.model import Case, JsonObject, JsonValue
from evaldesk.model.evalset import USER_SIDE_KEYS

OWN_KEY_PREFIX = "$"  # keys of `extra` that Evaldesk itself wrote


@dataclass(frozen=True, slots=True)
class TrialContext:
    """The case, and the indexes of case and trial in the run; both count from 0."""

    case: Case
    case_index: int = 0
    trial_index: int = 0

    @property
    def columns(self) -> dict[str, JsonValue]:
        """The data of the case beside its conversation: the columns of its row."""
        return {
            key: deepcopy(value)
            for key, value in self.case.extra.items()
            if not (key.startswith(OWN_KEY_PREFIX) or key in USER_SIDE_KEYS)
        }

    @property
    def ground_truth(self) -> str | None:
        """The row's ground truth, or the last reference answer."""
        truth = self.case.extra.get("ground_truth")
        if isinstance(truth, str):
            return truth
        references = [turn.expected.reference for turn in self.case.turns if turn.expected.reference is not None]
        return references[-1] if references else None


CURRENT_TRIAL: ContextVar[TrialContext | None] = ContextVar("current_trial", default=None)


def trial_columns() -> JsonObject:
    """The columns of the case that is played; empty in a chat."""
    trial = CURRENT_TRIAL.get()
    return trial.columns if trial else {}
