"""What a recording means for a run: which answers are new, and what may be concluded from the others."""

from __future__ import annotations

from evaldesk.model import RunConfig

REPLAY_KIND = "replay"

_NO_EVIDENCE = (
    "A replayed trial repeats the recorded one with the same index: it is no independent repeat, and together with the "
    "run that was recorded it counts the same answers twice."
)


def repeats_recorded(config: RunConfig) -> bool:
    """Whether trials of the run may be recorded ones played again."""
    return config.agent.kind == REPLAY_KIND or config.recording.may_replay


def recording_sentence(config: RunConfig) -> str:
    """Where the answers of the run come from; empty when all of them are its own and none is kept."""
    if config.agent.kind == REPLAY_KIND:
        return f"The agent answers from a recorded transcript. {_NO_EVIDENCE}"
    what = "models and tools" if config.recording.tools else "models"
    if config.recording.mode == "replay":
        return f"All answers of {what} come from the recording; none was asked. {_NO_EVIDENCE}"
    if config.recording.mode == "auto":
        return f"Answers of {what} come from the recording where it has them. {_NO_EVIDENCE}"
    return f"The answers of {what} are recorded." if config.recording.mode == "record" else ""


def user_sentence(config: RunConfig) -> str:
    """Who plays the user of cases with a scenario; empty where nobody was named."""
    user = config.user
    if not user.model:
        return ""
    cap = f"at most {user.max_turns} messages" if user.max_turns is not None else "any number of messages"
    return f"{user.model} plays the user of a scenario, {cap}"
