"""JSON as text: on one line for people, and as a model reads it."""

from __future__ import annotations

import json

from evaldesk.codec import msgspec
from evaldesk.model.evalset import JsonValue


def json_line(value: object) -> str:
    """JSON on one line, with a space after each comma and colon."""
    return msgspec.json.format(msgspec.json.encode(value), indent=0).decode()


def json_or_text(value: JsonValue) -> str:
    """A text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def short_json(value: JsonValue, longest: int = 80) -> str:
    """`json_line`, cut after `longest` characters."""
    text = json_line(value)
    return text if len(text) <= longest else f"{text[:longest]}…"
