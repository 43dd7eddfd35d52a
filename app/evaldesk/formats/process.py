"""The module behind `python -m evaldesk.formats.process`: reads one file, so that its reader can be ended or forgotten.

On its input a line with a Request, then the bytes of the file; on its output one Answer. Nothing else is said.
"""

from __future__ import annotations

import os
import sys
from typing import BinaryIO

import msgspec

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.wire import from_json, to_json

NICENESS = 5
"""Pages go first."""


class Request(msgspec.Struct, frozen=True):
    """The name of the file, and the key by which its trials passed; empty for the usual one."""

    source: str
    outcome: str = ""


class Refusal(msgspec.Struct, frozen=True):
    """A FormatError, as its parts."""

    reason: str
    source: str
    path: str
    line: int | None
    column: int | None

    def error(self) -> FormatError:
        """The error again."""
        return FormatError(self.reason, source=self.source, path=self.path, line=self.line, column=self.column)


class Answer(msgspec.Struct, frozen=True):
    """The contents of the file, or why it cannot be read."""

    imported: Imported | None = None
    refusal: Refusal | None = None


def answer_to(request: Request, data: bytes) -> Answer:
    """Read the file."""
    try:
        return Answer(read_file(data, request.source, outcome=request.outcome))
    except FormatError as error:
        return Answer(refusal=Refusal(error.reason, error.source, error.path, error.line, error.column))


def main(source: BinaryIO, target: BinaryIO) -> None:
    """Answer the one request."""
    os.nice(NICENESS)
    request = from_json(source.readline(), Request)
    target.write(to_json(answer_to(request, source.read())))
    target.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
