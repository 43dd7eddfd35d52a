"""`evaldesk eval` as Osmosis: data sets, eval functions, results in its schema, a second model beside the first."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk.errors import EvaldeskError
from evaldesk.model import AgentRef

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

LOOP = '''
n_asked = 0


async def agent_loop(message, session):
    """Answers with the number in the question; `raise` raises, `odd` is right every other time."""
    global n_asked
    if message == "raise":
        raise ValueError("asked to")
    if message == "odd":
        n_asked += 1
        return "7" if n_asked % 2 else "8"
    return "wrong" if session.model == "small/model" and message == "12" else message
'''
REWARDS = """
def exact(solution_str, ground_truth, extra_info=None):
    return float(solution_str.strip() == ground_truth)


def weighted(solution_str, ground_truth, extra_info):
    assert extra_info["weight"] > 0 and extra_info["user_prompt"]
    return extra_info["weight"] * (solution_str == ground_truth)


async def raising(messages, ground_truth, metadata):
    raise KeyError(messages[-1]["content"])
"""
ROWS = [
    {"system_prompt": "Count.", "user_prompt": "7", "ground_truth": "7", "weight": 0.5},
    {"system_prompt": "Count.", "user_prompt": "odd", "ground_truth": "7", "weight": 0.25},
    {"system_prompt": "Count.", "user_prompt": "raise", "ground_truth": "7", "weight": 1},
    {"system_prompt": "Count.", "user_prompt": "12", "ground_truth": "12", "weight": 1},
]


@pytest.fixture
def rows(place: CommandFolder) -> Path:
    """A data set of four rows beside an agent loop and three functions."""
    (place.folder / f"{_module(place)}.py").write_text(LOOP)
    (place.folder / f"{_rewards(place)}.py").write_text(REWARDS)
    path = place.folder / "data.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def _module(place: CommandFolder) -> str:
    return f"server_{place.agent.name}"


def _rewards(place: CommandFolder) -> str:
    return f"rewards_{place.agent.name}"


def _eval(place: CommandFolder, data: Path, *arguments: object, functions: tuple[str, ...] = ("exact",)) -> Any:
    named = [option for name in functions for option in ("--eval-fn", f"{_rewards(place)}:{name}")]
    batch = () if "--batch-size" in arguments else ("--batch-size", 1)
    return place.run("eval", "-m", f"{_module(place)}:agent_loop", "-d", data, *named, *batch, *arguments)


def test_results_are_in_the_documented_schema_and_ours_under_one_key(place: CommandFolder, rows: Path) -> None:
    result = _eval(
        place, rows, "--n", 4, "-o", "out/results.json", "--max-error-rate", 1, functions=("exact", "weighted")
    )

    assert result.exit_code == 0, result.output + repr(result.exception)
    found = json.loads((place.folder / "out/results.json").read_text())
    exact, weighted = (f"{_rewards(place)}:{name}" for name in ("exact", "weighted"))
    assert set(found) == {"config", "summary", "rows", "evaldesk"}
    assert found["config"] == {"model": "", "n_runs": 4, "pass_threshold": 1.0, "eval_fns": [exact, weighted]}
    summary = found["summary"]
    assert (summary["total_rows"], summary["total_runs"], summary["total_tokens"]) == (4, 16, 0)
    assert summary["eval_fns"][exact] == {
        "mean": 0.625,  # 4 + 2 + 0 + 4 of 16, the errored runs counted as 0
        "std": pytest.approx(0.484122918),
        "min": 0.0,
        "max": 1.0,
        "pass_at_1": 0.625,
        "pass_at_3": 0.75,
    }
    assert summary["eval_fns"][weighted]["max"] == 1.0
    assert [row["row_index"] for row in found["rows"]] == [0, 1, 2, 3]
    run = found["rows"][2]["runs"][1]
    assert (run["run_index"], run["success"], run["scores"], run["tokens"]) == (1, False, {}, 0)
    assert "asked to" in run["error"]
    assert "error" not in found["rows"][0]["runs"][0]
    assert (found["evaldesk"]["n_errored"], found["evaldesk"]["dataset"]["n_rows"]) == (4, 4)
    assert f"{exact}: mean 0.625, std 0.484" in result.output


def test_a_resumed_run_writes_the_files_of_its_command_in_the_form_of_osmosis(place: CommandFolder, rows: Path) -> None:
    names = ("now.json", "out/", "now.csv", "now.xml", "now.md")
    files = [each for name in names[:3] for each in ("-o", name)]
    _eval(place, rows, "--offset", 1, *files, "--junit", "now.xml", "--summary", "now.md", "--max-error-rate", 1)
    played = json.loads((place.folder / "now.json").read_text())
    for name in (*names[:1], *names[2:]):
        (place.folder / name).unlink()
    with closing(sqlite3.connect(place.folder / ".evaldesk/evaldesk.db")) as database, database:
        database.execute("UPDATE trial SET verdict = NULL, status = 'planned' WHERE case_index = 0")
        database.execute("UPDATE run SET status = 'running', driver = ''")

    resumed = place.run("run", "resume", 1)
    found = json.loads((place.folder / "now.json").read_text())
    rows.unlink()
    with closing(sqlite3.connect(place.folder / ".evaldesk/evaldesk.db")) as database, database:
        database.execute("UPDATE trial SET verdict = NULL, status = 'planned' WHERE case_index = 0")
        database.execute("UPDATE run SET status = 'running', driver = ''")
    without = place.run("run", "resume", 1)

    assert all((place.folder / name).exists() for name in names), resumed.output
    assert [row["row_index"] for row in found["rows"]] == [row["row_index"] for row in played["rows"]] == [1, 2, 3]
    assert found["evaldesk"]["dataset"] == played["evaldesk"]["dataset"]
    assert "out; `evaldesk export 1 --format osmosis-results -o FILE` writes it" in resumed.stderr
    assert "now.json; `evaldesk export 1" in without.stderr


def test_run_info_and_results_json_give_one_mean_one_name(place: CommandFolder, rows: Path) -> None:
    exact = f"{_rewards(place)}:exact"
    _eval(place, rows, "--n", 4, "-o", "results.json", "--max-error-rate", 1)
    found = json.loads((place.folder / "results.json").read_text())

    info = json.loads(place.run("run", "info", "1", "--json").output)["data"]["results"]["metrics"]
    said = place.run("run", "info", "1").output

    assert found["evaldesk"]["metrics"] == info
    assert [(each["metric"], each["n"], each["mean"]) for each in info] == [(exact, 12, pytest.approx(10 / 12))]
    assert info[0]["mean_unscored_as_0"] == found["summary"]["eval_fns"][exact]["mean"] == 0.625
    assert "mean 0.833" in said
    assert "of 12 of 16 trials scored; mean_unscored_as_0 0.625" in said


def test_errors_end_with_their_own_code_although_nothing_was_asked(place: CommandFolder, rows: Path) -> None:
    assert _eval(place, rows).exit_code == 3


def test_offset_and_limit_choose_rows_which_keep_their_numbers(place: CommandFolder, rows: Path) -> None:
    result = _eval(place, rows, "--offset", 1, "--limit", 1, "-o", "results.json")

    found = json.loads((place.folder / "results.json").read_text())
    assert [row["row_index"] for row in found["rows"]] == [1]
    assert result.exit_code == 0
    beyond = _eval(place, rows, "--offset", 9)
    assert "No rows to evaluate" in str(beyond.exception)


@pytest.mark.parametrize(("threshold", "n_passed"), [("0.25", 3), ("0.5", 2), ("1", 1)])
def test_the_threshold_is_one_of_scores(place: CommandFolder, rows: Path, threshold: str, n_passed: int) -> None:
    _eval(place, rows, "--pass-threshold", threshold, functions=("weighted",))

    with place.store() as store:
        assert store.runs.summary(1).n_passed == n_passed


def test_a_function_that_raises_is_an_error_unless_asked_to_do_as_osmosis(place: CommandFolder, rows: Path) -> None:
    ours = _eval(place, rows, "--limit", 1, "-o", "ours.json", functions=("raising",))
    theirs = _eval(place, rows, "--limit", 1, "--compat", "osmosis", functions=("raising",))

    assert (ours.exit_code, theirs.exit_code) == (3, 0)
    not_passed = json.loads((place.folder / "ours.json").read_text())["evaldesk"]["not_passed"]
    assert "KeyError" in next(iter(not_passed[0]["score_errors"].values()))
    with place.store() as store:
        assert [(run.n_errored, run.n_failed) for run in store.runs.list()] == [(0, 1), (1, 0)]


CUT = """
from evaldesk.model import ErrorRecord, Event, ToolCall


async def agent_loop(message, session):
    yield Event("agent_message", text="7")
    yield Event("tool_call", call=ToolCall("add", {}, "c1"))
    yield Event("error", error=ErrorRecord("max_turns", "no turn is left"))
"""


@pytest.mark.parametrize(("compat", "mean", "is_said"), [((), 0.0, True), (("--compat", "osmosis"), 1.0, False)])
def test_an_answer_that_osmosis_takes_from_before_a_limit_is_said(
    place: CommandFolder, rows: Path, compat: tuple[str, ...], mean: float, is_said: bool
) -> None:
    (place.folder / f"{_module(place)}.py").write_text(CUT)

    result = _eval(place, rows, "--limit", 1, *compat, "-o", "results.json")

    found = json.loads((place.folder / "results.json").read_text())
    assert found["summary"]["eval_fns"][f"{_rewards(place)}:exact"]["mean"] == mean
    assert ("1 trial reached a limit of the agent: no answer here" in result.output) is is_said


def test_a_rollout_that_takes_too_long_is_no_success(place: CommandFolder, rows: Path) -> None:
    slow = "import asyncio\n\n\nasync def agent_loop(message, session):\n    await asyncio.sleep(60)\n"
    (place.folder / f"{_module(place)}.py").write_text(slow)

    result = _eval(place, rows, "--limit", 1, "--timeout", 0.2, "-o", "results.json")

    (run,) = json.loads((place.folder / "results.json").read_text())["rows"][0]["runs"]
    assert (run["success"], run["scores"]) == (False, {})
    assert "0.2 s" in run["error"]
    assert result.exit_code == 3


def test_a_second_model_is_compared_row_by_row(place: CommandFolder, rows: Path) -> None:
    options = ["--model", "big/model", "--baseline-model", "small/model", "--max-error-rate", "1", "-o", "results.json"]

    result = _eval(place, rows, *options)

    assert re.search(r"against the baseline: .*(No difference|could be chance)", result.output)
    found = json.loads((place.folder / "results.json").read_text())
    assert (found["config"]["model"], found["config"]["baseline_model"]) == ("big/model", "small/model")
    assert [each["model_tag"] for each in found["model_summaries"]] == ["primary", "baseline"]
    assert [run["model_tag"] for run in found["rows"][3]["runs"]] == ["primary", "baseline"]
    comparison = found["evaldesk"]["against_baseline"][f"{_rewards(place)}:exact"]
    assert (comparison["n_cases"], comparison["n_better"], comparison["n_worse"]) == (3, 2, 0)


def test_gates_judge_the_first_model_alone(place: CommandFolder, rows: Path) -> None:
    options = ["--model", "big/model", "--baseline-model", "small/model", "--offset", "3", "--min-pass-rate", "1"]

    result = _eval(place, rows, *options)

    assert "✓ held   --min-pass-rate: pass rate 1 is at least 1: 1 of 1 passed" in result.output
    assert result.exit_code == 0


@pytest.mark.parametrize("name", ["data.json", "data.csv", "data.parquet"])
def test_every_kind_of_file_is_read(place: CommandFolder, rows: Path, name: str) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    converted = place.run("convert", rows, name, "--to", f"osmosis-{name.rpartition('.')[2]}")
    assert converted.exit_code == 0, repr(converted.exception)

    _eval(place, place.folder / name, "--offset", 3)

    with place.store() as store:
        assert store.runs.summary(1).n_passed == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-m", "a:b"), "-m needs -d"),
        (("-m", "a:b", "--mcp", "folder"), "--mcp: tools of an MCP server are the agent's to call: name by -m"),
        (("-m", "a:b", "-d", "data.jsonl", "--retry-failed"), "--retry-failed: name the run as well, by --name"),
        (("-m", "a:b", "-d", "data.jsonl", "--log-samples"), "`evaldesk run export RUN`"),
        (("-m", "a:b", "-d", "data.jsonl", "--baseline-api-key", "x"), "--api-key-env"),
        (("-d", "data.jsonl"), "-d needs -m"),
        (("-m", "a:b", "-d", "nowhere.jsonl"), "Dataset file not found: nowhere.jsonl"),
        (("-m", "a:b", "-d", "data.jsonl", "agent"), "leave the rest out"),
        (("-m", "a:b", "-d", "data.jsonl", "--baseline-base-url", "http://x/v1"), "requires --baseline-model"),
        (("-m", "a:b", "-d", "data.jsonl", "--eval-fn", "rewards"), "Invalid eval function path 'rewards'"),
        (("-m", "a:b", "-d", "data.jsonl", "--eval-fn", "r:f", "--eval-fn", "r:f"), "Duplicate eval function path"),
        (("-m", "a", "-d", "data.jsonl", "--eval-fn", "r:f"), "is neither a folder, nor module:attr"),
    ],
)
@pytest.mark.usefixtures("rows")
def test_what_does_not_fit_together_is_refused(place: CommandFolder, arguments: tuple[str, ...], said: str) -> None:
    result = place.run("eval", *arguments)

    assert isinstance(result.exception, EvaldeskError), result.output
    assert said in str(result.exception)


def test_a_key_that_was_typed_reaches_the_workers_and_nothing_else(
    place: CommandFolder, rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALDESK_API_KEY", "before")

    _eval(place, rows, "--limit", 1, "--api-key", "sk-very-secret-key")

    with place.store() as store:
        config = store.runs.summary(1).config
    assert config.model_options.api_key_env == "EVALDESK_API_KEY"
    assert b"sk-very-secret" not in (place.folder / ".evaldesk/evaldesk.db").read_bytes()
    assert isinstance(config.agent, AgentRef)
