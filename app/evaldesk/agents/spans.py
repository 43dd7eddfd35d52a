"""OpenTelemetry spans of the current turn, for agents with calls that no adapter sees. (decision 143)

Evaldesk does not import OpenTelemetry for that. If the agent imports its SDK, each tracer provider also sends its spans
to the current turn, which is a trace of its own.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, wraps
from importlib import metadata
from importlib.util import find_spec
from typing import Any
from weakref import WeakValueDictionary

from evaldesk.llm.client_wrapping import wrap_once
from evaldesk.model import Event, Usage
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.model_exchanges import ModelRequest
from evaldesk.transcripts.otel.spans import Span, SpanEvent
from evaldesk.transcripts.otel.trace_turns import events_of_turn, sent_calls

MAX_SPANS = 20_000
MAX_BYTES = 32 * 1024 * 1024
MAX_ENDED_TRACES = 10_000

SDK = "opentelemetry.sdk.trace"
_MARK = "_gives_spans"
_GROUP = "openinference_instrumentor"


@dataclass(eq=False)
class TurnSpans:
    """The spans of one turn of a session; `now_ms` is the time since the start of the turn."""

    now_ms: Callable[[], float]
    session_id: str = ""
    trace_id: int = field(default_factory=lambda: int.from_bytes(secrets.token_bytes(16), "big") or 1)
    _spans: list[Span] = field(default_factory=list)
    _n_bytes: int = 0
    _n_dropped: int = 0
    _gap_reason: str = ""
    # Threads of an agent end spans at any time (decision 143).
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, span: Span) -> None:
        """Add a finished span; its times are wall-clock times."""
        shift = self.now_ms() - time.time() * 1000
        shifted_span = replace(span, start_ms=span.start_ms + shift, end_ms=span.end_ms + shift)
        bags = (span.attributes, *(event.attributes for event in span.events))
        n_bytes = sum(len(value) if isinstance(value, str) else 64 for bag in bags for value in bag.values())
        with self._lock:
            if len(self._spans) >= MAX_SPANS or self._n_bytes + n_bytes > MAX_BYTES:
                self._n_dropped += 1
                return
            self._n_bytes += n_bytes
            self._spans.append(shifted_span)

    @property
    def is_complete(self) -> bool:
        """Whether there are spans, and every parent is among them; an SDK sends the root span last."""
        with self._lock:
            ids = {span.span_id for span in self._spans}
            return bool(ids) and all(not span.parent_id or span.parent_id in ids for span in self._spans)

    def note_missing(self) -> None:
        """Record that spans are missing at the end of the turn."""
        self._gap_reason = _MISSING_PARENT if self._spans else NO_SPANS

    def note_late(self, late_spans: TurnSpans) -> None:
        """Record late spans of earlier turns."""
        self._gap_reason = _LATE if late_spans.has_calls else self._gap_reason

    @property
    def has_calls(self) -> bool:
        """Whether a span has a model call or a tool call."""
        return any(event.usage or event.call for event in self.events()) or bool(self.sent_calls())

    @property
    def lacks(self) -> str:
        """The reason why calls may be missing; empty if complete."""
        overflow_words = (
            f"Left out: {self._n_dropped} spans; a turn keeps {MAX_SPANS} and {MAX_BYTES // 2**20} MiB of them."
        )
        return overflow_words if self._n_dropped else self._gap_reason

    def end(self) -> None:
        """Stop collecting spans: the turn has ended."""
        # A copy of the items: the garbage collector may remove turns in between.
        for trace_id in [trace_id for trace_id, turn in [*_turn_by_trace.items()] if turn is self]:
            _note_ended_trace(trace_id, self)
            _turn_by_trace.pop(trace_id, None)

    def events(self) -> tuple[Event, ...]:
        """The events of the spans, in order of time."""
        spans = self._snapshot()
        return events_of_turn(spans) if spans else ()

    def sent_calls(self) -> list[tuple[float, Usage, ModelRequest, Any]]:
        """The model calls of the spans: request and answer."""
        return [*sent_calls(self._snapshot())]

    def _snapshot(self) -> tuple[Span, ...]:
        with self._lock:
            return tuple(self._spans)


NO_SPANS = "No span of this turn came in time, so its calls and tokens are not known."
_MISSING_PARENT = "A span came without the one that it is inside of, so calls of this turn may be missing."
_LATE = "Spans of an earlier turn came when it was over, so its calls and tokens are not all counted."


# Opens the spans of the turn that is played.
OPEN_SPANS: ContextVar[Callable[[], TurnSpans] | None] = ContextVar("open_spans", default=None)
INSTRUMENTS = tuple(metadata.entry_points(group=_GROUP)) if find_spec("openinference") else ()
"""The instruments of OpenInference that are installed."""

_current: ContextVar[TurnSpans | None] = ContextVar("current_spans", default=None)
_turn_by_trace: WeakValueDictionary[int, TurnSpans] = WeakValueDictionary()
_session_by_ended_trace: dict[int, str] = {}
"""The session ids of ended traces; background work of an agent may still add spans to them."""


def _note_ended_trace(trace_id: int, turn: TurnSpans) -> None:
    if len(_session_by_ended_trace) >= MAX_ENDED_TRACES:
        _session_by_ended_trace.clear()
    _session_by_ended_trace[trace_id] = turn.session_id


def collect_spans() -> None:
    """Collect the spans of this process in the current turn."""
    open_turn = OPEN_SPANS.get()
    if open_turn is None or not _is_open():
        return
    from opentelemetry import context, trace

    turn = open_turn()
    _current.set(turn)
    _turn_by_trace[turn.trace_id] = turn
    parent = trace.SpanContext(turn.trace_id, 1, is_remote=False, trace_flags=trace.TraceFlags(1))
    context.attach(trace.set_span_in_context(trace.NonRecordingSpan(parent)))


def watch_providers() -> None:
    """Make every new tracer provider send its spans to the turns. To be called after the import of the SDK."""
    sdk = sys.modules.get(SDK)
    if sdk is not None:
        # Every provider of the agent is seen where it is made: decision 143.
        wrap_once(sdk.TracerProvider, "__init__", _wrap_init, _MARK)


def _wrap_init(begin: Callable[..., None]) -> Callable[..., None]:
    @wraps(begin)
    def __init__(provider: Any, *args: Any, **options: Any) -> None:  # noqa: N807 - it takes the place of one
        begin(provider, *args, **options)
        _watch(provider)

    return __init__


def _watch(provider: Any) -> None:
    with suppress(Exception):  # a provider of another kind takes no processor
        if not hasattr(provider, _MARK):
            setattr(provider, _MARK, True)
            provider.add_span_processor(_Processor())


class _Processor:
    """A span processor by duck typing: the base class could be imported only with the SDK."""

    def on_start(self, span: Any, parent_context: Any = None) -> None:
        """Assign a new trace to the current turn."""
        turn = _current.get()
        trace_id = span.context.trace_id
        if turn is not None and turn.trace_id in _turn_by_trace:
            _turn_by_trace.setdefault(trace_id, turn)
        elif turn is not None:
            _note_ended_trace(trace_id, turn)

    def _on_ending(self, span: Any) -> None:
        """Do nothing; newer SDKs call it before `on_end`."""

    def on_end(self, span: Any) -> None:
        """Add the span to its turn."""
        trace_id = span.context.trace_id
        turn = _turn_by_trace.get(trace_id) or _only_turn(_session_by_ended_trace.get(trace_id))
        if turn is not None:
            with suppress(Exception):  # of whatever shape; the agent goes on
                turn.add(_read(span))

    def shutdown(self) -> None:
        """Do nothing: the processor holds no resources."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: no span is queued."""
        return True


def _only_turn(session_id: str | None) -> TurnSpans | None:
    """The only current turn, for a late span or one from a thread without a context; None if ambiguous.

    A late span of an ended turn belongs to no other session.
    """
    turns = {*_turn_by_trace.values()}
    turn = turns.pop() if len(turns) == 1 else None
    return turn if turn is None or session_id in (None, turn.session_id) else None


def _read(span: Any) -> Span:
    """The SDK's span in the form of our span files."""
    end_time, status = span.end_time or span.start_time, span.status
    return Span(
        JsonPosition(Document(None, source="a span"), ()),
        name=str(span.name),
        trace_id=f"{span.context.trace_id:032x}",
        span_id=f"{span.context.span_id:016x}",
        parent_id=f"{span.parent.span_id:016x}" if span.parent else "",
        start_ms=span.start_time / 1e6,
        end_ms=max(span.start_time, end_time) / 1e6,
        attributes=_with_lists(span.attributes),
        events=tuple(SpanEvent(event.name, _with_lists(event.attributes)) for event in span.events),
        error=(status.description or "error") if status.status_code.name == "ERROR" else None,
    )


def _with_lists(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: list(value) if isinstance(value, tuple) else value for key, value in (attributes or {}).items()}


# OpenTelemetry accepts one tracer provider for a process, and trial threads may ask at once (decision 143).
_lock = threading.Lock()


def _is_open() -> bool:
    """Whether this process has a tracer provider; one is set up if the agent only imported the SDK."""
    instruments = [each for each in INSTRUMENTS if each.name in sys.modules and each.name not in _active_instruments]
    if not (instruments or "opentelemetry" in sys.modules) or not _has_sdk():
        return False
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider

    watch_providers()
    with _lock:
        provider = trace.get_tracer_provider()
        if isinstance(provider, trace.ProxyTracerProvider):
            provider = TracerProvider(shutdown_on_exit=False)
            trace.set_tracer_provider(provider)
        _watch(provider)
        for instrument in instruments:
            _active_instruments.add(instrument.name)
            with suppress(Exception):  # a broken package of the agent's; its framework goes unseen
                instrumentor = instrument.load()()
                if not instrumentor.is_instrumented_by_opentelemetry:
                    instrumentor.instrument()
    return True


_active_instruments: set[str] = set()


@cache
def _has_sdk() -> bool:
    try:
        return find_spec(SDK) is not None
    except (ImportError, ValueError):
        return False
