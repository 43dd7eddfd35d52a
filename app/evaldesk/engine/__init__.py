"""Floor 3: plans and plays trials and turns in worker processes, and knows no SQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evaldesk.engine.driving import drive, drive_batches
from evaldesk.engine.executors import Executor
from evaldesk.engine.executors.local import LocalExecutor
from evaldesk.engine.frames import GradeSpec
from evaldesk.engine.host import AgentHost
from evaldesk.engine.spares import SpareWorkers

if TYPE_CHECKING:
    from evaldesk.engine.executors.inline import InlineExecutor
    from evaldesk.engine.grading import grade
    from evaldesk.engine.player import play_trial, play_turn

_PLAYING = {"InlineExecutor": "executors.inline", "grade": "grading", "play_trial": "player", "play_turn": "player"}
"""What plays in the very process that asks for it: the desk, whose workers play, never imports it."""

__all__ = [
    "AgentHost",
    "Executor",
    "GradeSpec",
    "InlineExecutor",
    "LocalExecutor",
    "SpareWorkers",
    "drive",
    "drive_batches",
    "grade",
    "play_trial",
    "play_turn",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _PLAYING:
            raise AttributeError(f"module 'evaldesk.engine' has no attribute {name!r}")
        return getattr(import_module(f"evaldesk.engine.{_PLAYING[name]}"), name)
