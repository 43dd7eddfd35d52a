"""Whether the trials of a run are fresh evidence: played for it, and not answered from a recording."""

from __future__ import annotations

from evaldesk.agents.agent import AGENTS
from evaldesk.model import RunConfig


def is_recording(config: RunConfig) -> bool:
    """Whether the agent answers from a recorded transcript."""
    kind = AGENTS.find(config.agent.kind)
    return kind is not None and kind.is_recording


def repeats_recorded(config: RunConfig) -> bool:
    """Whether trials of the run may be recorded ones played again."""
    return is_recording(config) or config.recording.may_replay


def without_fresh_trials(config: RunConfig) -> str:
    """Why no fresh trial of the run can be played; empty where one can, as with `recording = "auto"`."""
    if is_recording(config):
        return "the agent is a recording, so no fresh trial is played; run the agent itself"
    if config.recording.mode == "replay":
        return "recording = 'replay' asks no model, so no fresh trial is played; say recording = 'auto' or 'off'"
    return ""


def without_evidence(config: RunConfig) -> str:
    """Why the trials of the run are no new evidence of its agent; empty where each was played for it."""
    if is_recording(config):
        return "the agent is a recording, so its trials are not new evidence; run the agent itself"
    if config.recording.may_replay:
        return f"recording = {config.recording.mode!r} may replay trials, which are not new evidence; leave it out"
    return ""
