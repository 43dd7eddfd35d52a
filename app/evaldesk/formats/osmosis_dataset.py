"""Data sets of Osmosis in their four kinds of file: JSON lines, a JSON list, CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, Imported, RecordedRun
from evaldesk.formats.json_lines import read_lines, write_lines
from evaldesk.formats.json_text import to_text
from evaldesk.formats.notes import Notes
from evaldesk.formats.osmosis_rows import Fault, is_row, kind_name, read_row, write_rows
from evaldesk.formats.parquet import read_parquet, write_parquet
from evaldesk.formats.peeking import peek
from evaldesk.formats.reading import read_list
from evaldesk.formats.recorded import file_stem
from evaldesk.formats.strict_json import Document, Place, decoded, parse_json
from evaldesk.model import Case, EvalSet

_WRITES: tuple[Holding, ...] = ("evalset",)
_Row = tuple[Place, Any, Fault]


class OsmosisLines:
    """One row on each line, an object with `user_prompt`, `ground_truth` and `system_prompt`, or with `metadata`."""

    title = "Osmosis data set, JSON lines"
    suffixes = (".jsonl",)
    writes = _WRITES

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the first line is an object with the columns of a row."""
        seen = peek(data)
        is_lines = seen.whole is None or source.lower().endswith(".jsonl")
        return is_lines and isinstance(seen.line, dict) and is_row(seen.line)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows as cases. Raises FormatError."""
        return _imported("osmosis-jsonl", source, lambda: _lines(data, source))

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The rows of an eval set. Raises FormatError."""
        rows = _rows(what)
        return write_lines(rows, what.id if isinstance(what, EvalSet) else "")


class OsmosisList:
    """A list of rows."""

    title = "Osmosis data set, JSON"
    suffixes = (".json",)
    writes = _WRITES

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether this is a list with rows, or one row that should be in a list."""
        if source.lower().endswith(".jsonl"):
            return False
        value = peek(data).whole
        rows = value[:100] if isinstance(value, list) else [value]
        return any(isinstance(row, dict) and is_row(row) for row in rows)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows as cases. Raises FormatError."""
        document = parse_json(data, source=source)
        if not isinstance(document.value, list):
            raise document.error(f"JSON file must contain an array of objects, got {kind_name(document.value)}")
        return _imported("osmosis-json", source, lambda: _items(document))

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The rows of an eval set. Raises FormatError."""
        return to_text(_rows(what), {}, "")


class OsmosisTable:
    """A CSV file with a header; every value is text."""

    title = "Osmosis data set, CSV"
    suffixes = (".csv",)
    writes = _WRITES

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the file is called a CSV file."""
        return source.lower().endswith(".csv")

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows as cases. Raises FormatError."""
        return _imported("osmosis-csv", source, lambda: _table(data, source))

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The rows of an eval set; what is no text is written as JSON. Raises FormatError."""
        rows = _rows(what)
        names = list(dict.fromkeys(name for row in rows for name in row))
        out = io.StringIO(newline="")
        writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(value) for name, value in row.items()})
        return out.getvalue().encode("utf-8", "replace")


class OsmosisParquet:
    """A Parquet file, through pyarrow."""

    title = "Osmosis data set, Parquet"
    suffixes = (".parquet",)
    writes = _WRITES

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the bytes begin as Parquet does, or the file is called so."""
        return data[:4] == b"PAR1" or source.lower().endswith(".parquet")

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows as cases. Raises FormatError, also where pyarrow is not installed."""
        rows = read_parquet(data, source)
        return _imported("osmosis-parquet", source, lambda: _items(Document(rows, source=source)))

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The rows of an eval set. Raises FormatError."""
        return write_parquet(_rows(what))


def _imported(name: str, source: str, rows: Callable[[], Iterator[_Row]]) -> Imported:
    notes = Notes()
    cases: dict[str, Case] = {}
    for index, (place, raw, fault) in enumerate(rows()):
        case = read_row(index, raw, place, fault, notes)
        if case.id in cases:
            raise fault(f"Row {index}: the case_id {case.id!r} is there twice")
        cases[case.id] = case
    if not cases:
        raise FormatError("No rows to evaluate", source=source)
    evalset = EvalSet(file_stem(source), cases=tuple(cases.values()))
    return Imported(name, evalset, refused=notes.sentences)


def _lines(data: bytes, source: str) -> Iterator[_Row]:
    try:
        for line in read_lines(data, source):
            yield Place(line), line.value, line.error
    except FormatError as error:
        if error.line is None or error.reason.lower().startswith("row "):
            raise
        reason = f"Invalid JSON at line {error.line}: {error.reason}"
        raise FormatError(reason, source=source, path=error.path, line=error.line, column=error.column) from None


def _items(document: Document) -> Iterator[_Row]:
    for index, item in enumerate(read_list(Place(document), document.value, lambda _, raw: raw)):
        place = Place(document).at(index)
        yield place, item, place.error


def _table(data: bytes, source: str) -> Iterator[_Row]:
    text = decoded(data, source)
    if "\x00" in text:
        raise FormatError("Invalid CSV file: it holds a NUL character", source=source)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    number = 0
    try:
        for number, row in enumerate(reader, 1):

            def fault(message: str, line: int = reader.line_num) -> FormatError:
                return FormatError(message, source=source, line=line)

            if None in row:
                raise fault(f"CSV row {number} has more columns than the header")
            yield Place(Document(None, source=source)), row, fault
    except csv.Error as error:
        raise FormatError(f"Invalid CSV file: {error}", source=source, line=reader.line_num or None) from None


def _rows(what: EvalSet | RecordedRun) -> list[dict[str, Any]]:
    if isinstance(what, RecordedRun):
        raise FormatError("a data set holds no run; write a run as osmosis-results")
    return write_rows(what)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_text(value, {"indent": None}, "").decode()
