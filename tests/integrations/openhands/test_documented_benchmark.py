"""The benchmark of docs/benchmarks.md, played as the page shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.documents.shown_commands import DOCS, carry_out, page_command
from tests.forked_commands import ForkedCommands


def test_the_benchmark_is_played_instance_by_instance(tmp_path: Path, commands: ForkedCommands) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", (DOCS / "benchmarks.md").read_text("utf-8"), re.DOTALL)
    (tmp_path / "bench.py").write_text(source)
    (tmp_path / "instances.jsonl").write_text('{"instance_id": "sum", "answer": "2"}\n')
    (tmp_path / "config.toml").write_text('[llm.eval_gpt4]\nmodel = "openai/gpt-4o"\napi_key = "k"\n')

    carry_out(commands, [page_command("benchmarks.md")], tmp_path)

    (output,) = tmp_path.rglob("output.jsonl")
    row: dict[str, Any] = json.loads(output.read_text())
    assert row["test_result"] == {"success": True, "files": ["sum.py"]}
    assert json.loads(output.with_name("metadata.json").read_text())["max_iterations"] == 30
