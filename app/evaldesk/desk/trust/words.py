"""The question in words: the same for the page and the terminal."""

from __future__ import annotations

import os
from pathlib import Path

from evaldesk.desk.trust.trust import Question
from evaldesk.model import AgentRef
from evaldesk.settings import CONFIG_NAME

STATE_NAME = ".evaldesk"


def question_words(question: Question) -> list[tuple[str, str]]:
    """A title and a text for each thing that would run."""
    found = [(f"agent {ref.id}", _place(ref)) for ref in question.agents]
    if question.has_settings:
        found.append((CONFIG_NAME, "chooses models, their addresses and your own metrics"))
    if question.has_stored_runs:
        found.append((STATE_NAME, "its database was made elsewhere; its waiting runs would go on"))
    return [*found, *((path.name, str(path)) for path in question.environment_files)]


def _place(ref: AgentRef) -> str:
    """The file of an agent, or the place where it is declared."""
    if not ref.folder:
        return f"{CONFIG_NAME}: {ref.target}" if ref.target else CONFIG_NAME
    module = ref.target.partition(":")[0]
    path = Path(ref.root, *module.split(".")).with_suffix(".py")
    return str(path) if os.path.isfile(path) else ref.folder
