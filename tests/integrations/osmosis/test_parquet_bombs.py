"""Small files that unpack to much are refused before they fill the memory."""

from __future__ import annotations

from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.integrations.osmosis import dataset as parquet

REFUSED = "unpacked it takes more than 9 MiB of memory, which is refused for a file of this size"


def packed(columns: dict[str, Any]) -> bytes:
    pyarrow = pytest.importorskip("pyarrow")
    writer = pytest.importorskip("pyarrow.parquet")
    out = pyarrow.BufferOutputStream()
    writer.write_table(pyarrow.table(columns), out, compression="zstd")
    data: bytes = out.getvalue().to_pybytes()
    return data


@pytest.mark.parametrize("value", ["x" * 100_000, ["x" * 100_000], "🎲" * 3_000], ids=["text", "list", "wide text"])
def test_a_value_that_stands_in_every_row_is_counted_in_every_row(
    monkeypatch: pytest.MonkeyPatch, value: object
) -> None:
    monkeypatch.setattr(parquet, "FREE_UNPACKED", 10_000_000)
    monkeypatch.setattr(parquet, "MAX_BATCH_BYTES", 1_000_000)
    data = packed({"user_prompt": [value] * 1000})
    assert len(data) < 10_000

    with pytest.raises(FormatError, match=REFUSED):
        parquet.read_parquet(data, "bomb.parquet")


@pytest.mark.parametrize("is_in_list", [False, True], ids=["rows", "a list in a row"])
def test_a_file_that_states_too_many_values_is_refused_before_any_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, is_in_list: bool
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    monkeypatch.setattr(parquet, "FREE_UNPACKED", 10_000_000)
    monkeypatch.setattr(parquet, "_parquet_rows", lambda *_: pytest.fail("it was unpacked"))
    numbers = pyarrow.repeat(0, 200_000)
    data = packed({"n": pyarrow.ListArray.from_arrays([0, 200_000], numbers) if is_in_list else numbers})
    assert len(data) < 2_000

    with pytest.raises(FormatError, match=REFUSED):
        parquet.read_parquet(data, "bomb.parquet")


def test_a_small_file_whose_rows_share_a_long_prompt_is_read() -> None:
    data = packed({"system_prompt": ["Be brief. " * 500] * 2_000, "user_prompt": [f"{n}" for n in range(2_000)]})
    assert len(data) < 50_000

    rows = parquet.read_parquet(data, "rows.parquet")

    assert (len(rows), len(rows[-1]["system_prompt"])) == (2_000, 5_000)
