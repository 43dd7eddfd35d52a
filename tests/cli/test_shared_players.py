"""A command that plays several eval sets imports the agent once in each of its players."""

from __future__ import annotations

import gc
import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import evaldesk.cli
from evaldesk import workers_ahead
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
    folder, sets = written(tmp_path, n_sets)

    result = CliRunner().invoke(cli, ["eval", "echo", *sets, "--n", "2", "--concurrency", "1"])

    assert result.exit_code == 0, result.output
    assert result.output.count("4 of 4 passed") == n_sets
    assert len((folder / "imports").read_text("utf-8").split()) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="workers are started ahead on Linux")
def test_the_player_and_the_grader_that_were_started_ahead_are_those_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder, sets = written(tmp_path, 1)
    workers_ahead.start_ahead("player", "grader")
    player = workers_ahead._idle_workers["player"].process.pid

    result = CliRunner().invoke(cli, ["eval", "echo", *sets, "--concurrency", "1"])

    assert result.exit_code == 0, result.output
    assert (folder / "imports").read_text("utf-8").split() == [str(player)]
    assert not workers_ahead._idle_workers


@pytest.mark.parametrize(
    ("words", "purposes"),
    [
        ("eval echo set.json", ["player", "grader"]),
        ("eval echo set.json --python=/usr/bin/python3", []),
        ("eval echo set.json --on cluster", []),
        ("eval --help", []),
        ("run list", []),
    ],
)
def test_a_command_starts_workers_ahead_where_it_will_play_in_them(
    words: str, purposes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    monkeypatch.setattr(workers_ahead, "start_ahead", lambda *asked: started.extend(asked))
    monkeypatch.setattr(evaldesk.cli, "cli", lambda *_, **__: 0)
    monkeypatch.setattr(sys, "argv", ["evaldesk", *words.split()])
    monkeypatch.setattr(gc, "set_threshold", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)

    with pytest.raises(SystemExit):
        evaldesk.cli.main()

    assert started == purposes


def written(place: Path, n_sets: int) -> tuple[Path, list[str]]:
    """The folder of an agent that notes its imports, and the names of eval sets beside it."""
    folder = place / "echo"
    folder.mkdir()
    (folder / "agent.py").write_text(AGENT, "utf-8")
    said = {"parts": [{"text": "hello"}]}
    turn = {"user_content": said, "final_response": said}
    sets = [f"set_{index}.evalset.json" for index in range(n_sets)]
    for name in sets:
        cases = [{"eval_id": f"case_{index}", "conversation": [turn]} for index in range(2)]
        (place / name).write_text(json.dumps({"eval_set_id": name, "eval_cases": cases}), "utf-8")
    return folder, sets
