"""An export of OpenAI Evals, from its files to a verdict by the commands of docs/coming-from.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.agents.endpoint import served
from tests.documents.shown_commands import carry_out, section_commands
from tests.forked_commands import ForkedCommands

SAMPLE = Path(__file__).parents[2] / "formats" / "exchange_samples" / "openai-evals.json"


@pytest.mark.server
def test_an_export_of_openai_evals_is_adopted_and_played(tmp_path: Path, commands: ForkedCommands) -> None:
    (tmp_path / "export").mkdir()
    objects = json.loads(SAMPLE.read_text())["data"]
    for number, each in enumerate(objects):
        (tmp_path / "export" / f"{number}.json").write_text(json.dumps(each, indent=2))
    labels = [each["datasource_item"]["correct_label"] for each in objects if "datasource_item" in each]

    *adopting, playing = section_commands("OpenAI Evals")

    with served() as endpoint:
        for label in labels:
            endpoint.says(label)
        environment = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": endpoint.address}
        output = carry_out(commands, [*adopting, f"{playing} --concurrency 1"], tmp_path, environment)

    assert f"{len(labels)} of {len(labels)} passed" in output
    assert endpoint.asked[0]["messages"][0]["content"] == "Answer with one word."
    assert (tmp_path / "agents" / "tickets" / "agent.py").is_file()
