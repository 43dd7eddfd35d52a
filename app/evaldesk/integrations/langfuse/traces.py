"""The format "langfuse": traces with observations, or observations alone, as its API and its exports write them.

Keys in either spelling, `traceId` or `trace_id`. (https://api.reference.langfuse.com; types of langfuse 5.0)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.formats.exported_traces import ExportedScore, ExportedTraces, ExportedUsage, Step
from evaldesk.process_setup import PLAYED
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import read_key, read_list, read_mapping, snake_case, text_of
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.otel.spans import CASE_ID, RELEASE
from evaldesk.transcripts.otel.traces import Kind
from evaldesk.transcripts.recorded import iso_ms

_KINDS: dict[str, Kind] = {"GENERATION": "model", "AGENT": "agent", "TOOL": "tool"}
_TYPES = {"SPAN", "EVENT", "CHAIN", "RETRIEVER", "EVALUATOR", "EMBEDDING", "GUARDRAIL", *_KINDS}
_OF_TRACE = {"session_id", "user_id", "release", "bookmarked", "latency", "total_cost", "html_path"}
"""Keys of a trace, of which other files of traces have none or one."""


class Langfuse(ExportedTraces):
    """The format "langfuse"."""

    name = "langfuse"
    title = "Langfuse traces"
    pages = ("data",)

    @staticmethod
    def is_row(row: dict[str, Any]) -> bool:
        """Whether this is an observation, or a trace with or without its observations."""
        keys = set(map(snake_case, row))
        if row.get("type") in _TYPES and "trace_id" in keys:
            return True
        has_observations = isinstance(row.get("observations"), list) and "id" in keys
        return (has_observations and "timestamp" in keys) or (
            {"id", "timestamp", "input", "output"} <= keys and len(keys & _OF_TRACE) > 1
        )

    @staticmethod
    def steps_of(place: JsonPosition, row: dict[str, Any]) -> Iterator[Step]:
        """The observations of a trace, and the trace itself; or one observation. Raises FormatError."""
        fields = snake_keys(row)
        if "trace_id" in fields and "timestamp" not in fields:
            yield _observation(place, fields, {})
            return
        yield _trace(place, fields)
        observations = fields.get("observations")
        if isinstance(observations, list) and observations and isinstance(observations[0], dict):
            yield from read_list(
                place.at("observations"),
                observations,
                lambda at, each: _observation(at, snake_keys(read_mapping(at, each)), fields),
            )


def snake_keys(row: dict[str, Any]) -> dict[str, Any]:
    return {snake_case(key): value for key, value in row.items()}


def _trace(place: JsonPosition, trace: dict[str, Any]) -> Step:
    """The trace as the step around its observations."""
    trace_id = read_key(place.at("id"), trace.get("id"))
    start = iso_ms(trace.get("timestamp")) or 0.0
    scores = trace.get("scores")
    rows = [snake_keys(each) for each in scores if isinstance(each, dict)] if isinstance(scores, list) else []
    return Step(
        place,
        "",
        text_of(trace.get("name")),
        trace_id,
        trace_id,
        "",
        start,
        start,
        trace.get("input"),
        trace.get("output"),
        conversation=text_of(trace.get("session_id")),
        case_id=_case_id(trace.get("metadata")),
        scores=tuple(map(exported_score, filter(lambda each: each.get("name"), rows))),
        facts=_facts(trace),
    )


def exported_score(row: dict[str, Any]) -> ExportedScore:
    """A score with keys in snake case; its value is a number, a truth value, or the text of a category."""
    value, text = row.get("value"), text_of(row.get("string_value"))
    label = value if isinstance(value, str) else text
    reason = text_of(row.get("comment")) or text
    return ExportedScore(text_of(row.get("name")), None if isinstance(value, str) else value, reason, label)


def _facts(row: dict[str, Any]) -> dict[str, Any]:
    """User, release, tags and environment of a trace or of its root observation."""
    tags, environment = row.get("tags"), text_of(row.get("environment"))
    metadata = json_value(row.get("metadata"))
    resource = json_value(metadata.get("resourceAttributes")) if isinstance(metadata, dict) else None
    values: dict[str, Any] = {
        "user.id": text_of(row.get("user_id")),
        RELEASE: text_of(row.get("release")),
        "tag.tags": [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else [],
        "deployment.environment.name": environment if environment != "default" else "",
        PLAYED: resource.get(PLAYED) if isinstance(resource, dict) else None,
    }
    return {key: value for key, value in values.items() if value}


def _observation(place: JsonPosition, row: dict[str, Any], trace: dict[str, Any]) -> Step:
    trace_id = read_key(place.at("traceId"), row.get("trace_id") or trace.get("id"))
    start = iso_ms(row.get("start_time")) or 0.0
    is_error = row.get("level") == "ERROR"
    return Step(
        place,
        _KINDS.get(str(row.get("type")), ""),
        text_of(row.get("name")),
        trace_id,
        read_key(place.at("id"), row.get("id")),
        text_of(row.get("parent_observation_id")) or (trace_id if trace else ""),
        start,
        iso_ms(row.get("end_time")) or start,
        row.get("input"),
        row.get("output"),
        _usage(row),
        text_of(row.get("session_id") or trace.get("session_id")),
        _case_id(row.get("metadata")) or _case_id(trace.get("metadata")),
        (text_of(row.get("status_message")) or "error") if is_error else None,
        facts=_facts(row),
    )


def _usage(row: dict[str, Any]) -> ExportedUsage:
    details = json_value(row.get("usage_details")) or row.get("usage")
    counts = snake_keys(details) if isinstance(details, dict) else {}
    costs = json_value(row.get("cost_details"))
    cost = costs.get("total") if isinstance(costs, dict) else None
    cached = next((counts[key] for key in ("input_cached_tokens", "cache_read_input_tokens") if key in counts), None)
    return ExportedUsage(
        text_of(row.get("model") or row.get("provided_model_name")),
        counts.get("input", row.get("prompt_tokens")),
        counts.get("output", row.get("completion_tokens")),
        cached,
        cost if cost is not None else row.get("calculated_total_cost", row.get("total_cost")),
    )


def _case_id(metadata: Any) -> str:
    value = json_value(metadata)
    return text_of(value.get(CASE_ID)) if isinstance(value, dict) else ""
