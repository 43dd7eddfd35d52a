"""The receiver of the inbox: OTLP over HTTP, as protocol buffers or JSON, on a port of its own.

A request is answered once its spans are committed, so that no acknowledged span is lost with the process. Any web page
can post to a loopback address, so requests with `Origin` or `Sec-Fetch-Site` are refused, and other names in `Host`.
(docs/decisions/515-inbox.md)
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.agents.local_server import LocalHandler
from evaldesk.agents.span_endpoint import MAX_BODY
from evaldesk.desk.inbox.joining import received_span
from evaldesk.desk.inbox.masks import Mask, masked_value
from evaldesk.durable_files import create_file
from evaldesk.errors import ConflictError, EvaldeskError, FormatError
from evaldesk.model.inbox import ReceivedSpan
from evaldesk.reading.strict_json import Document, JsonPosition, parse_json
from evaldesk.settings import SOURCE_NAME
from evaldesk.store import Store
from evaldesk.store.inbox.spans import SpanBatch, packed_batch
from evaldesk.transcripts.otel.protobuf import read_otlp, read_otlp_logs
from evaldesk.transcripts.otel.spans import Span, log_spans_in, spans_in
from evaldesk.unpacking import Unpacker
from evaldesk.wire import json_scrubber

log = logging.getLogger("evaldesk.inbox")

PORT = 4318
LOOPBACK = ("127.0.0.1", "localhost", "::1")
LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")
KINDS = ("application/x-protobuf", "application/json")
ENCODINGS = ("", "identity", "gzip", "x-gzip", "deflate")
PATHS: Mapping[str, str] = {"v1/traces": "spans", "v1/logs": "records"}
KEY_HEADER, SOURCE_HEADER = "x-evaldesk-key", "x-evaldesk-source"
LOCAL = "local"
"""The source of spans that name none."""
TIMEOUT_S = 30.0
MAX_CONNECTIONS = 64
MAX_PENDING = 64 * 2**20
"""Bytes of requests that wait for the database, unpacked; more are answered with 503."""
MAX_READ_AT_ONCE = 3
"""Bodies that are unpacked and read at once."""
MAX_AT_ONCE = 64
"""Requests of one transaction."""
RETRY_AFTER_S = 5
COMMIT_S = 60.0
MAX_TRACES = 5_000
"""Traces of one request."""
SALT_NAME = "inbox.salt"
_ID = re.compile(r"[0-9a-f]{1,64}")


class BusyError(Exception):
    """The inbox cannot take a request now."""


@dataclass(slots=True)
class _Waiting:
    """A request that waits for the commit of its spans."""

    batches: Sequence[SpanBatch]
    is_done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class SpanQueue:
    """Spans on their way to the database: requests that wait together are stored in one transaction."""

    def __init__(self, receive: Callable[[Sequence[SpanBatch]], None]) -> None:
        self._receive = receive
        self._waiting: list[_Waiting] = []
        self._n_bytes = 0
        self._is_closed = False
        # Threads of requests add to the queue while its own thread takes from it (decision 515).
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._store_all, name="evaldesk-inbox-store", daemon=True)
        self._thread.start()

    def reserve(self, n_bytes: int) -> None:
        """Make room for a request. Raises BusyError."""
        with self._lock:
            if self._is_closed or (self._n_bytes and self._n_bytes + n_bytes > MAX_PENDING):
                raise BusyError
            self._n_bytes += n_bytes

    def release(self, n_bytes: int) -> None:
        """Give the room back."""
        with self._lock:
            self._n_bytes -= n_bytes

    def store(self, batches: Sequence[SpanBatch]) -> None:
        """Return once the spans are committed. Raises BusyError where they are not."""
        request = _Waiting(batches)
        with self._lock:
            if self._is_closed:
                raise BusyError
            self._waiting.append(request)
            self._lock.notify_all()
        if not request.is_done.wait(COMMIT_S) or request.error:
            raise BusyError from request.error

    def close(self) -> None:
        """Store the waiting requests, and take no more."""
        with self._lock:
            self._is_closed = True
            self._lock.notify_all()
        self._thread.join(COMMIT_S)

    def _store_all(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and not self._is_closed:
                    self._lock.wait()
                requests, self._waiting = self._waiting[:MAX_AT_ONCE], self._waiting[MAX_AT_ONCE:]
            if not requests:
                return
            error: BaseException | None = None
            try:
                self._receive([batch for request in requests for batch in request.batches])
            except (EvaldeskError, SQLAlchemyError, OSError) as failure:
                log.warning("received spans cannot be stored: %s", failure)
                error = failure
            for request in requests:
                request.error = error
                request.is_done.set()


@dataclass(frozen=True, slots=True)
class SpanReader:
    """Reads the body of a request as masked batches of spans."""

    masks: Sequence[Mask]
    scrub: Callable[[bytes], bytes]
    hash_user: Callable[[str], str]

    def batches(self, data: bytes, what: str, source: str, *, is_json: bool) -> Sequence[SpanBatch]:
        """The spans of a body, a batch for each trace. Raises FormatError."""
        if is_json:
            document = parse_json(data, source=what, max_bytes=MAX_BODY)
        else:
            document = Document((read_otlp if what == "spans" else read_otlp_logs)(data), source=what)
        place = JsonPosition(document)
        by_trace: dict[str, list[ReceivedSpan]] = {}
        for span in self._spans(place, document.value, what):
            if not (_ID.fullmatch(span.trace_id) and _ID.fullmatch(span.span_id)):
                continue  # the specification has receivers leave out spans without valid ids
            by_trace.setdefault(span.trace_id, []).append(self.received(span))
            if len(by_trace) > MAX_TRACES:
                raise FormatError(f"a request has spans of at most {MAX_TRACES:,} traces")
        return [packed_batch(source, trace_id, spans, self.scrub) for trace_id, spans in by_trace.items()]

    def _spans(self, place: JsonPosition, value: Any, what: str) -> Iterable[Span]:
        if what == "records":
            return log_spans_in(place, value)
        return spans_in(place, value) if value else ()

    def received(self, span: Span) -> ReceivedSpan:
        """The span as it is stored, masked but for secrets, which `scrub` takes out."""
        return self._masked(received_span(span, self.hash_user))

    def _masked(self, span: ReceivedSpan) -> ReceivedSpan:
        if not self.masks:
            return span
        return ReceivedSpan(
            masked_value(span.name, self.masks),
            span.trace_id,
            span.span_id,
            span.parent_id,
            span.start_ms,
            span.end_ms,
            {key: masked_value(value, self.masks) for key, value in span.attributes.items()},
            [(name, masked_value(dict(attributes), self.masks)) for name, attributes in span.events],
            masked_value(span.error, self.masks),
        )


def span_reader(masks: Sequence[Mask], environment: Mapping[str, str], state_folder: Path) -> SpanReader:
    """A reader that masks secrets of the environment and personal data, and hashes ids of users for this workspace."""
    salt = user_salt(state_folder)
    return SpanReader(
        masks,
        json_scrubber(environment),
        lambda user: blake2b(user.encode("utf-8", "surrogatepass"), key=salt, digest_size=8).hexdigest(),
    )


def user_salt(state_folder: Path) -> bytes:
    """The secret of the workspace that hashes of users depend on; made when it is first needed."""
    path = state_folder / SALT_NAME
    if not path.exists():
        with suppress(ConflictError):  # another process was first
            create_file(path, secrets.token_bytes(32), mode=0o600)
    return path.read_bytes()


class InboxReceiver:
    """A running receiver. Beyond loopback it demands a key."""

    def __init__(self, store: Store, reader: SpanReader, *, host: str, port: int, key: str = "") -> None:
        """Bind the port, 0 for a free one. Raises OSError where it is taken."""
        self.queue = SpanQueue(store.inbox_spans.receive)
        self.reader, self.key = reader, key
        # A packed body may unpack to 32 MiB: so many are in memory at once (decision 515).
        self.reading = threading.BoundedSemaphore(MAX_READ_AT_ONCE)
        self._store = store
        try:
            self._server = _Server((host, port), self)
        except OSError:
            self.queue.close()
            raise
        self.is_loopback = host in LOOPBACK
        self.port: int = self._server.server_address[1]
        self.address = f"http://{host}:{self.port}"
        self.hosts = frozenset({f"{name}:{self.port}" for name in LOOPBACK_NAMES})
        self._refusals: dict[str, int] = {}
        # Threads of requests count while the upkeep stores the numbers (decision 515).
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._server.serve_forever, name="evaldesk-inbox", daemon=True)
        self._thread.start()

    def count_refusal(self, source: str) -> None:
        """Count a request that is turned away."""
        with self._lock:
            self._refusals[source] = self._refusals.get(source, 0) + 1

    def store_refusals(self) -> None:
        """Store the numbers of requests that were turned away since the last time."""
        with self._lock:
            refusals, self._refusals = self._refusals, {}
        for source, n in refusals.items():
            self._store.inbox_spans.count_refused(source, n)

    def close(self) -> None:
        """Answer the requests that wait, and close the port."""
        self._server.shutdown()
        self._server.server_close()
        self.queue.close()
        with suppress(EvaldeskError, SQLAlchemyError):
            self.store_refusals()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], receiver: InboxReceiver) -> None:
        self.receiver = receiver
        # A thread for each connection, and so many of them (decision 515).
        self._connections = threading.BoundedSemaphore(MAX_CONNECTIONS)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection, or close it where there are too many."""
        if not self._connections.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log an error of a connection that broke; the others go on."""
        log.debug("a connection to the inbox broke", exc_info=True)


class _Handler(LocalHandler):
    protocol_version = "HTTP/1.1"  # an SDK keeps its connection
    timeout = TIMEOUT_S
    server_version, sys_version = "evaldesk", ""

    def do_POST(self) -> None:  # noqa: N802 - the name of http.server
        receiver = cast("_Server", self.server).receiver
        what, source, refusal = self._address(receiver)
        length = self._length()
        refusal = refusal or self._refusal() or _length_refusal(length)
        if refusal:
            self.close_connection = True  # the body was not read
            self.answer(refusal[0], refusal[1].encode(), "text/plain")
            return
        try:
            receiver.queue.reserve(length)
        except BusyError:
            self.close_connection = True
            self._answer_busy(receiver, source)
            return
        try:
            data = self.rfile.read(length)
            if len(data) < length:
                self.close_connection = True
                return
            is_json = self._kind() == KINDS[1]
            with receiver.reading:
                data = Unpacker(self.headers.get("content-encoding"), MAX_BODY).feed(data)
                batches = receiver.reader.batches(data, what, source, is_json=is_json)
            receiver.queue.store(batches)
        except (FormatError, ValueError, RecursionError) as error:
            self.answer(400, str(error)[:1000].encode("utf-8", "replace"), "text/plain")
        except BusyError:
            self._answer_busy(receiver, source)
        else:
            self.answer(200, b"{}" if is_json else b"", self._kind())
        finally:
            receiver.queue.release(length)

    def do_GET(self) -> None:  # noqa: N802
        self.answer(405, b"The inbox takes OTLP over POST at /v1/traces and /v1/logs.", "text/plain")

    do_HEAD = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815

    def _address(self, receiver: InboxReceiver) -> tuple[str, str, tuple[int, str] | None]:
        """The kind of a request and its source, and the refusal of a wrong address or key."""
        parts = self.path.partition("?")[0].strip("/").split("/")
        what = PATHS.get("/".join(parts[-2:]), "")
        names = parts[:-2]
        keys = [value.removeprefix("Bearer ").strip() for value in self.headers.get_all("authorization", [])]
        keys += self.headers.get_all(KEY_HEADER, [])
        has_key = any(_same(each, receiver.key) for each in (*keys, *names[:1]))
        if receiver.key and names and _same(names[0], receiver.key):
            names = names[1:]
        source = (names or [self.headers.get(SOURCE_HEADER) or LOCAL])[0]
        if receiver.key and not has_key:
            return what, LOCAL, (401, "This inbox needs its key, in the path or in OTEL_EXPORTER_OTLP_HEADERS.")
        if not what or len(names) > 1 or not SOURCE_NAME.fullmatch(source):
            return what, LOCAL, (404, "The inbox takes OTLP at /v1/traces and /v1/logs, or /NAME/v1/traces.")
        return what, source, None

    def _refusal(self) -> tuple[int, str] | None:
        receiver = cast("_Server", self.server).receiver
        hosts = self.headers.get_all("host", [])
        if receiver.is_loopback and (len(hosts) != 1 or hosts[0].lower() not in receiver.hosts):
            return 403, "This name is not served here."
        if "origin" in self.headers or "sec-fetch-site" in self.headers:
            return 403, "Web pages may not send spans."
        if self._kind() not in KINDS:
            return 415, f"The inbox takes {' and '.join(KINDS)}."
        encoding = (self.headers.get("content-encoding") or "").strip().lower()
        if encoding not in ENCODINGS:
            return 415, f"The inbox reads gzip and deflate, not {encoding[:40]!r}."
        return None

    def _length(self) -> int:
        text = self.headers.get("content-length") or ""
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else -1

    def _kind(self) -> str:
        return (self.headers.get("content-type") or "").partition(";")[0].strip().lower()

    def _answer_busy(self, receiver: InboxReceiver, source: str) -> None:
        receiver.count_refusal(source)
        with suppress(OSError):
            self.send_response(503)
            self.send_header("retry-after", str(RETRY_AFTER_S))
            self.send_header("content-type", "text/plain")
            self.send_header("content-length", "0")
            self.end_headers()


def _length_refusal(length: int) -> tuple[int, str] | None:
    if length < 0:
        return 411, "A request needs its length."
    return (413, f"A request has at most {MAX_BODY // 2**20} MiB.") if length > MAX_BODY else None


def _same(text: str, key: str) -> bool:
    return bool(key) and hmac.compare_digest(text.encode("utf-8", "replace"), key.encode())
