"""The format "mlflow": traces with their spans and assessments, as `Trace.to_json` and the search of traces write them.

(https://mlflow.org/docs/latest/genai/tracing; files of MLflow 3.17)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.formats.exported_traces import ExportedScore, ExportedTraces, ExportedUsage, Step
from evaldesk.process_setup import PLAYED
from evaldesk.reading.strict_json import JsonPosition
from evaldesk.reading.values import read_key, read_list, read_mapping, text_of
from evaldesk.transcripts.messages.parts import json_value
from evaldesk.transcripts.otel.spans import CASE_ID, RELEASE, whole_of
from evaldesk.transcripts.otel.traces import Kind

_KINDS: dict[str, Kind] = {"CHAT_MODEL": "model", "LLM": "model", "AGENT": "agent", "TOOL": "tool"}


class MlflowTraces(ExportedTraces):
    """The format "mlflow"."""

    name = "mlflow"
    title = "MLflow traces"
    pages = ("traces",)

    @staticmethod
    def is_row(row: dict[str, Any]) -> bool:
        """Whether this is a trace: its facts beside its spans."""
        data = json_value(row.get("data"))
        return isinstance(row.get("info"), dict) and isinstance(data, dict) and isinstance(data.get("spans"), list)

    @staticmethod
    def steps_of(place: JsonPosition, row: dict[str, Any]) -> Iterator[Step]:
        """The spans of a trace; its first one has the assessments. Raises FormatError."""
        info = read_mapping(place.at("info"), row.get("info"))
        data = read_mapping(place.at("data"), json_value(row.get("data")))
        spans = read_list(place.at("data", "spans"), data.get("spans"), read_mapping)
        for index, span in enumerate(spans):
            yield _step(place.at("data", "spans", index), span, info, is_first=index == 0)


def _step(place: JsonPosition, span: dict[str, Any], info: dict[str, Any], *, is_first: bool) -> Step:
    raw = span.get("attributes")
    attributes = {key: _attribute(value) for key, value in raw.items()} if isinstance(raw, dict) else {}
    metadata = info.get("trace_metadata") or info.get("request_metadata")
    facts = metadata if isinstance(metadata, dict) else {}
    tags = info.get("tags")
    status = span.get("status")
    is_failed = isinstance(status, dict) and status.get("code") in ("STATUS_CODE_ERROR", "ERROR")
    start = _time_ms(span, "start_time_unix_nano", "start_time")
    return Step(
        place,
        _KINDS.get(text_of(attributes.get("mlflow.spanType")), ""),
        text_of(span.get("name")),
        read_key(place.at("trace_id"), info.get("trace_id") or info.get("request_id") or span.get("trace_id")),
        read_key(place.at("span_id"), span.get("span_id") or _context(span)),
        text_of(span.get("parent_span_id") or span.get("parent_id")),
        start,
        max(start, _time_ms(span, "end_time_unix_nano", "end_time")),
        attributes.get("mlflow.spanInputs"),
        attributes.get("mlflow.spanOutputs"),
        _usage(attributes),
        text_of(facts.get("mlflow.trace.session")),
        text_of(tags.get(CASE_ID)) if isinstance(tags, dict) else "",
        (text_of(status.get("message")) or "error") if isinstance(status, dict) and is_failed else None,
        tuple(_assessments(info)) if is_first else (),
        facts=_facts(facts, tags),
    )


def _facts(metadata: dict[str, Any], tags: Any) -> dict[str, Any]:
    """User, release and tags of a trace; a tag is `name=value`."""
    own_tags = tags if isinstance(tags, dict) else {}
    values: dict[str, Any] = {
        "user.id": text_of(metadata.get("mlflow.trace.user")),
        RELEASE: text_of(metadata.get("mlflow.source.git.commit")),
        "tag.tags": [
            f"{key}={value}" for key, value in own_tags.items() if not key.startswith(("mlflow.", "evaldesk."))
        ],
        PLAYED: own_tags.get(PLAYED),
    }
    return {key: value for key, value in values.items() if value}


def _attribute(value: Any) -> Any:
    """An attribute, whose text MLflow writes as JSON."""
    if isinstance(value, str) and value.startswith('"') and value.endswith('"') and len(value) > 1:
        inner = json_value(f"[{value}]")
        return inner[0] if isinstance(inner, list) and inner else value
    return json_value(value)


def _context(span: dict[str, Any]) -> Any:
    context = span.get("context")
    return context.get("span_id") if isinstance(context, dict) else None


def _time_ms(span: dict[str, Any], *keys: str) -> float:
    value = next((whole_of(span[key]) for key in keys if span.get(key) is not None), 0)
    return value / 1e6 if isinstance(value, int | float) and 0 <= value < 1e20 else 0.0


def _usage(attributes: dict[str, Any]) -> ExportedUsage:
    stated, outputs = attributes.get("mlflow.chat.tokenUsage"), attributes.get("mlflow.spanOutputs")
    usage = outputs.get("usage") if isinstance(outputs, dict) else None
    counts = stated if isinstance(stated, dict) else usage if isinstance(usage, dict) else {}
    inputs = attributes.get("mlflow.spanInputs")
    model = attributes.get("mlflow.llm.model") or (inputs.get("model") if isinstance(inputs, dict) else None)
    return ExportedUsage(
        text_of(model),
        counts.get("input_tokens", counts.get("prompt_tokens")),
        counts.get("output_tokens", counts.get("completion_tokens")),
        counts.get("cache_read_input_tokens"),
    )


def _assessments(info: dict[str, Any]) -> Iterator[ExportedScore]:
    assessments = info.get("assessments")
    for each in assessments if isinstance(assessments, list) else ():
        feedback = each.get("feedback") if isinstance(each, dict) else None
        name = text_of(each.get("assessment_name") or each.get("name")) if isinstance(each, dict) else ""
        if name and isinstance(feedback, dict):
            value = feedback.get("value")
            number = {"yes": 1.0, "no": 0.0, True: 1.0, False: 0.0}.get(value, value) if _is_plain(value) else None
            yield ExportedScore(name, number, text_of(each.get("rationale")))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool)
