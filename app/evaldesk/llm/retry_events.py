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
class HttpCall:
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
        body = json.loads(request or b"{}")
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


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
    def optional_fields(self) -> frozenset[str]:
        """The fields of a request that the run asks for, and may do without where a model refuses them."""
        return frozenset()

    def fault(self, model: str) -> str:
        """The fault to inject into the next request, reported to the turn; empty for none."""
        return ""

    def add_note(self, text: str) -> None:
        """Something about a call that a person should know."""

    def note_pause(self, wait: RetryWait, *, is_counted: bool) -> None:
        """A call pauses; `is_counted` where its own usage will tell the attempts."""

    def note_cached_reply(self) -> None:
        """A call whose usage cannot tell it was answered from a cache; no request was sent."""

    def note_reply(self, call: ModelCall | None = None, reply: ModelReply | None = None) -> None:
        """A call was made whose requests are not seen, because its caller tells its usage; ours with its answer."""

    def note_gateway_call(self, call: HttpCall) -> None:
        """A call went through the gateway, which tells all that came of it; this is how it was sent."""

    def note_request(self) -> None:
        """A request is sent; one of the next two ends it, unless the turn ends before."""

    def note_answer(self, call: HttpCall) -> None:
        """It was answered; the agent may tell its usage, or not."""

    def note_failed_request(self) -> None:
        """It was not answered."""

    def note_failure(self, call: ModelCall | HttpCall, why: str, duration_ms: float) -> None:
        """A call failed; this is how it was sent, and why, in words."""

    def note_missed_call(self) -> None:
        """A call was made whose answer cannot be seen."""

    def note_capture(self, way: Capture) -> None:
        """The calls of the turn are known in this way."""


# Told of every wait of the trial that is current, as it begins.
CURRENT_LISTENER: ContextVar[OnRetryWait | None] = ContextVar("current_listener", default=None)
CURRENT_TURN: ContextVar[TurnListener | None] = ContextVar("current_turn", default=None)
# The turn that is being played, also inside of a call that is watched itself.
PLAYED_TURN: ContextVar[TurnListener | None] = ContextVar("played_turn", default=None)


def notifier(*, is_counted: bool) -> OnRetryWait:
    """The function to call with each wait of a model call that is made here."""
    turn, listener = current_listeners()

    def notify(wait: RetryWait) -> None:
        if listener:
            listener(wait)
        if turn:
            turn.note_pause(wait, is_counted=is_counted)

    return notify


def waiting_s(pace: Pace | None, model: str) -> float:
    """Seconds to wait before a request is sent, reported to the trial; 0 without a limit."""
    seconds = pace.wait_s(model) if pace else 0.0
    _, listener = current_listeners()
    if seconds > 0 and listener:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        listener(RetryWait(ModelFailure(PACED, f"{model}: kept to its requests a minute"), 0, 1, until, seconds))
    return seconds


_listening_turns: list[tuple[TurnListener, OnRetryWait | None]] = []
_hides_requests: ContextVar[bool] = ContextVar("is_unseen", default=False)


def current_turns() -> list[TurnListener]:
    """The turns that are being played in this process."""
    return [turn for turn, _ in _listening_turns]


def current_listeners() -> tuple[TurnListener | None, OnRetryWait | None]:
    """The listeners of a call here: without a turn in the thread's context, the only turn that is played."""
    listeners = CURRENT_TURN.get(), CURRENT_LISTENER.get()
    is_unknown = listeners == (None, None) and PLAYED_TURN.get() is None
    return _listening_turns[0] if is_unknown and len(_listening_turns) == 1 else listeners


def hides_requests() -> bool:
    """Whether a call is made here that is told and recorded as a whole."""
    return _hides_requests.get()


@contextmanager
def context_value(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Let a variable of the context have that value inside."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def hide_requests() -> AbstractContextManager[None]:
    """Let the requests of a call be sent unseen: it is told and recorded as a whole."""
    return context_value(_hides_requests, True)


@contextmanager
def turn_context(turn: TurnListener) -> Iterator[None]:
    """Let the clients inside tell this turn."""
    entry = turn, CURRENT_LISTENER.get()
    _listening_turns.append(entry)
    try:
        with context_value(CURRENT_TURN, turn), context_value(PLAYED_TURN, turn):
            yield
    finally:
        _listening_turns.remove(entry)


def note_capture(way: Capture) -> None:
    """Say how the calls of the turn that is played here are known."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.note_capture(way)


def mute_listeners() -> AbstractContextManager[None]:
    """Let the clients inside of a call, which is watched itself, go unwatched."""
    return context_value(CURRENT_TURN, None)
