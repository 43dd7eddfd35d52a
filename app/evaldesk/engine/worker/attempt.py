"""What is known of an attempt while it is under way; its trial thread writes, the worker's main thread reads."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from evaldesk.engine.worker.output import Log
from evaldesk.engine.worker.rate_limit_waits import Pause, pause_of
from evaldesk.model import ErrorRecord, StopReason, Transcript, TurnRecord
from evaldesk.model.transcript import broken_turn

if TYPE_CHECKING:
    from evaldesk.llm import RetryWait

Clock: TypeAlias = Callable[[], float]
Phase: TypeAlias = Literal["load", "play", "grade"]

LOAD_TIMEOUT_S = 120.0
GRADE_TIMEOUT_S = 60.0
NO_DEADLINE = 1e9  # finite, since JSON knows no infinity


class TurnUnderWay(Protocol):
    """A turn that is being played and can be asked what happened so far."""

    def record(self, stop_reason: StopReason) -> TurnRecord:
        """The turn up to now."""


@dataclass(slots=True)
class Attempt:
    """One attempt at a trial or a turn. `stop` is set before its task is cancelled and says why."""

    clock: Clock = time.monotonic
    phase: Phase = "load"
    deadline: float = NO_DEADLINE
    timeout_s: float = 0.0
    stop: Literal["timed_out", "cancelled"] | None = None
    turns: list[TurnRecord] = field(default_factory=list)
    turn: TurnUnderWay | None = None
    log: Log = field(default_factory=Log)
    started: float = 0.0
    pause: Pause | None = None

    def begin(self, phase: Phase, timeout_s: float) -> None:
        """Enter `phase`, which may take `timeout_s`."""
        self.phase = phase
        self.timeout_s = timeout_s
        self.deadline = self.clock() + timeout_s
        if phase == "play":
            self.started = self.clock()

    def waits(self, wait: RetryWait) -> None:
        """Keep what a model call waits for; told in the thread of the model calls."""
        self.pause = pause_of(wait)

    @property
    def seconds_left(self) -> float:
        """Until the deadline of the phase; negative beyond it."""
        return self.deadline - self.clock()

    @property
    def duration_ms(self) -> float:
        """Since play began; 0 before."""
        return round((self.clock() - self.started) * 1000, 3) if self.started else 0.0

    def transcript(self, error: ErrorRecord | None = None) -> Transcript:
        """The turns that ended, and the one under way as far as it came, which ended by `error`."""
        turns = tuple(self.turns)
        turn = self.turn
        if turn is None:
            return Transcript(turns)
        seen = turn.record(self.stop or "error")
        last = broken_turn(seen.query, seen.events, seen.state_before, seen.stop_reason, error, seen.duration_ms)
        return Transcript((*turns, last))
