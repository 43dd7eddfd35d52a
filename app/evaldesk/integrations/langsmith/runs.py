"""The format "langsmith": runs as its client and its bulk export write them, joined by their traces and threads.

(https://docs.langchain.com/langsmith/run-data-format; types of langsmith 0.15)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.formats.exported_traces import ExportedScore, ExportedTraces, ExportedUsage, Step
from evaldesk.process_setup import PLAYED
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import read_key, text_of
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.otel.spans import CASE_ID, RELEASE
from evaldesk.transcripts.otel.traces import Kind
from evaldesk.transcripts.recorded import iso_ms

_KINDS: dict[str, Kind] = {"llm": "model", "tool": "tool"}
MAX_MS = 1e17
"""Milliseconds since 1970 beyond which a number is no time."""
_THREADS = ("thread_id", "session_id", "conversation_id")
_USERS = ("user_id", "user")
_RELEASES = ("release", "version", "revision_id")


class LangSmith(ExportedTraces):
    """The format "langsmith"."""

    name = "langsmith"
    title = "LangSmith runs"
    pages = ("runs",)

    @staticmethod
    def is_row(row: dict[str, Any]) -> bool:
        """Whether this is a run: it has a type, inputs, and its place in a trace."""
        return "run_type" in row and bool({"trace_id", "dotted_order", "parent_run_id"} & set(row))

    @staticmethod
    def steps_of(place: JsonPosition, row: dict[str, Any]) -> Iterator[Step]:
        """The run, and those in it. Raises FormatError."""
        yield _step(place, row)
        children = row.get("child_runs")
        for index, child in enumerate(children if isinstance(children, list) else ()):
            if isinstance(child, dict):
                yield from LangSmith.steps_of(place.at("child_runs", index), child)


def _step(place: JsonPosition, row: dict[str, Any]) -> Step:
    run_id = read_key(place.at("id"), row.get("id") or row.get("run_id"))
    start = _time_ms(row.get("start_time")) or 0.0
    metadata = _metadata(row)
    inputs, outputs = json_value(row.get("inputs")), json_value(row.get("outputs"))
    stats = json_value(row.get("feedback_stats"))
    return Step(
        place,
        _KINDS.get(text_of(row.get("run_type")), ""),
        text_of(row.get("name")),
        str(row.get("trace_id") or text_of(row.get("dotted_order")).partition(".")[0] or run_id),
        run_id,
        str(row.get("parent_run_id") or ""),
        start,
        _time_ms(row.get("end_time")) or start,
        inputs,
        outputs,
        _usage(row, outputs, metadata),
        next((str(metadata[key]) for key in _THREADS if metadata.get(key)), ""),
        text_of(metadata.get(CASE_ID)),
        text_of(row.get("error")) or None,
        tuple(
            ExportedScore(key, each.get("avg"))
            for key, each in (stats.items() if isinstance(stats, dict) else ())
            if isinstance(each, dict)
        ),
        facts=_facts(row, metadata),
    )


def _facts(row: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    """User, release and tags of a run."""
    tags = row.get("tags")
    values: dict[str, Any] = {
        "user.id": next((text_of(metadata[key]) for key in _USERS if metadata.get(key)), ""),
        RELEASE: next((text_of(metadata[key]) for key in _RELEASES if metadata.get(key)), ""),
        "tag.tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        PLAYED: metadata.get(PLAYED),
    }
    return {key: value for key, value in values.items() if value}


def _time_ms(value: Any) -> float | None:
    """A time as ISO 8601, or as the milliseconds since 1970 of a bulk export."""
    is_number = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MAX_MS
    return float(value) if is_number else iso_ms(value)


def _metadata(row: dict[str, Any]) -> dict[str, Any]:
    extra = json_value(row.get("extra"))
    metadata = json_value(extra.get("metadata")) if isinstance(extra, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _usage(row: dict[str, Any], outputs: Any, metadata: dict[str, Any]) -> ExportedUsage:
    stated = outputs.get("usage_metadata") if isinstance(outputs, dict) else None
    usage = stated if isinstance(stated, dict) else {}
    details = row.get("prompt_token_details") or usage.get("input_token_details")
    cached = details.get("cache_read") if isinstance(details, dict) else None
    return ExportedUsage(
        text_of(metadata.get("ls_model_name")),
        row.get("prompt_tokens") if row.get("prompt_tokens") is not None else usage.get("input_tokens"),
        row.get("completion_tokens") if row.get("completion_tokens") is not None else usage.get("output_tokens"),
        cached,
        _amount(row.get("total_cost")),
    )


def _amount(cost: Any) -> Any:
    """US dollars, which the client writes as the text of a decimal."""
    try:
        return float(cost) if isinstance(cost, str) else cost
    except ValueError:
        return cost
