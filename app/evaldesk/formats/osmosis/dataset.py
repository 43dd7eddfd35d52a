"""Data sets of Osmosis in their four kinds of file: JSON lines, a JSON list, CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Holding, Imported
from evaldesk.formats.osmosis.rows import Fault, is_row, kind_name, read_row, write_rows
from evaldesk.model import Case, EvalSet
from evaldesk.reading.json_lines import read_lines, write_lines
from evaldesk.reading.json_text import to_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, Place, decoded, parse_json
from evaldesk.reading.values import read_list, read_mapping
from evaldesk.transcripts.recorded import RecordedRun, file_stem
from evaldesk.wire import plain

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
        """The rows of an eval set; a value that is no text is written as JSON. Raises FormatError."""
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

    @staticmethod
    def pack(text: bytes) -> bytes:
        """The file of rows that stand in JSON lines. Raises FormatError."""
        return write_parquet([read_mapping(Place(line), line.value) for line in read_lines(text, "")])


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
    return Imported(name, evalset, refused=notes.sentences, warnings=_missing_prompts(evalset))


def _missing_prompts(evalset: EvalSet) -> tuple[str, ...]:
    """A warning that names the rows without a `system_prompt`, which Osmosis requires; empty when every row has one.

    Rows with `metadata` bring their own prompts.
    """
    lacking = [
        index
        for index, case in enumerate(evalset.cases)
        if not case.extra.get("system_prompt") and "metadata" not in case.extra
    ]
    if not lacking:
        return ()
    n = len(lacking)
    named = "row" if n == 1 else f"{n:,} of {len(evalset.cases):,} rows, first row"
    return (
        f"Warning: no system_prompt in {named} {lacking[0]}; Osmosis requires this column. "
        "The agent gets no system message there.",
    )


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


MAX_UNPACKED = 512 * 1024 * 1024
MAX_BATCH_BYTES = 64 * 1024 * 1024
MAX_BATCH = 10_000
ROW_BYTES = 500
"""The memory of a row beside its values."""


def read_parquet(data: bytes, source: str) -> list[Any]:
    """The rows as JSON objects; dates, decimals and bytes as text. Raises FormatError."""
    pyarrow, parquet = _pyarrow(source)
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        sizes = [file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups)]
        _check_size(sum(sizes), source)
        rows = list(_parquet_rows(file, max(sizes, default=0), source))
    except FormatError:
        raise
    except Exception as error:  # pyarrow passes on any exception of its readers
        raise FormatError(f"Error reading Parquet file: {error}", source=source) from None
    return [plain(row) for row in rows]


def _parquet_rows(file: Any, widest: int, source: str) -> Iterator[Any]:
    """Batch by batch: a value that is stored once may stand in every row, so one row may be as large as a group."""
    n_bytes = 0
    for batch in file.iter_batches(batch_size=min(MAX_BATCH, max(1, MAX_BATCH_BYTES // max(1, widest)))):
        for row in batch.to_pylist():
            n_bytes += ROW_BYTES + _weight(row)
            _check_size(n_bytes, source)
            yield row


def _weight(value: object) -> int:
    """The bytes of texts, however deep in lists and structs."""
    if isinstance(value, dict):
        return sum(map(_weight, value.values()))
    if isinstance(value, list):
        return sum(map(_weight, value))
    return len(value) if isinstance(value, str | bytes) else 0


def _check_size(n_bytes: int, source: str) -> None:
    if n_bytes > MAX_UNPACKED:
        raise FormatError(f"unpacked it has more than {MAX_UNPACKED} bytes, which is refused", source=source)


def write_parquet(rows: list[dict[str, Any]]) -> bytes:
    """A file of these rows. Raises FormatError when a column mixes types."""
    pyarrow, parquet = _pyarrow("")
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = pyarrow.BufferOutputStream()
    try:
        table = pyarrow.Table.from_pylist([{name: row.get(name) for name in names} for row in rows])
        parquet.write_table(table, out)
    except Exception as error:  # pyarrow passes on any exception of its writers
        raise FormatError(f"these rows do not fit into Parquet: {error}") from None
    data: bytes = out.getvalue().to_pybytes()
    return data


def _pyarrow(source: str) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        reason = "Parquet support requires pyarrow. Install with: pip install 'evaldesk[parquet]'"
        raise FormatError(reason, source=source) from None
    return pyarrow, pyarrow.parquet
