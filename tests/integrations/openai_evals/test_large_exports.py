"""Exports of OpenAI Evals with one object a line, read line by line, say the same as when they are read whole."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.openai_evals.test_openai_evals import EVAL, RUN, output

from evaldesk.desk.imports.files import read_path
from evaldesk.errors import FormatError
from evaldesk.formats.exchange import Imported
from evaldesk.integrations.openai_evals.exports import OpenAiEvals
from evaldesk.model import TrialResult
from evaldesk.reading.json_stream import NotStreamedError
from evaldesk.transcripts.recorded import ReadItems

OTHER_PROMPT = [{"role": "user", "content": "Answer in one word: {{ item.q }}"}]
VARYING_PROMPT = [{"role": "developer", "content": "Of {{ item.q }}, as {word}"}, *OTHER_PROMPT]
SECOND_RUN = {**RUN, "id": "run_2", "name": "large", "model": "gpt-4o"}


def lines_of(*objects: dict[str, Any]) -> bytes:
    return "".join(json.dumps(each) + "\n" for each in objects).encode()


def items(n: int, run_id: str = "run_1", padding: int = 0) -> Iterator[dict[str, Any]]:
    """Output items of so many rows; each row is `padding` characters longer."""
    for number in range(n):
        item = output(number, "pass" if number % 3 else "fail", run_id=run_id)
        yield {**item, "id": f"{run_id}_{number}", "datasource_item": {**item["datasource_item"], "pad": "x" * padding}}


def streamed(data: bytes) -> Imported:
    return OpenAiEvals.read_large(io.BytesIO(data), source="all.jsonl", outcome="")


def in_order(results: Iterable[TrialResult]) -> list[TrialResult]:
    return sorted(results, key=lambda result: (result.case_index, result.trial_index))


def plain(found: Imported) -> Any:
    """All that is read, without the difference between values on the disk and in memory."""
    runs = [
        (run.name, run.agent, run.model, run.criteria, run.plan, run.summary, [*run.cases], in_order(run.results))
        for run in found.runs
    ]
    evalset = found.evalset
    return evalset and (evalset.id, [*evalset.cases]), runs, found.understood, found.kept, found.refused


FILES: dict[str, tuple[dict[str, Any], ...]] = {
    "one run": (EVAL, RUN, *items(40)),
    "two runs of the same rows": (EVAL, RUN, *items(9), SECOND_RUN, *items(9, "run_2")),
    "two runs of the same rows by another template": (
        EVAL,
        RUN,
        *items(9),
        {**SECOND_RUN, "data_source": {"input_messages": {"type": "template", "template": OTHER_PROMPT}}},
        *items(9, "run_2"),
    ),
    "a run without its model after one without items": (
        EVAL,
        {**SECOND_RUN, "id": "run_0"},
        {key: value for key, value in RUN.items() if key != "model"},
        *items(3),
    ),
    "the runs after their items": (*items(5), *items(5, "run_2"), SECOND_RUN, RUN, EVAL),
    "items without a run and an eval": tuple(items(3)),
    "a run with fields in its instruction": (
        EVAL,
        {**RUN, "data_source": {"input_messages": {"type": "template", "template": VARYING_PROMPT}}},
        *items(3),
    ),
    "an item that comes twice": (EVAL, RUN, *items(3), *items(2)),
    "an item without its row": (EVAL, RUN, *items(2), {**output(3), "datasource_item": None}),
    "rows of data": (EVAL, {"item": {"id": "a", "q": "1"}}, {"item": {"q": "2"}, "sample": {"output_text": "yes"}}),
    "pages": (
        {"object": "list", "data": [EVAL], "has_more": False},
        {"object": "list", "data": [RUN], "has_more": False},
        {"object": "list", "data": [*items(4)], "has_more": True, "last_id": "run_1_3"},
    ),
    "two evals": (
        EVAL,
        {**EVAL, "id": "eval_2"},
        RUN,
        *items(2),
        {**SECOND_RUN, "eval_id": "eval_2"},
        *items(3, "run_2"),
    ),
    "fewer items than rows": (EVAL, {**RUN, "result_counts": {"total": 5, "passed": 2}}, *items(3)),
    "a run with the rows of its file": (
        EVAL,
        RUN,
        *items(2),
        {
            **SECOND_RUN,
            "data_source": {
                **RUN["data_source"],  # type: ignore[dict-item]
                "source": {"type": "file_content", "content": [{"item": {"q": "new"}}, {"item": {"q": "other"}}]},
            },
        },
    ),
}

DOCUMENTS: dict[str, object] = {
    "a list": [EVAL, RUN, *items(20)],
    "a page": {"object": "list", "data": [EVAL, RUN, *items(20)], "has_more": False, "last_id": "run_1_19"},
    "a page before a missing one": {"object": "list", "has_more": True, "last_id": "run_1_2", "data": [*items(3)]},
    "a list of pages": [
        {"object": "list", "data": [EVAL, RUN], "has_more": False},
        {"object": "list", "data": [*items(2)], "has_more": True, "last_id": "run_1_1"},
    ],
    "two evals": [
        EVAL,
        {**EVAL, "id": "eval_2"},
        RUN,
        *items(2),
        {**SECOND_RUN, "eval_id": "eval_2"},
        *items(3, "run_2"),
    ],
    "a page without its kind": {"data": [EVAL, RUN, *items(2)], "has_more": False, "last_id": "run_1_1"},
    "a foreign value": [EVAL, RUN, 3, {"object": "batch"}, *items(2)],
}


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_read_value_by_value_says_the_same_as_one_read_whole(name: str, indent: int | None) -> None:
    data = json.dumps(DOCUMENTS[name], indent=indent).encode()

    large = streamed(data)

    assert plain(large) == plain(OpenAiEvals.read(data, source="all.jsonl"))
    assert large.evalset
    assert isinstance(large.evalset.cases, ReadItems)


@pytest.mark.parametrize("name", FILES)
def test_a_file_read_line_by_line_says_the_same_as_one_read_whole(name: str) -> None:
    data = lines_of(*FILES[name])

    large = streamed(data)

    assert plain(large) == plain(OpenAiEvals.read(data, source="all.jsonl"))
    assert large.evalset
    assert isinstance(large.evalset.cases, ReadItems)


@pytest.mark.parametrize("seed", range(8))
def test_shuffled_lines_of_one_run_say_the_same(seed: int) -> None:
    objects: list[dict[str, Any]] = [EVAL, RUN, *items(12)]
    random.Random(seed).shuffle(objects)
    data = lines_of(*objects)

    assert plain(streamed(data)) == plain(OpenAiEvals.read(data, source="all.jsonl"))


@pytest.mark.parametrize("data", [lines_of(EVAL), lines_of(EVAL, EVAL), b"{}", json.dumps({"data": 3}).encode()])
def test_a_file_without_rows_is_read_whole(data: bytes) -> None:
    with pytest.raises(NotStreamedError):
        streamed(data)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "all.jsonl"
    path.write_bytes(lines_of(EVAL, RUN, *items(40, padding=40_000)) + b'{"object": "eval.run.output_item", ')

    with pytest.raises(FormatError, match=r"all\.jsonl:43:"):
        read_path(path)


def test_the_memory_of_a_large_file_does_not_grow_with_it(tmp_path: Path) -> None:
    """Measured by Python's own count: 12 MB more of file take less than a tenth of that."""
    peaks = []
    for n in (200, 800):
        path = tmp_path / f"{n}.jsonl"
        path.write_bytes(lines_of(EVAL, RUN, *items(n, padding=20_000)))
        tracemalloc.start()
        found = read_path(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(found.runs[0].results) == n
        assert isinstance(found.runs[0].cases, ReadItems)

    assert peaks[1] - peaks[0] < 0.1 * 600 * 20_000
