"""What surrounds a trial while it is played: its case, the doubles of its tools, the recording of its run."""

from __future__ import annotations

from evaldesk.agents.doubles import CURRENT_DOUBLES, read_doubles
from evaldesk.agents.trial_context import CURRENT_TRIAL, TrialContext
from evaldesk.errors import EvaldeskError
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.model import ErrorRecord, TrialSpec


def set_up(spec: TrialSpec) -> ErrorRecord | None:
    """Set the stage in the current context; why it cannot be, or None."""
    is_recorded = spec.recording.mode != "off"
    CURRENT_RECORDER.set(Recorder(spec.recording, spec.trial_index) if is_recorded else None)
    CURRENT_TRIAL.set(TrialContext(spec.case, spec.case_index, spec.trial_index))
    try:
        CURRENT_DOUBLES.set(read_doubles(spec.case, spec.agent.target))
    except EvaldeskError as error:
        return ErrorRecord("bad_case", str(error))
    return None
