"""Facts of a run, and the variables in which the parent of a benchmark's process hands them on."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from evaldesk.git import git_text

KEY_VARIABLE = "EVALDESK_INSTANCE_API_KEY"
"""The variable with an API key that is in no file, for the process of an instance only."""
COMMAND_IMAGE = "EVALDESK_COMMAND_IMAGE"
"""The variable with the image for commands, in runs started by a script."""
SCORE_KEY = "EVALDESK_SCORE_KEY"
"""The variable with the deciding key of a test result, in runs started by a script."""


def start_time() -> str:
    """The current local time without a zone, as in OpenHands."""
    return datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")


def git_commit(folder: Path) -> str:
    """The commit of the checkout around `folder`; empty without one."""
    return git_text(folder, "rev-parse", "HEAD")
