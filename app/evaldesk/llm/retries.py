"""Try a model call again where that may help, and say how often it was tried."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias, TypeVar

from evaldesk.errors import ModelError
from evaldesk.llm.attempts import attempt
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.costs import cost_at
from evaldesk.llm.failures import ModelFailure, failure_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to try. Waits double from `first_wait_s`; a longer Retry-After is not waited for."""

    n_attempts: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 60.0

    def wait_s(self, n_tried: int, failure: ModelFailure, chance: Callable[[], float]) -> float | None:
        """Seconds until the next attempt, or None when there should be none."""
        if not failure.is_passing or n_tried >= self.n_attempts:
            return None
        if failure.retry_after_s is not None:
            is_bearable = failure.retry_after_s <= self.longest_wait_s
            return failure.retry_after_s * (1 + chance() / 10) if is_bearable else None
        return float(min(self.longest_wait_s, self.first_wait_s * 2 ** (n_tried - 1)) * (0.5 + chance() / 2))


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause `until` another attempt: `n_tried` have failed, the last one with `failure`."""

    failure: ModelFailure
    n_tried: int
    n_attempts: int
    until: datetime

    @property
    def why(self) -> str:
        """What happened, in a word or two."""
        return "rate-limited" if self.failure.kind == "rate_limit" else self.failure.kind.replace("_", " ")

    def sentence(self) -> str:
        """`rate-limited until 12:03:05, then attempt 2 of 5: …`, in local time."""
        until = self.until.astimezone().strftime("%H:%M:%S")
        return (
            f"{self.why} until {until}, then attempt {self.n_tried + 1} of {self.n_attempts}: {self.failure.sentence}"
        )


PATIENT = Patience()
OnWait: TypeAlias = Callable[[Wait], object]

# Told of every wait of the trial that is current, as it begins, in the thread of the model calls.
CURRENT_LISTENER: ContextVar[OnWait | None] = ContextVar("current_listener", default=None)


def heard(on_wait: OnWait | None) -> OnWait | None:
    """Who is told of the waits of a call that is made here: `on_wait`, and whoever listens to the current trial."""
    listener = CURRENT_LISTENER.get()
    if listener is None or on_wait is None:
        return listener or on_wait

    def both(wait: Wait) -> None:
        listener(wait)
        on_wait(wait)

    return both


async def complete_patiently(
    call: ModelCall, tell: Callable[[str], object] | None, patience: Patience, on_wait: OnWait | None = None
) -> ModelReply:
    """The reply, with all attempts and waits in its usage. Raises ModelError.

    A streamed answer of which a piece was told already is not begun again.
    """
    started = time.perf_counter()
    n_told = 0

    def tell_on(text: str) -> None:
        nonlocal n_told
        n_told += 1
        if tell:
            tell(text)

    reply, n_tried = await patiently(
        lambda: attempt(call, tell_on if tell else None),
        call.model,
        patience,
        on_wait=on_wait,
        is_begun=lambda: n_told > 0,
    )
    duration_ms = (time.perf_counter() - started) * 1000
    cost = cost_at(call.prices, reply.usage)
    return replace(reply, usage=replace(reply.usage, n_attempts=n_tried, duration_ms=duration_ms, cost=cost))


async def patiently(
    attempt_once: Callable[[], Awaitable[T]],
    model: str,
    patience: Patience,
    *,
    on_wait: OnWait | None = None,
    is_begun: Callable[[], bool] = lambda: False,
) -> tuple[T, int]:
    """What one of the attempts gave, and how many there were. Raises ModelError; what `is_begun` is not repeated."""
    n_tried = 0
    while True:
        n_tried += 1
        try:
            return await attempt_once(), n_tried
        except ModelError:
            raise
        except Exception as error:  # LiteLLM and the provider's client raise whatever they like
            failure = failure_of(error, model)
        seconds = None if is_begun() else patience.wait_s(n_tried, failure, random.random)
        if seconds is None:
            times = f" (tried {n_tried} times)" if n_tried > 1 else ""
            raise ModelError(failure.sentence + times, kind=failure.kind, is_fatal=failure.is_fatal) from None
        if on_wait:
            on_wait(Wait(failure, n_tried, patience.n_attempts, datetime.now(UTC) + timedelta(seconds=seconds)))
        await asyncio.sleep(seconds)
