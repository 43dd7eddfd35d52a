"""Traces that hosted tools export: the same conversation of the same agent reads the same from each of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.exported_traces import messages_of
from evaldesk.formats.files import read_file
from evaldesk.model import Case, ToolCall, TrialResult

SAMPLES = Path(__file__).parent / "exchange_samples"
TOOLS = ("langfuse", "langsmith", "mlflow", "braintrust")
each_tool = pytest.mark.parametrize("tool", [pytest.param(tool, marks=of_tools(tool)) for tool in TOOLS])
Rows = list[dict[str, Any]]


def rows_of(tool: str) -> Rows:
    """The rows of the sample of a tool."""
    text = next(SAMPLES.glob(f"{tool}.*")).read_text()
    if text.startswith("["):
        rows: Rows = json.loads(text)
        return rows
    lines = text.splitlines() if text.startswith('{"') else [text]
    return [json.loads(line) for line in lines]


def read(rows: Any, tool: str, source: str = "traces.json") -> Imported:
    """The rows as a list in a file, which is known by its contents alone."""
    found = read_file(json.dumps(rows).encode(), source)
    assert found.format == tool
    return found


def only(found: Imported) -> tuple[Case, TrialResult]:
    """The one case and its one trial."""
    (run,) = found.runs
    assert found.evalset is not None
    (case,), (result,) = found.evalset.cases, run.results
    return case, result


@each_tool
def test_the_sample_is_one_turn_with_its_call_result_answer_and_score(tool: str) -> None:
    case, result = only(read(rows_of(tool), tool))

    (turn,) = result.transcript.turns
    (call,) = turn.tool_calls
    assert (case.id, turn.query, turn.answer) == ("s-1", "Where is order 17?", "It was shipped.")
    assert (call.name, call.args) == ("get_order", {"id": 17})
    assert [event.result for event in turn.events if event.kind == "tool_result"] == [{"status": "shipped"}]
    assert case.turns[0].expected.tool_calls == (ToolCall("get_order", {"id": 17}, call.id),)
    assert turn.usages[-1].tokens_in == 20
    assert turn.usages[-1].tokens_out == 5
    assert turn.captures == ()
    assert [score.value for score in result.scores] == [0.9 if tool == "braintrust" else 1.0]
    assert result.verdict == "unscored"  # a score without a threshold decides nothing


PAGES: dict[str, Callable[[Rows], Any]] = {
    "a list": lambda rows: rows,
    "lines": lambda rows: "\n".join(map(json.dumps, rows)),
    "langfuse": lambda rows: {"data": rows, "meta": {"page": 1}},
    "langsmith": lambda rows: {"runs": rows, "cursors": {}},
    "mlflow": lambda rows: {"traces": rows},
    "braintrust": lambda rows: {"events": rows, "cursor": None},
}


@each_tool
def test_lines_and_pages_of_the_api_read_as_a_list(tool: str) -> None:
    rows = rows_of(tool)
    one_list = only(read(rows, tool))

    for name in ("lines", tool):
        page = PAGES[name](rows)
        data = page if isinstance(page, str) else json.dumps(page)
        found = read_file(data.encode(), "traces.json")
        assert (found.format, only(found)) == (tool, one_list), name


@each_tool
def test_any_order_of_the_rows_is_the_same_conversation(tool: str) -> None:
    rows = rows_of(tool)
    for row in rows:
        if isinstance(row.get("observations"), list):
            row["observations"] = Random(7).sample(row["observations"], len(row["observations"]))
    in_order = only(read(rows_of(tool), tool))

    for seed in range(20):
        shuffled = Random(seed).sample(rows, len(rows))
        assert only(read(shuffled, tool)) == in_order


ANSWERS: dict[str, Rows] = {
    "langfuse": [
        {
            "id": "t-9",
            "timestamp": "2026-11-29T12:00:00Z",
            "sessionId": "s-9",
            "release": "1",
            "userId": None,
            "input": "hi",
            "output": "hello",
            "observations": [],
        }
    ],
    "langsmith": [
        {
            "id": "r-9",
            "trace_id": "r-9",
            "run_type": "chain",
            "name": "agent",
            "parent_run_id": None,
            "inputs": {"question": "hi"},
            "outputs": {"answer": "hello"},
            "start_time": "2026-11-29T12:00:00",
            "extra": {"metadata": {"session_id": "s-9"}},
        }
    ],
    "mlflow": [
        {
            "info": {"trace_id": "tr-9", "trace_metadata": {"mlflow.trace.session": "s-9"}},
            "data": {
                "spans": [
                    {
                        "span_id": "a",
                        "parent_span_id": None,
                        "name": "agent",
                        "start_time_unix_nano": 1,
                        "attributes": {
                            "mlflow.spanType": '"CHAIN"',
                            "mlflow.spanInputs": '{"question": "hi"}',
                            "mlflow.spanOutputs": '"hello"',
                        },
                    }
                ]
            },
        }
    ],
    "braintrust": [
        {
            "id": "1",
            "span_id": "a",
            "root_span_id": "a",
            "span_parents": None,
            "input": "hi",
            "output": "hello",
            "span_attributes": {"type": "task", "name": "agent"},
            "metadata": {"session_id": "s-9"},
        }
    ],
}


@each_tool
def test_a_trace_without_a_model_call_is_an_answer_whose_calls_are_unknown(tool: str) -> None:
    case, result = only(read(ANSWERS[tool], tool))

    (turn,) = result.transcript.turns
    assert (case.id, turn.query, turn.answer, turn.captures) == ("s-9", "hi", "hello", ("answers",))
    assert result.transcript.visibility.calls == "none"
    assert case.turns[0].expected.tool_calls is None


@each_tool
def test_metadata_name_the_case_of_a_trace(tool: str) -> None:
    row = json.loads(json.dumps(ANSWERS[tool][0]).replace('"session_id"', '"evaldesk.case_id"'))
    if tool == "langfuse":
        row["metadata"] = {"evaldesk.case_id": "refund_1"}
    elif tool == "mlflow":
        row["info"]["tags"] = {"evaldesk.case_id": "refund_1"}
    else:
        row = json.loads(json.dumps(row).replace("s-9", "refund_1"))

    found = read([row], tool)

    assert found.case_ids == frozenset({"refund_1"})
    assert only(found)[0].id == "refund_1"


@each_tool
@pytest.mark.parametrize("seed", range(8))
def test_values_of_other_kinds_are_read_or_refused_with_their_place(tool: str, seed: int) -> None:
    """Nonsense in any place of a row is no other error than FormatError."""
    random = Random(seed)
    refusals: list[str] = []
    for _ in range(40):
        rows = rows_of(tool)
        spoil(rows, random)
        try:
            read_file(json.dumps(rows).encode(), "x.json", tool)
        except FormatError as error:
            refusals.append(str(error))
    assert all(words.startswith("x.json") for words in refusals)


def spoil(value: Any, random: Random) -> None:
    """Put a value of another kind into one place of nested JSON."""
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    if not keys:
        return
    key = random.choice(keys)
    if isinstance(value[key], dict | list) and value[key] and random.random() < 0.8:
        spoil(value[key], random)
    else:
        value[key] = random.choice([None, 0, -1.5, "", "{", [], {}, [[]], True, "x" * 50, {"lc": 1, "id": []}])


@pytest.mark.parametrize(
    ("raw", "messages"),
    [
        (None, []),
        ("hi", [("user", "hi")]),
        ('{"messages": [{"role": "user", "content": "hi"}]}', [("user", "hi")]),
        ({"input": "hi"}, [("user", "hi")]),
        ({"anything": "hi"}, [("user", "hi")]),
        ({"a": 1, "b": 2}, [("user", '{"a": 1, "b": 2}')]),
        (
            [[{"type": "human", "content": "hi"}, {"type": "ai", "content": "yes"}]],
            [("user", "hi"), ("assistant", "yes")],
        ),
        (
            {"choices": [{"message": {"role": "assistant", "content": "a"}}, {"message": {"content": "b"}}]},
            [("assistant", "a")],
        ),
        ({"generations": [[{"text": "a"}, {"text": "b"}]]}, [("user", "a")]),
    ],
)
def test_messages_in_the_forms_of_model_apis(raw: Any, messages: list[tuple[str, str]]) -> None:
    assert [(each["role"], each["content"]) for each in messages_of(raw, "user")] == messages


def test_wrappers_without_an_end_are_left() -> None:
    deep: Any = "hi"
    for _ in range(200):
        deep = {"messages": [deep]}

    assert messages_of(deep, "user") == []


@each_tool
def test_a_number_beyond_every_date_is_no_time_and_breaks_nothing(tool: str) -> None:
    """JSON holds whole numbers that no float does: each of them, in the place of any time, is a format's own matter."""
    times = ("start_time", "end_time", "start", "end", "startTime", "endTime", "timestamp", "created")
    nanoseconds = ("start_time_unix_nano", "end_time_unix_nano")

    def with_number(value: Any, number: int) -> Any:
        if isinstance(value, list):
            return [with_number(each, number) for each in value]
        if not isinstance(value, dict):
            return value
        return {
            key: number if key in (*times, *nanoseconds) else with_number(each, number) for key, each in value.items()
        }

    for number in (2**63, 10**400, -(10**400)):
        _, result = only(read(with_number(rows_of(tool), number), tool))

        (turn,) = result.transcript.turns
        assert turn.query == "Where is order 17?"
