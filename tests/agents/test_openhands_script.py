"""The script of an OpenHands benchmark runs unchanged: its imports, its arguments, its runtime and its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint, served
from tests.agents.openhands_script import SCRIPT

from evaldesk.formats.files import read_file

CONFIG = """\
[llm]
api_key = "sk-the-key-of-the-file"
[llm.eval_small]
model = "openai/small"
base_url = "{address}"
temperature = 0.0
num_retries = 0
"""
FOLDER = "outputs/Numbers/CodeActAgent/small_maxiter_5_N_first"


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    (tmp_path / "run_infer.py").write_text(SCRIPT)
    rows = [{"instance_id": f"n{number}", "number": number} for number in (3, 4)]
    (tmp_path / "numbers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def run_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "evaldesk", "benchmark", "--score-key", "resolved", "run_infer.py"]
    command += ["-l", "eval_small", "-i", "5"]
    command += ["--eval-num-workers", "1", "--eval-output-dir", "outputs", "--eval-note", "first", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / FOLDER / "output.jsonl").read_text().splitlines()]


def solves(endpoint: Endpoint, command: str) -> None:
    endpoint.says("I look.", ("c1", "execute_bash", json.dumps({"command": "cat number.txt"})))
    endpoint.says("", ("c2", "execute_bash", json.dumps({"command": command})))
    endpoint.says("It is done.")
    endpoint.says("", ("c3", "finish", json.dumps({"message": "bye"})))


def test_a_script_of_a_benchmark_runs_unchanged(bench: Path) -> None:
    with served() as endpoint:
        (bench / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        solves(endpoint, "echo 6 > answer.txt")
        solves(endpoint, "echo 7 > answer.txt")

        ended = run_script(bench, "--mode", "quick")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 2 passed" in ended.stdout, ended.stdout + ended.stderr
    first, second = rows_of(bench)
    assert [row["test_result"]["resolved"] for row in (first, second)] == [True, False]
    assert first["instruction"] == "Write twice the number in number.txt to answer.txt. quick"
    assert first["instance"] == {"instance_id": "n3", "number": 3}
    assert first["error"] is None
    assert first["metadata"]["details"] == {"mode": "quick"}
    assert first["metadata"]["llm_config"]["modify_params"] is False
    pairs = [(pair[0].get("action"), pair[1].get("observation")) for pair in first["history"]]
    assert pairs == [
        ("message", "null"),
        ("run", "run"),
        ("run", "run"),
        ("message", "null"),
        ("message", "null"),
        ("finish", "null"),
    ]
    assert first["history"][1][1]["content"].strip() == "3"
    assert first["metrics"]["accumulated_token_usage"]["prompt_tokens"] == 44
    assert endpoint.asked[0]["temperature"] == 0.5
    assert endpoint.headers[0]["authorization"] == "Bearer sk-the-key-of-the-file"


def test_no_key_is_in_the_results_of_a_script(bench: Path) -> None:
    with served() as endpoint:
        (bench / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        solves(endpoint, "env; echo 6 > answer.txt")

        run_script(bench, "--eval-ids", "n3")

    for path in (bench / FOLDER).rglob("*"):
        if path.is_file():
            assert "sk-the-key" not in path.read_text(), path


def test_a_second_start_runs_the_rest_only(bench: Path) -> None:
    with served() as endpoint:
        (bench / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        solves(endpoint, "echo 8 > answer.txt")
        run_script(bench, "--eval-ids", "n4")
        solves(endpoint, "echo 6 > answer.txt")

        ended = run_script(bench)

        assert endpoint.answers == []
    assert [row["instance_id"] for row in rows_of(bench)] == ["n4", "n3"], ended.stdout + ended.stderr


def test_the_results_of_a_script_are_imported_as_they_were_played(bench: Path) -> None:
    with served() as endpoint:
        (bench / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        solves(endpoint, "echo 6 > answer.txt")
        run_script(bench, "--eval-ids", "n3")

    imported = read_file((bench / FOLDER / "output.jsonl").read_bytes(), "output.jsonl")

    [turn] = imported.runs[0].results[0].transcript.turns
    assert [call.args.get("command") for call in turn.tool_calls if call.name == "execute_bash"] == [
        "cat number.txt",
        "echo 6 > answer.txt",
    ]
    assert imported.runs[0].results[0].verdict == "passed"


def test_an_agent_that_never_finishes_reached_its_iterations(bench: Path) -> None:
    with served() as endpoint:
        (bench / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        for _ in range(5):
            endpoint.says("", ("c1", "think", json.dumps({"thought": "hm"})))

        run_script(bench, "--eval-ids", "n3")

    [row] = rows_of(bench)
    assert "maximum iteration" in row["error"]
