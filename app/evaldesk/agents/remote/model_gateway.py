"""The model gateway: requests, answers and usage of an agent's model calls, in any language. (decision 125)

An agent gets the address of its session by the environment variables of its SDKs. A call belongs to the current turn of
the session. (docs/protocol.md)
"""

from __future__ import annotations

import contextvars
import json
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from evaldesk.agents.event_pump import SendEvent
from evaldesk.agents.local_server import no_proxy_variables
from evaldesk.agents.remote.providers import PROVIDERS
from evaldesk.errors import BadNumberError, FormatError
from evaldesk.llm.apis import Api, model_in
from evaldesk.llm.call import pace_of
from evaldesk.llm.context import run_now
from evaldesk.llm.costs import cost_at, with_cost
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.llm.refusals import STRICTNESS, dropped_fields_note, without_fields
from evaldesk.llm.retry_events import (
    PLAYED_TURN,
    AnsweredRequest,
    HttpCall,
    RetryWait,
    TurnListener,
    notifier,
    waiting_s,
)
from evaldesk.model import ErrorRecord, Event, Session, Usage
from evaldesk.transcripts.messages.turns import Message, TurnEvents
from evaldesk.transcripts.model_exchanges import Exchange, read_exchange, results_in

LAST_CALL_S = 1.0
MAX_REASON = 500
LEAST_ERROR = 400
_OTHER_SHAPE = (FormatError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """The current turn of a gateway: its event sink, its context variables, and the listener of its calls.

    `counts_attempts`: its usages have the number of attempts of a call.
    """

    session: Session
    send: SendEvent
    recorder: Recorder | None
    context: contextvars.Context
    listener: TurnListener | None
    counts_attempts: bool = True

    def note_pause(self, wait: RetryWait) -> None:
        """Report a retry pause to the trial and the turn."""
        self.context.copy().run(lambda: notifier(is_counted=self.counts_attempts)(wait))

    def pause(self, model: str) -> None:
        """Wait for the rate limits of the run."""
        pace = pace_of(self.session.model_options)
        time.sleep(self.context.copy().run(waiting_s, pace, model))

    def without_refused_fields(self, call: Call, base: str, refusal: Answer | None = None) -> Call | None:
        """The call without the fields that its model refused, now or before; None without such fields.

        Only fields of the run's options count: a field of the agent itself fails here as in production.
        """
        optional_fields = self.listener.optional_fields if self.listener and call.api else frozenset()
        if refusal is not None:
            text = refusal.body.decode("utf-8", "replace")
            new_fields = (
                STRICTNESS.learn(call.model, base, optional_fields & call.body.keys(), refusal.status, text)
                & optional_fields
            )
            sentence = dropped_fields_note(call.model, new_fields) if new_fields else ""
            if self.listener and sentence:
                self.listener.log_note(sentence)
        names = STRICTNESS.unknown_to(call.model, base) & optional_fields & call.body.keys()
        body = without_fields(call.body, names)
        return replace(call, body=dict(body), data=json.dumps(body).encode()) if names else None

    def fault(self, call: Call) -> str:
        """The fault to inject into the call; empty for none."""
        return self.listener.fault(call.model) if self.listener and call.api else ""

    def begin_answers(self, call: Call) -> AnsweredRequest | None:
        """The request with the calls that the agent never saw; None without answers. Raises ModelError."""
        answers = self.listener.call_answers if self.listener and call.api else None
        return answers.begin(call.path, call.body) if answers else None

    def go_on(self, answered: AnsweredRequest, answer: Answer) -> bytes | None:
        """The answer for the agent; None to send the next request first. Raises ModelError."""
        return self.context.copy().run(run_now, answered.go_on(answer.body))

    def note_failure(self, call: Call, why: str, duration_ms: float) -> None:
        """Report the request of a failed call to the turn."""
        if self.listener and call.api:
            self.listener.note_failure(HttpCall(call.path, call.body, b"", duration_ms), why, duration_ms)

    def note_missed_call(self) -> None:
        """Report a call without an answer at the end of the turn."""
        if self.listener:
            self.listener.note_missed_call()

    def note_answer(self, call: Call, answer: Answer) -> None:
        """Report the request and the answer of a call to the turn."""
        if self.listener:
            self.listener.note_gateway_call(HttpCall(call.path, call.body, answer.body, answer.duration_ms))

    def note_own_answer(self, call: Call, answer: Answer) -> None:
        """Report an answered call as one of the agent's own client, whose usage the turn reads."""
        if not (self.listener and call.api):
            return
        if answer.status >= LEAST_ERROR:
            self.note_failure(call, _refusal_reason(answer), answer.duration_ms)
            return
        self.listener.note_request()
        self.listener.note_answer(
            HttpCall(call.path, call.body, answer.body, answer.duration_ms, is_replayed=answer.is_replayed)
        )


@dataclass(slots=True)
class ModelGateway:
    """The gateway of one session. Calls between turns are refused, because they belong to no turn.

    `has_asked_model`: the current turn called a model here, or, resumed in another process, may have.
    """

    environment: Mapping[str, str]
    server: str = ""
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    has_asked_model: bool = True
    _turn: PlayedTurn | None = None
    _events: TurnEvents = field(default_factory=TurnEvents)
    _reported_result_ids: set[str] = field(default_factory=set)
    _n_under_way: int = 0
    _n_calls: int = 0
    # Server threads record calls while the trial thread waits until none is under way (decision 125).
    _lock: threading.Condition = field(default_factory=threading.Condition)

    def variables(self) -> dict[str, str]:
        """The environment variables that point SDKs to this gateway, without a proxy."""
        here = f"{self.server}/{self.key}"
        addresses = {each: f"{here}/{name}" for name, provider in PROVIDERS.items() for each in provider.variables}
        return {**addresses, **no_proxy_variables(self.environment)}

    def close(self) -> None:
        """Remove the address."""
        GATEWAYS.pop(self.key, None)

    @contextmanager
    def listening(self, session: Session, send: SendEvent, *, goes_on: bool = False) -> Iterator[None]:
        """Assign calls to this turn until the context ends; a turn that `goes_on` was paused before."""
        self.has_asked_model = self.has_asked_model and goes_on
        self.begin(PlayedTurn(session, send, CURRENT_RECORDER.get(), contextvars.copy_context(), PLAYED_TURN.get()))
        try:
            yield
        finally:
            self.end()

    def begin(self, turn: PlayedTurn) -> None:
        """Assign calls to this turn."""
        with self._lock:
            self._turn, self._events, self._n_calls = turn, TurnEvents(), 0

    def end(self) -> None:
        """Wait shortly for calls of which the agent did not read the end; those that are left are missed calls."""
        with self._lock:
            self._lock.wait_for(lambda: not self._n_under_way, LAST_CALL_S)
            turn, self._turn = self._turn, None
            if turn:
                for _ in range(self._n_under_way):
                    turn.note_missed_call()

    @contextmanager
    def call(self) -> Iterator[PlayedTurn | None]:
        """The current turn; it does not end before the call."""
        with self._lock:
            self._n_under_way += 1
        try:
            yield self._turn
        finally:
            with self._lock:
                self._n_under_way -= 1
                self._lock.notify_all()

    def may_ask(self, turn: PlayedTurn, call: Call) -> bool:
        """Whether the turn may make a model call. The first call beyond the limit ends the turn, as in other agents."""
        most = turn.session.model_options.max_turns
        if call.api is None:
            return True
        self.has_asked_model = True
        if most is None:
            return True
        with self._lock:
            self._n_calls += 1
            n_asked = self._n_calls
            if n_asked == most + 1:
                with suppress(*_OTHER_SHAPE):  # the call is refused, but its tools have run
                    self._send_results(turn, results_in(call.api, call.body))
        if n_asked == most + 1:
            sentence = f"the agent never answered: it asked for more than {most} model calls"
            turn.send(Event("error", error=ErrorRecord("max_turns", sentence)))
        return n_asked <= most

    def recording_of(self, turn: PlayedTurn, call: Call) -> tuple[Recorder, str] | None:
        """The recorder of the turn, and the recording key of the call; None for an unrecorded call."""
        if turn.recorder is None or call.api is None:
            return None
        with self._lock:
            try:
                return turn.recorder, turn.recorder.key("gateway", {"path": call.path, "body": call.body})
            except UnicodeEncodeError:  # half of a surrogate pair, which JSON can name and UTF-8 cannot
                text = json.dumps(call.body, ensure_ascii=False).encode("utf-8", "replace")
                return turn.recorder, turn.recorder.key("gateway", {"path": call.path, "body": json.loads(text)})

    def report(self, turn: PlayedTurn, call: Call, answer: Answer) -> None:
        """Send the events of an answered call."""
        if call.api is None:
            return
        if answer.status >= LEAST_ERROR:
            turn.note_failure(call, _refusal_reason(answer), answer.duration_ms)
            return
        try:
            exchange = read_exchange(call.api, call.path, call.body, answer.body)
        except _OTHER_SHAPE as error:
            turn.send(Event("log", author="evaldesk", text=f"Left out: an answer that cannot be read: {error!r:.300}"))
            turn.send(Event("usage", usage=_unknown(call, answer)))
            return
        turn.note_answer(call, answer)
        if answer.is_cut:
            text = f"The answer of {call.model} broke off; its tokens are at least those that it told."
            turn.send(Event("log", author="evaldesk", text=text))
        with self._lock:
            self._send_results(turn, exchange.results)
            try:
                turn.send(Event("usage", usage=_usage(turn.session, call, exchange, answer)))
            except BadNumberError as bad:
                turn.send(Event("log", author="evaldesk", text=f"Left out: the tokens of an answer: {bad}"))
                turn.send(Event("usage", usage=_unknown(call, answer)))
            self._send(turn, Message("agent", calls=exchange.answer.calls))

    def replaces(self, event: Event) -> bool:
        """Whether the gateway reports the command's own call, result or usage event, after its first model call.

        A result that the command reported before is not repeated from the next request.
        """
        if not self.has_asked_model and event.kind == "tool_result" and event.call and event.call.id:
            self._reported_result_ids.add(event.call.id)
        return self.has_asked_model and event.kind in ("tool_call", "tool_result", "usage")

    def _send_results(self, turn: PlayedTurn, results: Iterable[Message]) -> None:
        for result in results:
            if result.call_id is None or result.call_id not in self._reported_result_ids:
                self._reported_result_ids.add(result.call_id or "")
                self._send(turn, result)

    def _send(self, turn: PlayedTurn, message: Message) -> None:
        n_before = len(self._events.events)
        self._events.add(message)
        for event in self._events.events[n_before:]:
            turn.send(event)


GATEWAYS: dict[str, ModelGateway] = {}
"""The open gateways by key."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a provider; `path` is relative to the base address of its models."""

    provider: str
    method: str
    path: str
    headers: Mapping[str, str]
    data: bytes
    body: dict[str, Any]
    api: Api | None

    @property
    def hides_usage(self) -> bool:
        """Whether to hide the usage of a streamed chat completion: the agent did not request it, the gateway did."""
        options = self.body.get("stream_options")
        asks = isinstance(options, dict) and options.get("include_usage")
        return self.api == "chat" and bool(self.body.get("stream")) and not asks

    @property
    def model(self) -> str:
        """The model name for error sentences."""
        model_name = self.body.get("model")
        return model_name if isinstance(model_name, str) else model_in(self.path) or "the model"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; `unsent` is the end that the agent does not have yet, `is_begun` that it has the start.

    `is_cut`: the provider's stream broke off. `n_attempts` and `duration_ms` include retries. `is_replayed`: from a
    recording.
    """

    status: int
    kind: str
    body: bytes
    unsent: bytes
    is_begun: bool = False
    is_cut: bool = False
    n_attempts: int = 1
    duration_ms: float = 0.0
    is_replayed: bool = False


def _refusal_reason(answer: Answer) -> str:
    return f"HTTP {answer.status}: {answer.body[:MAX_REASON].decode('utf-8', 'replace')}"


def _usage(session: Session, call: Call, exchange: Exchange, answer: Answer) -> Usage:
    """Tokens and cost; without a cost for cache writes, which no price list has. Raises BadNumberError."""
    tokens = exchange.tokens
    usage = Usage(
        exchange.model,
        tokens_in=tokens.tokens_in if tokens else 0,
        tokens_out=tokens.tokens_out if tokens else 0,
        n_attempts=0 if answer.is_replayed else answer.n_attempts,
        duration_ms=answer.duration_ms,
        is_replayed=answer.is_replayed,
        cost=0.0 if answer.is_replayed else None,
        tokens_cached=tokens.cached if tokens else 0,
        tokens_reasoning=tokens.reasoning if tokens else 0,
        is_least=tokens is None or answer.is_cut,
    )
    if tokens is None or answer.is_cut:
        return usage
    if not tokens.cache_writes and not answer.is_replayed:
        usage = with_cost(usage)
    return replace(usage, cost=cost_at(session.model_options.prices, usage))


def _unknown(call: Call, answer: Answer) -> Usage:
    """The usage of an answered call with unknown tokens."""
    return Usage(call.model, n_attempts=answer.n_attempts, duration_ms=answer.duration_ms, is_least=True)
