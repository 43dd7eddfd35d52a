"""The documents that a file is: one, or one on each line."""

from __future__ import annotations

from collections.abc import Iterator

from evaldesk.formats.json_lines import read_lines
from evaldesk.formats.peeking import peek
from evaldesk.formats.strict_json import MAX_RECORDED_BYTES, Document, parse_json


def read_documents(data: bytes, source: str) -> Iterator[Document]:
    """The whole file, or each of its lines when its first line is an object and the whole is no JSON.

    Raises FormatError, at a line only when it is reached.
    """
    seen = peek(data)
    if seen.whole is None and seen.line is not None:
        yield from read_lines(data, source)
    else:
        yield parse_json(data, source=source, max_bytes=MAX_RECORDED_BYTES)
