"""Spans of a trace, from every shape of file in which tools export them.

OTLP (`resourceSpans`), Tempo (`batches`), Jaeger (`data[].spans`), the OpenTelemetry SDK and Phoenix (a list of spans
with `context`), each also as JSON lines, and the bare attributes of one span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from evaldesk.process_setup import PLAYED
from evaldesk.reading.fields import read_documents
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import (
    ABSENT,
    read_list,
    read_mapping,
    read_optional_text,
    read_recorded_number,
    text_of,
    wrong_value,
)
from evaldesk.transcripts.recorded import iso_ms

_MAX_SPANS = 200_000
_BARE = ("gen_ai.", "llm.", "openinference.")


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened inside a span."""

    name: str
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """One step of a trace. Times are milliseconds since 1970; `error` is None unless the span failed."""

    place: JsonPosition
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start_ms: float
    end_ms: float
    attributes: Mapping[str, Any]
    events: tuple[SpanEvent, ...] = field(default=())
    error: str | None = None

    def first(self, *keys: str) -> Any:
        """The value of the first of these attributes that has one."""
        return next((self.attributes[key] for key in keys if self.attributes.get(key) is not None), None)


CASE_ID = "evaldesk.case_id"
"""The attribute of spans and resources with the case of an eval set that a conversation is a trial of."""

EVALUATION = "gen_ai.evaluation.result"
"""The event that OpenTelemetry has for a score."""

SERVICE = "service.name"
RELEASE = "service.version"
_RESOURCE = (
    CASE_ID,
    PLAYED,
    SERVICE,
    RELEASE,
    "deployment.environment.name",
    "deployment.environment",
    "session.id",
    "openinference.project.name",
)
"""Attributes of a resource that its spans have as well, where they have none of their own."""


def is_trace(value: Any) -> bool:
    """Whether a JSON value means to be a file of spans in one of the shapes."""
    if isinstance(value, dict):
        return _reader(value) is not None
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and ("context" in first or _reader(first) is not None)


def read_spans(data: bytes, source: str) -> list[Span]:
    """All spans of a file, in its order. Raises FormatError."""
    spans: list[Span] = []
    for document in read_documents(data, source):
        for span in spans_in(JsonPosition(document), document.value):
            spans.append(span)
            if len(spans) > _MAX_SPANS:
                raise document.error(f"the file has more than {_MAX_SPANS} spans")
    return spans


def spans_in(place: JsonPosition, raw: Any) -> Iterator[Span]:
    """The spans of one JSON value. Raises FormatError."""
    if isinstance(raw, list):
        for index, item in enumerate(raw):
            yield from spans_in(place.at(index), item)
        return
    fields = read_mapping(place, raw)
    reader = _reader(fields)
    if reader is None:
        raise place.error("this is not a span: expected resourceSpans, batches, data, context, or gen_ai.* attributes")
    yield from reader(place, fields)


def _reader(raw: dict[str, Any]) -> Callable[[JsonPosition, dict[str, Any]], Iterator[Span]] | None:
    for key in ("resourceSpans", "resource_spans", "batches"):
        if key in raw:
            return lambda place, fields: _otlp(place.at(key), fields[key])
    if isinstance(raw.get("trace"), dict) and _reader(raw["trace"]):
        return lambda place, fields: spans_in(place.at("trace"), fields["trace"])
    data = raw.get("data")
    if isinstance(data, list) and data and isinstance(data[0], dict) and {"spans", "context"} & set(data[0]):
        return _spans_of_data
    if "context" in raw and "attributes" in raw:
        return lambda place, fields: iter((_sdk(place, fields),))
    if any(key.startswith(_BARE) for key in raw):
        return lambda place, fields: iter((Span(place, "", "1", "1", "", 0.0, 0.0, fields),))
    return None


def _spans_of_data(place: JsonPosition, raw: dict[str, Any]) -> Iterator[Span]:
    """Jaeger's traces, or Phoenix's spans."""
    for index, item in enumerate(read_list(place.at("data"), raw["data"], read_mapping)):
        at = place.at("data", index)
        if "context" in item:
            yield _sdk(at, item)
            continue
        yield from read_list(at.at("spans"), item.get("spans", ABSENT), _jaeger)


def _otlp(place: JsonPosition, raw: Any) -> Iterator[Span]:
    for index, batch in enumerate(read_list(place, raw, read_mapping)):
        at = place.at(index)
        shared = _shared_attributes(at.at("resource"), batch.get("resource"))
        for key in ("scopeSpans", "scope_spans", "instrumentationLibrarySpans"):
            scopes = read_list(at.at(key), batch.get(key) or [], read_mapping)
            for number, scope in enumerate(scopes):
                inner = at.at(key, number, "spans")
                yield from read_list(inner, scope.get("spans") or [], partial(_otlp_span, shared=shared))


def _shared_attributes(place: JsonPosition, resource: Any) -> dict[str, Any]:
    """The attributes of a resource that count for each of its spans; `OTEL_RESOURCE_ATTRIBUTES` sets them."""
    attributes = resource.get("attributes") if isinstance(resource, dict) else None
    pairs = _pairs(place.at("attributes"), attributes) if isinstance(attributes, list) else {}
    return {key: pairs[key] for key in _RESOURCE if pairs.get(key) not in (None, "")}


def log_spans_in(place: JsonPosition, raw: Any) -> Iterator[Span]:
    """The records of an OTLP request of logs that name a span, each as that span with one event and nothing else.

    Raises FormatError.
    """
    fields = read_mapping(place, raw)
    resources = place.at("resourceLogs")
    for index, batch in enumerate(read_list(resources, fields.get("resourceLogs") or [], read_mapping)):
        at = resources.at(index)
        shared = _shared_attributes(at.at("resource"), batch.get("resource"))
        for number, scope in enumerate(read_list(at.at("scopeLogs"), batch.get("scopeLogs") or [], read_mapping)):
            inner = at.at("scopeLogs", number, "logRecords")
            records = read_list(inner, scope.get("logRecords") or [], partial(_log_span, shared=shared))
            yield from (span for span in records if span.trace_id and span.span_id)


def _log_span(place: JsonPosition, raw: Any, *, shared: Mapping[str, Any]) -> Span:
    record = read_mapping(place, raw)
    attributes = _pairs(place.at("attributes"), record.get("attributes"))
    body = _value(record.get("body"))
    name = _text(place, record, "eventName") or text_of(attributes.get("event.name"))
    content = body if isinstance(body, dict) else {} if body is None else {"content": body}
    at_ms = (_number(place, record, "timeUnixNano") or _number(place, record, "observedTimeUnixNano")) / 1e6
    return Span(
        place,
        "",
        trace_id=_text(place, record, "traceId"),
        span_id=_text(place, record, "spanId"),
        parent_id="",
        start_ms=at_ms,
        end_ms=at_ms,
        attributes=shared,
        events=(SpanEvent(name, {**attributes, **content}),),
    )


def _otlp_span(place: JsonPosition, raw: Any, *, shared: Mapping[str, Any]) -> Span:
    span = read_mapping(place, raw)
    status = span.get("status")
    failed = isinstance(status, dict) and status.get("code") in (2, "STATUS_CODE_ERROR", "2")
    start = _number(place, span, "startTimeUnixNano", "start_time_unix_nano") / 1e6
    return Span(
        place,
        name=_text(place, span, "name"),
        trace_id=_text(place, span, "traceId", "trace_id"),
        span_id=_text(place, span, "spanId", "span_id"),
        parent_id=_text(place, span, "parentSpanId", "parent_span_id"),
        start_ms=start,
        end_ms=max(start, _number(place, span, "endTimeUnixNano", "end_time_unix_nano") / 1e6),
        attributes={**shared, **_pairs(place.at("attributes"), span.get("attributes"))},
        events=read_list(place.at("events"), span.get("events") or [], _otlp_event),
        error=str(status.get("message") or "error") if isinstance(status, dict) and failed else None,
    )


def _otlp_event(place: JsonPosition, raw: Any) -> SpanEvent:
    event = read_mapping(place, raw)
    return SpanEvent(_text(place, event, "name"), _pairs(place.at("attributes"), event.get("attributes")))


def _jaeger(place: JsonPosition, raw: Any) -> Span:
    span = read_mapping(place, raw)
    attributes = _pairs(place.at("tags"), span.get("tags"))
    failed = attributes.get("otel.status_code") == "ERROR" or attributes.get("error") in (True, "true")
    start = _number(place, span, "startTime") / 1e3
    references = read_list(place.at("references"), span.get("references") or [], read_mapping)
    return Span(
        place,
        name=_text(place, span, "operationName"),
        trace_id=_text(place, span, "traceID"),
        span_id=_text(place, span, "spanID"),
        parent_id=next((_text(place, each, "spanID") for each in references), _text(place, span, "parentSpanID")),
        start_ms=start,
        end_ms=start + _number(place, span, "duration") / 1e3,
        attributes=attributes,
        events=read_list(place.at("logs"), span.get("logs") or [], _jaeger_event),
        error=str(attributes.get("otel.status_description") or "error") if failed else None,
    )


def _jaeger_event(place: JsonPosition, raw: Any) -> SpanEvent:
    fields = _pairs(place.at("fields"), read_mapping(place, raw).get("fields"))
    return SpanEvent(str(fields.get("event") or fields.get("name") or ""), fields)


def _sdk(place: JsonPosition, raw: dict[str, Any]) -> Span:
    """A span as the OpenTelemetry SDK and Phoenix print it."""
    context = read_mapping(place.at("context"), raw.get("context", ABSENT))
    status = raw.get("status", raw.get("status_code"))
    code = status.get("status_code") if isinstance(status, dict) else status
    start = iso_ms(raw.get("start_time")) or 0.0
    reason = raw.get("status_message") or (status.get("description") if isinstance(status, dict) else "")
    attributes = dict(read_mapping(place.at("attributes"), raw.get("attributes") or {}))
    if isinstance(raw.get("span_kind"), str):
        attributes.setdefault("openinference.span.kind", raw["span_kind"])
    return Span(
        place,
        name=_text(place, raw, "name"),
        trace_id=_text(place, context, "trace_id"),
        span_id=_text(place, context, "span_id"),
        parent_id=_text(place, raw, "parent_id"),
        start_ms=start,
        end_ms=max(start, iso_ms(raw.get("end_time")) or 0.0),
        attributes=attributes,
        events=(
            *read_list(place.at("events"), raw.get("events") or [], _sdk_event),
            *_annotations(place.at("annotations"), raw.get("annotations")),
        ),
        error=str(reason or "error") if code == "ERROR" else None,
    )


def _annotations(place: JsonPosition, raw: Any) -> Iterator[SpanEvent]:
    """The annotations of Phoenix on a span, as the event that OpenTelemetry has for a score."""
    for index, each in enumerate(read_list(place, raw or [], read_mapping)):
        result = each.get("result")
        values = read_mapping(place.at(index, "result"), result) if result else {}
        attributes = {
            "gen_ai.evaluation.name": each.get("name"),
            "gen_ai.evaluation.score.value": values.get("score"),
            "gen_ai.evaluation.score.label": values.get("label"),
            "gen_ai.evaluation.explanation": values.get("explanation"),
        }
        yield SpanEvent(EVALUATION, {key: value for key, value in attributes.items() if value is not None})


def _sdk_event(place: JsonPosition, raw: Any) -> SpanEvent:
    event = read_mapping(place, raw)
    return SpanEvent(_text(place, event, "name"), read_mapping(place.at("attributes"), event.get("attributes") or {}))


def _pairs(place: JsonPosition, raw: Any) -> dict[str, Any]:
    """Attributes as a list of `{key, value}`, the values bare or as OTLP wraps them."""
    attributes: dict[str, Any] = {}
    for index, pair in enumerate(read_list(place, raw or [], read_mapping)):
        key = pair.get("key")
        if not isinstance(key, str):
            raise wrong_value(place.at(index, "key"), pair.get("key", ABSENT), "a string")
        attributes[key] = _value(pair.get("value"))
    return attributes


def _value(raw: Any) -> Any:
    if not isinstance(raw, dict) or len(raw) != 1:
        return raw
    ((kind, value),) = raw.items()
    if kind == "intValue":
        return whole_of(value)
    if kind in ("stringValue", "boolValue", "doubleValue", "bytesValue"):
        return value
    if kind == "arrayValue":
        inner = value.get("values") if isinstance(value, dict) else None
        return [_value(item) for item in inner] if isinstance(inner, list) else []
    if kind == "kvlistValue":
        inner = value.get("values") if isinstance(value, dict) else None
        pairs = [pair for pair in inner if isinstance(pair, dict)] if isinstance(inner, list) else []
        return {str(pair.get("key")): _value(pair.get("value")) for pair in pairs}
    return raw


def whole_of(raw: Any) -> Any:
    """The number in a text that is one; OTLP writes 64-bit integers as strings."""
    return int(raw) if isinstance(raw, str) and raw.lstrip("-").isdecimal() and len(raw) < 25 else raw


def _text(place: JsonPosition, raw: Mapping[str, Any], *keys: str) -> str:
    key = next((key for key in keys if key in raw), keys[0])
    return read_optional_text(place.at(key), raw.get(key)) or ""


def _number(place: JsonPosition, raw: Mapping[str, Any], *keys: str) -> float:
    key = next((key for key in keys if key in raw), keys[0])
    return read_recorded_number(place.at(key), whole_of(raw.get(key, 0)), "a time", 0, 1e20) or 0.0
