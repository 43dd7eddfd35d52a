"""NaN and infinite numbers in files of recorded runs: the file is read, and a score of that value is unscored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.exchange import FORMATS, Format
from evaldesk.reading.json_lines import read_recorded_lines
from evaldesk.reading.json_stream import StreamedList
from evaldesk.reading.strict_json import RECORDED_DECODER, parse_recorded_json

SAMPLES = Path(__file__).parent / "exchange_samples"
MARK = "\ue000"
NAMES = ("NaN", "Infinity", "-Infinity", "-1e999")
SCORES = {
    "adk-results.evalset_result.json": "score",
    "agents-cli-results.grades.json": "score",
    "inspect.json": "value",
    "openai-evals.json": "score",
    "osmosis-results.json": "rewards:partial",
    "promptfoo.json": "score",
    "tau-bench.json": "reward",
    "tau2-results.json": "reward",
}
"""A key of a score in each sample with scores."""
LETTERS = ("C", "I")
"""Scores of Inspect."""


def paths_of(value: Any, key: str, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of the scores under a key."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key and (item in LETTERS or (isinstance(item, int | float) and not isinstance(item, bool))):
                yield (*path, name)
            yield from paths_of(item, key, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from paths_of(item, key, (*path, index))


def with_name(document: Any, path: tuple[Any, ...], name: str) -> bytes:
    """The document with a bare name in place of the score at `path`."""
    copy = json.loads(json.dumps(document))
    inner = copy
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = MARK
    return json.dumps(copy, ensure_ascii=False).replace(f'"{MARK}"', name).encode()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sample", SCORES)
def test_one_number_that_is_none_is_unscored_with_the_reason_and_all_else_is_read(sample: str, name: str) -> None:
    document = json.loads((SAMPLES / sample).read_bytes())
    form = cast("Format", FORMATS.load(sample.split(".", maxsplit=1)[0]))
    before = form.read((SAMPLES / sample).read_bytes(), source=sample)
    is_shown = False

    for path in paths_of(document, SCORES[sample]):
        after = form.read(with_name(document, path, name), source=sample)

        assert [len(run.results) for run in after.runs] == [len(run.results) for run in before.runs]
        pairs = [
            (old, new)
            for old_run, new_run in zip(before.runs, after.runs, strict=True)
            for old, new in zip(old_run.results, new_run.results, strict=True)
            if [each.value for each in old.scores] != [each.value for each in new.scores]
        ]
        assert len(pairs) <= 1
        for old, new in pairs:
            unscored = [each for each in new.scores if each.value is None]
            assert len([*old.scores]) == len([*new.scores])
            assert any("Infinity" in each.reason or "NaN" in each.reason for each in unscored)
            assert new.verdict != "passed" or old.verdict == "passed"
            is_shown = True
    assert is_shown


@pytest.mark.parametrize("name", NAMES)
def test_lines_and_streamed_lists_of_recorded_runs_take_the_names(name: str) -> None:
    text = {"-1e999": "-Infinity"}.get(name, name)
    data = f'{{"a": [{name}, "{name}"]}}'.encode()

    assert parse_recorded_json(data, source="x").value == {"a": [text, name]}
    assert [line.value for line in read_recorded_lines(data, "x")] == [{"a": [text, name]}]
    items = StreamedList(BytesIO(data), "x", lambda key: key == "a", decoder=RECORDED_DECODER)
    assert [item.value for item in items] == [text, name]


@pytest.mark.parametrize("data", [b'{"a": NaN, "a": 1}', b'{"a": [NaN, "\\ud800"]}', b'{"a": nan}', b'{"NaN": +NaN}'])
def test_other_faults_of_recorded_runs_are_named_after_a_number_that_is_none(data: bytes) -> None:
    with pytest.raises(FormatError) as refused:
        parse_recorded_json(data, source="x")

    assert "NaN is not" not in refused.value.reason
    with pytest.raises(FormatError) as refused:
        list(read_recorded_lines(data, "x"))
    assert "NaN is not" not in refused.value.reason
