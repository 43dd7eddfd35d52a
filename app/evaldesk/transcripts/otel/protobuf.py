"""OTLP as protocol buffers, which most SDKs send by default, as the JSON of OTLP.

A player has no package for that, so the few messages are read by the wire format alone (decision 143).
(https://protobuf.dev/programming-guides/encoding, https://opentelemetry.io/docs/specs/otlp)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from evaldesk.errors import FormatError

MAX_DEPTH = 40

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Field:
    """A field: its name in JSON, and the kind of its value, which is that of a message where it is one of ours."""

    name: str
    kind: str
    is_list: bool = False


Message: TypeAlias = Mapping[int, _Field]

_MESSAGES: Mapping[str, Message] = {
    "request": {1: _Field("resourceSpans", "resource", True)},
    "resource": {1: _Field("resource", "bag"), 2: _Field("scopeSpans", "scope", True)},
    "bag": {1: _Field("attributes", "pair", True)},
    "scope": {2: _Field("spans", "span", True)},
    "span": {
        1: _Field("traceId", "hex"),
        2: _Field("spanId", "hex"),
        4: _Field("parentSpanId", "hex"),
        5: _Field("name", "text"),
        7: _Field("startTimeUnixNano", "number"),
        8: _Field("endTimeUnixNano", "number"),
        9: _Field("attributes", "pair", True),
        11: _Field("events", "event", True),
        15: _Field("status", "status"),
    },
    "event": {2: _Field("name", "text"), 3: _Field("attributes", "pair", True)},
    "status": {2: _Field("message", "text"), 3: _Field("code", "number")},
    "pair": {1: _Field("key", "text"), 2: _Field("value", "value")},
    "value": {
        1: _Field("stringValue", "text"),
        2: _Field("boolValue", "bool"),
        3: _Field("intValue", "signed"),
        4: _Field("doubleValue", "double"),
        5: _Field("arrayValue", "array"),
        6: _Field("kvlistValue", "pairs"),
        7: _Field("bytesValue", "hex"),
    },
    "array": {1: _Field("values", "value", True)},
    "pairs": {1: _Field("values", "pair", True)},
    "logs": {1: _Field("resourceLogs", "resource logs", True)},
    "resource logs": {1: _Field("resource", "bag"), 2: _Field("scopeLogs", "scope logs", True)},
    "scope logs": {2: _Field("logRecords", "log", True)},
    "log": {
        1: _Field("timeUnixNano", "number"),
        5: _Field("body", "value"),
        6: _Field("attributes", "pair", True),
        9: _Field("traceId", "hex"),
        10: _Field("spanId", "hex"),
        11: _Field("observedTimeUnixNano", "number"),
        12: _Field("eventName", "text"),
    },
}


def read_otlp(data: bytes) -> dict[str, Any]:
    """An ExportTraceServiceRequest. Raises FormatError for other bytes."""
    return _request(data, "request")


def read_otlp_logs(data: bytes) -> dict[str, Any]:
    """An ExportLogsServiceRequest. Raises FormatError for other bytes."""
    return _request(data, "logs")


def _request(data: bytes, kind: str) -> dict[str, Any]:
    try:
        return _message(memoryview(data), kind, 0)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"the spans cannot be read as OTLP: {error}") from None


def _message(data: memoryview, kind: str, depth: int) -> dict[str, Any]:
    if depth > MAX_DEPTH:
        raise FormatError(f"the spans are nested more than {MAX_DEPTH} deep")
    message: dict[str, Any] = {}
    for number, wire, raw in _fields(data):
        field = _MESSAGES[kind].get(number)
        if field is None:
            continue
        value = _value(raw, wire, field.kind, depth)
        if field.is_list:
            message.setdefault(field.name, []).append(value)
        else:
            message[field.name] = value
    return message


def _value(raw: Any, wire: int, kind: str, depth: int) -> Any:
    wire_types = {"number": (VARINT, FIXED64), "signed": (VARINT,), "bool": (VARINT,), "double": (FIXED64,)}
    if wire not in wire_types.get(kind, (LENGTH,)):
        raise FormatError(f"the spans cannot be read as OTLP: a {kind} of the wire type {wire}")
    if kind in _MESSAGES:
        return _message(raw, kind, depth + 1)
    if kind == "text":
        return bytes(raw).decode("utf-8", "replace")
    if kind == "hex":
        return bytes(raw).hex()
    if kind == "double":
        return struct.unpack("<d", struct.pack("<Q", raw))[0]
    if kind == "signed":
        return raw - (1 << 64) if raw >> 63 else raw
    return bool(raw) if kind == "bool" else raw


def _fields(data: memoryview) -> Iterator[tuple[int, int, Any]]:
    """The fields: number, wire type, and the number or the bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, wire, value
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
            yield tag >> 3, wire, struct.unpack("<Q" if size == 8 else "<I", data[at : at + size])[0]
            at += size
        elif wire == LENGTH:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise FormatError("the spans cannot be read as OTLP: they are cut off")
            yield tag >> 3, wire, data[at : at + size]
            at += size
        else:
            raise FormatError(f"the spans cannot be read as OTLP: wire type {wire}")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
        if shift > 63:
            raise FormatError("the spans cannot be read as OTLP: a number of more than 64 bits")
