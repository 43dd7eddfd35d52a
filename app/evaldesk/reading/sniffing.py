"""A first look at a file, by which formats tell their own; leniently, because a broken file is recognised too."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evaldesk.reading.strict_json import MAX_CONTAINERS

MAX_LINE = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Peek:
    """`document` is the JSON value of all the text, `line` that of its first line; None where it is not JSON."""

    document: Any = None
    line: Any = None

    @property
    def first(self) -> Any:
        """The value of all the text or, where it has several lines of JSON, that of the first."""
        return self.line if self.document is None else self.document


@lru_cache(1)
def peek(data: bytes) -> Peek:
    """The contents of the text at first sight. All formats ask about the same bytes, so the last answer is kept."""
    first = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:MAX_LINE].partition(b"\n")[0]
    document = _value(data)
    return Peek(document, _value(first) if first[:1] == b"{" else None)


def first_keys(data: bytes) -> set[str] | None:
    """The keys of the object in the file, of all in its list, and of its first line; in lower case without underscores.

    None for a file that is no JSON, or neither an object nor a list of objects.
    """
    preview = peek(data)
    values = preview.first if isinstance(preview.first, list) else [preview.first]
    if not values or not any(isinstance(value, dict) for value in values):
        return None
    objects = [value for value in (*values, preview.line) if isinstance(value, dict)]
    return {key.replace("_", "").lower() for value in objects for key in value}


def _value(data: bytes) -> Any:
    if data.count(b"{") + data.count(b"[") > 2 * MAX_CONTAINERS:
        return None
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
