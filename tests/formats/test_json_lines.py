"""JSON on each line: one line after the other, in little memory."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from evaldesk import formats
from evaldesk.errors import FormatError
from evaldesk.reading import regular_file
from evaldesk.reading.json_lines import read_lines


@pytest.mark.parametrize(
    ("data", "found"),
    [
        pytest.param(b"", [], id="empty"),
        pytest.param(b"1", [(1, 1)], id="no line break at the end"),
        pytest.param(b"1\n", [(1, 1)], id="a line break at the end"),
        pytest.param(b"\xef\xbb\xbf1\n2", [(1, 1), (2, 2)], id="byte order mark"),
        pytest.param(b"\n \r\n1\r\n\n2\n\n", [(3, 1), (5, 2)], id="blank lines"),
    ],
)
def test_lines_are_numbered_as_in_the_file(data: bytes, found: list[tuple[int, int]]) -> None:
    assert [(line.number, line.value) for line in read_lines(data, "x.jsonl")] == found


def test_lines_before_a_wrong_one_are_read() -> None:
    lines = read_lines(b"1\n2\n{", "x.jsonl")

    assert [next(lines).value, next(lines).value] == [1, 2]
    with pytest.raises(FormatError, match=r"x\.jsonl:3:"):
        next(lines)


@pytest.mark.long
def test_the_memory_of_reading_does_not_grow_with_the_lines() -> None:
    data = b'{"user_prompt": "say it"}\n' * 20_000
    thresholds = gc.get_threshold()

    gc.set_threshold(700)  # tests have larger ones
    tracemalloc.start()
    try:
        n_lines = sum(1 for _ in read_lines(data, "x.jsonl"))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.set_threshold(*thresholds)

    assert n_lines == 20_000
    assert peak < 100_000, "the lines alone have more than a megabyte"


def test_a_data_set_is_not_cut_off_where_it_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    row = b'{"user_prompt": "say it"}\n'
    path.write_bytes(row * 2 + b"\n")
    monkeypatch.setattr(regular_file.read_regular_file, "__defaults__", (2 * len(row),))

    with pytest.raises(FormatError, match="more than 0 MiB, the most that is read"):
        formats.load_evalset(path)
