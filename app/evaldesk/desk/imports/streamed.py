"""Large files of cases, read case by case into an index, so that memory does not grow with them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, TypeAlias, cast

from evaldesk.durable_files import replace_file
from evaldesk.errors import FormatError
from evaldesk.formats.adk.evalset import AdkStream
from evaldesk.formats.exchange import MAX_ROW, Imported, LargeRunFormat, OutcomeFormat, RowFormat, RowReader
from evaldesk.formats.files import load_format, recognised
from evaldesk.formats.import_words import CaseCounts, with_words
from evaldesk.model import Case, EvalSet
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.reading.regular_file import open_regular_file
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import MAX_BYTES, MAX_RECORDED_BYTES
from evaldesk.store.evalsets.case_index import IndexedCases, index_path, new_index
from evaldesk.store.evalsets.large import MAX_SET, is_whole
from evaldesk.store.evalsets.set_writer import SetWriter
from evaldesk.transcripts.recorded import file_stem

# Larger files of cases are refused; files of runs have no bound but the disk (decision 187).
MAX_FILE = 512 * 1024 * 1024
"""Bytes of a file that is read whole."""
HEAD = 64 * 1024
"""So much of a file shows its format."""
HEAD_OF_OBJECT = 1024 * 1024
"""So much of a file that is one object: what stands before its long list may be large."""
_NAME = "set.evalset.json"
_BLANK = b"\xef\xbb\xbf \t\r\n"
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{},]', re.DOTALL)
_CLOSING = {b"{": b"}", b"[": b"]"}


Watch: TypeAlias = Callable[[int, int], None]
"""Is told how many of how many bytes are read."""


def stream_file(
    path: Path,
    format_name: str | None = None,
    outcome: str = "",
    watch: Watch | None = None,
    tail: bytes = b"",
    source: str = "",
) -> Imported | None:
    """The contents of a large file; None where the file is to be read whole, also for the fault that it names then.

    `tail` are lines after those of the file, `source` is its name where that is not its path. Raises FormatError for a
    fault of a file that is too large for that, and OSError.
    """
    with open_regular_file(path) as file:
        n_bytes = path.stat().st_size
        if not path.is_file() or is_whole(n_bytes):
            return None
        source = source or str(path)
        name = format_name or recognise_format(file, source)
        file.seek(0)
        file_format = load_format(name) if name else None
        stream = _Told(file, n_bytes, watch or (lambda _, __: None), tail)
        if name and isinstance(file_format, LargeRunFormat) and (not outcome or isinstance(file_format, OutcomeFormat)):
            return _runs(file_format, stream, source, outcome)
        if name is None or not (name == "adk" or isinstance(file_format, RowFormat)) or n_bytes > MAX_SET or outcome:
            return None
        try:
            with TemporaryDirectory(prefix="evaldesk-") as folder:
                home, binary = Path(os.path.realpath(folder)), cast("BinaryIO", stream)
                if isinstance(file_format, RowFormat):
                    return _rows(file_format.open_rows(binary, source), source, home, name)
                return _adk(binary, path, source, home)
        except (NotStreamedError, UnicodeDecodeError):
            return None
        except FormatError:
            if name == "adk" and n_bytes > MAX_BYTES:
                raise
            return None


_KEYS_OF_DATASETS = (b'"eval_case_id"', b'"agent_data"', b'"evalCaseId"', b'"agentData"')
"""Keys of agents-cli, whose datasets are read whole."""


def recognise_format(file: BinaryIO, source: str, *, is_complete: bool = False) -> str | None:
    """The format of an open file by its beginning, or by all of it with `is_complete`; None for an unknown one."""
    if is_complete:
        try:
            return recognised(file.read(), source)
        finally:
            peek.cache_clear()
    head = file.read(HEAD)
    if not head.lstrip(_BLANK).startswith((b"{", b"[")):
        return recognised(head[: head.rfind(b"\n") + 1], source)
    if (b'"eval_cases"' in head or b'"evalCases"' in head) and not any(key in head for key in _KEYS_OF_DATASETS):
        return "adk"
    format_name = recognised(head[: head.rfind(b"\n") + 1], source)
    try:
        return format_name or recognised(_complete_json(head + file.read(HEAD_OF_OBJECT)), source)
    finally:
        peek.cache_clear()


def _complete_json(head: bytes) -> bytes:
    """The beginning of a JSON value, made whole: up to its last comma, with the brackets closed that are open there."""
    is_open: list[bytes] = []
    end, closing = 0, b""
    for token in _TOKENS.finditer(head):
        sign = token[0]
        if sign in _CLOSING:
            is_open.append(_CLOSING[sign])
        elif sign == b",":
            end, closing = token.start(), b"".join(reversed(is_open))
        elif not sign.startswith(b'"') and is_open:
            is_open.pop()
    return head[:end] + closing


def _runs(file_format: LargeRunFormat, file: _Told, source: str, outcome: str) -> Imported | None:
    file.n_readings = file_format.n_readings
    try:
        imported = file_format.read_large(cast("BinaryIO", file), source=source, outcome=outcome)
        file.tell_end()
        return with_words(imported)
    except NotStreamedError:
        return None
    except FormatError as error:
        if file.n_bytes <= MAX_RECORDED_BYTES:
            return None
        raise error if error.source else FormatError(error.reason, source=source, path=error.path) from error


class _Told(io.BufferedIOBase):
    """An open file that reports its progress, followed by additional lines."""

    def __init__(self, file: BinaryIO, n_bytes: int, watch: Watch, tail: bytes) -> None:
        self._file = file
        self._watch = watch
        self._tail = tail.splitlines(keepends=True)
        self._n_read = self._n_before = self._n_told = 0
        self.n_bytes = n_bytes
        self.n_readings = 1

    def readable(self) -> bool:
        return True

    def read(self, n: int | None = -1, /) -> bytes:
        return self._tell(self._file.read(-1 if n is None else n))

    read1 = read

    def readline(self, n: int | None = -1, /) -> bytes:
        return self._tell(self._file.readline(-1 if n is None else n))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._file.seek(offset, whence)
        if self._n_read > self.n_bytes // 2 and self._n_before < (self.n_readings - 1) * self.n_bytes:
            self._n_before += self.n_bytes
        self._n_read = 0
        return offset

    def __iter__(self) -> Iterator[bytes]:
        while line := self._file.readline(MAX_ROW):  # a line without end is refused by its reader
            yield self._tell(line)
        yield from self._tail

    def tell_end(self) -> None:
        """Report the end of the reading, also after fewer passes than the format may need."""
        self._watch(self.n_bytes, self.n_bytes)

    def _tell(self, data: bytes) -> bytes:
        self._n_read += len(data)
        # a reader may look at the beginning first, and then begin again
        self._n_told = max(self._n_told, (self._n_before + self._n_read) // self.n_readings)
        self._watch(self._n_told, self.n_bytes)
        return data


def _adk(file: BinaryIO, path: Path, source: str, folder: Path) -> Imported:
    counts, stream = CaseCounts(), AdkStream(file, source)
    with new_index(folder) as index:
        for item, case in stream:
            counts.add(case)
            index.add(item, case)
        facts = index.finish(stream.evalset, stream.digest[:32])
    cases = IndexedCases(Path(os.path.realpath(path)), index_path(folder, facts.version))
    return with_words(Imported("adk", cases.evalset), counts)


def _rows(reader: RowReader, source: str, folder: Path, name: str) -> Imported:
    """The rows as cases of a set of ADK, which is written beside them. Raises FormatError for an inexact case."""
    counts = CaseCounts()

    def cases() -> Iterator[Case]:
        for case, _ in reader:
            counts.add(case)
            yield case

    with new_index(folder) as index:
        writer = SetWriter(EvalSet(file_stem(source)), source, index, cases=cases())
        replace_file(folder / _NAME, writer)
    indexed = IndexedCases(folder / _NAME, index_path(folder, writer.version))
    if indexed.repeated_ids():
        raise FormatError("a case_id is there twice", source=source)
    return with_words(reader.build_import(name, indexed.evalset), counts)
