"""The rubric command of docs/metrics.md, played as the page shows it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.documents.shown_commands import carry_out, page_command
from tests.forked_commands import ForkedCommands


def test_conversations_are_graded_by_the_scripted_judge(tmp_path: Path, commands: ForkedCommands) -> None:
    rows = [{"id": "a", "rubric_id": "r", "solution_str": "Certainly: it is four, a polite answer to the question."}]
    (tmp_path / "talks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    carry_out(commands, [page_command("metrics.md")], tmp_path)

    grades = json.loads((tmp_path / "grades.json").read_text())
    (record,) = grades["records"]
    assert grades["number"] == 3
    assert (len(record["scores"]), record["errors"]) == (3, [])
