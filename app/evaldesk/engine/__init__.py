"""Floor 3: plans and plays trials and turns in worker processes, and knows no SQL."""

from evaldesk.engine.driving import drive, drive_batches
from evaldesk.engine.executors import EXECUTORS, Executor
from evaldesk.engine.executors.inline import InlineExecutor
from evaldesk.engine.executors.local import LocalExecutor
from evaldesk.engine.frames import GradeSpec
from evaldesk.engine.grading import grade
from evaldesk.engine.host import AgentHost
from evaldesk.engine.player import play_trial, play_turn
from evaldesk.engine.spares import SpareWorkers

__all__ = [
    "EXECUTORS",
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
