"""JSON values as the text of a file, in the style the file had."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from evaldesk.codec import msgspec
from evaldesk.errors import FormatError
from evaldesk.reading.json_places import JsonPath, first_fault, path_text

_INDENTED = re.compile(r"\s*[\[{]\r?\n([ \t]+)\S")


def style_of(text: str) -> dict[str, Any]:
    """How a file is written where it differs from ADK's own files: indent of two spaces, no newline at the end."""
    match = _INDENTED.match(text)
    indent = match.group(1) if match else "  "
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
        text = _laid_out(value, style.get("indent", "  ")) + str(style.get("ends_with", ""))
        # JSON escapes the line breaks inside strings, so these are all between values.
        return text.replace("\n", str(style.get("newline", "\n"))).encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise _error_of(value, source, error) from None


def _laid_out(value: Any, indent: str | None) -> str:
    """The text of `json.dumps`, indented in a quarter of its time."""
    if not indent or indent.strip(" "):
        return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return msgspec.json.format(json.dumps(value, ensure_ascii=False, allow_nan=False), indent=len(indent))


def text_parts(value: Any, source: str) -> Iterator[bytes]:
    """As `to_text` in the style of ADK, part by part: an iterator in it is a list, asked for item by item.

    An item may have an iterator as one of its values. Raises FormatError, also after the first part.
    """
    return _parts(value, (), source, _SHELL_DEPTH)


def _parts(value: Any, path: JsonPath, source: str, depth: int) -> Iterator[bytes]:
    if not _is_streamed(value, depth):
        yield _value_text(value, path, source)
        return
    signs = "{}" if isinstance(value, dict) else "[]"
    line = "\n" + "  " * len(path)
    depth_inside = depth - 1 if isinstance(value, dict | list) else _ITEM_DEPTH
    is_empty = True
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        name = f"{json.dumps(key, ensure_ascii=False)}: " if signs == "{}" else ""
        begin = f"{signs[0] if is_empty else ','}{line}  {name}".encode()
        is_empty = False
        for part in _parts(each, (*path, key), source, depth_inside):
            yield begin + part
            begin = b""
    yield (signs if is_empty else line + signs[1]).encode()


_SHELL_DEPTH, _ITEM_DEPTH = 6, 1
"""How deep an iterator is looked for in the value, and in an item of another iterator."""


def _is_streamed(value: Any, depth: int) -> bool:
    """Whether it is an iterator, or holds one."""
    if isinstance(value, dict | list):
        inside = value.values() if isinstance(value, dict) else value
        return depth > 0 and any(_is_streamed(each, depth - 1) for each in inside)
    return isinstance(value, Iterator)


def _value_text(value: Any, path: JsonPath, source: str) -> bytes:
    try:
        return to_text(value, {"newline": "\n" + "  " * len(path)}, source)
    except FormatError as error:
        dot = "." if error.path and not error.path.startswith("[") else ""
        raise FormatError(error.reason, source=source, path=path_text(path) + dot + error.path) from None


def _error_of(value: Any, source: str, error: Exception) -> FormatError:
    try:
        fault = first_fault(json.dumps(value))
    except (ValueError, TypeError, RecursionError):
        fault = None
    if fault is None:
        return FormatError(f"this cannot be written as JSON: {error}", source=source)
    return FormatError(fault.reason, source=source, path=path_text(fault.path))
