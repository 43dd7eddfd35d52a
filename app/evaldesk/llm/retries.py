"""Try a model call again where that may help, and say how often it was tried."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from evaldesk.errors import ModelError
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.client import attempt
from evaldesk.llm.failures import ModelFailure, failure_of


@dataclass(frozen=True, slots=True)
class Patience:
    """How often and how long to try. Waits double from `first_wait_s`; a longer Retry-After is not waited for."""

    n_attempts: int = 5
    first_wait_s: float = 0.5
    longest_wait_s: float = 30.0

    def wait_s(self, n_tried: int, failure: ModelFailure, chance: Callable[[], float]) -> float | None:
        """Seconds until the next attempt, or None when there should be none."""
        if not failure.is_passing or n_tried >= self.n_attempts:
            return None
        if failure.retry_after_s is not None:
            is_bearable = failure.retry_after_s <= self.longest_wait_s
            return failure.retry_after_s * (1 + chance() / 10) if is_bearable else None
        return float(min(self.longest_wait_s, self.first_wait_s * 2 ** (n_tried - 1)) * (0.5 + chance() / 2))


PATIENT = Patience()


async def complete_patiently(call: ModelCall, tell: Callable[[str], object] | None, patience: Patience) -> ModelReply:
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

    n_tried = 0
    while True:
        n_tried += 1
        try:
            reply = await attempt(call, tell_on if tell else None)
        except ModelError:
            raise
        except Exception as error:  # LiteLLM and the provider's client raise whatever they like
            failure = failure_of(error, call.model)
        else:
            duration_ms = (time.perf_counter() - started) * 1000
            return replace(reply, usage=replace(reply.usage, n_attempts=n_tried, duration_ms=duration_ms))
        wait_s = None if n_told else patience.wait_s(n_tried, failure, random.random)
        if wait_s is None:
            times = f" (tried {n_tried} times)" if n_tried > 1 else ""
            raise ModelError(failure.sentence + times, kind=failure.kind, is_fatal=failure.is_fatal) from None
        await asyncio.sleep(wait_s)
