"""Reads one file in a process of its own, `python -m evaldesk.formats.process`, which can be ended or forgotten.

On its input a line with a Request, then the bytes of the file unless the request has its path; on its output one
Answer. Nothing else is said.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.formats.mapped_rows import read_columns, read_mapped
from evaldesk.wire import from_json, to_json

NICENESS = 5
"""Pages go first."""
SMALL = 512 * 1024
"""Up to so many bytes are read at once: a process costs as much as a MiB does."""
TIMEOUT_S = 120.0
TIMEOUT_LARGE_S = 1_200.0
PACKED_MAGIC = (b"PK", b"PAR1")
"""How archives and Parquet begin: a small one may hold much."""
COMMAND = (sys.executable, "-P", "-m", "evaldesk.formats.process")


def read_upload(data: bytes, source: str, outcome: str = "", columns: str = "") -> Imported:
    """The contents of an uploaded file, by a mapping such as `input=question` where `columns` has one.

    Raises FormatError, also for a file that takes too long or too much.
    """
    if len(data) <= SMALL and not data.startswith(PACKED_MAGIC):
        return _contents(data, source, outcome, columns)
    return _read_apart(to_json(Request(source, outcome, columns=columns)) + b"\n" + data, source, TIMEOUT_S)


def _contents(data: bytes, source: str, outcome: str, columns: str) -> Imported:
    return read_mapped(data, source, read_columns(columns)) if columns else read_file(data, source, outcome=outcome)


def read_large_upload(path: Path, source: str, outcome: str = "") -> Imported:
    """As `read_upload`, of a file that only the other process has in memory."""
    return _read_apart(to_json(Request(source, outcome, str(path))), source, TIMEOUT_LARGE_S)


def _read_apart(request: bytes, source: str, timeout_s: float) -> Imported:
    try:
        process = subprocess.run(COMMAND, input=request, capture_output=True, timeout=timeout_s, check=False)
        answer = from_json(process.stdout, Answer)
    except subprocess.TimeoutExpired:
        raise _too_much(source, f"it was not read within {timeout_s:g} s") from None
    except msgspec.MsgspecError:
        raise _too_much(source, "reading it broke off") from None
    if answer.imported is None:
        raise answer.refusal.error() if answer.refusal else _too_much(source, "reading it broke off")
    return answer.imported


def _too_much(source: str, what: str) -> FormatError:
    return FormatError(f"{what}; `evaldesk import FILE` on the command line has no such limit", source=source)


class Request(msgspec.Struct, frozen=True):
    """The name of the file, the key by which its trials passed, or none for the usual one, and where a large one is.

    `columns` is the mapping of a data set of no known format.
    """

    source: str
    outcome: str = ""
    path: str = ""
    columns: str = ""


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
        return Answer(_contents(data, request.source, request.outcome, request.columns))
    except FormatError as error:
        return Answer(refusal=Refusal(error.reason, error.source, error.path, error.line, error.column))


def main(source: BinaryIO, target: BinaryIO) -> None:
    """Answer the one request."""
    os.nice(NICENESS)
    request = from_json(source.readline(), Request)
    data = Path(request.path).read_bytes() if request.path else source.read()
    target.write(to_json(answer_to(request, data)))
    target.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
