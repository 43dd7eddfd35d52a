"""Data sets of Osmosis in their four kinds of file: JSON lines, a JSON list, CSV and Parquet.

Errors are in the words of Osmosis, with the number of the row from 0.
(osmosis-sdk rollout/eval/common/dataset.py v0.2.14, platform/cli/dataset.py; reference/osmosis.md 1.1, 1.4)
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, time, timedelta
from decimal import Decimal
from sys import getsizeof
from typing import Any, BinaryIO
from uuid import UUID

from evaldesk.errors import NAME_LIMIT, FormatError
from evaldesk.formats.exchange import Holding, Imported
from evaldesk.model import Case, EvalSet, Expected, Turn
from evaldesk.reading.json_lines import read_lines, write_lines
from evaldesk.reading.json_text import to_text
from evaldesk.reading.notes import Notes
from evaldesk.reading.sniffing import peek
from evaldesk.reading.strict_json import Document, JsonPosition, decode_text, parse_json
from evaldesk.reading.values import read_list, read_mapping
from evaldesk.reading.zip_members import MAX_RATIO
from evaldesk.transcripts.recorded import RecordedRun, file_stem
from evaldesk.wire import MAX_DEPTH, plain_json

Fault = Callable[[str], FormatError]
"""Makes the error of a row."""

PROMPTS = ("system_prompt", "user_prompt", "ground_truth", "label")
CONTRACT = (*PROMPTS, "metadata")
"""The columns that Osmosis knows; the others are of the user."""
_KINDS: dict[type, str] = {dict: "dict", list: "list", str: "str", int: "int", float: "float", bool: "bool"}
_WRITES: tuple[Holding, ...] = ("evalset",)
_Row = tuple[JsonPosition, Any, Fault]


class OsmosisLines:
    """One row on each line, an object with `user_prompt`, `ground_truth` and `system_prompt`, or with `metadata`."""

    title = "Osmosis data set, JSON lines"
    suffixes = (".jsonl",)
    writes = _WRITES

    @staticmethod
    def recognises(data: bytes, source: str) -> bool:
        """Whether the first line is an object with the columns of a row."""
        preview = peek(data)
        is_lines = preview.document is None or source.lower().endswith(".jsonl")
        return is_lines and isinstance(preview.line, dict) and is_row(preview.line)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows as cases. Raises FormatError."""
        return _build_import("osmosis-jsonl", source, lambda: _lines(data, source))

    @staticmethod
    def open_rows(file: BinaryIO, source: str) -> RowReader:
        """The rows of an open file, read one by one."""
        return RowReader(source, _lines(file, source))

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
        value = peek(data).document
        rows = value[:100] if isinstance(value, list) else [value]
        return any(isinstance(row, dict) and is_row(row) for row in rows)

    @staticmethod
    def read(data: bytes, *, source: str) -> Imported:
        """The rows as cases. Raises FormatError."""
        document = parse_json(data, source=source)
        if not isinstance(document.value, list):
            raise document.error(f"JSON file must contain an array of objects, got {kind_name(document.value)}")
        return _build_import("osmosis-json", source, lambda: _items(document))

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
        return _build_import("osmosis-csv", source, lambda: _table(data, source))

    @staticmethod
    def open_rows(file: BinaryIO, source: str) -> RowReader:
        """The rows of an open file, read one by one. A file that is no text in UTF-8 raises UnicodeDecodeError."""
        return RowReader(source, _of_open_table(file, source))

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
        return _build_import("osmosis-parquet", source, lambda: _items(Document(rows, source=source)))

    @staticmethod
    def write(what: EvalSet | RecordedRun) -> bytes:
        """The rows of an eval set. Raises FormatError."""
        return write_parquet(_rows(what))

    @staticmethod
    def pack(text: bytes) -> bytes:
        """The file of rows that stand in JSON lines. Raises FormatError."""
        return write_parquet([read_mapping(JsonPosition(line), line.value) for line in read_lines(text, "")])


class RowReader:
    """The cases of rows, one after the other, with notes on all of them at the end. Raises FormatError."""

    def __init__(self, source: str, rows: Iterator[_Row]) -> None:
        self._source = source
        self._rows = rows
        self._notes = Notes()
        self._n = self._n_lacking = 0
        self._first_lacking = 0

    def __iter__(self) -> Iterator[tuple[Case, Fault]]:
        for index, (place, raw, fault) in enumerate(self._rows):
            case = read_row(index, raw, place, fault, self._notes)
            self._n += 1
            if not case.extra.get("system_prompt") and "metadata" not in case.extra:
                self._first_lacking = self._first_lacking if self._n_lacking else index
                self._n_lacking += 1
            yield case, fault
        if not self._n:
            raise FormatError("No rows to evaluate", source=self._source)

    def build_import(self, name: str, evalset: EvalSet) -> Imported:
        """The eval set with the notes of its rows."""
        return Imported(name, evalset, refused=self._notes.sentences, warnings=self._missing_prompts())

    def _missing_prompts(self) -> tuple[str, ...]:
        """A warning that names the rows without a `system_prompt`, which Osmosis requires; empty when all have one.

        Rows with `metadata` bring their own prompts.
        """
        n = self._n_lacking
        if not n:
            return ()
        row_words = "row" if n == 1 else f"{n:,} of {self._n:,} rows, first row"
        return (
            f"Warning: no system_prompt in {row_words} {self._first_lacking}; Osmosis requires this column. "
            "The agent gets no system message there.",
        )


def _of_open_table(file: BinaryIO, source: str) -> Iterator[_Row]:
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    try:
        yield from _of_table(text, source)
    finally:
        text.detach()  # the file is closed by the one who opened it


def _build_import(name: str, source: str, rows: Callable[[], Iterator[_Row]]) -> Imported:
    reader = RowReader(source, rows())
    cases: dict[str, Case] = {}
    for index, (case, fault) in enumerate(reader):
        if case.id in cases:
            raise fault(f"Row {index}: the case_id {case.id!r} is there twice")
        cases[case.id] = case
    return reader.build_import(name, EvalSet(file_stem(source), cases=tuple(cases.values())))


def _lines(data: bytes | BinaryIO, source: str) -> Iterator[_Row]:
    try:
        for line in read_lines(data, source):
            yield JsonPosition(line), line.value, line.error
    except FormatError as error:
        if error.line is None or error.reason.lower().startswith("row "):
            raise
        reason = f"Invalid JSON at line {error.line}: {error.reason}"
        raise FormatError(reason, source=source, path=error.path, line=error.line, column=error.column) from None


def _items(document: Document) -> Iterator[_Row]:
    for index, item in enumerate(read_list(JsonPosition(document), document.value, lambda _, raw: raw)):
        place = JsonPosition(document).at(index)

        def fault(message: str, place: JsonPosition = place) -> FormatError:
            error = place.error(message)  # its message names the row, so the path would say it again
            return FormatError(message, source=error.source, line=error.line, column=error.column)

        yield place, item, fault


def _table(data: bytes, source: str) -> Iterator[_Row]:
    text = decode_text(data, source)
    _check_text_of_table(text, source)
    return _of_table(io.StringIO(text, newline=""), source)


def _check_text_of_table(text: str, source: str) -> str:
    if "\x00" in text:
        raise FormatError("Invalid CSV file: it holds a NUL character", source=source)
    return text


def _of_table(lines: Iterable[str], source: str) -> Iterator[_Row]:
    reader = csv.DictReader((_check_text_of_table(line, source) for line in lines), strict=True)
    number = 0
    try:
        _check_columns(filter(None, reader.fieldnames or ()), source, 1)
        for number, row in enumerate(reader, 1):

            def fault(message: str, line: int = reader.line_num) -> FormatError:
                return FormatError(message, source=source, line=line)

            if None in row:
                raise fault(f"CSV row {number} has more columns than the header")
            missing_key = next((key for key, cell in row.items() if cell is None and key.lower() in CONTRACT), None)
            if missing_key:  # a file that was cut off ends so, and its last case would be played without its assertion
                raise fault(
                    f"Row {number - 1}: {missing_key!r} cannot be null: the row ends before it; write blank cells, too"
                )
            # a table has no null: a blank cell of a column of Osmosis is one, any other is a key that is not there
            cells = {key: row[key] or None for key in row if row[key] or key in PROMPTS}
            yield JsonPosition(Document(None, source=source)), cells, fault
    except csv.Error as error:
        raise FormatError(f"Invalid CSV file: {error}", source=source, line=reader.line_num or None) from None


def _check_columns(names: Iterable[str], source: str, line: int | None) -> None:
    """Raise FormatError for two columns of one name: a row has room for one of them."""
    if twice := next((name for name, n in Counter(names).items() if n > 1), None):
        raise FormatError(
            f"column {twice[:NAME_LIMIT]!r} stands twice; give each its own name", source=source, line=line
        )


def _rows(what: EvalSet | RecordedRun) -> list[dict[str, Any]]:
    """Raises FormatError for a case that is more, or less, than one prompt with its truth."""
    if isinstance(what, RecordedRun):
        raise FormatError("a data set contains no run; write a run as osmosis-results")
    if not what.cases:
        raise FormatError("the eval set has no cases, and Osmosis takes no data set without rows")
    return [_write_row(index, case) for index, case in enumerate(what.cases)]


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else to_text(value, {"indent": None}, "").decode()


MAX_UNPACKED = 512 * 1024 * 1024
FREE_UNPACKED = 64 * 1024 * 1024
"""The memory that a small file may take: its rows may all have the same long prompt, which stands in it once."""
MAX_BATCH_BYTES = 64 * 1024 * 1024
MAX_BATCH = 10_000
VALUE_BYTES = 100
"""The memory of a number in a list."""


def read_parquet(data: bytes, source: str) -> list[Any]:
    """The rows as JSON objects; dates, decimals and bytes as text.

    Raises FormatError, also for a file that states, or turns out, to need much more memory than it has bytes.
    """
    pyarrow, parquet = _pyarrow(source)
    # 811 bytes of Parquet took 400 MB: decision 407.
    limit = min(MAX_UNPACKED, max(FREE_UNPACKED, MAX_RATIO * len(data)))
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        _check_columns(file.schema_arrow.names, source, None)
        sizes = [_stated_size(file.metadata.row_group(index)) for index in range(file.metadata.num_row_groups)]
        _check_size(sum(sizes), limit, source)
        return [_to_json_value(row) for row in _parquet_rows(file, max(sizes, default=0), limit, source)]
    except FormatError:
        raise
    except Exception as error:  # pyarrow passes on any exception of its readers
        raise FormatError(f"Error reading Parquet file: {error}", source=source) from None


def _stated_size(group: Any) -> int:
    n_values = sum(group.column(index).num_values for index in range(group.num_columns))
    return int(group.total_byte_size + VALUE_BYTES * n_values)


def _parquet_rows(file: Any, widest: int, limit: int, source: str) -> Iterator[Any]:
    """Batch by batch: a value that is stored once may stand in every row, so one row may be as large as a group."""
    n_bytes = 0
    for batch in file.iter_batches(batch_size=min(MAX_BATCH, max(1, MAX_BATCH_BYTES // max(1, widest)))):
        for row in batch.to_pylist():
            n_bytes += _weight(row)
            _check_size(n_bytes, limit, source)
            yield row


def _to_json_value(value: object, depth: int = 0) -> Any:
    """As JSON, uncut; dates, times and decimals as their texts."""
    if depth > MAX_DEPTH:
        raise FormatError(f"nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, dict):
        return {key: _to_json_value(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_value(item, depth + 1) for item in value]
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    if isinstance(value, Decimal | timedelta | UUID):
        return str(value)
    return value if isinstance(value, str) else plain_json(value)


def _weight(value: object) -> int:
    """The memory of a value, with all that is in it."""
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return getsizeof(value) + sum(map(_weight, inside))


def _check_size(n_bytes: int, limit: int, source: str) -> None:
    if n_bytes > limit:
        raise FormatError(
            f"unpacked it takes more than {limit // 2**20} MiB of memory, which is refused for a file of this size; "
            "save its rows as JSON lines",
            source=source,
        )


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


def is_row(keys: Iterable[str]) -> bool:
    """Whether an object with these keys means to be a row."""
    lower_keys = {key.lower() for key in keys}
    if "solution_str" in lower_keys:  # a conversation to be graded by a rubric, which is there already
        return False
    return bool(lower_keys & {"user_prompt", "ground_truth"}) or (
        "metadata" in lower_keys and lower_keys <= {"metadata", "label", "system_prompt"}
    )


def read_row(index: int, raw: Any, place: JsonPosition, fault: Fault, notes: Notes) -> Case:
    """The case of a row: the prompt is its query, the ground truth its reference, every other column its `extra`."""
    if not isinstance(raw, dict):
        raise fault(f"Row {index}: Expected object, got {kind_name(raw)}")
    row = _columns(index, raw, place, fault, notes)
    metadata = _metadata(index, row, fault)
    if metadata is not None:
        row["metadata"] = metadata
    if metadata is None and "user_prompt" not in row:
        raise fault(f"Row {index}: Missing required columns: ['user_prompt']")
    truth = "label" if "ground_truth" not in row and "label" in row else "ground_truth"
    for name in (truth, "user_prompt", "system_prompt"):
        _check_text(index, name, row, fault, is_needed=name == "user_prompt" and metadata is None)
    extra = {key: value for key, value in row.items() if key not in ("user_prompt", "ground_truth", "case_id")}
    own_id = row.get("case_id")
    return Case(
        own_id if isinstance(own_id, str) and own_id else f"row_{index}",
        turns=(Turn(row.get("user_prompt") or "", Expected(reference=row.get(truth))),),
        extra=extra,
    )


def kind_name(value: Any) -> str:
    """Python's name for the type of a JSON value."""
    return _KINDS.get(type(value), "NoneType" if value is None else type(value).__name__)


def _columns(index: int, raw: Mapping[str, Any], place: JsonPosition, fault: Fault, notes: Notes) -> dict[str, Any]:
    """The row with the names that Osmosis knows in lower case."""
    row: dict[str, Any] = {}
    for key, value in raw.items():
        name = key.lower() if key.lower() in CONTRACT else key
        if name in row:
            raise fault(f"Row {index}: the column {name!r} is there twice")
        if name.startswith("$"):
            notes.refuse(f"column {name[:NAME_LIMIT]!r}, a name that Evaldesk keeps for itself", place)
        else:
            row[name] = value
    return row


def _metadata(index: int, row: Mapping[str, Any], fault: Fault) -> dict[str, Any] | None:
    raw = row.get("metadata")
    if raw is None or raw == "":
        return None
    if isinstance(raw, str):
        try:
            raw = parse_json(raw.encode("utf-8", "surrogatepass"), source="").value
        except FormatError as error:
            raise fault(f"row {index}: metadata is not valid JSON ({error})") from None
    if not isinstance(raw, dict):
        raise fault(f"row {index}: metadata must be a JSON object")
    return raw


def _check_text(index: int, name: str, row: dict[str, Any], fault: Fault, *, is_needed: bool) -> None:
    value = row.get(name)
    if value is None and not is_needed:
        row.pop(name, None)
    elif value is None:
        raise fault(f"Row {index}: '{name}' cannot be null")
    elif not isinstance(value, str):
        raise fault(f"Row {index}: '{name}' must be a string, got {kind_name(value)}")
    elif not value.strip() and is_needed:
        raise fault(f"Row {index}: '{name}' cannot be empty")


def _write_row(index: int, case: Case) -> dict[str, Any]:
    where = f"case {case.id!r}"
    if case.scenario is not None:
        raise FormatError(f"{where} is a scenario; a row of Osmosis holds one prompt")
    if len(case.turns) != 1:
        raise FormatError(f"{where} has {len(case.turns)} turns; a row of Osmosis holds one prompt")
    turn = case.turns[0]
    if turn.expected.tool_calls is not None:
        raise FormatError(f"{where} asserts tool calls; a row of Osmosis has no word for them")
    if not turn.query.strip() and "metadata" not in case.extra:
        raise FormatError(f"{where} has an empty query, which Osmosis does not take as user_prompt")
    if turn.media:
        raise FormatError(f"{where} has {turn.media[0].title()}; a row of Osmosis holds text alone")
    if case.initial_state:
        raise FormatError(f"{where} starts from a state; a row of Osmosis has no word for it")
    extra = {key: value for key, value in case.extra.items() if not key.startswith("$")}
    truth = "label" if "label" in extra else "ground_truth"
    row: dict[str, Any] = {} if case.id == f"row_{index}" else {"case_id": case.id}
    row |= {"system_prompt": extra["system_prompt"]} if "system_prompt" in extra else {}
    row |= {"user_prompt": turn.query} if turn.query or "metadata" not in extra else {}
    row |= {truth: turn.expected.reference} if turn.expected.reference is not None else {}
    return {**row, **{key: value for key, value in extra.items() if key not in row}}
