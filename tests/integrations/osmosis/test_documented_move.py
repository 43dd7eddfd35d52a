"""A project of Osmosis, from a clone to its verdict by the commands of docs/coming-from.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.documents.shown_commands import carry_out, commands_of_tool
from tests.forked_commands import ForkedCommands

WORKFLOW = """
from osmosis_ai.rollout import AgentWorkflow, Grader


class Sums(AgentWorkflow):
    async def run(self, ctx):
        left, right = ctx.prompt[-1]["content"].split("+")
        return [*ctx.prompt, {"role": "assistant", "content": str(int(left) + int(right))}]


class IsRight(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))
"""
RUN = """
[experiment]
rollout = "sums"
entrypoint = "main.py"
model_path = "openai/gpt-5-mini"
dataset = "sums"

[evaluation]
n = 2
"""


@pytest.mark.server
def test_a_project_of_osmosis_is_moved_and_its_run_file_is_judged(tmp_path: Path, commands: ForkedCommands) -> None:
    rows = [{"system_prompt": "Add.", "user_prompt": f"{n}+1", "ground_truth": f"{n + 1}"} for n in range(3)]
    for name, text in {
        "rollouts/sums/main.py": WORKFLOW,
        "data/sums.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "configs/eval/sums.toml": RUN,
        "Makefile": "eval:\n\tosmosis eval run configs/eval/sums.toml --yes\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    adopting, playing = commands_of_tool("osmosis")

    output = carry_out(commands, [adopting, playing], tmp_path, {"OPENAI_API_KEY": "k"})

    assert "6 of 6 passed" in output
    assert playing in (tmp_path / "Makefile").read_text()
