"""What trials under way wait for, told while they wait: a model that is rate-limited, for one."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from evaldesk.llm import RetryWait


class Pause(msgspec.Struct, frozen=True):
    """A trial that waits: why, in a word or two, and until when, in seconds since the epoch."""

    why: str
    until: float


def pause_of(wait: RetryWait) -> Pause:
    """The pause that a model call makes before another attempt."""
    return Pause(wait.why, wait.until.timestamp())


def active(pauses: Iterable[Pause | None]) -> tuple[Pause, ...]:
    """Those that are not over yet."""
    now = time.time()
    return tuple(pause for pause in pauses if pause and pause.until > now)


def pauses_sentence(executor: object) -> str:
    """`3 trials wait: rate-limited until 12:03:05.`, in local time; empty without any, or where it is not known."""
    found = sorted(getattr(executor, "pauses", ()), key=lambda pause: pause.until)
    if not found:
        return ""
    trials = "1 trial waits" if len(found) == 1 else f"{len(found):,} trials wait"
    whys = " or ".join(dict.fromkeys(pause.why for pause in found))
    until = datetime.fromtimestamp(found[-1].until, UTC).astimezone().strftime("%H:%M:%S")
    return f"{trials}: {whys} until {until}."
