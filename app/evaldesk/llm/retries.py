"""Retries of model calls with backoff, and the number of attempts."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from evaldesk.backports import UTC
from evaldesk.errors import BadNumberError, ModelError
from evaldesk.llm.attempts import attempt
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.costs import cost_at
from evaldesk.llm.failures import ModelFailure, failure_of
from evaldesk.llm.retry_events import OnRetryWait, RetryWait, waiting_s

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retries with a backoff that doubles from `first_wait_s` to `max_backoff_s`, or as Retry-After says.

    A Retry-After above `max_retry_after_s` ends the retries.

    The jitter shortens a backoff to half of it at most, and lengthens a Retry-After by a tenth at most.
    """

    n_attempts: int = 5
    first_wait_s: float = 0.5
    max_backoff_s: float = 60.0
    max_retry_after_s: float = 60.0

    def with_retries(self, n_retries: int | None) -> RetryPolicy:
        """The policy with `n_retries` attempts after the first; unchanged for None."""
        return self if n_retries is None else replace(self, n_attempts=n_retries + 1)

    def wait_s(self, n_tried: int, failure: ModelFailure, chance: Callable[[], float]) -> float | None:
        """Seconds until the next attempt; None for no further attempt."""
        if not failure.is_passing or n_tried >= self.n_attempts:
            return None
        if failure.retry_after_s is not None:
            is_short = failure.retry_after_s <= self.max_retry_after_s
            return failure.retry_after_s * (1 + chance() / 10) if is_short else None
        return float(min(self.max_backoff_s, self.first_wait_s * 2 ** (n_tried - 1)) * (0.5 + chance() / 2))


DEFAULT_RETRIES = RetryPolicy()


async def complete_with_retries(
    call: ModelCall, on_text: Callable[[str], object] | None, retry_policy: RetryPolicy, on_wait: OnRetryWait
) -> ModelReply:
    """The reply, with all attempts and waits in its usage. Raises ModelError.

    A streamed answer is not retried once a piece of it was sent.
    """
    start = time.perf_counter()
    n_sent = 0

    def send_on(text: str) -> None:
        nonlocal n_sent
        n_sent += 1
        if on_text:
            on_text(text)

    async def attempt_once() -> ModelReply:
        await asyncio.sleep(waiting_s(call.pace, call.model))
        return await attempt(call, send_on if on_text else None)

    reply, n_tried = await call_with_retries(
        attempt_once,
        call.model,
        retry_policy,
        on_wait=on_wait,
        is_begun=lambda: n_sent > 0,
    )
    if call.pace:
        call.pace.book_tokens(call.model, reply.usage.tokens_in + reply.usage.tokens_out)
    duration_ms = (time.perf_counter() - start) * 1000
    cost = cost_at(call.prices, reply.usage)
    return replace(reply, usage=replace(reply.usage, n_attempts=n_tried, duration_ms=duration_ms, cost=cost))


async def call_with_retries(
    attempt_once: Callable[[], Awaitable[T]],
    model: str,
    retry_policy: RetryPolicy,
    *,
    on_wait: OnRetryWait,
    is_begun: Callable[[], bool] = lambda: False,
) -> tuple[T, int]:
    """The result of one of the attempts, and their number. Raises ModelError and BadNumberError.

    A call that has begun (`is_begun`) is not repeated.
    """
    n_tried = 0
    while True:
        n_tried += 1
        try:
            return await attempt_once(), n_tried
        except (ModelError, BadNumberError):
            raise
        except Exception as error:  # LiteLLM and the provider's client raise exceptions of any kind
            failure = failure_of(error, model)
        wait = None if is_begun() else wait_after(failure, n_tried, retry_policy)
        if wait is None:
            times = f" (tried {n_tried} times)" if n_tried > 1 else ""
            raise ModelError(failure.sentence + times, kind=failure.kind, is_fatal=failure.is_fatal) from None
        on_wait(wait)
        await asyncio.sleep(wait.seconds)


def wait_after(failure: ModelFailure, n_tried: int, retry_policy: RetryPolicy) -> RetryWait | None:
    """The pause from now until the next attempt; None for no further attempt."""
    seconds = retry_policy.wait_s(n_tried, failure, random.random)
    if seconds is None:
        return None
    return RetryWait(failure, n_tried, retry_policy.n_attempts, datetime.now(UTC) + timedelta(seconds=seconds), seconds)
