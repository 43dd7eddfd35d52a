"""A turn while it is being played."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence

from evaldesk.model import AskedBy, ErrorRecord, Event, JsonObject, StopReason, TurnRecord
from evaldesk.model.transcript import broken_turn


class RunningTurn:
    """The events of a turn as they come; any number of readers follow it, from its start or from the middle.

    `turn_index` counts from 0. `record` is set once the turn is over and stored, `failure` when it could not be.
    """

    def __init__(
        self,
        session_id: str,
        turn_index: int,
        message: str,
        state: JsonObject,
        clock: Callable[[], float] = time.monotonic,
        asked_by: AskedBy = "person",
    ) -> None:
        self.session_id = session_id
        self.turn_index = turn_index
        self.message = message
        self.state = state
        self.asked_by = asked_by
        self.events: list[Event] = []
        self.record: TurnRecord | None = None
        self.failure: Exception | None = None
        self._clock = clock
        self._began = clock()
        self._news = asyncio.Event()

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will come."""
        return self.record is not None or self.failure is not None

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the turn began."""
        return (self._clock() - self._began) * 1000

    def add(self, event: Event) -> None:
        """Take one more event."""
        self.events.append(event)
        self._notify()

    def finish(self, record: TurnRecord) -> None:
        """End with the stored record."""
        self.record = record
        self._notify()

    def fail(self, failure: Exception) -> None:
        """End without a stored turn."""
        self.failure = failure
        self._notify()

    async def news(self, n_seen: int, timeout_s: float | None = None) -> None:
        """Return once there are more than `n_seen` events or the turn is over, or after `timeout_s`."""
        while len(self.events) <= n_seen and not self.is_finished:
            try:
                await asyncio.wait_for(self._news.wait(), timeout_s)
            except TimeoutError:
                return

    async def follow(self) -> AsyncIterator[Event | TurnRecord]:
        """The events so far, then those to come, then the record.

        Raises the error that kept the turn from being stored.
        """
        n_seen = 0
        while True:
            for event in self.events[n_seen:]:
                n_seen += 1
                yield event
            if n_seen < len(self.events):
                continue
            if self.failure:
                raise self.failure
            if self.record:
                yield self.record
                return
            await self.news(n_seen)

    def broken_off(self, error: ErrorRecord | None, unseen: Sequence[Event] = ()) -> TurnRecord:
        """A record of the events so far, for a turn whose player gave none; without an `error` it was stopped.

        `unseen` are its last events, which the readers have not seen yet.
        """
        reason: StopReason = "error" if error else "cancelled"
        return broken_turn(self.message, [*self.events, *unseen], self.state, reason, error, self.elapsed_ms)

    def _notify(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
