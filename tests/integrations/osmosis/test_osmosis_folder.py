"""`-o DIR` in the form of Osmosis: the folders, the name and every key that its later versions write."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk.integrations.osmosis.command.results import path_part

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import CommandFolder

REWARDS = "def exact(solution_str, ground_truth, extra_info=None):\n    return float(solution_str == ground_truth)\n"
ROWS = [("one", "one"), ("flaky", "flaky"), ("two", "other"), ("raise", "x")]
NUMBER = (int, float)
KEYS: dict[str, Any] = {
    "version": int,
    "task_id": str,
    "config_hash": str,
    "status": str,
    "created_at": str,
    "updated_at": str,
    "config": dict,
    "runs": list,
    "summary": dict,
    "evaldesk": dict,
}
CONFIG_KEYS: dict[str, Any] = {
    "model": str,
    "module": str,
    "dataset": str,
    "eval_fns": list,
    "n_runs": int,
    "pass_threshold": NUMBER,
    "offset": int,
    "completion_params": dict,
    "dataset_fingerprint": str,
    "module_fingerprint": str,
}
RUN_KEYS: dict[str, Any] = {
    "row_index": int,
    "run_index": int,
    "success": bool,
    "scores": dict,
    "duration_ms": NUMBER,
    "tokens": int,
    "model_tag": str,
    "error": (str, type(None)),
}


@pytest.fixture
def rewards(place: CommandFolder) -> str:
    name = f"rewards_{place.agent.name}"
    (place.folder / f"{name}.py").write_text(REWARDS)
    lines = (json.dumps({"system_prompt": "s", "user_prompt": q, "ground_truth": t}) for q, t in ROWS)
    (place.folder / "rows.jsonl").write_text("\n".join(lines))
    return f"{name}:exact"


def _eval(place: CommandFolder, rewards: str, *options: object) -> Any:
    module = f"{place.agent.name}.agent:root_agent"
    return place.run("eval", "-m", module, "-d", "rows.jsonl", "--eval-fn", rewards, "--batch-size", 1, *options)


def _only(folder: Path) -> Path:
    [found] = folder.rglob("*.json")
    return found


def test_a_folder_holds_a_file_for_each_model_and_data_set(place: CommandFolder, rewards: str) -> None:
    result = _eval(place, rewards, "--n", 4, "--model", "Gemini/flash 2.0", "--max-error-rate", 1, "-o", "out")

    path = _only(place.folder / "out")
    found = json.loads(path.read_text())
    assert path.parent == place.folder / "out" / "gemini-flash-2-0" / "rows"
    assert re.fullmatch(rf"results_\d+_{found['task_id']}\.json", path.name)
    assert f"Results: out/gemini-flash-2-0/rows/{path.name}" in result.stderr
    _has_keys(found, KEYS)
    _has_keys(found["config"], CONFIG_KEYS)
    for run in found["runs"]:
        _has_keys(run, RUN_KEYS)
    assert (found["version"], found["status"], found["config"]["n_runs"]) == (1, "completed", 4)
    assert [(run["row_index"], run["run_index"]) for run in found["runs"]] == [
        (r, n) for r in range(4) for n in range(4)
    ]
    assert "asked for" in found["runs"][12]["error"]


def _has_keys(found: dict[str, Any], keys: dict[str, Any]) -> None:
    assert set(found) == set(keys)
    assert [name for name, kind in keys.items() if not isinstance(found[name], kind)] == []


def test_the_numbers_are_those_of_osmosis(place: CommandFolder, rewards: str) -> None:
    _eval(place, rewards, "--n", 4, "--max-error-rate", 1, "-o", "out")

    summary = json.loads(_only(place.folder / "out").read_text())["summary"]
    # Rows score 1 1 1 1, 1 0 1 0, 0 0 0 0 and, errored, 0 0 0 0.
    assert summary["eval_fns"][rewards] == {
        "mean": 0.375,
        "median": 0.0,
        "std": pytest.approx(0.484122918),
        "min": 0.0,
        "max": 1.0,
        "p25": 0.0,
        "p75": 1.0,
        "pass_at_k": {"1": 0.375, "2": pytest.approx((1 + 5 / 6) / 4), "4": 0.5},
    }
    assert summary["total_runs"] == 16


def test_a_second_model_is_told_apart_and_the_summary_is_of_the_first(place: CommandFolder, rewards: str) -> None:
    _eval(place, rewards, "--limit", 1, "--model", "a/b", "--baseline-model", "c/d", "-o", "out/")

    found = json.loads(_only(place.folder / "out").read_text())

    assert [run["model_tag"] for run in found["runs"]] == ["primary", "baseline"]
    assert (found["config"]["baseline_model"], found["config"]["limit"]) == ("c/d", 1)
    assert found["summary"]["eval_fns"][rewards]["pass_at_k"] == {}
    assert found["summary"]["total_runs"] == 2


@pytest.mark.parametrize(
    ("text", "part"),
    [("openai/gpt-5-mini", "openai-gpt-5-mini"), ("../../x", "x"), ("Ü ß", "u-ß"), ("..", "unnamed")],
)
def test_a_part_of_a_path_leads_nowhere_else(text: str, part: str) -> None:
    assert path_part(text) == part


def test_a_long_part_is_cut_and_stays_its_own() -> None:
    parts = {path_part("a" * 80 + ending) for ending in "bc"}

    assert len(parts) == 2
    assert {len(part) for part in parts} == {65}
