"""Conversations to be graded by a rubric, one JSON object a line, as Osmosis takes them. (reference/osmosis.md 2.2)"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats import parse_json

MAX_RECORDS = 100_000


@dataclass(frozen=True, slots=True)
class RubricRecord:
    """One line: the agent's answer, and the context it is judged in. `index` counts records from 1.

    `low` and `high` are the record's own scale, None where it has none; `row` is the line as it stood.
    """

    index: int
    label: str
    answer: str
    rubric_id: str = ""
    sections: Mapping[str, str] = field(default_factory=dict)
    low: float | None = None
    high: float | None = None
    row: Mapping[str, Any] = field(default_factory=dict)


def read_records(data: bytes, source: str) -> list[RubricRecord]:
    """The records of a JSONL file; blank lines are passed over. Raises FormatError naming the line."""
    records: list[RubricRecord] = []
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            records.append(_record(line, source, number, len(records) + 1))
    if not records:
        raise FormatError(f"No JSON records found in {source!r}.", source=source)
    if len(records) > MAX_RECORDS:
        raise FormatError(f"{len(records):,} records; at most {MAX_RECORDS:,} are read", source=source)
    return records


def _record(line: bytes, source: str, number: int, index: int) -> RubricRecord:
    try:
        row: Any = parse_json(line, source=source).value
    except FormatError as error:
        message = f"Invalid JSON on line {number} of {source!r}: {error.reason}"
        raise FormatError(message, source=source, line=number, column=error.column) from error
    if not isinstance(row, dict):
        raise FormatError(f"Expected JSON object on line {number}", source=source, line=number)
    label = str(row.get("conversation_id") or row.get("id") or f"record {index}")
    answer, before = _answer(row)
    if not answer.strip():
        wanted = "a non-empty 'solution_str' string, or 'messages' with an answer of the assistant"
        raise FormatError(f"Record {label!r} must include {wanted}.", source=source, line=number)
    return RubricRecord(
        index=index,
        label=label,
        answer=answer,
        rubric_id=str(row.get("rubric_id") or ""),
        sections=_sections(row, before),
        low=_number(row, "score_min", source, number),
        high=_number(row, "score_max", source, number),
        row=row,
    )


def _answer(row: Mapping[str, Any]) -> tuple[str, str]:
    """The agent's last message, and the conversation before it."""
    given = row.get("solution_str")
    if isinstance(given, str):
        return given, ""
    messages = [message for message in row.get("messages") or () if isinstance(message, dict)]
    last = next((at for at in reversed(range(len(messages))) if messages[at].get("role") == "assistant"), None)
    if last is None:
        return "", ""
    before = "\n".join(f"{message.get('role', '')}: {_text(message)}" for message in messages[:last])
    return _text(messages[last]), before


def _text(message: Mapping[str, Any]) -> str:
    """The content of a message; parts of text one a line, calls of tools as they are."""
    content = message.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "\n".join(part for part in parts if isinstance(part, str))
    calls = message.get("tool_calls")
    return "\n".join(filter(None, [str(content or ""), json.dumps(calls, ensure_ascii=False) if calls else ""]))


def _sections(row: Mapping[str, Any], before: str) -> dict[str, str]:
    info = row.get("extra_info")
    asked = row.get("original_input") or (info.get("original_input") if isinstance(info, dict) else None)
    metadata = row.get("metadata")
    found = {
        "QUESTION": asked if isinstance(asked, str) else "",
        "EARLIER CONVERSATION": before,
        "REFERENCE": row.get("ground_truth") if isinstance(row.get("ground_truth"), str) else "",
        "METADATA": json.dumps(metadata, ensure_ascii=False) if isinstance(metadata, dict) and metadata else "",
    }
    return {name: str(text) for name, text in found.items() if text}


def _number(row: Mapping[str, Any], key: str, source: str, line: int) -> float | None:
    value = row.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FormatError(f"{key} must be a number", source=source, line=line)
    return float(value)
