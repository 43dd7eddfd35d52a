"""The input of a form: JSON read as strictly as a file, and problems beside the fields."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from evaldesk.errors import FormatError, UsageError
from evaldesk.model import JsonObject, JsonValue
from evaldesk.reading.strict_json import kind_of, parse_json


@dataclass(slots=True)
class Problems:
    """The faults of a form: field id -> (the name of the field, one sentence)."""

    faults: dict[str, tuple[str, str]] = field(default_factory=dict)

    def add(self, name: str, label: str, message: str) -> None:
        """Keep the first problem of each field."""
        self.faults.setdefault(name, (label, message))

    def get(self, name: str) -> str:
        """The sentence to show at a field; empty when it is right."""
        return self.faults.get(name, ("", ""))[1]

    def __len__(self) -> int:
        return len(self.faults)

    def __iter__(self) -> Iterator[tuple[str, str, str]]:
        return ((name, label, message) for name, (label, message) in self.faults.items())


def json_value(text: str) -> JsonValue:
    """The JSON value that `text` holds, as strictly as a file is read. Raises UsageError with line and column."""
    try:
        return parse_json(text.encode("utf-8", "replace"), source="").value
    except FormatError as error:
        raise UsageError(error_sentence(error)) from error


def typed_value(text: str) -> JsonValue:
    """The value of a typed text: JSON where it parses, else the text itself."""
    try:
        return json_value(text)
    except UsageError:
        return text


def json_object(text: str) -> JsonObject:
    """The JSON object that `text` holds; nothing typed is an empty one. Raises UsageError."""
    if not text.strip():
        return {}
    value = json_value(text)
    if not isinstance(value, dict):
        raise UsageError(f'This must be an object such as {{"key": "value"}}, not {kind_of(value)}.')
    return value


def error_sentence(error: FormatError) -> str:
    """A format error as a sentence of a form: line and column first, no file name."""
    place = f"Line {error.line}, column {error.column}: " if error.line else ""
    path = f"{error.path}: " if error.path else ""
    return f"{place}{path}{error.reason}."
