"""The script of an OpenHands benchmark runs unchanged: its imports, its arguments, its runtime and its results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint, served
from tests.integrations.openhands.openhands_script import SCRIPT

from evaldesk.formats.files import read_file
from evaldesk.integrations.openhands.command.script import SHIMS

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
BENCHMARK = ("-m", "evaldesk", "benchmark", "--score-key", "resolved", "run_infer.py")


@dataclass(frozen=True)
class Played:
    """A script that was started twice: by `evaldesk benchmark` for one instance, then by plain Python for the rest."""

    folder: Path
    endpoint: Endpoint
    ended: tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / FOLDER / "output.jsonl").read_text().splitlines()]


def run_script(folder: Path, start: tuple[str, ...], *arguments: str, **variables: str) -> Any:
    command = [sys.executable, *start, "-l", "eval_small", "-i", "5"]
    command += ["--eval-num-workers", "1", "--eval-output-dir", "outputs", "--eval-note", "first", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    return subprocess.run(
        command, cwd=folder, env={**environment, **variables}, capture_output=True, text=True, check=False, timeout=300
    )


def solves(endpoint: Endpoint, command: str) -> None:
    endpoint.says("I look.", ("c1", "execute_bash", json.dumps({"command": "cat number.txt"})))
    endpoint.says("", ("c2", "execute_bash", json.dumps({"command": command})))
    endpoint.says("It is done.")
    endpoint.says("", ("c3", "finish", json.dumps({"message": "bye"})))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("script")
    (folder / "run_infer.py").write_text(SCRIPT)
    rows = [{"instance_id": f"n{number}", "number": number} for number in (3, 4, 5)]
    (folder / "numbers.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with served() as endpoint:
        (folder / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        solves(endpoint, "echo 7 > answer.txt")
        first = run_script(folder, BENCHMARK, "--eval-ids", "n4", "--mode", "quick")
        solves(endpoint, "env; echo 6 > answer.txt")
        for _ in range(5):
            endpoint.says("", ("c1", "think", json.dumps({"thought": "hm"})))
        variables = {"PYTHONPATH": str(SHIMS), "EVALDESK_SCORE_KEY": "resolved"}
        second = run_script(folder, ("run_infer.py",), "--mode", "quick", **variables)
        yield Played(folder, endpoint, (first, second))


@pytest.mark.server
def test_a_script_of_a_benchmark_runs_unchanged(played: Played) -> None:
    first = played.ended[0]

    assert first.returncode == 0, first.stdout + first.stderr
    assert "0 of 1 passed" in first.stdout, first.stdout + first.stderr
    row = played.rows[1]
    assert row["test_result"] == {"answer": "6", "resolved": True}
    assert row["instruction"] == "Write twice the number in number.txt to answer.txt. quick"
    assert row["instance"] == {"instance_id": "n3", "number": 3}
    assert row["error"] is None
    assert row["metadata"]["details"] == {"mode": "quick"}
    assert row["metadata"]["llm_config"]["modify_params"] is False
    pairs = [(pair[0].get("action"), pair[1].get("observation")) for pair in row["history"]]
    assert pairs == [
        ("message", "null"),
        ("run", "run"),
        ("run", "run"),
        ("message", "null"),
        ("message", "null"),
        ("finish", "null"),
    ]
    assert row["history"][1][1]["content"].strip() == "3"
    assert row["metrics"]["accumulated_token_usage"]["prompt_tokens"] == 44
    assert played.endpoint.asked[0]["temperature"] == 0.5
    assert played.endpoint.headers[0]["authorization"] == "Bearer sk-the-key-of-the-file"


@pytest.mark.server
def test_plain_python_runs_the_script_with_the_stand_ins(played: Played) -> None:
    ended = played.ended[1]

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 of 2 passed" in ended.stdout, ended.stdout + ended.stderr


@pytest.mark.server
def test_no_key_is_in_the_results_of_a_script(played: Played) -> None:
    for path in (played.folder / FOLDER).rglob("*"):
        if path.is_file():
            assert "sk-the-key" not in path.read_text(), path


@pytest.mark.server
def test_a_second_start_runs_only_unfinished_instances(played: Played) -> None:
    assert played.endpoint.answers == []
    assert [row["instance_id"] for row in played.rows] == ["n4", "n3", "n5"]
    assert [row["test_result"]["resolved"] for row in played.rows] == [False, True, False]


@pytest.mark.server
def test_the_results_of_a_script_are_imported_as_they_were_played(played: Played) -> None:
    imported = read_file((played.folder / FOLDER / "output.jsonl").read_bytes(), "output.jsonl")

    [turn] = imported.runs[0].results[1].transcript.turns
    assert [call.args.get("command") for call in turn.tool_calls if call.name == "execute_bash"] == [
        "cat number.txt",
        "env; echo 6 > answer.txt",
    ]
    assert [result.verdict for result in imported.runs[0].results] == ["failed", "passed", "failed"]


@pytest.mark.server
def test_an_agent_that_never_finishes_reached_its_iterations(played: Played) -> None:
    assert "maximum iteration" in played.rows[2]["error"]


@pytest.mark.parametrize("name", ["openhands", "evaluation"])
def test_an_installed_package_wins_over_the_shims(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("REAL = True\n")
    (tmp_path / name / "part.py").write_text("PART = 1\n")
    code = f"import {name}.part, sys; print({name}.REAL, {name}.part.PART, {str(SHIMS)!r} in sys.path)"

    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SHIMS), str(tmp_path)])},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout.split() == ["True", "1", "False"], done.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "import sys\nraise KeyError(*sys.argv[1:])\n",
            'line 2, in <module>\n    raise KeyError(*sys.argv[1:])\nKeyError: "--debug"',
        ),
        ("def (\n", "line 1\n    def (\n        ^\nSyntaxError: invalid syntax"),
        ("open('missing')\n", "FileNotFoundError: [Errno 2] No such file or directory: 'missing'"),
        ("a\0b", "Error: source code string cannot contain null bytes"),
    ],
    ids=["raises", "syntax", "file", "nul"],
)
def test_an_exception_of_a_script_has_pythons_traceback(tmp_path: Path, script: str, said: str) -> None:
    (tmp_path / "run.py").write_text(script)
    command = [sys.executable, *BENCHMARK[:-1], "run.py", "--debug"]

    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)

    assert ended.returncode == 3
    assert ended.stderr.startswith("evaldesk: run.py broke off:\n")
    assert said.replace('"', "'") in ended.stderr
    assert "runpy" not in ended.stderr
