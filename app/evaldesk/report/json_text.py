"""JSON values as one line of text, as they are shown and compared by word."""

from __future__ import annotations

import msgspec

from evaldesk.model import JsonValue
from evaldesk.report.text_diff import Segment, TextDiff, diff_text
from evaldesk.wire import to_json


def json_text(value: JsonValue) -> str:
    """JSON on one line, with a space after each comma and colon."""
    return msgspec.json.format(to_json(value), indent=0).decode()


def shortened(value: JsonValue, longest: int = 80) -> str:
    """`json_text`, cut after `longest` characters."""
    text = json_text(value)
    return text if len(text) <= longest else f"{text[:longest]}…"


def diff_json(expected: JsonValue, actual: JsonValue) -> TextDiff:
    """Two values that are not equal, word by word; where only spaces differ, the whole values."""
    left, right = json_text(expected), json_text(actual)
    diff = diff_text(left, right)
    return TextDiff((Segment("del", left),), (Segment("ins", right),)) if diff.is_same else diff
