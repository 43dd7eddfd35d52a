"""Parquet files, through pyarrow where it is installed (the extra `parquet`)."""

from __future__ import annotations

from typing import Any

from evaldesk.errors import FormatError
from evaldesk.wire import plain

MAX_UNPACKED = 512 * 1024 * 1024


def read_parquet(data: bytes, source: str) -> list[Any]:
    """The rows as JSON objects; dates, decimals and bytes as text. Raises FormatError."""
    pyarrow, parquet = _pyarrow(source)
    try:
        file = parquet.ParquetFile(pyarrow.BufferReader(data))
        groups = [file.metadata.row_group(index) for index in range(file.metadata.num_row_groups)]
        n_bytes = sum(group.total_byte_size for group in groups)
        if n_bytes > MAX_UNPACKED:
            raise FormatError(f"unpacked it has {n_bytes} bytes; at most {MAX_UNPACKED} are read", source=source)
        rows = file.read().to_pylist()
    except FormatError:
        raise
    except Exception as error:  # pyarrow raises whatever its readers meet
        raise FormatError(f"Error reading Parquet file: {error}", source=source) from None
    return [plain(row) for row in rows]


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
