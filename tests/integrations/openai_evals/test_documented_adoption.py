"""An export of OpenAI Evals, adopted and planned by the commands of docs/coming-from.md."""

from __future__ import annotations

import json
from pathlib import Path

from tests.documents.shown_commands import carry_out, section_commands
from tests.forked_commands import ForkedCommands

SAMPLE = Path(__file__).parents[2] / "formats" / "exchange_samples" / "openai-evals.json"


def test_an_export_of_openai_evals_is_adopted_and_planned(tmp_path: Path, commands: ForkedCommands) -> None:
    export = json.loads(SAMPLE.read_text())
    for each in export if isinstance(export, list) else [export]:
        if each.get("object") == "eval":
            each["name"] = "tickets"
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "all.json").write_text(json.dumps(export))
    *adopting, playing = section_commands("OpenAI Evals")

    carry_out(commands, [*adopting, f"{playing} --check"], tmp_path, {"OPENAI_API_KEY": "k"})

    assert (tmp_path / "agents" / "tickets" / "agent.py").is_file()
