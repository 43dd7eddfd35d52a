"""The format "braintrust": rows of logs and experiments, each a span, as its API and its exports write them.

(https://www.braintrust.dev/docs/reference/api/Logs; rows of braintrust 0.48)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.formats.exported_traces import ExportedScore, ExportedTraces, ExportedUsage, Step
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import read_key, text_of
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.otel.spans import CASE_ID
from evaldesk.transcripts.otel.traces import Kind
from evaldesk.transcripts.recorded import iso_ms

_KINDS: dict[str, Kind] = {"llm": "model", "tool": "tool"}
_SESSIONS = ("session_id", "thread_id", "conversation_id")


class Braintrust(ExportedTraces):
    """The format "braintrust"."""

    name = "braintrust"
    title = "Braintrust logs"
    pages = ("events", "rows")

    @staticmethod
    def is_row(row: dict[str, Any]) -> bool:
        """Whether this is a row of a log: a span with the id of its root."""
        return "root_span_id" in row and bool({"span_id", "span_attributes"} & set(row))

    @staticmethod
    def steps_of(place: JsonPosition, row: dict[str, Any]) -> Iterator[Step]:
        """The row as a step. Raises FormatError."""
        attributes, metrics = _mapping(row.get("span_attributes")), _mapping(row.get("metrics"))
        metadata, scores = _mapping(row.get("metadata")), _mapping(row.get("scores"))
        parents = json_value(row.get("span_parents"))
        start = _seconds_ms(metrics.get("start")) or iso_ms(row.get("created")) or 0.0
        error = row.get("error")
        yield Step(
            place,
            _KINDS.get(text_of(attributes.get("type")), ""),
            text_of(attributes.get("name")),
            read_key(place.at("root_span_id"), row.get("root_span_id")),
            read_key(place.at("span_id"), row.get("span_id") or row.get("id")),
            text_of(parents[0]) if isinstance(parents, list) and parents else "",
            start,
            _seconds_ms(metrics.get("end")) or start,
            row.get("input"),
            row.get("output"),
            ExportedUsage(
                text_of(metadata.get("model")),
                metrics.get("prompt_tokens"),
                metrics.get("completion_tokens"),
                metrics.get("prompt_cached_tokens"),
                metrics.get("estimated_cost"),
            ),
            next((text_of(metadata[key]) for key in _SESSIONS if metadata.get(key)), ""),
            text_of(metadata.get(CASE_ID)),
            (error if isinstance(error, str) else "error") if error else None,
            tuple(ExportedScore(name, value) for name, value in scores.items() if value is not None),
        )


def _mapping(raw: Any) -> dict[str, Any]:
    value = json_value(raw)
    return value if isinstance(value, dict) else {}


def _seconds_ms(value: Any) -> float | None:
    is_time = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e14
    return value * 1000.0 if is_time else None
