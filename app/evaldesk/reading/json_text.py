"""JSON values as the text of a file, in the style the file had."""

from __future__ import annotations

import json
import re
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.reading.json_places import first_fault, path_text

_INDENTED = re.compile(r"\s*[\[{]\r?\n([ \t]+)\S")


def style_of(text: str) -> dict[str, Any]:
    """How a file is written where it differs from ADK's own files: indent of two spaces, no newline at the end."""
    found = _INDENTED.match(text)
    indent = found.group(1) if found else "  "
    style: dict[str, Any] = {}
    if indent != "  ":
        style["indent"] = indent[:16]
    if text.endswith("\n"):
        style["ends_with"] = "\n"
    if "\r\n" in text[:1000]:
        style["newline"] = "\r\n"
    return style


def to_text(value: Any, style: dict[str, Any], source: str) -> bytes:
    """The bytes of a file that holds `value`. Raises FormatError for a value that JSON in UTF-8 cannot hold."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=style.get("indent", "  "))
        text += str(style.get("ends_with", ""))
        # JSON escapes the line breaks inside strings, so these are all between values.
        return text.replace("\n", str(style.get("newline", "\n"))).encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise _explained(value, source, error) from None


def _explained(value: Any, source: str, error: Exception) -> FormatError:
    try:
        found = first_fault(json.dumps(value))
    except (ValueError, TypeError, RecursionError):
        found = None
    if found is None:
        return FormatError(f"this cannot be written as JSON: {error}", source=source)
    return FormatError(found.reason, source=source, path=path_text(found.path))
