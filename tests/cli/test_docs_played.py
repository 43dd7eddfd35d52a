"""The commands of the pages on benchmarks, recordings and metrics, carried out in a folder with the files they name."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.forked_commands import ForkedCommands

DOCS = Path(__file__).resolve().parents[2] / "docs"
GREETING = {
    "user_content": {"parts": [{"text": "hello"}]},
    "final_response": {"parts": [{"text": "hi"}]},
    "intermediate_data": {"tool_uses": []},
}
Play = Callable[[str], str]


@pytest.fixture
def play(tmp_path: Path, commands: ForkedCommands) -> Play:
    """Carries out the one command of a page but `benchmark`; gives what it printed."""

    def carry_out(page: str) -> str:
        text = (DOCS / page).read_text("utf-8")
        (line,) = re.findall(r"^evaldesk (?!benchmark ).*$", text, re.MULTILINE)
        done = commands.run(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return carry_out


def test_the_benchmark_is_played_instance_by_instance(tmp_path: Path, play: Play) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (DOCS / "benchmarks.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "bench.py").write_text(source)
    (tmp_path / "instances.jsonl").write_text('{"instance_id": "sum", "answer": "2"}\n')
    (tmp_path / "config.toml").write_text('[llm.eval_gpt4]\nmodel = "openai/gpt-4o"\napi_key = "k"\n')

    play("benchmarks.md")

    (output,) = tmp_path.rglob("output.jsonl")
    row: dict[str, Any] = json.loads(output.read_text())
    assert row["test_result"] == {"success": True, "files": ["sum.py"]}
    assert json.loads(output.with_name("metadata.json").read_text())["max_iterations"] == 30


def test_a_transcript_is_played_as_an_agent(tmp_path: Path, play: Play) -> None:
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    case = {"eval_id": "greets", "conversation": [GREETING]}
    (tmp_path / "transcript.json").write_text(json.dumps(talk))
    (tmp_path / "my_set.evalset.json").write_text(json.dumps({"eval_set_id": "my_set", "eval_cases": [case]}))

    assert "1 passed" in play("recordings.md")


def test_conversations_are_graded_by_the_scripted_judge(tmp_path: Path, play: Play) -> None:
    rows = [{"id": "a", "rubric_id": "r", "solution_str": "Certainly: it is four, a polite answer to the question."}]
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    play("metrics.md")

    (record,) = json.loads((tmp_path / "grades.json").read_text())["records"]
    assert (len(record["scores"]), record["errors"]) == (3, [])
