"""A loopback endpoint for the spans of a command: OTLP over HTTP, as protocol buffers or JSON, one address each."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from evaldesk.agents.local_server import LocalHandler, LocalServer, no_proxy_variables
from evaldesk.agents.spans import TurnSpans
from evaldesk.errors import FormatError
from evaldesk.reading.strict_json import Document, JsonPosition, parse_json
from evaldesk.transcripts.otel.protobuf import read_otlp
from evaldesk.transcripts.otel.spans import spans_in
from evaldesk.unpacking import Unpacker

MAX_BODY = 32 * 1024 * 1024
TIMEOUT_S = 60.0
BATCH_MS = 50
"""Export interval set for SDKs; their default is 5 s."""
QUIET_S = 3 * BATCH_MS / 1000
SETTLE_S = 1.0
MAX_SETTLE_S = 20.0
"""The maximum on a busy machine, where a wait takes more than twice its time."""


@dataclass(slots=True)
class SpanEndpoint:
    """The span endpoint of one session; a span belongs to the current turn, unless it ended before the turn began."""

    key: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    _turn: TurnSpans | None = None
    _late_spans: TurnSpans = field(default_factory=lambda: TurnSpans(lambda: 0.0))
    _began_ms: float = 0.0
    _last_span_s: float = 0.0
    # Server threads add spans while the trial thread waits for late ones (decision 143).
    _lock: threading.Condition = field(default_factory=threading.Condition)

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment variables that point OpenTelemetry SDKs of all languages here, without a proxy."""
        here = f"{_SERVER.address}/{self.key}"
        content = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": here,
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{here}/v1/traces",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_BSP_SCHEDULE_DELAY": str(BATCH_MS),
            content: environment.get(content, "true"),
            **no_proxy_variables(environment),
        }

    def open(self) -> None:
        """Register the address."""
        _endpoints[self.key] = self

    def close(self) -> None:
        """Remove the address."""
        _endpoints.pop(self.key, None)

    @contextmanager
    def listening(self, turn: TurnSpans) -> Iterator[None]:
        """Collect the spans of this turn until the context ends, with a short wait for late ones."""
        with self._lock:
            self._turn, self._last_span_s, self._began_ms = turn, time.monotonic(), time.time() * 1000
        try:
            yield
            self._settle(turn)
        except BaseException:
            turn.note_missing()
            raise
        finally:
            with self._lock:
                self._turn = None
                turn.note_late(self._late_spans)
                self._late_spans = TurnSpans(lambda: 0.0)

    @property
    def has_late_calls(self) -> bool:
        """Whether spans with calls came after the end of their turn, since the last turn."""
        return self._late_spans.has_calls

    def _settle(self, turn: TurnSpans) -> None:
        """Wait for QUIET_S without a span; up to SETTLE_S while a parent span is missing."""
        began = turn_end = self._last_span_s = time.monotonic()
        with self._lock:
            while (now := time.monotonic()) < min(turn_end + SETTLE_S, began + MAX_SETTLE_S):
                quiet_left_s = self._last_span_s + QUIET_S - now
                if quiet_left_s <= 0 and turn.is_complete:
                    return
                wait_s = max(quiet_left_s, 0.02)
                self._lock.wait(wait_s)  # releases the lock, so that requests can add spans
                took_s = time.monotonic() - now
                if took_s > 2 * wait_s:  # the machine is busy: the command may not have run in this time, either
                    turn_end, self._last_span_s = turn_end + took_s, self._last_span_s + took_s
        if not turn.is_complete:
            turn.note_missing()

    def take(self, data: bytes, kind: str) -> None:
        """Add the spans of a request. Raises FormatError."""
        if kind.startswith("application/json"):
            document = parse_json(data, source="spans", max_bytes=MAX_BODY)
        else:
            document = Document(read_otlp(data), source="spans")
        spans = spans_in(JsonPosition(document), document.value)
        with self._lock:
            self._last_span_s = time.monotonic()
            for span in spans:
                (self._turn if self._turn and span.end_ms >= self._began_ms else self._late_spans).add(span)
            self._lock.notify_all()


class _Handler(LocalHandler):
    protocol_version = "HTTP/1.1"  # an SDK keeps its connection
    timeout = TIMEOUT_S

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        key, _, path = self.path.removeprefix("/").partition("/")
        endpoint = _endpoints.get(key)
        if endpoint is None:
            self.answer(404, b"nothing is at this address", "text/plain")
            return
        kind = self.headers.get("content-type", "")
        try:
            data = self._body()
            if path == "v1/traces":  # metrics and logs are taken and left out
                endpoint.take(data, kind)
        except (FormatError, ValueError) as error:
            self.answer(400, str(error).encode(), "text/plain")
            return
        is_json = kind.startswith("application/json")
        self.answer(200, json.dumps({}).encode() if is_json else b"", kind or "application/x-protobuf")

    def _body(self) -> bytes:
        length = int(self.headers.get("content-length") or 0)
        if not 0 <= length <= MAX_BODY:
            self.close_connection = True
            raise FormatError(f"at most {MAX_BODY // 2**20} MiB of spans are taken at once")
        data = self.rfile.read(length)
        return Unpacker(self.headers.get("content-encoding"), MAX_BODY).feed(data)


_SERVER = LocalServer("evaldesk-spans", _Handler)
_endpoints: dict[str, SpanEndpoint] = {}
