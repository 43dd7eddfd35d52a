"""The user of a trial as its player has it: each message is asked of the driver when the turn before it has ended.

The player has no message before its turn, so an agent finds none in the memory or in the pipes of its process.
(decision 506)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from evaldesk.engine.frames import NextMessage
from evaldesk.engine.worker.attempt import NO_DEADLINE, Attempt
from evaldesk.model import Session
from evaldesk.model.user_reply import UserReply


class DriverUser:
    """Sends what the driver sends. `first` is its first message, where it has one before the agent is imported.

    `offered_user` names the source of a simulated user that only the agent's process knows; None for a script. The
    driver bounds the time of a simulated user, which is of the trial but for waits for the user's own rate limit; it
    knows the first `n_told` turns of the session.
    """

    def __init__(
        self,
        key: int,
        attempt: Attempt,
        send: Callable[[NextMessage], None],
        first: UserReply | None,
        offered_user: Callable[[], str] | None,
        n_told: int = 0,
    ) -> None:
        self._key = key
        self._attempt = attempt
        self._send = send
        self._replies: deque[tuple[UserReply, float]] = deque([(first, 0.0)] if first else [])
        self._offered_user = offered_user
        self._n_told = n_told
        self._is_over = False
        # A reply comes in the main thread of the worker, which wakes the loop of the trial.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Future[None] | None = None

    async def next(self, session: Session) -> UserReply:
        """The driver's next message."""
        if self._is_over:
            return UserReply()
        if not self._replies:
            await self._ask(session)
        reply, _ = self._replies.popleft()
        self._is_over = reply.is_last
        return reply

    def take(self, reply: UserReply, paced_s: float) -> None:
        """A reply of the driver; called in the thread of the frames."""
        if self._loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._note, reply, paced_s)

    async def _ask(self, session: Session) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = self._loop.create_future()
        if self._offered_user is None:
            self._send(NextMessage(self._key))
            await self._wake
            return
        attempt, began_s, left_s = self._attempt, self._attempt.clock(), self._attempt.seconds_left
        attempt.deadline = attempt.clock() + NO_DEADLINE
        turns, self._n_told = tuple(session.turns[self._n_told :]), len(session.turns)
        try:
            self._send(NextMessage(self._key, turns, session.state, self._offered_user(), left_s))
            await self._wake
        finally:
            paced_s = self._replies[0][1] if self._replies else 0.0
            attempt.deadline = began_s + left_s + paced_s

    def _note(self, reply: UserReply, paced_s: float) -> None:
        self._replies.append((reply, paced_s))
        if self._wake and not self._wake.done():
            self._wake.set_result(None)
