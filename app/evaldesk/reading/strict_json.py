"""JSON as it should be: one meaning for every byte, and an error that says where.

Python's own parser takes UTF-16, duplicate keys, NaN, numbers that overflow, half characters and any depth until it
breaks; each of these is refused here, with line and column. A file of recorded runs may hold NaN and numbers that
overflow, since the tools that write it do: they are read as their names.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn

from evaldesk.errors import NAME_LIMIT, FormatError
from evaldesk.model import JsonValue
from evaldesk.reading.json_places import (
    MAX_DIGITS,
    NUMBER_NAMES,
    JsonPath,
    find_place,
    first_fault,
    line_and_column,
    path_text,
)

MAX_BYTES = 10 * 1024 * 1024
MAX_RECORDED_BYTES = 64 * 1024 * 1024
"""Files of recorded runs hold every word of every trial."""
MAX_DEPTH = 64
MAX_CONTAINERS = 2_000_000
"""Objects and lists of one file: 64 MiB of `{}` would fill gigabytes, and real files have one for every 70 bytes."""

_HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")
_NO_MARKS = bytes(set(range(256)) - set(b'[]{}"'))
_STRING = re.compile(rb'"[^"]*"?')
_OTHER_ENCODINGS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed JSON text; `text` is empty when the value was never a text, and then no line is known."""

    value: JsonValue
    text: str = ""
    source: str = ""

    @property
    def part(self) -> str:
        """Which part of the file this is, in words; empty when it is all of it."""
        return self.source.partition("!")[2]

    @property
    def within(self) -> JsonPath:
        """Where in its file the value stands."""
        return ()

    def error(self, message: str, path: JsonPath = ()) -> FormatError:
        """The error that says `message` of the value at `path`, with its line."""
        line, column = find_place(self.text, path) if self.text else (None, None)
        return FormatError(message, source=self.source, path=path_text(path), line=line, column=column)


class JsonPosition(NamedTuple):
    """A value's place in a document while it is being read."""

    document: Document
    path: JsonPath = ()

    def at(self, *steps: str | int) -> JsonPosition:
        """The place `steps` further in."""
        return JsonPosition(self.document, self.path + steps)

    def error(self, message: str) -> FormatError:
        """The error that says `message` of this place."""
        return self.document.error(message, self.path)


class RefusedError(Exception):
    """A hook of the parser met a value it refuses; `first_fault` then names it and its place."""


def parse_recorded_json(data: bytes, *, source: str) -> Document:
    """The document of a file of recorded runs, in which NaN and infinities are texts. Raises FormatError."""
    return parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES, decoder=RECORDED_DECODER)


def parse_json(
    data: bytes, *, source: str, max_bytes: int = MAX_BYTES, decoder: json.JSONDecoder | None = None
) -> Document:
    """The document in `data`. Raises FormatError, and nothing else, for any other content."""
    decoder = decoder or DECODER
    if len(data) > max_bytes:
        raise FormatError(f"the file has {len(data)} bytes; at most {max_bytes} are read", source=source)
    text = decode_text(data, source)
    if not text.strip():
        raise FormatError("the file is empty", source=source)
    check_depth(data, source)
    try:
        value = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise syntax_error(text, error, source) from None
    except RefusedError:
        raise _fault(text, source, decoder) from None
    if has_half_character(text):
        raise _fault(text, source, decoder)
    return Document(value, text, source)


def syntax_error(
    text: str,
    error: json.JSONDecodeError,
    source: str,
    place: Callable[[str, int], tuple[int, int]] = line_and_column,
) -> FormatError:
    """The error in words; `place` gives line and column of an offset in the text."""
    comma = _trailing_comma(text, error.pos)
    line, column = place(text, error.pos if comma is None else comma)
    reason = f"this is not JSON: {error.msg[0].lower()}{error.msg[1:]}".removesuffix(" at")
    if comma is not None:
        reason = f"this is not JSON: trailing comma at line {line}; take the comma out"
    return FormatError(reason, source=source, line=line, column=column)


def has_half_character(text: str) -> bool:
    """Whether half a character stands alone somewhere, which UTF-8 cannot hold."""
    return bool(_HALF_CHARACTER.search(text) and first_fault(text, has_number_names=True))


def _trailing_comma(text: str, at: int) -> int | None:
    """Where the comma is that stands before a closing bracket, if that is the fault found at `at`.

    Python says so itself from 3.13 on, at the comma; before, it expects another value at the bracket.
    """
    before = text[:at].rstrip()
    if text[at : at + 1] in ("]", "}") and before.endswith(","):
        return len(before) - 1
    return at if text[at : at + 1] == "," and text[at + 1 :].lstrip()[:1] in ("]", "}") else None


def kind_of(value: Any) -> str:
    """The type of a JSON value, in the words of an error message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {str(value)[:NAME_LIMIT]}"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def decode_text(data: bytes, source: str) -> str:
    """The text in UTF-8, with or without a byte order mark. Raises FormatError."""
    check_encoding(data, source)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # `error.object` lacks the byte order mark that the codec has taken off.
        before = error.object[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise not_utf8(error.object[error.start], source, line, column) from None


def check_encoding(data: bytes, source: str) -> None:
    """Raise FormatError when the file begins as one of another encoding does."""
    for mark, encoding in _OTHER_ENCODINGS:
        if data.startswith(mark):
            raise FormatError(f"the file is encoded as {encoding}; save it as UTF-8", source=source)
    if b"\x00" in data[:4]:
        raise FormatError("the file is encoded as UTF-16 or UTF-32, or is binary; save it as UTF-8", source=source)


def not_utf8(byte: int, source: str, line: int, column: int) -> FormatError:
    """The error of a byte that no text in UTF-8 has at its place; the column counts bytes."""
    reason = f"byte 0x{byte:02x} is not UTF-8; is it Latin-1? Save the file as UTF-8"
    return FormatError(reason, source=source, line=line, column=column)


def check_depth(data: bytes, source: str, depth: int = 0) -> None:
    """Raise FormatError for a text with more objects and lists, or deeper ones, than are read.

    `depth` is the number of those around it.
    """
    brackets = brackets_in(data)
    if len(brackets) > 2 * MAX_CONTAINERS:
        raise FormatError(f"the file has more than {MAX_CONTAINERS} objects and lists", source=source)
    deepest = depth_of(brackets) + depth
    if deepest > MAX_DEPTH:
        raise FormatError(f"nested {deepest} levels deep; at most {MAX_DEPTH} are read", source=source)


def brackets_in(data: bytes) -> bytes:
    """The brackets of a JSON text in their order, without those in strings; right up to its first fault, if any."""
    marks = data.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _NO_MARKS)
    return _STRING.sub(b"", marks.replace(b'""', b""))  # quotes go in pairs: what is inside of a string stays inside


def depth_of(brackets: bytes) -> int:
    """The depth of nested objects and lists."""
    return max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets), default=0)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise RefusedError
    return fields


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > MAX_DIGITS:
        raise RefusedError
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise RefusedError
    return number


def _number_or_name(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else NUMBER_NAMES[1 if number > 0 else 2]


def _refuse(_: str) -> NoReturn:
    raise RefusedError


DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_integer, parse_float=_finite, parse_constant=_refuse)
"""Takes only JSON that has one meaning. Raises JSONDecodeError and RefusedError."""

RECORDED_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_integer, parse_float=_number_or_name, parse_constant=str
)
"""As DECODER, with NaN and infinities as texts."""


def _fault(text: str, source: str, decoder: json.JSONDecoder) -> FormatError:
    fault = first_fault(text, has_number_names=decoder is RECORDED_DECODER)
    if fault is None:
        return FormatError("a value that JSON cannot hold", source=source)
    line, column = line_and_column(text, fault.offset)
    return FormatError(fault.reason, source=source, path=path_text(fault.path), line=line, column=column)
