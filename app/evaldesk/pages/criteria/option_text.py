"""Options of metrics as a person types them into a form: from text to values and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeVar

from evaldesk.errors import NAME_LIMIT, UsageError
from evaldesk.matching import ARGS_MODES
from evaldesk.metrics import OptionInfo
from evaldesk.model import JsonValue
from evaldesk.pages.typed import json_value
from evaldesk.wire import to_json

T = TypeVar("T")

LISTED = "only"
"""The text of the choice that compares named keys only, and the words before them in a line."""


def read_option(info: OptionInfo, text: str, keys: str = "") -> JsonValue:
    """The value that `text` says; `keys` are the names beside a choice of kind `keys`.

    An empty field is the default. Raises UsageError with a sentence for the form.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if info.kind == "switch":
        return bool(text)
    if info.kind == "keys":
        return _names(keys) if text == LISTED else text
    if not text.strip():
        return info.default
    return _READERS.get(info.kind, _text)(info, text)


def write_option(info: OptionInfo, value: JsonValue) -> tuple[str, str]:
    """The text of a value, and the keys beside a choice of kind `keys`; the default of an open field is empty."""
    if info.kind == "keys":
        return (LISTED, ", ".join(map(str, value))) if isinstance(value, list) else (str(value), "")
    if info.kind == "switch":
        return ("1" if value else ""), ""
    if info.kind in ("choice", "model", "text", "long_text"):
        return str(value or ""), ""
    if value == info.default and info.kind not in ("number", "whole"):
        return "", ""
    return _WRITERS.get(info.kind, _as_json)(value), ""


def number_text(value: float) -> str:
    """The shortest text that reads back as `value`: `1`, `0.8`, `12345.678`."""
    return repr(value).removesuffix(".0")


def _text(info: OptionInfo, text: str) -> JsonValue:
    return text if info.kind == "long_text" else text.strip()


def _number(info: OptionInfo, text: str) -> JsonValue:
    value = _finite(text)
    if (info.low is not None and value < info.low) or (info.high is not None and value > info.high):
        raise UsageError(f"{info.label.lower()}: {_range(info)}, not {value:g}")
    return value


def _integer(info: OptionInfo, text: str) -> JsonValue:
    digits = text.strip()
    if not digits.isascii() or not digits.removeprefix("-").isdecimal() or len(digits) > 9:
        raise UsageError(f"{info.label.lower()}: a whole number, not {digits[:NAME_LIMIT]!r}")
    _number(info, digits)
    return int(digits)


def _json(info: OptionInfo, text: str) -> JsonValue:
    try:
        return json_value(text)
    except UsageError as error:
        raise UsageError(f"{info.label.lower()}: {error}") from error


def _list(info: OptionInfo, text: str) -> JsonValue:
    return [line.strip() for line in text.split("\n") if line.strip()]


def _lines(parse_value: Callable[[str], JsonValue]) -> Callable[[OptionInfo, str], JsonValue]:
    """A reader of lines `name = value`, each value by `parse_value`."""

    def read_lines(info: OptionInfo, text: str) -> JsonValue:
        values: dict[str, JsonValue] = {}
        for number, line in enumerate(text.split("\n"), 1):
            name, separator, value = (part.strip() for part in line.partition("="))
            if not line.strip():
                continue
            try:
                if not (name and separator and value):
                    raise UsageError(f"write it as {info.example.splitlines()[0]}")
                if name in values:
                    raise UsageError(f"{name} comes twice")
                values[name] = parse_value(value)
            except UsageError as error:
                raise UsageError(
                    f"{info.label.lower()}, line {number}, {line.strip()[:NAME_LIMIT]!r}: {error}"
                ) from error
        return values

    return read_lines


def _mode(value: str) -> JsonValue:
    head, _, names = value.partition(" ")
    if head == LISTED:
        return _names(names)
    if value not in ARGS_MODES:
        raise UsageError(f"write one of {', '.join(ARGS_MODES)}, or {LISTED} and the keys that are compared")
    return value


def _values(value: str) -> JsonValue:
    try:
        return json_value(f"[{value}]")
    except UsageError:
        raise UsageError('write the values as JSON, texts in quotes: "Paris", "Lyon", 3') from None


def _names(text: str) -> JsonValue:
    names: list[JsonValue] = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise UsageError("name at least one key")
    return names


def _finite(text: str) -> float:
    try:
        value = float(text.strip())
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"a number such as 0.8, not {text.strip()[:NAME_LIMIT]!r}")
    return value


def _range(info: OptionInfo) -> str:
    if info.low is not None and info.high is not None:
        return f"{info.low:g} to {info.high:g}"
    return f"{info.low:g} or more" if info.low is not None else f"at most {info.high:g}"


_READERS: Mapping[str, Callable[[OptionInfo, str], JsonValue]] = {
    "number": _number,
    "whole": _integer,
    "json": _json,
    "list": _list,
    "modes": _lines(_mode),
    "values": _lines(_values),
    "patterns": _lines(lambda value: value),
    "tolerances": _lines(_finite),
}


def _as_json(value: JsonValue) -> str:
    return to_json(value).decode()


def _as_number(value: JsonValue) -> str:
    return number_text(value) if isinstance(value, int | float) else ""


def _as_lines(write: Callable[[JsonValue], str]) -> Callable[[JsonValue], str]:
    def write_lines(value: JsonValue) -> str:
        items = value.items() if isinstance(value, Mapping) else ()
        return "\n".join(f"{name} = {write(item)}" for name, item in items)

    return write_lines


def _as_mode(value: JsonValue) -> str:
    return f"{LISTED} {', '.join(map(str, value))}" if isinstance(value, list) else str(value)


_WRITERS: Mapping[str, Callable[[JsonValue], str]] = {
    "number": _as_number,
    "whole": _as_number,
    "list": lambda value: "\n".join(map(str, value)) if isinstance(value, list) else "",
    "modes": _as_lines(_as_mode),
    "values": _as_lines(lambda value: _as_json(value)[1:-1]),
    "patterns": _as_lines(str),
    "tolerances": _as_lines(_as_number),
}
