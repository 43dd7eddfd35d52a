"""The summary that osmosis-ai computes of a run is the one that is computed here at its import."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction
from math import comb
from pathlib import Path

import pytest
from tests.integrations.osmosis.osmosis_indexes import random_index

from evaldesk.desk.imports.files import read_path
from evaldesk.integrations.osmosis.results import MAX_POINTS
from evaldesk.transcripts.recorded import SummaryValue

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


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_value_of_the_summary_is_compared(tmp_path: Path, seed: int) -> None:
    names = [name for name, value in GOLDEN[str(seed)].items() if isinstance(value, int | float)]
    changed = {name for name in names if name not in NOT_COMPARED}

    for name in sorted(changed):
        (run,) = read_path(written(tmp_path / name, seed, **{name: GOLDEN[str(seed)][name] + 1})).runs

        assert [value.in_file for value in run.summary if value.differs] == [GOLDEN[str(seed)][name] + 1], name
    assert len(changed) >= 5


def of_one_row(folder: Path, n: int, n_passes: int, ks: Iterable[int]) -> list[SummaryValue]:
    """The compared points of pass@k of a run with one row of so many attempts, whose file claims 0.25 for each k."""
    row = {"row_index": 0, "status": "success", "duration_ms": 5.0, "tokens": 1}
    attempts = ({**row, "run_index": at, "rollout_id": f"{at}", "reward": float(at < n_passes)} for at in range(n))
    folder.mkdir()
    (folder / "index.jsonl").write_text("".join(json.dumps(each) + "\n" for each in attempts))
    run = {"id": "r", "status": "completed", "name": "run", "model_name": "m", "rollout_name": "r"}
    points = [{"k": k, "value": 0.25} for k in ks]
    (folder / "metrics.json").write_text(json.dumps({"eval_run": run, "summary": {"pass_at_k": points}}))
    (recorded_run,) = read_path(folder).runs
    return [value for value in recorded_run.summary if value.name.startswith("pass@")]


def test_pass_at_k_of_many_attempts_of_a_row_is_that_of_whole_numbers(tmp_path: Path) -> None:
    ks = (1, 2, 100, 200, 201, 202, 301)

    values = of_one_row(tmp_path / "run", 301, 100, ks)

    exact = [float(1 - Fraction(comb(201, k), comb(301, k))) for k in ks]
    assert [value.from_trials for value in values] == pytest.approx(exact, rel=1e-9)


def test_of_a_file_with_many_points_of_pass_at_k_the_first_are_compared(tmp_path: Path) -> None:
    values = of_one_row(tmp_path / "run", 3, 1, (1 + at % 3 for at in range(5_000)))

    assert len(values) == MAX_POINTS


@pytest.mark.parametrize("k", [0, -1, 10**9, True])
def test_a_k_without_a_meaning_is_compared_with_0_or_the_first_attempt(tmp_path: Path, k: int) -> None:
    (value,) = of_one_row(tmp_path / "run", 2, 1, [k])

    assert value.from_trials == (0.5 if k is True else 0.0)
