"""Results of Osmosis become runs, and a run is written as Osmosis writes it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaldesk.errors import FormatError
from evaldesk.formats.files import read_file, write_file
from evaldesk.statistics.intervals import pass_at_k
from evaldesk.transcripts.recorded import RecordedRun

SAMPLE = Path(__file__).parents[2] / "formats/exchange_samples" / "osmosis-results.json"


def recorded(value: Any, name: str = "results.json") -> tuple[RecordedRun, ...]:
    return read_file(value if isinstance(value, bytes) else json.dumps(value).encode(), name).runs


def strips(run: RecordedRun) -> list[str]:
    rows = [""] * len(run.cases)
    for trial in sorted(run.results, key=lambda trial: (trial.case_index, trial.trial_index)):
        rows[trial.case_index] += trial.verdict[0]
    return rows


def test_a_row_is_a_case_and_its_runs_are_trials() -> None:
    (run,) = recorded(SAMPLE.read_bytes())

    assert strips(run) == ["pfp", "fep"]
    assert [case.id for case in run.cases] == ["row_0", "row_1"]
    assert [(each.metric, each.threshold) for each in run.criteria] == [
        ("rewards:exact", 1.0),
        ("rewards:partial", 1.0),
    ]
    assert run.model == "openai/gpt-4o"


def test_a_failed_run_is_an_error_and_not_a_score_of_nothing() -> None:
    (run,) = recorded(SAMPLE.read_bytes())

    failed = next(trial for trial in run.results if trial.error)
    assert failed.error
    assert (failed.verdict, failed.scores, failed.error.message) == ("errored", (), "Timeout after 10 s")


def test_the_summary_is_reckoned_as_osmosis_does() -> None:
    (run,) = recorded(SAMPLE.read_bytes())

    summary = json.loads(write_file(run, "osmosis-results"))["summary"]

    assert (summary["total_rows"], summary["total_runs"], summary["total_tokens"]) == (2, 6, 240)
    exact = summary["eval_fns"]["rewards:exact"]
    assert (exact["mean"], exact["std"], exact["min"], exact["max"]) == (0.5, 0.5, 0.0, 1.0)
    assert exact["pass_at_1"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert exact["pass_at_3"] == 1.0
    assert "pass_at_5" not in exact


def test_the_recorded_results_of_the_public_example_come_out_again() -> None:
    # reference/osmosis.md section 9: 20 rows of 5 runs, 6 of which failed. No other passes a row give all its numbers.
    passes = [0] * 3 + [1] + [2] * 2 + [3] * 3 + [4] * 5 + [5] * 6
    rows: list[Any] = [
        {
            "row_index": row,
            "runs": [
                {
                    "run_index": index,
                    "success": True,
                    "scores": {"f": float(index < n)},
                    "duration_ms": 1.0,
                    "tokens": 1,
                }
                for index in range(5)
            ],
        }
        for row, n in enumerate(passes)
    ]
    for row in rows[:3]:
        for run in row["runs"][:2]:
            run |= {"success": False, "scores": {}}
    config = {"model": "m", "n_runs": 5, "pass_threshold": 1.0, "eval_fns": ["f"]}

    (read,) = recorded({"config": config, "summary": {}, "rows": rows})

    written = json.loads(write_file(read, "osmosis-results"))["summary"]["eval_fns"]["f"]
    recorded_then = {"mean": 0.64, "std": 0.48, "pass_at_1": 0.64, "pass_at_3": 0.82, "pass_at_5": 0.85}
    assert {name: written[name] for name in recorded_then} == pytest.approx(recorded_then)
    curve = [sum(pass_at_k(5, n, k) or 0.0 for n in passes) / len(passes) for k in (2, 4)]
    assert curve == pytest.approx([0.775, 0.84])  # as the later version recorded it


def test_each_score_keeps_its_own_threshold() -> None:
    """Osmosis has one for all; the others stand under `evaldesk`, as an export writes them."""
    (run,) = recorded(SAMPLE.read_bytes())
    criteria = tuple(replace(each, threshold=limit) for each, limit in zip(run.criteria, (0.5, None), strict=True))

    (again,) = recorded(write_file(replace(run, criteria=criteria), "osmosis-results"))

    assert again.criteria == criteria
    assert strips(again) == strips(recorded(SAMPLE.read_bytes())[0])


def test_runs_of_a_baseline_are_a_run_of_their_own() -> None:
    value = json.loads(SAMPLE.read_bytes())
    value["config"]["baseline_model"] = "other"
    value["rows"][0]["runs"].append({"run_index": 0, "success": True, "scores": {}, "model_tag": "baseline"})

    primary, baseline = recorded(value)

    assert (primary.model, len(primary.results)) == ("openai/gpt-4o", 6)
    assert (baseline.model, strips(baseline)) == ("other", ["u"])


def test_the_flat_list_of_the_cache_is_read_as_well() -> None:
    runs = [
        {"row_index": 7, "run_index": index, "success": True, "scores": {"f": float(index)}, "model_tag": "primary"}
        for index in range(2)
    ]
    config = {"model": "m", "eval_fns": ["f"], "n_runs": 2, "pass_threshold": 0.5, "dataset": "d.jsonl"}

    (run,) = recorded({"version": 1, "config": config, "runs": runs, "summary": {}})

    assert (strips(run), [case.id for case in run.cases], run.name) == (["fp"], ["row_7"], "d.jsonl")


@pytest.mark.parametrize(
    ("path", "value", "place"),
    [
        (("config",), 7, "config"),
        (("config", "pass_threshold"), "high", "config.pass_threshold"),
        (("rows", 1, "row_index"), -1, "rows[1].row_index"),
        (("rows", 1, "runs"), {}, "rows[1].runs"),
        (("rows", 1, "runs", 2, "tokens"), "many", "rows[1].runs[2].tokens"),
        (("rows", 1, "runs", 2, "scores", "rewards:exact"), "x", 'rows[1].runs[2].scores["rewards:exact"]'),
    ],
)
def test_an_error_says_where(path: tuple[Any, ...], value: Any, place: str) -> None:
    whole = json.loads(SAMPLE.read_bytes())
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value

    with pytest.raises(FormatError) as caught:
        read_file(json.dumps(whole).encode(), "r.json", "osmosis-results")

    assert caught.value.path == place


def test_metrics_alone_are_called_by_their_name() -> None:
    with pytest.raises(FormatError, match=r"import its folder, or the index\.jsonl beside it"):
        recorded({"eval_run": {"id": "x"}, "summary": {"graded": 1}}, "metrics.json")
