"""What surrounds a trial while it is played, for adapters to find: the case, and the doubles of its tools."""

from __future__ import annotations

from evaldesk.agents.doubles import CURRENT_DOUBLES, read_doubles
from evaldesk.agents.trial_context import CURRENT_TRIAL, TrialContext
from evaldesk.errors import EvaldeskError
from evaldesk.model import ErrorRecord, TrialSpec


def set_up(spec: TrialSpec) -> ErrorRecord | None:
    """Set the stage in the current context; why it cannot be, or None."""
    CURRENT_TRIAL.set(TrialContext(spec.case, spec.case_index, spec.trial_index))
    try:
        CURRENT_DOUBLES.set(read_doubles(spec.case, spec.agent.target))
    except EvaldeskError as error:
        return ErrorRecord("bad_case", str(error))
    return None
