"""Benchmarks of OpenHands, from a clone to their verdict by the commands of docs/coming-from.md."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.agents.endpoint import served
from tests.documents.shown_commands import carry_out, commands_of_tool, section_commands
from tests.forked_commands import ForkedCommands
from tests.integrations.openhands.evaluation_checkout import make_checkout
from tests.integrations.openhands.openhands_script import SCRIPT
from tests.integrations.openhands.test_openhands_script import CONFIG, solves


@pytest.mark.server
def test_a_script_of_openhands_is_moved_and_judged(tmp_path: Path, commands: ForkedCommands) -> None:
    adopting, playing = commands_of_tool("openhands")
    script = shlex.split(playing)[4]
    rows = [{"instance_id": f"n{number}", "number": number} for number in (3, 4, 5)]
    call = f"poetry run python ./{script} -l eval_small"
    for name, text in {
        script: SCRIPT,
        "numbers.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "evaluation/benchmarks/gpqa/scripts/run_infer.sh": f"{call}\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    with served() as endpoint:
        (tmp_path / "config.toml").write_text(CONFIG.format(address=endpoint.address))
        for answer in (6, 8):
            solves(endpoint, f"echo {answer} > answer.txt")
        output = carry_out(commands, [adopting, f"{playing} --eval-num-workers 1"], tmp_path)

    assert "2 of 2 passed" in output
    assert (
        f"evaldesk benchmark ./{script}" in (tmp_path / "evaluation/benchmarks/gpqa/scripts/run_infer.sh").read_text()
    )


@pytest.mark.server
def test_a_checkout_on_the_sdk_is_adopted_and_judged(tmp_path: Path, commands: ForkedCommands) -> None:
    root = make_checkout(tmp_path)
    (root / "benchmarks/numbers").rename(root / "benchmarks/swebench")
    (root / "instances.txt").write_text("n3\nn5\n")

    output = carry_out(commands, section_commands("OpenHands' benchmarks on its SDK"), root)

    assert "6 of 6 passed" in output
