"""A command that plays several eval sets imports the agent once in each of its players."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from evaldesk.cli import cli

AGENT = """
import os
from pathlib import Path

with Path(__file__).with_name("imports").open("a") as log:
    log.write(f"{os.getpid()}\\n")


def root_agent(message, state):
    return message
"""


@pytest.mark.parametrize("n_sets", [1, 3])
def test_the_player_that_described_the_agent_plays_all_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_sets: int
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "echo"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT, "utf-8")
    said = {"parts": [{"text": "hello"}]}
    turn = {"user_content": said, "final_response": said}
    sets = [f"set_{index}.evalset.json" for index in range(n_sets)]
    for name in sets:
        cases = [{"eval_id": f"case_{index}", "conversation": [turn]} for index in range(2)]
        (tmp_path / name).write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}), "utf-8")

    result = CliRunner().invoke(cli, ["eval", "echo", *sets, "--n", "2", "--concurrency", "1"])

    assert result.exit_code == 0, result.output
    assert result.output.count("4 of 4 passed") == n_sets
    assert len((folder / "imports").read_text("utf-8").split()) == 1
