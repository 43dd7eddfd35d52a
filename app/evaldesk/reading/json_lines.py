"""JSON on each line: read as strictly as a whole file, with errors that know their line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from evaldesk.errors import FormatError
from evaldesk.reading.json_places import JsonPath
from evaldesk.reading.json_text import to_text
from evaldesk.reading.strict_json import DECODER, RECORDED_DECODER, Document, decode_text, parse_json

MAX_LINES_BYTES = 512 * 1024 * 1024
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Line(Document):
    """One line as a document; its errors name the line of the file."""

    number: int = 1

    @property
    def part(self) -> str:
        """The line, in words."""
        return f"line {self.number}"

    def error(self, message: str, path: JsonPath = ()) -> FormatError:
        """The error that says `message` of the value at `path`."""
        fault = Document.error(self, message, path)
        return FormatError(message, source=self.source, path=fault.path, line=self.number, column=fault.column)


def read_recorded_lines(data: bytes | BinaryIO, source: str) -> Iterator[Line]:
    """As `read_lines`, of a file of recorded runs, in which NaN and infinities are texts."""
    return read_lines(data, source, RECORDED_DECODER)


def read_lines(data: bytes | BinaryIO, source: str, decoder: json.JSONDecoder = DECODER) -> Iterator[Line]:
    """The lines of a text, or of an open file, that are not blank.

    Raises FormatError, at the first line that is not JSON for the whole file.
    """
    if isinstance(data, bytes) and len(data) > MAX_LINES_BYTES:
        raise FormatError(f"the file has {len(data)} bytes; at most {MAX_LINES_BYTES} are read", source=source)
    lines = _raw_lines(data) if isinstance(data, bytes) else (line.removesuffix(b"\n") for line in data)
    for number, line in enumerate(lines, 1):
        if number == 1:
            if line[:2] in (b"\xff\xfe", b"\xfe\xff"):
                decode_text(line[:4], source)
            line = line.removeprefix(_MARK)  # noqa: PLW2901
        if not line.strip():
            continue
        try:
            document = parse_json(line, source=source, decoder=decoder)
        except FormatError as error:
            reason = error.reason.replace("trailing comma at line 1;", f"trailing comma at line {number};")
            raise FormatError(reason, source=source, path=error.path, line=number, column=error.column) from None
        yield Line(document.value, document.text, source, number)


def _raw_lines(data: bytes) -> Iterator[bytes]:
    """The lines of a text, one at a time: a large file is not held twice."""
    start = 0
    while (end := data.find(b"\n", start)) >= 0:
        yield data[start:end]
        start = end + 1
    yield data[start:]


def write_lines(values: Iterable[Any], source: str) -> bytes:
    """One line for each value. Raises FormatError for a value that JSON in UTF-8 cannot hold."""
    return b"".join(to_text(value, {"indent": None}, source) + b"\n" for value in values)
