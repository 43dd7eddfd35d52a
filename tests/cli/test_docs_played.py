"""The commands of pages on recordings and other projects, carried out beside the files they name."""

from __future__ import annotations

import json
from pathlib import Path

from tests.documents.shown_commands import carry_out, page_command, section_commands
from tests.forked_commands import ForkedCommands

GREETING = {
    "user_content": {"parts": [{"text": "hello"}]},
    "final_response": {"parts": [{"text": "hi"}]},
    "intermediate_data": {"tool_uses": []},
}


def test_a_transcript_is_played_as_an_agent(tmp_path: Path, commands: ForkedCommands) -> None:
    talk = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}]
    case = {"eval_id": "greets", "conversation": [GREETING]}
    (tmp_path / "transcript.json").write_text(json.dumps(talk))
    (tmp_path / "my_set.evalset.json").write_text(json.dumps({"eval_set_id": "my_set", "eval_cases": [case]}))

    assert "1 passed" in carry_out(commands, [page_command("recordings.md")], tmp_path)


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

    output = carry_out(commands, section_commands("agents-cli"), tmp_path)

    assert "1 passed" in output
