"""Listeners of model calls and retry pauses: the trial, and the turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeAlias, TypeVar

from evaldesk.backports import UTC
from evaldesk.errors import NoDoubleError
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.context import context_value
from evaldesk.llm.failures import ModelFailure
from evaldesk.llm.pacing import PACED, Pace
from evaldesk.model import Capture
from evaldesk.model.decisions import Decision, Waiting
from evaldesk.model.visibility import Unseen

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryWait:
    """A retry pause of `seconds`, `until` the next attempt, after `n_tried` failed ones, the last with `failure`."""

    failure: ModelFailure
    n_tried: int
    n_attempts: int
    until: datetime
    seconds: float = 0.0

    @property
    def why(self) -> str:
        """The cause of the pause, in a word or two."""
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
    """A model call observed in an HTTP library or the gateway: request and answer."""

    path: str
    request: bytes | Mapping[str, Any]
    answer: bytes
    duration_ms: float
    is_replayed: bool = False


def body_of(request: bytes | Mapping[str, Any]) -> dict[str, Any]:
    """The body of a request; empty unless it is a JSON object."""
    if isinstance(request, Mapping):
        return dict(request)
    try:
        body = json.loads(request or b"{}")
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


class AnsweredRequest(Protocol):
    """A request of a client until it gets its answer. `body` is the request to send next."""

    body: dict[str, Any]

    async def go_on(self, answer: bytes) -> bytes | None:
        """The answer for the client; None to send the next request first. Raises ModelError."""

    def fail(self) -> None:
        """Note that the client got a failure, and may send its request again."""


class CallAnswers(Protocol):
    """Answers to tool calls between the model and its client, which never sees these calls.

    `failure` is a call without an answer, which ends the trial.
    """

    failure: NoDoubleError | None

    def begin(self, path: str, body: Mapping[str, Any]) -> AnsweredRequest:
        """The request of a client, with the calls that it never saw. Raises ModelError."""

    def check_calls(self, names: Iterable[str]) -> None:
        """Raise NoDoubleError for a call of a turn that was not answered here and had to be."""


class TurnListener:
    """Listens to the model calls of a turn, in the thread of each call; every method does nothing by default."""

    @property
    def n_retries(self) -> int | None:
        """The number of retries of the turn's run; None leaves it to the caller."""
        return None

    @property
    def pace(self) -> Pace | None:
        """The rate limits of the run; None without limits."""
        return None

    @property
    def optional_fields(self) -> frozenset[str]:
        """The request fields from the run's options; they are dropped for a model that refuses them."""
        return frozenset()

    @property
    def call_answers(self) -> CallAnswers | None:
        """The answers to tool calls of the turn's model requests; None where the agent's adapter gives them."""
        return None

    def answer_calls(self, answers: CallAnswers) -> None:
        """Answer tool calls of the turn's model requests from now on."""

    @property
    def has_denials(self) -> bool:
        """Whether the case denies calls of the turn."""
        return False

    def take_denial(self, request: Waiting) -> Decision | None:
        """The denial of the case for a call, which is used up by it where it is one of the turn."""
        return None

    def fault(self, model: str) -> str:
        """The fault to inject into the next request, reported to the turn; empty for none."""
        return ""

    def log_note(self, text: str, author: str = "evaldesk") -> None:
        """Add a log line about a call."""

    def note_pause(self, wait: RetryWait, *, is_counted: bool) -> None:
        """Note a retry pause; `is_counted` if the usage of the call has its attempts."""

    def note_cached_reply(self) -> None:
        """Note a call answered from a cache, without a request, and without a mark in its usage."""

    def note_reply(self, call: ModelCall | None = None, reply: ModelReply | None = None) -> None:
        """Note a call with usage reported by its caller, not by its requests; of our own client with the reply."""

    def note_gateway_call(self, call: HttpCall) -> None:
        """Note the request of a gateway call; the gateway reports its events."""

    def note_request(self) -> None:
        """Note the start of a request; `note_answer` or `note_failed_request` ends it."""

    def note_answer(self, call: HttpCall) -> None:
        """Note the answer of a request; the agent may report the same usage."""

    def note_failed_request(self) -> None:
        """Note a request without an answer."""

    def note_failure(self, call: ModelCall | HttpCall, why: str, duration_ms: float) -> None:
        """Note the request of a failed call, and the cause."""

    def note_missed_call(self) -> None:
        """Note a call with an unreadable answer."""

    def note_capture(self, way: Capture) -> None:
        """Note the source of the turn's calls."""

    def note_unseen(self, part: Unseen) -> None:
        """Note a part of the agent's work that cannot be seen."""

    def note_reported_state(self) -> None:
        """Note that the agent reported its session state, which may be the old one."""

    def note_text_answer(self) -> None:
        """Note that the agent gave a text, and no event for its tool calls."""

    has_outside_calls: bool = False
    """Whether the agent opened a connection, started a process or asked a model in the turn."""

    def note_outside_call(self) -> None:
        """Note that the agent opened a connection or started a process."""


# Told of every wait of the trial that is current, as it begins.
CURRENT_LISTENER: ContextVar[OnRetryWait | None] = ContextVar("current_listener", default=None)
CURRENT_TURN: ContextVar[TurnListener | None] = ContextVar("current_turn", default=None)
# The turn that is being played, also inside of a call that is watched itself.
PLAYED_TURN: ContextVar[TurnListener | None] = ContextVar("played_turn", default=None)


def notifier(*, is_counted: bool) -> OnRetryWait:
    """The function to call with each retry pause of a model call in this context."""
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
    """The current turns of this process."""
    return [turn for turn, _ in _listening_turns]


def current_listeners() -> tuple[TurnListener | None, OnRetryWait | None]:
    """The turn and the trial's listener of this context; in a thread without a context, of the only current turn."""
    listeners = CURRENT_TURN.get(), CURRENT_LISTENER.get()
    is_unknown = listeners == (None, None) and PLAYED_TURN.get() is None
    return _listening_turns[0] if is_unknown and len(_listening_turns) == 1 else listeners


def hides_requests() -> bool:
    """Whether requests in this context belong to a call that reports itself."""
    return _hides_requests.get()


def hide_requests() -> AbstractContextManager[None]:
    """Ignore the requests of a call that reports and records itself."""
    return context_value(_hides_requests, True)


@contextmanager
def turn_context(turn: TurnListener) -> Iterator[None]:
    """Make `turn` the listener of all clients inside the context."""
    entry = turn, CURRENT_LISTENER.get()
    _listening_turns.append(entry)
    try:
        with context_value(CURRENT_TURN, turn), context_value(PLAYED_TURN, turn):
            yield
    finally:
        _listening_turns.remove(entry)


def note_capture(way: Capture) -> None:
    """Note the source of the current turn's calls."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.note_capture(way)


def note_unseen(part: Unseen) -> None:
    """Note a part of the agent's work that cannot be seen in the current turn."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.note_unseen(part)


def note_reported_state() -> None:
    """Note that the agent reported its session state in the current turn."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.note_reported_state()


def note_text_answer() -> None:
    """Note that the agent gave a text, and no event for its tool calls, in the current turn."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.note_text_answer()


def note_outside_call() -> None:
    """Note that the agent may call somebody outside of this process, or a model in it, in the current turn."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.note_outside_call()


def has_outside_calls() -> bool:
    """Whether the current turn opened a connection, started a process or asked a model."""
    turn = PLAYED_TURN.get()
    return turn is not None and turn.has_outside_calls


def note_hidden_work() -> None:
    """Note that the tool calls of the current turn, in another process, are seen only where the agent reports one."""
    turn = PLAYED_TURN.get()
    if turn:
        turn.note_text_answer()
        turn.note_outside_call()


def mute_listeners() -> AbstractContextManager[None]:
    """Disable the listener for the clients inside a call that is already observed."""
    return context_value(CURRENT_TURN, None)
