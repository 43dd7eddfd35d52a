"""Exports of traces that are read conversation by conversation: the same as read whole, in the memory of one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from tests.formats.test_exported_traces import PAGES, TOOLS, Rows, rows_of
from tests.islands import of_tools

from evaldesk.errors import FormatError
from evaldesk.formats import exported_traces, large_traces
from evaldesk.formats.exchange import Imported, LargeRunFormat
from evaldesk.formats.exported_traces import ExportedTraces
from evaldesk.formats.files import load_format
from evaldesk.formats.large_traces import TracesOnDisk
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.reading.strict_json import Document, JsonPosition

each_tool = pytest.mark.parametrize("tool", [pytest.param(tool, marks=of_tools(tool)) for tool in TOOLS])


def form_of(tool: str) -> type[ExportedTraces]:
    """The format of a tool, which reads large files."""
    form = load_format(tool)
    assert isinstance(form, LargeRunFormat)
    return cast("type[ExportedTraces]", form)


def read_large(tool: str, data: bytes) -> Imported:
    """The contents of a file of `tool` as a large one is read, with its cases and trials in memory."""
    imported = form_of(tool).read_large(io.BytesIO(data), source="traces.json", outcome="")
    assert imported.evalset is not None
    (run,) = imported.runs
    run = replace(run, cases=tuple(run.cases), results=tuple(run.results))
    return replace(imported, evalset=replace(imported.evalset, cases=run.cases), runs=(run,))


def many_rows(tool: str, n: int = 12) -> Rows:
    """The sample of a tool so many times, each a conversation at a later hour; every third continues the one before."""
    rows: Rows = []
    for number in range(n):
        hour = f"T{number:02d}:"
        session = number - (number % 3 == 2)
        for row in rows_of(tool):
            text = json.dumps(row).replace("s-1", f"s-{session:03d}").replace("T12:", hour).replace("T10:", hour)
            rows.append(_renamed(json.loads(text), number))
    return rows


_IDS = ("id", "traceId", "parentObservationId", "trace_id", "parent_run_id", "span_id", "root_span_id", "request_id")


def _renamed(value: Any, number: int) -> Any:
    """The value with other ids of traces and spans in it, and with times in numbers that are hours later."""
    if isinstance(value, list):
        return [_renamed(each, number) for each in value]
    if not isinstance(value, dict):
        return value
    return {key: _new_value(key, each, number) for key, each in value.items()}


def _new_value(key: str, value: Any, number: int) -> Any:
    if isinstance(value, str) and (key in _IDS or key.endswith("span_id")):
        return f"{value}-{number}"
    if key == "span_parents" and isinstance(value, list):
        return [f"{each}-{number}" for each in value]
    if key.endswith("_unix_nano"):
        return type(value)(int(value) + number * 3_600_000_000_000)
    if key in ("start", "end") and isinstance(value, float | int):
        return value + number * 3600
    return _renamed(value, number)


@each_tool
@pytest.mark.parametrize("page", ["a list", "lines", "its page"])
def test_a_large_file_reads_as_it_does_whole(tool: str, page: str) -> None:
    rows = many_rows(tool)
    value = PAGES[tool if page == "its page" else page](rows)
    data = (value if isinstance(value, str) else json.dumps(value, indent=1)).encode()

    expected_import, streamed_import = form_of(tool).read(data, source="traces.json"), read_large(tool, data)

    assert streamed_import.runs == expected_import.runs
    assert streamed_import.evalset == expected_import.evalset
    assert streamed_import.refused == expected_import.refused
    assert streamed_import.case_ids == expected_import.case_ids
    assert streamed_import.understood[0] == expected_import.understood[0]
    assert len(expected_import.runs[0].cases) > 3


@each_tool
def test_rows_in_any_order_are_the_same_conversations(tool: str) -> None:
    rows = many_rows(tool)
    in_order = read_large(tool, json.dumps(rows).encode())

    for seed in range(5):
        shuffled = Random(seed).sample(rows, len(rows))
        assert read_large(tool, json.dumps(shuffled).encode()).runs == in_order.runs


@each_tool
def test_a_row_that_comes_again_counts_once(tool: str) -> None:
    rows = many_rows(tool, 3)

    assert (
        read_large(tool, json.dumps([*rows, *rows]).encode()).runs == read_large(tool, json.dumps(rows).encode()).runs
    )


@each_tool
def test_the_bound_is_of_one_conversation_and_not_of_the_file(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data = json.dumps(many_rows(tool, 9)).encode()
    n_steps = max(len(steps) for steps in groups_of(tool, data))
    for module in (large_traces, exported_traces):
        monkeypatch.setattr(module, "MAX_STEPS", n_steps)

    assert read_large(tool, data).runs == form_of(tool).read(data, source="traces.json").runs

    for module in (large_traces, exported_traces):
        monkeypatch.setattr(module, "MAX_STEPS", n_steps - 1)
    with pytest.raises(FormatError, match=r"one conversation has more than"):
        read_large(tool, data)
    with pytest.raises(FormatError, match=r"one conversation has more than"):
        form_of(tool).read(data, source="traces.json")


def groups_of(tool: str, data: bytes) -> Iterator[list[list[Any]]]:
    """The steps of each conversation in a file."""
    traces = TracesOnDisk()
    for row in json.loads(data):
        position = JsonPosition(Document(None))
        for step in form_of(tool).steps_of(position, row):
            traces.add(step.trace_id, step.span_id, step.conversation, [])
    return traces.groups()


def test_traces_that_share_a_conversation_are_one_group() -> None:
    traces = TracesOnDisk()
    for trace, conversation in [("a", "x"), ("b", ""), ("c", "y"), ("d", "x"), ("c", "x"), ("y", ""), ("e", "")]:
        traces.add(trace, f"{trace}{conversation}", conversation, [trace, conversation])

    groups = [[trace for trace, _ in group] for group in traces.groups()]

    assert groups == [["a", "c", "d", "c", "y"], ["b"], ["e"]]


@each_tool
@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"[{]", "this is not JSON"),
        (b"[2]", "expected an object"),
        (b"[]", "none of 0 spans describes the work of an agent"),
    ],
)
def test_a_faulty_file_is_refused(tool: str, data: bytes, sentence: str) -> None:
    with pytest.raises(FormatError, match=sentence):
        read_large(tool, data)


@each_tool
def test_one_trace_alone_is_read_whole(tool: str) -> None:
    row = rows_of(tool)[0]

    with pytest.raises(NotStreamedError):
        read_large(tool, json.dumps(row, indent=1).encode())


@each_tool
def test_a_page_of_one_line_is_a_page(tool: str) -> None:
    data = json.dumps(PAGES[tool](many_rows(tool, 3))).encode()

    assert len(read_large(tool, data).runs[0].results) == 2
