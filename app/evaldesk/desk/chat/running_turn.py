"""A turn while it is being played."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

from evaldesk.desk.process_owner import current_owner, is_at_work
from evaldesk.errors import WorkspaceError
from evaldesk.model import AskedBy, ErrorRecord, Event, JsonObject, StopReason, TurnRecord
from evaldesk.model.media import Media
from evaldesk.model.stored import OpenTurn
from evaldesk.model.transcript import broken_turn
from evaldesk.store import SessionStore


class RunningTurn:
    """The events of a turn as they come; any number of readers follow it, from its start or from the middle.

    `turn_index` counts from 0. `record` is set once the turn is over and stored, `failure` when it could not be. One
    that goes on after a decision begins with the events of the turn that waited, `resumed`.
    """

    def __init__(
        self,
        session_id: str,
        turn_index: int,
        message: str,
        state: JsonObject,
        clock: Callable[[], float] = time.monotonic,
        asked_by: AskedBy = "person",
        media: tuple[Media, ...] = (),
        earlier: TurnRecord | None = None,
    ) -> None:
        self.session_id = session_id
        self.turn_index = turn_index
        self.message = message
        self.state = state
        self.asked_by = asked_by
        self.media = media
        self.events: list[Event] = list(earlier.events) if earlier else []
        self.record: TurnRecord | None = None
        self.failure: Exception | None = None
        self._clock = clock
        self._began = clock() - (earlier.duration_ms / 1000 if earlier else 0.0)
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


log = logging.getLogger("evaldesk.chat")

BATCH_S = 0.05
"""The time between two writes: each is one transaction that waits for the disk."""

_played_here: set[str] = set()
"""The owners of the turns that this process plays: a process can have two desks, and outlive both."""


@contextmanager
def owning_turn() -> Iterator[str]:
    """The owner of a turn that is played inside of the block: this process, and a mark of this one turn."""
    owner = f"{secrets.token_hex(4)} {current_owner()}"
    _played_here.add(owner)
    try:
        yield owner
    finally:
        _played_here.discard(owner)


def is_turn_played(turn: OpenTurn) -> bool:
    """Whether the turn is being played, by this process or another living one."""
    process = turn.owner.partition(" ")[2]
    if process == current_owner():
        return turn.owner in _played_here
    return is_at_work(process, is_leased=turn.is_leased)


class TurnJournal:
    """Stores the events of a running turn in batches; its readers see an event once it is stored.

    When the database cannot be written the events are shown, and stored with the next ones.
    """

    def __init__(self, store: SessionStore, turn: RunningTurn, owner: str) -> None:
        self._store = store
        self._turn = turn
        self._owner = owner
        self._came = asyncio.Event()
        self._unstored: list[Event] = []
        self._n_batches = 0
        self.unseen: list[Event] = []

    def take(self, event: Event) -> None:
        """Take an event that the agent's process sent."""
        self.unseen.append(event)
        self._came.set()

    async def write(self) -> None:
        """Store and show events until this is cancelled."""
        while True:
            await self._came.wait()
            self._came.clear()
            batch = self.unseen[:]
            await self._store_batch([*self._unstored, *batch])
            self.show(len(batch))
            await asyncio.sleep(BATCH_S)

    def show(self, n: int) -> None:
        """Let the readers of the turn see the next `n` events."""
        events, self.unseen = self.unseen[:n], self.unseen[n:]
        for event in events:
            self._turn.add(event)

    async def _store_batch(self, events: list[Event]) -> None:
        try:
            await asyncio.to_thread(
                self._store.append_events, self._turn.session_id, self._owner, self._n_batches, events
            )
        except WorkspaceError as error:
            if not self._unstored:
                log.warning("events of a turn cannot be stored now, which is tried again: %s", error)
            self._unstored = events
        except Exception as error:  # a value that cannot be encoded, or a deleted session: the turn itself says so
            self._unstored = []
            log.warning("events of a turn are not stored: %s", error)
        else:
            self._unstored = []
            self._n_batches += 1
