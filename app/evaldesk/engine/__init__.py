"""Floor 3: plans and plays trials and turns in worker processes, and knows no SQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaldesk.engine.driver.chat_players import ChatPlayers as ChatPlayers
    from evaldesk.engine.driver.inline import InlineExecutor as InlineExecutor
    from evaldesk.engine.driver.worker_process import WarmPool as WarmPool
    from evaldesk.engine.executors import Executor as Executor
    from evaldesk.engine.executors import LocalExecutor as LocalExecutor
    from evaldesk.engine.executors import drive as drive
    from evaldesk.engine.executors import drive_batches as drive_batches
    from evaldesk.engine.frames import GradeSpec as GradeSpec
    from evaldesk.engine.worker.attempt import grade as grade
    from evaldesk.engine.worker.player import play_trial as play_trial
    from evaldesk.engine.worker.player import play_turn as play_turn

_MODULES = {
    "ChatPlayers": "driver.chat_players",
    "Executor": "executors",
    "GradeSpec": "frames",
    "InlineExecutor": "driver.inline",
    "LocalExecutor": "executors",
    "WarmPool": "driver.worker_process",
    "drive": "executors",
    "drive_batches": "executors",
    "grade": "worker.attempt",
    "play_trial": "worker.player",
    "play_turn": "worker.player",
}
"""The desk, whose workers play, never imports a player, and a player never the desk's side."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'evaldesk.engine' has no attribute {name!r}")
        return getattr(import_module(f"evaldesk.engine.{_MODULES[name]}"), name)
