"""Floor 3: plans and plays trials and turns in worker processes, and knows no SQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from evaldesk.engine.frames import GradeSpec
from evaldesk.engine.host.agent_host import AgentHost
from evaldesk.engine.host.executors import Executor, LocalExecutor, drive, drive_batches
from evaldesk.engine.host.process import WarmPool

if TYPE_CHECKING:
    from evaldesk.engine.host.inline import InlineExecutor
    from evaldesk.engine.worker.attempt import grade
    from evaldesk.engine.worker.player import play_trial, play_turn

_PLAYING = {
    "InlineExecutor": "host.inline",
    "grade": "worker.attempt",
    "play_trial": "worker.player",
    "play_turn": "worker.player",
}
"""The executor that plays in the process that asks for it: the desk, whose workers play, never imports it."""

__all__ = [
    "AgentHost",
    "Executor",
    "GradeSpec",
    "InlineExecutor",
    "LocalExecutor",
    "WarmPool",
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
