"""The JSON of OTLP as protocol buffers, written by hand: the tests need no package of OpenTelemetry."""

from __future__ import annotations

import struct
from typing import Any

_SPAN = {"traceId": 1, "spanId": 2, "parentSpanId": 4, "name": 5, "startTimeUnixNano": 7, "endTimeUnixNano": 8}
_VALUES = {"stringValue": 1, "boolValue": 2, "intValue": 3, "doubleValue": 4, "arrayValue": 5}


def encoded(request: dict[str, Any]) -> bytes:
    """An ExportTraceServiceRequest."""
    return b"".join(
        _length(1, b"".join(_length(2, _scope(scope)) for scope in resource["scopeSpans"]))
        for resource in request["resourceSpans"]
    )


def _scope(scope: dict[str, Any]) -> bytes:
    return _length(1, _length(1, b"s")) + b"".join(_length(2, _span(span)) for span in scope["spans"])


def _span(span: dict[str, Any]) -> bytes:
    found = b""
    for name, number in _SPAN.items():
        if name.endswith("Id") and name in span:
            found += _length(number, bytes.fromhex(span[name]))
        elif name.endswith("Nano"):
            found += _varint(number << 3 | 1) + struct.pack("<Q", span[name])
        elif name in span:
            found += _length(number, span[name].encode())
    found += _pairs(9, span)
    found += b"".join(
        _length(11, _length(2, event["name"].encode()) + _pairs(3, event)) for event in span.get("events", ())
    )
    if status := span.get("status"):
        found += _length(15, _length(2, status["message"].encode()) + _varint(3 << 3) + _varint(status["code"]))
    return found + _varint(16 << 3 | 5) + struct.pack("<I", 1)


def _pairs(number: int, owner: dict[str, Any]) -> bytes:
    pairs = owner["attributes"]
    return b"".join(_length(number, _length(1, p["key"].encode()) + _length(2, _value(p["value"]))) for p in pairs)


def _value(value: dict[str, Any]) -> bytes:
    ((kind, raw),) = value.items()
    number = _VALUES[kind]
    if kind == "stringValue":
        return _length(number, raw.encode())
    if kind == "doubleValue":
        return _varint(number << 3 | 1) + struct.pack("<d", raw)
    if kind == "arrayValue":
        return _length(number, b"".join(_length(1, _value(each)) for each in raw["values"]))
    return _varint(number << 3) + _varint(int(raw) & (1 << 64) - 1)


def _length(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
