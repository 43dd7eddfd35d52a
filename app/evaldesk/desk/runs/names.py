"""The names of a run and its eval set."""

from __future__ import annotations

from pathlib import PurePath

from evaldesk.model import RunConfig
from evaldesk.model.stored import RunSummary
from evaldesk.store.evalsets.names import SUFFIXES


def run_title(summary: RunSummary) -> str:
    """The name of a run: its number and its eval set."""
    return f"Run {summary.id}, {evalset_name(summary.config)}"


def evalset_name(config: RunConfig) -> str:
    """The name of the eval set's file when the run started, without its endings."""
    name = PurePath(config.evalset_path).name
    for ending in SUFFIXES:
        if name.endswith(ending) and name != ending:
            return name.removesuffix(ending)
    return name or config.evalset_id


def run_name(run: RunSummary) -> str:
    """The name of the run: the first line of its note, else its number."""
    lines = run.note.strip().splitlines()
    return lines[0][:96] if lines else str(run.id)
