"""The summary that osmosis-ai computes of a run is the one that is computed here at its import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.integrations.osmosis.osmosis_indexes import random_index

from evaldesk.desk.imports.files import read_path

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "osmosis_aggregation.json").read_text("utf-8"))
NOT_COMPARED = {"pass_threshold", "tokens_used"}
"""The first is taken from the file, the second is a sum of tokens that stands in the trials."""


def written(folder: Path, seed: int, **changes: float) -> Path:
    rows, _ = random_index(seed)
    folder.mkdir()
    (folder / "index.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {**GOLDEN[str(seed)], **changes}
    run = {"id": f"r{seed}", "status": "completed", "name": f"run {seed}", "model_name": "m", "rollout_name": "r"}
    (folder / "metrics.json").write_text(json.dumps({"eval_run": run, "summary": summary}))
    return folder


@pytest.mark.parametrize("seed", range(100))
def test_each_value_of_the_summary_of_osmosis_is_computed_from_the_rows(tmp_path: Path, seed: int) -> None:
    (run,) = read_path(written(tmp_path / "run", seed)).runs

    summary = GOLDEN[str(seed)]
    n_values = sum(len(value) if isinstance(value, dict | list) else 1 for value in summary.values())
    assert len(run.summary) == n_values - len(NOT_COMPARED & summary.keys())
    assert [value for value in run.summary if value.differs] == []
    assert run.summary[0].in_file == summary["total_samples"]


def test_a_value_that_is_not_that_of_the_rows_is_said(tmp_path: Path) -> None:
    words = read_path(written(tmp_path / "run", 1, passed=GOLDEN["1"]["passed"] + 1)).understood

    assert any("own summary differs" in sentence and "passed" in sentence for sentence in words)
