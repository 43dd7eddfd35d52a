"""A loopback endpoint between an agent in any language and its models: it forwards each call, and tells what it saw.

An agent finds it by the environment variables that its SDKs read. One server for the process, one address for each
session: a call belongs to the turn that is under way there. (docs/protocol.md)
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
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from typing import Any

from evaldesk.agents.event_pump import SendEvent
from evaldesk.agents.local_server import LocalServer, past_proxy
from evaldesk.agents.remote.providers import HOP_BY_HOP, MAX_BODY, PIECE, PROVIDERS, TIMEOUT_S, opened_answer
from evaldesk.errors import BadNumberError, FormatError, ModelError
from evaldesk.llm.apis import Api, api_of, model_in
from evaldesk.llm.call import pace_of
from evaldesk.llm.costs import cost_at, price
from evaldesk.llm.failures import failure_of
from evaldesk.llm.faults import GIVEN, SLOW, SLOW_S, STATUS, TIMEOUT, TRUNCATED, WORDS, malformed_body, refusal_body
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.llm.refusals import STRICTNESS, EndpointError, dropped_words, without_refused
from evaldesk.llm.retries import PATIENT, wait_after
from evaldesk.llm.retry_events import PLAYED_TURN, RetryWait, SeenCall, notifier, waiting_s
from evaldesk.model import ErrorRecord, Event, Session, Usage
from evaldesk.transcripts.messages import Message, TurnEvents
from evaldesk.transcripts.model_exchanges import Exchange, read_exchange, results_in

MAX_ANSWER = 64 * 1024 * 1024
LAST_CALL_S = 1.0
MAX_REASON = 500
LEAST_ERROR = BAD_REQUEST = 400
_OTHER_SHAPE = (FormatError, ValueError, LookupError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class _Turn:
    """The turn under way: where its events go, and the context in which it is played."""

    session: Session
    send: SendEvent
    recorder: Recorder | None
    context: contextvars.Context

    def waits(self, wait: RetryWait) -> None:
        """Tell the trial and the turn of a pause."""
        self.context.copy().run(lambda: notifier(is_counted=True)(wait))

    def pause(self, model: str) -> None:
        """Wait as long as the limits of the run ask for."""
        pace = pace_of(self.session.model_options)
        time.sleep(self.context.copy().run(waiting_s, pace, model))

    def without(self, call: Call, base: str, refused: Answer | None = None) -> Call | None:
        """The call without the fields that its model refuses, now or before; None where there are none to leave out.

        Those are fields that the run asks for: one of the agent's own fails here as it does where it is deployed.
        """
        played = self.context.get(PLAYED_TURN)
        may = played.asked_fields if played and call.api else frozenset()
        if refused is not None:
            text = refused.body.decode("utf-8", "replace")
            new = STRICTNESS.learn(call.model, base, may & call.body.keys(), refused.status, text) & may
            told = dropped_words(call.model, new) if new else ""
            if played and told:
                played.notes(told)
        names = STRICTNESS.unknown_to(call.model, base) & may & call.body.keys()
        body = without_refused(call.body, names)
        return replace(call, body=dict(body), data=json.dumps(body).encode()) if names else None

    def fault(self, call: Call) -> str:
        """The fault to inject into the call; empty for none."""
        played = self.context.get(PLAYED_TURN)
        return played.fault(call.model) if played and call.api else ""

    def unanswered(self, call: Call, why: str, duration_ms: float) -> None:
        """Tell the turn how a call was sent that failed."""
        played = self.context.get(PLAYED_TURN)
        if played and call.api:
            played.unanswered(SeenCall(call.path, call.body, b"", duration_ms), why, duration_ms)

    def missed(self) -> None:
        """Tell the turn of a call whose answer it does not wait for."""
        played = self.context.get(PLAYED_TURN)
        if played:
            played.missed_call()

    def passed(self, call: Call, answer: Answer) -> None:
        """Tell the turn how a call was sent that was answered."""
        played = self.context.get(PLAYED_TURN)
        if played:
            played.passed(SeenCall(call.path, call.body, answer.body, answer.duration_ms))


@dataclass(slots=True)
class ModelGateway:
    """The address of one session. Calls between turns are refused: they would belong to none.

    `is_asked` says that the turn under way asked a model here, or, where it goes on in another process, may have.
    """

    environment: Mapping[str, str]
    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    is_asked: bool = True
    _turn: _Turn | None = None
    _events: TurnEvents = field(default_factory=TurnEvents)
    _told: set[str] = field(default_factory=set)
    _n_under_way: int = 0
    _n_asked: int = 0
    _lock: threading.Condition = field(default_factory=threading.Condition)

    def variables(self) -> dict[str, str]:
        """The environment variables that lead SDKs here, past any proxy."""
        here = f"{_SERVER.address}/{self.key}"
        found = {each: f"{here}/{name}" for name, provider in PROVIDERS.items() for each in provider.variables}
        return {**found, **past_proxy(self.environment)}

    def open(self) -> None:
        """Answer at the address."""
        _gateways[self.key] = self

    def close(self) -> None:
        """Answer no more."""
        _gateways.pop(self.key, None)

    @contextmanager
    def listening(self, session: Session, send: SendEvent, *, goes_on: bool = False) -> Iterator[None]:
        """Calls belong to this turn until the context ends; one that `goes_on` waited for a person before."""
        self.is_asked = self.is_asked and goes_on
        turn = _Turn(session, send, CURRENT_RECORDER.get(), contextvars.copy_context())
        with self._lock:
            self._turn, self._events, self._n_asked = turn, TurnEvents(), 0
        try:
            yield
        finally:
            with self._lock:  # a call of which the agent did not read the end
                self._lock.wait_for(lambda: not self._n_under_way, LAST_CALL_S)
                for _ in range(self._n_under_way):
                    turn.missed()
                self._turn = None

    @contextmanager
    def call(self) -> Iterator[_Turn | None]:
        """The turn under way, which does not end before the call."""
        with self._lock:
            self._n_under_way += 1
        try:
            yield self._turn
        finally:
            with self._lock:
                self._n_under_way -= 1
                self._lock.notify_all()

    def may_ask(self, turn: _Turn, call: Call) -> bool:
        """Whether the turn has a model call left. The first one beyond its limit ends it, as in other agents."""
        most = turn.session.model_options.max_turns
        if call.api is None:
            return True
        self.is_asked = True
        if most is None:
            return True
        with self._lock:
            self._n_asked += 1
            n_asked = self._n_asked
            if n_asked == most + 1:
                with suppress(*_OTHER_SHAPE):  # the call is refused, but its tools have run
                    self._send_results(turn, results_in(call.api, call.body))
        if n_asked == most + 1:
            sentence = f"the agent never answered: it asked for more than {most} model calls"
            turn.send(Event("error", error=ErrorRecord("max_turns", sentence)))
        return n_asked <= most

    def recording_of(self, turn: _Turn, call: Call) -> tuple[Recorder, str] | None:
        """The recording of the turn, and the name that the call has there; None where the call is not recorded."""
        if turn.recorder is None or call.api is None:
            return None
        with self._lock:
            try:
                return turn.recorder, turn.recorder.key("gateway", {"path": call.path, "body": call.body})
            except UnicodeEncodeError:  # half of a surrogate pair, which JSON can name and UTF-8 cannot
                text = json.dumps(call.body, ensure_ascii=False).encode("utf-8", "replace")
                return turn.recorder, turn.recorder.key("gateway", {"path": call.path, "body": json.loads(text)})

    def tell(self, turn: _Turn, call: Call, answer: Answer) -> None:
        """Send the events of a call that was answered."""
        if call.api is None:
            return
        if answer.status >= LEAST_ERROR:
            why = f"HTTP {answer.status}: {answer.body[:MAX_REASON].decode('utf-8', 'replace')}"
            turn.unanswered(call, why, answer.duration_ms)
            return
        try:
            exchange = read_exchange(call.api, call.path, call.body, answer.body)
        except _OTHER_SHAPE as error:
            turn.send(Event("log", author="evaldesk", text=f"Left out: an answer that cannot be read: {error!r:.300}"))
            turn.send(Event("usage", usage=_unknown(call, answer)))
            return
        turn.passed(call, answer)
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

    def tells(self, event: Event) -> bool:
        """Whether a call, a result or tokens that the command tells itself are told from here, once a model was asked.

        A result that it told before is not told again from the request that has it.
        """
        if not self.is_asked and event.kind == "tool_result" and event.call and event.call.id:
            self._told.add(event.call.id)
        return self.is_asked and event.kind in ("tool_call", "tool_result", "usage")

    def _send_results(self, turn: _Turn, results: Iterable[Message]) -> None:
        for result in results:
            if result.call_id is None or result.call_id not in self._told:
                self._told.add(result.call_id or "")
                self._send(turn, result)

    def _send(self, turn: _Turn, message: Message) -> None:
        n_before = len(self._events.events)
        self._events.add(message)
        for event in self._events.events[n_before:]:
            turn.send(event)


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a provider: `path` is what follows the address of its models."""

    provider: str
    method: str
    path: str
    headers: Mapping[str, str]
    data: bytes
    body: dict[str, Any]
    api: Api | None

    @property
    def hides_usage(self) -> bool:
        """Whether the agent streams a chat completion without asking for its tokens: then only we do."""
        options = self.body.get("stream_options")
        asks = isinstance(options, dict) and options.get("include_usage")
        return self.api == "chat" and bool(self.body.get("stream")) and not asks

    @property
    def model(self) -> str:
        """The model in a sentence about a failure."""
        named = self.body.get("model")
        return named if isinstance(named, str) else model_in(self.path) or "the model"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, and the end of it that the agent does not have yet; `is_begun` where it has the rest.

    A stream that the provider did not end `is_cut`. How often it was asked for, and how long that took; `is_replayed`
    from a recording; `base` is who answered.
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
    base: str = ""


def _usage(session: Session, call: Call, exchange: Exchange, answer: Answer) -> Usage:
    """Tokens and cost. Cached tokens have prices of their own, and a model at another address any: it is unknown then.

    Raises BadNumberError.
    """
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
    is_usual = answer.base == PROVIDERS[call.provider].address
    if tokens is None or answer.is_cut:
        return usage
    if is_usual and not (tokens.cached or tokens.written) and not answer.is_replayed:
        usage = replace(usage, cost=price(usage.model, usage.tokens_in, usage.tokens_out))
    return replace(usage, cost=cost_at(session.model_options.prices, usage))


def _unknown(call: Call, answer: Answer) -> Usage:
    """The usage of a call that was answered, of whose tokens nothing is known."""
    return Usage(call.model, n_attempts=answer.n_attempts, duration_ms=answer.duration_ms, is_least=True)


def _opened(call: Call, base: str) -> Any:
    """The answer of the provider, also one that refuses. Raises OSError.

    An endpoint that does not know `stream_options` is asked again without.
    """
    data = call.data
    if call.hides_usage:
        given = call.body.get("stream_options")
        options = {**(given if isinstance(given, dict) else {}), "include_usage": True}
        data = json.dumps({**call.body, "stream_options": options}).encode()
    answer = opened_answer(call.method, base + call.path, data, call.headers)
    if answer.status != BAD_REQUEST or data is call.data:
        return answer
    answer.close()
    return opened_answer(call.method, base + call.path, call.data, call.headers)


def _kind(response: Any) -> str:
    return str(response.headers.get("content-type", "application/json"))


def _recorded(call: Call, recorder: Recorder, key: str) -> Answer | None:
    """The recorded answer. Raises ModelError in a replay that lacks it."""
    found = recorder.found(key, f"the call of {call.model}")
    if found is None:
        return None
    body = str(found["body"]).encode()
    return Answer(int(found["status"]), str(found["kind"]), body, body, is_replayed=True)


@dataclass(slots=True)
class _Stream:
    """A stream on its way to the agent; its last piece is kept until the call was told.

    The event that has nothing but tokens is left out where only we asked for it.
    """

    hides_usage: bool
    _rest: bytes = b""
    _part: bytes = b""

    def ready(self, piece: bytes) -> bytes:
        """What may be sent now."""
        if self.hides_usage:
            *events, self._part = (self._part + piece).split(b"\n\n")
            piece = b"".join(event + b"\n\n" for event in events if not _has_tokens_alone(event))
        if not piece:
            return b""
        ready, self._rest = self._rest, piece
        return ready

    def end(self) -> bytes:
        """What is left."""
        return self._rest + self._part


def _has_tokens_alone(event: bytes) -> bool:
    try:
        found = json.loads(event.partition(b":")[2])
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("choices") == [] and bool(found.get("usage"))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # an SDK keeps its connection
    timeout = TIMEOUT_S
    wbufsize = PIECE  # the head of an answer goes with its first piece
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self._forward()

    def do_GET(self) -> None:
        self._forward()

    def log_message(self, *_: object) -> None:
        """Say nothing: the turn's events say it all."""

    def handle_expect_100(self) -> bool:
        """Ask for the body at once, whatever else is to be written."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _forward(self) -> None:
        key, _, rest = self.path.removeprefix("/").partition("/")
        provider, slash, path = rest.partition("/")
        gateway = _gateways.get(key)
        if gateway is None or provider not in PROVIDERS or ".." in path.partition("?")[0].split("/"):
            self._refuse(404, "not_found", "nothing is at this address")
            return
        if not path.isascii():
            self._refuse(400, "bad_request", "an address has ASCII letters only; write others as %XX")
            return
        with gateway.call() as turn:
            call = self._call(provider, slash + path)
            if turn is None:
                self._refuse(409, "no_turn", "no turn is under way, so this call would belong to none")
            elif call is None:
                self._refuse(
                    400,
                    "bad_request",
                    f"the body is not a JSON object of known length, at most {MAX_BODY // 2**20} MiB",
                )
            elif not gateway.may_ask(turn, call):
                self._refuse(429, "max_turns", "the run allows no more model calls in this turn")
            else:
                self._answer(gateway, turn, call)

    def _call(self, provider: str, path: str) -> Call | None:
        try:
            length = int(self.headers.get("content-length") or 0)
            if not 0 <= length <= MAX_BODY or self.headers.get("transfer-encoding"):
                return None
            data = self.rfile.read(length)
            body = json.loads(data) if data else {}
        except (ValueError, RecursionError):
            return None
        if not isinstance(body, dict):
            return None
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        api = api_of(path) if self.command == "POST" else None
        return Call(provider, self.command, path, headers, data, body, api)

    def _answer(self, gateway: ModelGateway, turn: _Turn, call: Call) -> None:
        """Tell of the answer before its last bytes are sent: with them the agent may end its turn.

        An injected fault is the agent's to cope with: it is not tried again here.
        """
        fault = turn.fault(call)
        if fault in GIVEN:
            turn.unanswered(call, f"{WORDS[fault]} (injected)", 0.0)
            self._fail(call, fault)
            return
        if fault == SLOW:
            time.sleep(SLOW_S)
        try:
            recording = gateway.recording_of(turn, call)
            answer = (recording and _recorded(call, *recording)) or self._asked(gateway, turn, call)
            is_whole = fault != TRUNCATED and not answer.is_cut
            is_kept = answer.status < LEAST_ERROR and not answer.is_replayed and is_whole
            if recording and is_kept:
                recorder, key = recording
                text = answer.body.decode("utf-8", "replace")
                recorder.keep(key, {"status": answer.status, "kind": answer.kind, "body": text})
        except ModelError as error:
            turn.unanswered(call, str(error), 0.0)
            turn.send(Event("log", author="evaldesk", text=f"A call of {call.model} failed: {error}"))
            self._refuse(502, error.kind, str(error))
            return
        gateway.tell(turn, call, answer)
        if fault == TRUNCATED:
            self.close_connection = True
            if not answer.is_begun:
                self._begin(answer.status, answer.kind, len(answer.unsent))
                self._write(answer.unsent[: len(answer.unsent) // 2])
        elif answer.is_begun:
            self._write_piece(answer.unsent)
            self.close_connection |= answer.is_cut  # the agent sees a stream without its end, as we do
            self._write(b"0\r\n\r\n" if self._is_chunked and not answer.is_cut else b"")
        else:
            self._begin(answer.status, answer.kind, len(answer.unsent))
            self._write(answer.unsent)

    def _fail(self, call: Call, fault: str) -> None:
        """Answer as an endpoint with that fault does; one that gives no answer ends the connection."""
        if fault == TIMEOUT:
            self.close_connection = True
            return
        status, is_stream = STATUS.get(fault, 200), bool(call.body.get("stream")) or ":stream" in call.path
        kind, data = malformed_body(is_stream=is_stream)
        if status >= LEAST_ERROR:
            kind, data = "application/json", refusal_body(status)
        self._begin(status, kind, len(data), may_retry=True)
        self._write(data)

    def _asked(self, gateway: ModelGateway, turn: _Turn, call: Call) -> Answer:
        """The answer of the provider; a stream is sent on as it comes, but for its end. Raises ModelError."""
        base, n_tried, started = PROVIDERS[call.provider].base(gateway.environment), 0, time.perf_counter()
        patience = PATIENT.with_retries(turn.session.model_options.n_retries)
        call = turn.without(call, base) or call
        while True:
            n_tried += 1
            refused: Answer | None = None
            error: Exception
            if call.api:
                turn.pause(call.model)
            try:
                with _opened(call, base) as response:
                    if response.status < LEAST_ERROR:
                        answer = self._taken(call, response)
                        duration_ms = (time.perf_counter() - started) * 1000
                        return replace(answer, n_attempts=n_tried, duration_ms=duration_ms, base=base)
                    body = response.read(MAX_ANSWER)
                    refused = Answer(response.status, _kind(response), body, body, n_attempts=n_tried)
                    if again := turn.without(call, base, refused):
                        call = again
                        continue
                    error = EndpointError(response.status, body, dict(response.headers))
            except (OSError, HTTPException) as broken:  # no connection, or no answer in time
                error = broken
            failure = failure_of(error, call.model)
            wait = wait_after(failure, n_tried, patience)
            if wait is not None:
                turn.waits(wait)
                time.sleep(wait.seconds)
            elif refused:
                return refused
            else:
                raise ModelError(failure.sentence, kind=failure.kind)

    def _taken(self, call: Call, response: Any) -> Answer:
        """The answer; a stream that breaks off is what came of it."""
        kind = _kind(response)
        if not kind.startswith("text/event-stream"):
            body = response.read(MAX_ANSWER)
            return Answer(response.status, kind, body, body)
        self._begin(response.status, kind, None)
        stream, pieces, is_cut = _Stream(hides_usage=call.hides_usage), [], False
        try:
            while piece := response.read1(PIECE):
                pieces.append(piece)
                self._write_piece(stream.ready(piece))
        except (OSError, HTTPException):
            is_cut = True
        is_cut |= bool(response.length)  # fewer bytes than it said
        return Answer(response.status, kind, b"".join(pieces), stream.end(), is_begun=True, is_cut=is_cut)

    def _begin(self, status: int, kind: str, length: int | None, *, may_retry: bool = False) -> None:
        """Send the head; an answer of unknown length is sent in chunks, or ends with its connection."""
        self.send_response_only(status)
        self.send_header("content-type", kind)
        if status >= LEAST_ERROR and not may_retry:
            self.send_header("x-should-retry", "false")  # it was tried as often as the run asks for
        if length is not None:
            self.send_header("content-length", str(length))
        elif self._is_chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.close_connection = True
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()

    @property
    def _is_chunked(self) -> bool:
        return self.request_version == "HTTP/1.1"

    def _write_piece(self, piece: bytes) -> None:
        """Write a part of an answer of unknown length."""
        if piece:
            self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._is_chunked else piece)

    def _write(self, piece: bytes) -> None:
        with suppress(OSError):  # the agent is gone, or does not want the rest
            self.wfile.write(piece)
            self.wfile.flush()

    def _refuse(self, status: int, kind: str, message: str) -> None:
        error = {"type": kind, "code": kind, "message": f"evaldesk: {message}"}
        data = json.dumps({"type": "error", "error": error}).encode()
        self.close_connection = True  # the body of the request may be unread
        with suppress(OSError):
            self._begin(status, "application/json", len(data))
            self.wfile.write(data)


_SERVER = LocalServer("evaldesk-gateway", _Handler)
_gateways: dict[str, ModelGateway] = {}
