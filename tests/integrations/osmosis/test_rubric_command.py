"""`evaldesk rubric`: conversations in, grades out, in both forms of Osmosis."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evaldesk.cli import cli
from evaldesk.errors import EvaldeskError, FormatError, ModelError
from evaldesk.integrations.osmosis.command.rubrics import read_records, read_rubric_config
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.model import Usage

PANEL = "evaldesk.metrics.judges.panel.complete"
ROWS: list[dict[str, Any]] = [
    {"id": "a", "rubric_id": "polite", "solution_str": "Please wait.", "ground_truth": "Wait."},
    {
        "conversation_id": "b",
        "rubric_id": "POLITE",
        "messages": [
            {"role": "user", "content": "Where?"},
            {"role": "assistant", "content": [{"type": "text", "text": "There,"}, {"type": "text", "text": "please."}]},
        ],
        "metadata": {"tier": "gold"},
    },
    {"id": "c", "rubric_id": "other", "solution_str": "No."},
]
CONFIG = """
version: 1
default_score_max: 10
default_original_input: What now?
rubrics:
  - id: polite
    rubric: Says please.
    system_prompt: Be mild.
    model_info: {provider: google, model: judge, api_key_env: JUDGE_KEY, timeout: 45}
---
rubrics:
  - {id: other, rubric: Is true., score_min: 1, model_info: {model: demo/judge}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, ROWS)) + "\n\n", "utf-8")
    (tmp_path / "rubrics.yaml").write_text(CONFIG, "utf-8")
    return tmp_path


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ModelCall]]:
    def install(*scores: float | str | Exception) -> list[ModelCall]:
        calls: list[ModelCall] = []

        async def complete(call: ModelCall) -> ModelReply:
            score = scores[len(calls) % len(scores)]
            calls.append(call)
            if isinstance(score, Exception):
                raise score
            text = score if isinstance(score, str) else json.dumps({"reasoning": "Because.", "score": score})
            return ModelReply(text, (), Usage(call.model))

        monkeypatch.setattr(PANEL, complete)
        return calls

    return install


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


@pytest.mark.parametrize("name", [("rubric",), ("eval", "rubric")])
def test_a_rubric_of_the_command_line_grades_every_line(
    folder: Path, told: Callable[..., list[ModelCall]], name: tuple[str, ...]
) -> None:
    calls = told(0.5, 1.0)

    result = run(*name, "-d", "talks.jsonl", "-r", "Says please.", "--model", "demo/judge", "-n", "2", "-o", "out.json")

    assert result.exit_code == 0, result.output
    assert "6 grades by demo/judge: mean 0.75, deviation 0.25, 0.5 to 1, of 0 to 1." in result.output
    output = json.loads((folder / "out.json").read_text())
    assert {key: output[key] for key in ("model", "rubric", "data_path", "number")} == {
        "model": "demo/judge",
        "rubric": "Says please.",
        "data_path": "talks.jsonl",
        "number": 2,
    }
    assert output["overall_statistics"] == {"average": 0.75, "variance": 0.0625, "stdev": 0.25, "min": 0.5, "max": 1.0}
    assert [record["label"] for record in output["records"]] == ["a", "b", "c"]
    assert set(output["records"][0]) == {"index", "label", "scores", "explanations", "errors", "statistics"}
    assert {call.model for call in calls} == {"demo/judge"}
    asked = "\n".join(str(message["content"]) for call in calls for message in call.messages)
    for section in ("ANSWER", "RUBRIC", "REFERENCE", "METADATA", "EARLIER CONVERSATION"):
        assert re.search(rf"<<<{section} [0-9a-f]+>>>", asked), section
    assert "There,\nplease." in asked


def test_a_rubric_of_a_file_grades_the_lines_that_name_it(folder: Path, told: Callable[..., list[ModelCall]]) -> None:
    calls = told(4, 8)

    result = run("eval-rubric", "-r", "polite", "-d", "talks.jsonl", "-c", "rubrics.yaml", "-o", "out.json")

    assert result.exit_code == 0, result.output
    output = json.loads((folder / "out.json").read_text())
    assert (output["rubric_id"], output["provider"], output["model"]) == ("polite", "gemini", "judge")
    assert [record["record_index"] for record in output["records"]] == [1, 2]
    statistics = output["overall_statistics"]
    assert (statistics["average"], statistics["total_runs"], statistics["failure_count"]) == (6.0, 2, 0)
    (one,) = output["records"][0]["runs"]
    assert {key: one[key] for key in ("run_index", "status", "score", "explanation", "preview", "error")} == {
        "run_index": 1,
        "status": "success",
        "score": 4.0,
        "explanation": "Because.",
        "preview": "Because.",
        "error": None,
    }
    assert {(call.model, call.timeout_s, call.api_key_env) for call in calls} == {("gemini/judge", 45.0, "JUDGE_KEY")}
    assert all("Be mild." in str(call.messages[0]["content"]) for call in calls)
    assert "from 0 (worst) to 10 (best)" in str(calls[0].messages[0]["content"])


def test_grades_that_agree_do_not_deviate(folder: Path, told: Callable[..., list[ModelCall]]) -> None:
    told(0.1)

    result = run("rubric", "-d", "talks.jsonl", "-r", "x", "--model", "m", "-n", "3", "-o", "out.json")

    assert "mean 0.1, deviation 0," in result.output
    overall = json.loads((folder / "out.json").read_text())["overall_statistics"]
    assert overall == {"average": 0.1, "variance": 0.0, "stdev": 0.0, "min": 0.1, "max": 0.1}


def test_what_the_command_says_goes_before_what_the_file_says(
    folder: Path, told: Callable[..., list[ModelCall]]
) -> None:
    calls = told(0.5)

    flags = ("--model", "demo/judge", "--timeout", "5", "--score-max", "1")
    result = run("rubric", "-r", "polite", "-d", "talks.jsonl", "-c", "rubrics.yaml", *flags)

    assert result.exit_code == 0, result.output
    assert {(call.model, call.timeout_s, call.api_key_env) for call in calls} == {("demo/judge", 5.0, None)}
    assert "from 0 (worst) to 1 (best)" in str(calls[0].messages[0]["content"])


def test_an_earlier_output_is_compared(folder: Path, told: Callable[..., list[ModelCall]]) -> None:
    told(0.5)
    words = ("rubric", "-d", "talks.jsonl", "-r", "x", "--model", "m")
    run(*words, "-o", "first.json")
    told(0.75)

    result = run(*words, "-b", "first.json", "-o", "second.json")

    assert "Mean +0.25 against first.json." in result.output
    found = json.loads((folder / "second.json").read_text())["baseline_comparison"]
    assert (found["baseline_statistics"]["average"], found["delta_statistics"]["average"]) == (0.5, 0.25)


def test_a_grade_that_is_missing_is_no_zero(folder: Path, told: Callable[..., list[ModelCall]]) -> None:
    told(0.5, "seven", ModelError("m: rate limit", kind="rate_limit"), 7)

    result = run("rubric", "-d", "talks.jsonl", "-r", "x", "--model", "m", "-n", "4", "-o", "out.json")

    assert result.exit_code == 1
    assert "3 grades by m: mean 0.5, deviation 0" in result.output
    assert "9 could not be given." in result.output
    errors = {
        error for record in json.loads((folder / "out.json").read_text())["records"] for error in record["errors"]
    }
    assert errors == {"the reply contains no JSON object", "m: rate limit", "the grade 7 is not between 0 and 1"}


def test_a_rubric_may_stand_in_a_file(folder: Path, told: Callable[..., list[ModelCall]]) -> None:
    calls = told(0.5)
    (folder / "rubric.txt").write_text("Says please, twice.\n")

    run("rubric", "-d", "talks.jsonl", "-r", "@rubric.txt", "--model", "m")

    assert all("Says please, twice." in str(call.messages[1]["content"]) for call in calls)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-d", "gone.jsonl", "-r", "x", "--model", "m"), "gone.jsonl cannot be read: No such file"),
        (("-d", "talks.jsonl", "-r", "x"), "name the judge with --model"),
        (("-d", "talks.jsonl", "-r", "polit", "-c", "rubrics.yaml"), "did you mean 'polite'?"),
        (("-d", "talks.jsonl", "-r", "x", "--model", "m", "--score-max", "-1"), "score_min must lie under score_max"),
        (("-d", "talks.jsonl", "-r", "x", "--model", "m", "--api-key", "k"), "set the provider's variable instead"),
        (("-d", "talks.jsonl", "-r", "@gone.txt", "--model", "m"), "gone.txt cannot be read: No such file"),
        (
            ("-d", "talks.jsonl", "-r", "x", "--model", "m", "-b", "talks.jsonl"),
            "this is not an output of evaldesk rubric",
        ),
    ],
)
def test_wrong_usage_is_refused(
    folder: Path, told: Callable[..., list[ModelCall]], words: tuple[str, ...], message: str
) -> None:
    told(0.5)

    result = run("rubric", *words)

    assert isinstance(result.exception, EvaldeskError)
    assert message in str(result.exception)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"solution_str": "a"}\n{oops', "Invalid JSON on line 2 of 'x.jsonl'"),
        (b"[1]", "Expected JSON object on line 1"),
        (b'{"id": "r", "solution_str": " "}', "Record 'r' must include a non-empty 'solution_str' string"),
        (b'{"messages": [{"role": "user", "content": "a"}]}', "Record 'record 1' must include"),
        (b'{"solution_str": "a", "score_min": "low"}', "score_min must be a number"),
        (b"\n \n", "No JSON records found in 'x.jsonl'."),
    ],
)
def test_a_wrong_line_is_named(data: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=re.escape(message)):
        read_records(data, "x.jsonl")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rubrics: [", ":1: this is not YAML"),
        ("- a", "expected an object with version and rubrics"),
        ("rubrics: [{id: a}]", "rubrics[0]: expected an object with the texts id and rubric"),
        ("rubrics: [{id: a, rubric: b}]", "rubrics[0]: expected model_info"),
        ("rubrics: [{id: a, rubric: b, extra_info: {}}]", "extra_info belongs into the records"),
        ("rubrics: [{id: a, rubric: b, model_info: {model: m, api_key: k}}]", "name its variable under api_key_env"),
        ("rubrics: [{id: a, rubric: b, score_min: low, model_info: {model: m}}]", "could not convert"),
        ("rubrics: []", "no rubric in"),
    ],
)
def test_a_wrong_config_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rubric_configs.yaml"
    path.write_text(text)

    with pytest.raises(EvaldeskError, match=re.escape(message)):
        read_rubric_config(path, "a")


@pytest.mark.parametrize("text", ["[" * 100_000, "{", '{"overall_statistics": {}}'], ids=["deep", "cut off", "another"])
def test_an_earlier_output_that_is_none_is_refused_by_name(
    folder: Path, told: Callable[..., list[ModelCall]], text: str
) -> None:
    told(0.5)
    (folder / "first.json").write_text(text)

    result = run("rubric", "-d", "talks.jsonl", "-r", "x", "--model", "m", "-b", "first.json")

    assert isinstance(result.exception, FormatError), result.output
    assert "first.json" in str(result.exception)
