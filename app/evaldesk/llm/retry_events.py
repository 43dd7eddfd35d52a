"""The listeners to model calls, their retries and waits: the trial, and the turn that makes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias, TypeVar

from evaldesk.backports import UTC
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.failures import ModelFailure
from evaldesk.llm.pacing import PACED, Pace
from evaldesk.model import Capture

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryWait:
    """A pause of `seconds`, `until` another attempt: `n_tried` have failed, the last one with `failure`."""

    failure: ModelFailure
    n_tried: int
    n_attempts: int
    until: datetime
    seconds: float = 0.0

    @property
    def why(self) -> str:
        """The event, in a word or two."""
        return "rate-limited" if self.failure.kind == "rate_limit" else self.failure.kind.replace("_", " ")

    def sentence(self) -> str:
        """`rate-limited until 12:03:05, then attempt 2 of 5: …`, in local time."""
        until = self.until.astimezone().strftime("%H:%M:%S")
        return (
            f"{self.why} until {until}, then attempt {self.n_tried + 1} of {self.n_attempts}: {self.failure.sentence}"
        )


OnRetryWait: TypeAlias = Callable[[RetryWait], object]


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call of a model whose answer was seen on its way, by the request as it was sent."""

    path: str
    request: bytes | Mapping[str, Any]
    answer: bytes
    duration_ms: float
    is_replayed: bool = False


def body_of(request: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request; empty where it is no object of JSON."""
    if isinstance(request, Mapping):
        return dict(request)
    try:
        found = json.loads(request or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


class TurnListener:
    """Listens to the model calls of a turn, in the thread of each call; every method does nothing by default."""

    @property
    def n_retries(self) -> int | None:
        """The number of retries of the turn's run; None leaves it to the caller."""
        return None

    @property
    def pace(self) -> Pace | None:
        """The limits of the turn's run; None without any."""
        return None

    @property
    def asked_fields(self) -> frozenset[str]:
        """The fields of a request that the run asks for, and may do without where a model refuses them."""
        return frozenset()

    def fault(self, model: str) -> str:
        """The fault to inject into the next request, reported to the turn; empty for none."""
        return ""

    def notes(self, text: str) -> None:
        """Something about a call that a person should know."""

    def waits(self, wait: RetryWait, *, is_counted: bool) -> None:
        """A call pauses; `is_counted` where its own usage will tell the attempts."""

    def was_cached(self) -> None:
        """A call whose usage cannot tell it was answered from a cache; no request was sent."""

    def was_whole(self, call: ModelCall | None = None, reply: ModelReply | None = None) -> None:
        """A call was made whose requests are not seen, because its caller tells its usage; ours with its answer."""

    def passed(self, call: SeenCall) -> None:
        """A call went through the gateway, which tells all that came of it; this is how it was sent."""

    def asks(self) -> None:
        """A request is sent; one of the next two ends it, unless the turn ends before."""

    def asked(self, call: SeenCall) -> None:
        """It was answered; the agent may tell its usage, or not."""

    def refused(self) -> None:
        """It was not answered."""

    def unanswered(self, call: ModelCall | SeenCall, why: str, duration_ms: float) -> None:
        """A call failed; this is how it was sent, and why, in words."""

    def missed_call(self) -> None:
        """A call was made whose answer cannot be seen."""

    def captured(self, way: Capture) -> None:
        """The calls of the turn are known in this way."""


# Told of every wait of the trial that is current, as it begins.
CURRENT_LISTENER: ContextVar[OnRetryWait | None] = ContextVar("current_listener", default=None)
CURRENT_TURN: ContextVar[TurnListener | None] = ContextVar("current_turn", default=None)
# The turn that is being played, also inside of a call that is watched itself.
PLAYED_TURN: ContextVar[TurnListener | None] = ContextVar("played_turn", default=None)


def notifier(*, is_counted: bool) -> OnRetryWait:
    """The function to call with each wait of a model call that is made here."""
    turn, listener = told_here()

    def notify(wait: RetryWait) -> None:
        if listener:
            listener(wait)
        if turn:
            turn.waits(wait, is_counted=is_counted)

    return notify


def waiting_s(pace: Pace | None, model: str) -> float:
    """Seconds to wait before a request is sent, reported to the trial; 0 without a limit."""
    seconds = pace.wait_s(model) if pace else 0.0
    _, listener = told_here()
    if seconds > 0 and listener:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        listener(RetryWait(ModelFailure(PACED, f"{model}: kept to its requests a minute"), 0, 1, until, seconds))
    return seconds


_played: list[tuple[TurnListener, OnRetryWait | None]] = []
_is_unseen: ContextVar[bool] = ContextVar("is_unseen", default=False)


def played_turns() -> list[TurnListener]:
    """The turns that are being played in this process."""
    return [turn for turn, _ in _played]


def told_here() -> tuple[TurnListener | None, OnRetryWait | None]:
    """The listeners of a call here: without a turn in the thread's context, the only turn that is played."""
    found = CURRENT_TURN.get(), CURRENT_LISTENER.get()
    is_unknown = found == (None, None) and PLAYED_TURN.get() is None
    return _played[0] if is_unknown and len(_played) == 1 else found


def is_unseen() -> bool:
    """Whether a call is made here that is told and recorded as a whole."""
    return _is_unseen.get()


@contextmanager
def holding(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a variable of the context have that value inside."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def unseen() -> AbstractContextManager[None]:
    """Let the requests of a call be sent unseen: it is told and recorded as a whole."""
    return holding(_is_unseen, True)


@contextmanager
def played(turn: TurnListener) -> Iterator[None]:
    """Let the clients inside tell this turn."""
    told = turn, CURRENT_LISTENER.get()
    _played.append(told)
    try:
        with holding(CURRENT_TURN, turn), holding(PLAYED_TURN, turn):
            yield
    finally:
        _played.remove(told)


def captured(way: Capture) -> None:
    """Say how the calls of the turn that is played here are known."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.captured(way)


def muted() -> AbstractContextManager[None]:
    """Let the clients inside of a call, which is watched itself, go unwatched."""
    return holding(CURRENT_TURN, None)
