"""The `EvalOutput` of a benchmark, in any of its shapes, as JSON text; and the events of that text.

(reference/openhands_tau.md section 1)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from evaldesk.errors import AgentError, FormatError
from evaldesk.integrations.openhands.recorded_rows import is_row, row_events
from evaldesk.model import ErrorRecord, Event, JsonObject
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES, JsonPosition, parse_json
from evaldesk.wire import plain_json, to_json


def output_events(text: str, more: JsonObject, query: str) -> Iterator[Event]:
    """The events in the output of a benchmark: history, usage, test result, error and the text itself.

    `more` is the result of `teardown`; it is added to the test result.
    """
    try:
        document = _parse(text)
    except FormatError as error:
        yield Event("error", error=ErrorRecord("bad_output", f"the result of process_instance cannot be read: {error}"))
        return
    row = document.value
    yield from row_events(JsonPosition(document), row if isinstance(row, dict) else {}, text, query, more)


def has_history(text: str) -> bool:
    """Whether the output of a benchmark has the history of its agent; False for one that cannot be read."""
    try:
        row = _parse(text).value
    except FormatError:
        return False
    return isinstance(row, dict) and bool(row.get("history"))


def output_text(output: object) -> str:
    """The result of a benchmark as JSON text, in its own form if that is strict JSON. Raises AgentError."""
    text = _text(output)
    row = _parse(text).value
    if not is_row(row):
        has = ", ".join(row) if isinstance(row, dict) else ""
        raise AgentError(f"process_instance returned no test_result; it has: {has or 'nothing'}")
    return text


def _text(output: object) -> str:
    """The output as JSON; a pydantic model, such as EvalOutput of OpenHands, by its own dump, as in `output.jsonl`."""
    if callable(dump := getattr(output, "model_dump_json", None)) and _is_strict_json(text := _dump_text(dump)):
        return text
    value: object
    if isinstance(output, Mapping):
        value = dict(output)
    elif hasattr(output, "model_dump"):
        value = output.model_dump()
    elif is_dataclass(output) and not isinstance(output, type):
        value = asdict(output)
    else:
        raise AgentError(f"process_instance must return an EvalOutput or a dict like one, got {type(output).__name__}")
    text = _dump_text(lambda: json.dumps(value, ensure_ascii=False, allow_nan=False))
    return text if _is_strict_json(text) else to_json(_plain_parts(value)).decode()


def _dump_text(dump: Any) -> str:
    """The JSON text; empty for a value without a JSON form."""
    try:
        return str(dump())
    except Exception:  # of values that are the user's own
        return ""


def _is_strict_json(text: str) -> bool:
    try:
        _parse(text)
    except (FormatError, UnicodeEncodeError):
        return False
    return True


def _parse(text: str) -> Any:
    return parse_json(text.encode(), source="", max_bytes=MAX_RECORDED_BYTES)


def _plain_parts(value: object) -> object:
    """Plain JSON; the size limit of `plain_json` applies to each event of a history, not to the history."""
    if not isinstance(value, Mapping):
        return plain_json(value)
    return {str(key): _plain_items(item) for key, item in value.items()}


def _plain_items(value: object) -> object:
    if isinstance(value, Mapping):
        return {
            str(key): [plain_json(item) for item in part] if isinstance(part, list | tuple) else plain_json(part)
            for key, part in value.items()
        }
    return [plain_json(item) for item in value] if isinstance(value, list | tuple) else plain_json(value)
