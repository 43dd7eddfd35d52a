"""The commands of pages on benchmarks, recordings, metrics and other tools, carried out beside the files they name."""

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


def _steps(title: str) -> list[str]:
    """The commands of a section of the page for users of other tools."""
    section = (DOCS / "coming-from.md").read_text("utf-8").partition(f"## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^evaldesk .*$", section, re.MULTILINE)


def test_an_export_of_openai_evals_is_adopted_and_planned(tmp_path: Path, commands: ForkedCommands) -> None:
    samples = Path(__file__).parents[1] / "formats" / "exchange_samples" / "openai-evals.json"
    export = json.loads(samples.read_text())
    for each in export if isinstance(export, list) else [export]:
        if each.get("object") == "eval":
            each["name"] = "tickets"
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "all.json").write_text(json.dumps(export))
    *adopting, playing = _steps("OpenAI Evals")

    for line in [*adopting, f"{playing} --check"]:
        done = commands.run(*shlex.split(line)[1:], cwd=tmp_path, environment={"OPENAI_API_KEY": "k"})
        assert done.returncode == 0, done.stdout + done.stderr

    assert (tmp_path / "agents" / "tickets" / "agent.py").is_file()


def test_a_project_of_agents_cli_is_adopted_and_played(tmp_path: Path, commands: ForkedCommands) -> None:
    prompt = {"role": "user", "parts": [{"text": "hello"}]}
    case = {"eval_case_id": "greets", "prompt": prompt, "reference": {"response": {"parts": [{"text": "hello"}]}}}
    for name, text in {
        "agents-cli-manifest.yaml": "name: desk\nagent_directory: app\n",
        "app/agent.py": "def root_agent(message, state):\n    return message\n",
        "tests/eval/eval_config.yaml": "metrics_to_run: [exact]\ncustom_metrics:\n  - name: exact\n    threshold: 1\n"
        "    custom_function: |\n      def evaluate(instance):\n          return {'score': 1}\n",
        "tests/eval/datasets/basic-dataset.json": json.dumps({"eval_cases": [case]}),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    adopting, playing = _steps("agents-cli")

    for line in (adopting, playing):
        done = commands.run(*shlex.split(line)[1:], cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr

    assert "1 passed" in done.stdout
