"""Small files that unpack to much are refused before they fill the memory."""

from __future__ import annotations

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.osmosis import dataset as parquet


@pytest.mark.parametrize("is_nested", [False, True], ids=["a column", "a list in a column"])
def test_a_value_that_stands_in_every_row_is_counted_in_every_row(
    monkeypatch: pytest.MonkeyPatch, is_nested: bool
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    writer = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(parquet, "MAX_UNPACKED", 10_000_000)
    monkeypatch.setattr(parquet, "MAX_BATCH_BYTES", 1_000_000)
    values: object = ["x" * 100_000] * 1000
    if is_nested:
        values = [["x" * 100_000]] * 1000
    out = pyarrow.BufferOutputStream()
    writer.write_table(pyarrow.table({"user_prompt": values}), out, compression="zstd")
    data = out.getvalue().to_pybytes()
    assert len(data) < 10_000

    with pytest.raises(FormatError, match="unpacked it has more than 10000000 bytes, which is refused"):
        parquet.read_parquet(data, "bomb.parquet")
