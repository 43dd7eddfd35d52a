"""The events of a turn are written down while it is played, before anybody sees them."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from evaldesk.desk.chat.running_turn import RunningTurn
from evaldesk.desk.process_owner import current_owner, is_owner_alive
from evaldesk.errors import WorkspaceError
from evaldesk.model import Event
from evaldesk.store import SessionStore

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


def is_turn_played(owner: str) -> bool:
    """Whether the turn of that owner is being played, by this process or another one that lives."""
    process = owner.partition(" ")[2]
    return owner in _played_here if process == current_owner() else is_owner_alive(process)


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
        shown, self.unseen = self.unseen[:n], self.unseen[n:]
        for event in shown:
            self._turn.add(event)

    async def _store_batch(self, events: list[Event]) -> None:
        try:
            await asyncio.to_thread(
                self._store.append_events, self._turn.session_id, self._owner, self._n_batches, events
            )
        except WorkspaceError as error:
            self._unstored = events
            log.warning("events of a turn cannot be stored now: %s", error)
        except Exception as error:  # a value that cannot be encoded, or a deleted session: the turn itself says so
            self._unstored = []
            log.warning("events of a turn are not stored: %s", error)
        else:
            self._unstored = []
            self._n_batches += 1
