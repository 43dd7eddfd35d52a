"""An HTTP proxy for the model calls of an agent: forwards each to its provider, and streams the answer back.

One server for the process, one address for each session. (docs/protocol.md)
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from typing import Any

from evaldesk.agents.local_server import LocalHandler, LocalServer
from evaldesk.agents.remote.model_gateway import GATEWAYS, LEAST_ERROR, Answer, Call, ModelGateway, PlayedTurn
from evaldesk.agents.remote.providers import HOP_BY_HOP, MAX_BODY, PIECE, PROVIDERS, TIMEOUT_S, open_answer
from evaldesk.errors import ModelError
from evaldesk.llm.apis import api_of
from evaldesk.llm.failures import failure_of
from evaldesk.llm.faults import (
    FAULTS_BEFORE_REQUEST,
    SLOW,
    SLOW_S,
    TIMEOUT,
    TRUNCATED,
    WORDS,
    faulty_answer,
)
from evaldesk.llm.recording import Recorder
from evaldesk.llm.refusals import EndpointError
from evaldesk.llm.retries import DEFAULT_RETRIES, wait_after
from evaldesk.model import Event

MAX_ANSWER = 64 * 1024 * 1024
BAD_REQUEST = 400


def open_gateway(environment: Mapping[str, str]) -> ModelGateway:
    """Open a gateway to the providers of the environment."""
    gateway = ModelGateway(environment)
    register_gateway(gateway)
    return gateway


def register_gateway(gateway: ModelGateway) -> None:
    """Give the gateway an address."""
    gateway.server = _SERVER.address
    GATEWAYS[gateway.key] = gateway


class _Handler(LocalHandler):
    protocol_version = "HTTP/1.1"  # an SDK keeps its connection
    timeout = TIMEOUT_S
    wbufsize = PIECE  # the head of an answer goes with its first piece
    disable_nagle_algorithm = True

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        self._forward()

    def do_GET(self) -> None:  # noqa: N802 - as above
        self._forward()

    def handle_expect_100(self) -> bool:
        """Send `100 Continue` at once, before the buffer is full."""
        super().handle_expect_100()
        self.wfile.flush()
        return True

    def _forward(self) -> None:
        key, _, route = self.path.removeprefix("/").partition("/")
        provider, slash, path = route.partition("/")
        gateway = GATEWAYS.get(key)
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
            else:
                self._answer_agent(gateway, turn, call)

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

    def _answer_agent(self, gateway: ModelGateway, turn: PlayedTurn, call: Call) -> None:
        """Answer the call, where tool calls are answered here after the model read their results (decision 508)."""
        try:
            answered = turn.begin_answers(call)
            while True:
                call = replace(call, body=answered.body, data=json.dumps(answered.body).encode()) if answered else call
                if not gateway.may_ask(turn, call):
                    self._refuse(429, "max_turns", "the run allows no more model calls in this turn")
                    return
                answer = self._answer(gateway, turn, call, is_held=answered is not None)
                if answered and (answer is None or answer.status >= LEAST_ERROR or answer.is_cut):
                    answered.fail()
                if answer is None:
                    return
                if answered is None or answer.status >= LEAST_ERROR or answer.is_cut:
                    break
                data = turn.go_on(answered, answer)
                if data is not None:
                    answer = replace(answer, unsent=_for_agent(call, answer.kind, data))
                    break
        except ModelError as error:
            self._refuse(502, error.kind, str(error))
            return
        self._finish(answer)

    def _answer(self, gateway: ModelGateway, turn: PlayedTurn, call: Call, *, is_held: bool) -> Answer | None:
        """Report the answer before its last bytes are sent: with them the agent may end its turn.

        An injected fault is for the agent to handle: it is not retried here. None where the agent got its answer.
        With `is_held` nothing is sent yet.
        """
        fault = turn.fault(call)
        if fault in FAULTS_BEFORE_REQUEST:
            turn.note_failure(call, f"{WORDS[fault]} (injected)", 0.0)
            self._fail(call, fault)
            return None
        if fault == SLOW:
            time.sleep(SLOW_S)
        try:
            recording = gateway.recording_of(turn, call)
            answer = (recording and _recorded_answer(call, *recording)) or self._ask_provider(
                gateway, turn, call, is_held=is_held
            )
            is_whole = fault != TRUNCATED and not answer.is_cut
            is_kept = answer.status < LEAST_ERROR and not answer.is_replayed and is_whole
            if recording and is_kept:
                recorder, key = recording
                text = answer.body.decode("utf-8", "replace")
                recorder.keep(key, {"status": answer.status, "kind": answer.kind, "body": text})
        except ModelError as error:
            turn.note_failure(call, str(error), 0.0)
            turn.send(Event("log", author="evaldesk", text=f"A call of {call.model} failed: {error}"))
            self._refuse(502, error.kind, str(error))
            return None
        gateway.report(turn, call, answer)
        if fault != TRUNCATED:
            return answer
        self.close_connection = True
        if not answer.is_begun:
            self._begin(answer.status, answer.kind, len(answer.unsent))
            self._write(answer.unsent[: len(answer.unsent) // 2])
        return None

    def _finish(self, answer: Answer) -> None:
        """Send the rest of the answer."""
        if answer.is_begun:
            self._write_piece(answer.unsent)
            self.close_connection |= answer.is_cut  # the agent sees a stream without its end, as we do
            self._write(b"0\r\n\r\n" if self._is_chunked and not answer.is_cut else b"")
        else:
            self.close_connection |= answer.is_cut
            self._begin(answer.status, answer.kind, len(answer.unsent) + answer.is_cut)
            self._write(answer.unsent)

    def _fail(self, call: Call, fault: str) -> None:
        """Answer with the injected fault; a timeout closes the connection."""
        if fault == TIMEOUT:
            self.close_connection = True
            return
        is_stream = bool(call.body.get("stream")) or ":stream" in call.path
        status, kind, data = faulty_answer(fault, is_stream=is_stream)
        self._begin(status, kind, len(data), may_retry=True)
        self._write(data)

    def _ask_provider(self, gateway: ModelGateway, turn: PlayedTurn, call: Call, *, is_held: bool) -> Answer:
        """Call the provider with retries; a stream is forwarded as it comes, except for its end. Raises ModelError.

        With `is_held` it is not forwarded.
        """
        base, n_tried, start = PROVIDERS[call.provider].base(gateway.environment), 0, time.perf_counter()
        retry_policy = DEFAULT_RETRIES.with_retries(turn.session.model_options.n_retries)
        call = turn.without_refused_fields(call, base) or call
        while True:
            n_tried += 1
            refusal: Answer | None = None
            error: Exception
            if call.api:
                turn.pause(call.model)
            try:
                with _open_answer(call, base) as response:
                    if response.status < LEAST_ERROR:
                        answer = self._read_answer(call, response, is_held=is_held)
                        duration_ms = (time.perf_counter() - start) * 1000
                        return replace(answer, n_attempts=n_tried, duration_ms=duration_ms)
                    body = response.read(MAX_ANSWER)
                    refusal = Answer(response.status, _kind(response), body, body, n_attempts=n_tried)
                    if retry_call := turn.without_refused_fields(call, base, refusal):
                        call = retry_call
                        continue
                    error = EndpointError(response.status, body, dict(response.headers))
            except (OSError, HTTPException) as connection_error:  # no connection, or no answer in time
                error = connection_error
            failure = failure_of(error, call.model)
            wait = wait_after(failure, n_tried, retry_policy)
            if wait is not None:
                turn.note_pause(wait)
                time.sleep(wait.seconds)
            elif refusal:
                return refusal
            else:
                raise ModelError(failure.sentence, kind=failure.kind)

    def _read_answer(self, call: Call, response: Any, *, is_held: bool) -> Answer:
        """The answer; of an interrupted stream, the received part."""
        kind = _kind(response)
        if not kind.startswith("text/event-stream"):
            body = response.read(MAX_ANSWER)
            return Answer(response.status, kind, body, body)
        if not is_held:
            self._begin(response.status, kind, None)
        stream, pieces, is_cut = _Stream(hides_usage=call.hides_usage), [], False
        try:
            while piece := response.read1(PIECE):
                pieces.append(piece)
                if not is_held:
                    self._write_piece(stream.feed(piece))
        except (OSError, HTTPException):
            is_cut = True
        is_cut |= bool(response.length)  # fewer bytes than it said
        if is_held:
            body = b"".join(pieces)
            return Answer(response.status, kind, body, _for_agent(call, kind, body), is_cut=is_cut)
        return Answer(response.status, kind, b"".join(pieces), stream.end(), is_begun=True, is_cut=is_cut)

    def _begin(self, status: int, kind: str, length: int | None, *, may_retry: bool = False) -> None:
        """Send the head; an answer of unknown length is sent in chunks, or ends with its connection."""
        self.send_response_only(status)
        self.send_header("content-type", kind)
        if status >= LEAST_ERROR and not may_retry:
            # The SDK must not multiply our retries: decision 125.
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


def _open_answer(call: Call, base: str) -> Any:
    """Send the request to the provider; an HTTP error is an answer, too. Raises OSError.

    An endpoint that refuses `stream_options` gets the request again without them.
    """
    data = call.data
    if call.hides_usage:
        stream_options = call.body.get("stream_options")
        options = {**(stream_options if isinstance(stream_options, dict) else {}), "include_usage": True}
        data = json.dumps({**call.body, "stream_options": options}).encode()
    answer = open_answer(call.method, base + call.path, data, call.headers)
    if answer.status != BAD_REQUEST or data is call.data:
        return answer
    answer.close()
    return open_answer(call.method, base + call.path, call.data, call.headers)


def _for_agent(call: Call, kind: str, body: bytes) -> bytes:
    """The answer as the agent asked for it: a stream without a usage that it did not request."""
    if not (kind.startswith("text/event-stream") and call.hides_usage):
        return body
    stream = _Stream(hides_usage=True)
    return stream.feed(body) + stream.end()


def _kind(response: Any) -> str:
    return str(response.headers.get("content-type", "application/json"))


def _recorded_answer(call: Call, recorder: Recorder, key: str) -> Answer | None:
    """The recorded answer. Raises ModelError when a replay lacks it."""
    entry = recorder.find(key, f"the call of {call.model}")
    if entry is None:
        return None
    body = str(entry["body"]).encode()
    return Answer(int(entry["status"]), str(entry["kind"]), body, body, is_replayed=True)


@dataclass(slots=True)
class _Stream:
    """A stream to the agent; its last piece is held back until the call is reported.

    The event with only token usage is dropped with `hides_usage`.
    """

    hides_usage: bool
    _held_piece: bytes = b""
    _partial_event: bytes = b""

    def feed(self, piece: bytes) -> bytes:
        """Add a piece, and return the bytes to send now."""
        if self.hides_usage:
            *events, self._partial_event = (self._partial_event + piece).split(b"\n\n")
            piece = b"".join(event + b"\n\n" for event in events if not _has_tokens_alone(event))
        if not piece:
            return b""
        ready, self._held_piece = self._held_piece, piece
        return ready

    def end(self) -> bytes:
        """The held bytes, at the end of the stream."""
        return self._held_piece + self._partial_event


def _has_tokens_alone(event: bytes) -> bool:
    try:
        chunk = json.loads(event.partition(b":")[2])
    except ValueError:
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and bool(chunk.get("usage"))


_SERVER = LocalServer("evaldesk-gateway", _Handler)
