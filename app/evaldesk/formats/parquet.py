"""Parquet files, through pyarrow where it is installed (the extra `parquet`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evaldesk.errors import FormatError
from evaldesk.wire import plain

MAX_UNPACKED = 512 * 1024 * 1024
MAX_BATCH_BYTES = 64 * 1024 * 1024
MAX_BATCH = 10_000
ROW_BYTES = 500
"""What a row takes in memory beside its values."""


def read_parquet(data: bytes, source: str) -> list[Any]:
    """The rows as JSON objects; dates, decimals and bytes as text. Raises FormatError."""
    pyarrow, parquet = _pyarrow(source)
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        sizes = [file.metadata.row_group(index).total_byte_size for index in range(file.metadata.num_row_groups)]
        _check_size(sum(sizes), source)
        rows = list(_rows(file, max(sizes, default=0), source))
    except FormatError:
        raise
    except Exception as error:  # pyarrow raises whatever its readers meet
        raise FormatError(f"Error reading Parquet file: {error}", source=source) from None
    return [plain(row) for row in rows]


def _rows(file: Any, widest: int, source: str) -> Iterator[Any]:
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
    except Exception as error:  # pyarrow raises whatever its writers meet
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
