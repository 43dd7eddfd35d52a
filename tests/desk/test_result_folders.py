"""Folders of results, found by their parts: local runs of Osmosis, attempts of OpenHands, jobs of Harbor."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk.desk.imports.files import read_path
from evaldesk.errors import FormatError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.formats.files import read_file
from evaldesk.transcripts.recorded import RecordedRun

pytestmark = of_tools("atif", "openhands", "osmosis")


def _fill(folder: Path, files: Mapping[str, Any]) -> Path:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, bytes):
            path.write_bytes(value)
        elif name.endswith(".jsonl") and isinstance(value, list):
            path.write_text("".join(json.dumps(row) + "\n" for row in value))
        else:
            path.write_text(json.dumps(value))
    return folder


def _only_run(imported: Imported) -> RecordedRun:
    (run,) = imported.runs
    return run


def _trajectory(question: str, answer: str) -> dict[str, Any]:
    return {
        "schema_version": "ATIF-v1.7",
        "session_id": question,
        "agent": {"name": "solver", "version": "1", "model_name": "m"},
        "steps": [
            {"step_id": 1, "source": "user", "message": question},
            {
                "step_id": 2,
                "source": "agent",
                "message": "",
                "tool_calls": [{"tool_call_id": "c", "function_name": "add", "arguments": {"a": 1}}],
                "observation": {"results": [{"source_call_id": "c", "content": "2"}]},
            },
            {"step_id": 3, "source": "agent", "message": answer},
        ],
    }


def _row(row: int, run: int, **more: Any) -> dict[str, Any]:
    return {"row_index": row, "run_index": run, "rollout_id": "a" * 32, "status": "success", "duration_ms": 5, **more}


INDEX = [
    _row(0, 0, reward=0.7, tokens=12),
    _row(0, 1, reward=0.2),
    _row(3, 0, status="failed", error_type="grader_failed", reward=0.9),
    _row(3, 1, status="skipped"),
]
METRICS: dict[str, Any] = {
    "eval_run": {"name": "nightly", "model_name": "openai/m", "rollout_name": "sums", "status": "finished"},
    "summary": {
        "total_samples": 4,
        "completed_samples": 3,
        "graded": 1,
        "passed": 1,
        "failed": 1,
        "skipped": 1,
        "pass_rate": 0.3333,
        "pass_threshold": 0.7,
        "n_runs": 2,
    },
}


def test_a_local_run_of_osmosis_is_read_whole(tmp_path: Path) -> None:
    folder = _fill(
        tmp_path / "nightly",
        {
            "index.jsonl": INDEX,
            "metrics.json": METRICS,
            "manifest.json": {},
            "trajectories/row_0_run_0.json": _trajectory("1 + 1", "2"),
            "trajectories/row_0_run_1.json": {"steps": "broken", "agent": {}},
            "artifacts/row_0_run_0/plot.svg": {},
            "artifacts/row_0_run_0/data/table.csv": {},
        },
    )

    imported = read_path(folder)
    run = _only_run(imported)

    assert (run.name, run.agent, run.model) == ("nightly", "sums", "openai/m")
    assert [each.verdict for each in run.results] == ["passed", "failed", "errored"]
    assert run.plan.n_planned == 4
    first = run.results[0].transcript.turns[0]
    assert (first.query, first.answer, [call.name for call in first.tool_calls]) == ("1 + 1", "2", ["add"])
    assert [case.turns[0].query for case in run.cases] == ["1 + 1", ""]
    assert any("plot.svg" in event.text and "data/table.csv" in event.text for event in first.events)
    assert "2 artifacts of 1 trial: named in the trial, the files stay in the folder." in imported.understood
    assert any("trajectories/row_0_run_1.json" in sentence for sentence in imported.refused)
    assert "1 failed run with a reward of at least 0.7: passed in Osmosis, errored here." in imported.understood


def test_a_summary_that_differs_is_said_in_one_line_and_one_that_agrees_in_one(tmp_path: Path) -> None:
    """Osmosis grades a failed run with a reward, and passes it by that."""
    right = {**METRICS["summary"], "graded": 3, "passed": 2, "pass_rate": 0.6667}
    wrong = {**right, "graded": 2, "passed": 1, "pass_rate": 0.3333}
    folders = [
        _fill(tmp_path / name, {"index.jsonl": INDEX, "metrics.json": {**METRICS, "summary": summary}})
        for name, summary in (("right", right), ("wrong", wrong))
    ]

    lines = [[words for words in read_path(each).understood if "own summary" in words] for each in folders]

    assert lines[0] == [
        "The tool's own summary agrees: total_samples 4, completed_samples 3, graded 3, passed 2, failed 1, skipped 1, "
        "pass_rate 0.6667, n_runs 2."
    ]
    assert lines[1] == [
        "The tool's own summary differs from its trials: graded 2 (here 3), passed 1 (here 2), "
        "pass_rate 0.3333 (here 0.666667)."
    ]


def _published(n: int, n_passed: int, threshold: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The index and the metrics of `n` attempts, some of which reach the threshold, fewer of them 1."""
    rewards = [1.0] * 15 + [threshold] * (n_passed - 15)
    rows = [_row(at // 2, at % 2, reward=reward) for at, reward in enumerate(rewards)]
    rows += [_row(at // 2, at % 2, reward=0.4) for at in range(n_passed, 83)]
    rows += [_row(at // 2, at % 2, status="failed", error_type="timeout") for at in range(83, n)]
    summary: dict[str, Any] = {
        "total_samples": n,
        "completed_samples": n,
        "graded": 83,
        "passed": n_passed,
        "failed": n - 83,
    }
    summary |= {"skipped": 0, "pass_rate": n_passed / n, "pass_threshold": threshold, "n_runs": 2}
    return rows, {"eval_run": METRICS["eval_run"], "summary": summary}


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """The folder of a run with 44 of 110 attempts at 0.7, of which 15 of 83 judged ones reach 1."""
    rows, metrics = _published(110, 44, 0.7)
    trajectory = _trajectory("1 + 1", "2")
    files = {"index.jsonl": rows, "metrics.json": metrics, "trajectories/row_0_run_0.json": trajectory}
    return _fill(tmp_path / "run", files)


def _n_passed(run: RecordedRun) -> int:
    return sum(each.verdict == "passed" for each in run.results)


def test_44_of_110_stay_44_of_110_by_the_folder_and_by_its_index_alone(published: Path) -> None:
    of_folder, of_index = read_path(published), read_path(published / "index.jsonl")

    run = _only_run(of_index)
    assert (_n_passed(run), len(run.results), run.criteria[0].threshold) == (44, 110, 0.7)
    assert of_index == of_folder
    assert any("own summary agrees" in words and "passed 44" in words for words in of_index.understood)


def test_an_index_without_its_metrics_says_that_it_lacks_the_threshold(published: Path) -> None:
    """The import page, too, gets the index alone."""
    rows = (published / "index.jsonl").read_bytes()
    (published / "metrics.json").unlink()
    (published / "trajectories" / "row_0_run_0.json").unlink()

    for imported in (read_path(published / "index.jsonl"), read_file(rows, "index.jsonl")):
        assert _n_passed(_only_run(imported)) == 15
        [sentence] = [words for words in imported.understood if "threshold" in words]
        assert "in its metrics.json, which is not here, so 1 is taken" in sentence


def test_a_folder_without_metrics_says_so_and_metrics_without_a_threshold_too(published: Path) -> None:
    metrics = json.loads((published / "metrics.json").read_text())
    del metrics["summary"]["pass_threshold"]
    (published / "metrics.json").write_text(json.dumps(metrics))
    assert "The metrics.json of this run has no threshold, so 1 is taken." in read_path(published).understood

    (published / "metrics.json").unlink()
    assert any("which is not here, so 1 is taken" in words for words in read_path(published).understood)


def test_the_large_index_is_joined_with_its_metrics(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.desk.imports.files.is_whole", lambda _: False)
    monkeypatch.setattr("evaldesk.desk.imports.streamed.is_whole", lambda _: False)

    run = _only_run(read_path(published / "index.jsonl"))

    assert (sum(each.verdict == "passed" for each in run.results), run.criteria[0].threshold) == (44, 0.7)


def test_one_of_two_indexes_is_the_one_that_was_named(published: Path) -> None:
    (published / "summary.jsonl").write_text(json.dumps(_row(0, 0, reward=0.7)) + "\n")

    assert _n_passed(_only_run(read_path(published / "summary.jsonl"))) == 1
    assert _n_passed(_only_run(read_path(published / "index.jsonl"))) == 44


def test_an_index_in_a_full_folder_is_read_with_its_metrics(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.desk.imports.files.MAX_FOLDER_FILES", 2)

    assert _n_passed(_only_run(read_path(published / "index.jsonl"))) == 44


def test_a_link_beside_an_index_is_no_part_of_the_run(published: Path, tmp_path: Path) -> None:
    (published / "metrics.json").rename(tmp_path / "elsewhere.json")
    (published / "metrics.json").symlink_to(tmp_path / "elsewhere.json")

    assert _n_passed(_only_run(read_path(published / "index.jsonl"))) == 15


def test_metrics_of_another_tool_are_refused_by_name(published: Path) -> None:
    (published / "metrics.json").write_text('{"loss": 0.1}')

    with pytest.raises(FormatError, match=r"metrics\.json.*no eval_run and no summary"):
        read_path(published / "index.jsonl")


def test_an_index_of_another_tool_is_not_read_with_the_files_beside_it(published: Path) -> None:
    (published / "index.jsonl").write_text('{"messages": [{"role": "user", "content": "hi"}]}\n')

    assert read_path(published / "index.jsonl").format == "openai-messages"


def test_the_index_and_the_metrics_are_one_file_in_the_import_page_too(tmp_path: Path) -> None:
    from evaldesk.formats.files import as_one_file

    rows = "".join(json.dumps(row) + "\n" for row in INDEX).encode()

    source, data = as_one_file([("metrics.json", json.dumps(METRICS).encode()), ("index.jsonl", rows)])

    assert _only_run(read_file(data, source)).criteria[0].threshold == 0.7


def _instance(name: str, **more: Any) -> dict[str, Any]:
    return {"instance_id": name, "instruction": f"Solve {name}.", "history": [], "test_result": {}, **more}


def _archive(*events: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for number, event in enumerate(events):
            data = json.dumps(event).encode()
            member = tarfile.TarInfo(f"workspace/conversations/x/events/event-{number:05}.json")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


METADATA = {"llm": {"model": "m"}, "critic": {"kind": "PassCritic"}, "dataset": "sums", "eval_limit": 2}
MESSAGE = {
    "id": "e1",
    "kind": "MessageEvent",
    "source": "agent",
    "timestamp": "2026-10-01T10:00:00",
    "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "It is done."}]},
}


def test_attempts_of_openhands_are_trials_and_its_costs_and_report_are_compared(tmp_path: Path) -> None:
    cost = {"metrics": {"accumulated_cost": 0.25}}
    folder = _fill(
        tmp_path / "run",
        {
            "output.critic_attempt_1.jsonl": [_instance("a", **cost), _instance("b", **cost)],
            "output.critic_attempt_2.jsonl": [_instance("b", **cost)],
            "output.jsonl": [_instance("a", **cost), _instance("b", **cost)],
            "metadata.json": METADATA,
            "output.report.json": {"completed_ids": ["a", "b"], "resolved_ids": ["a"]},
            "cost_report.jsonl": {"summary": {"total_cost": 0.75}},
            "conversations/a.tar.gz": _archive(MESSAGE),
        },
    )

    imported = read_path(folder)
    run = _only_run(imported)

    assert [(run.cases[each.case_index].id, each.trial_index, each.verdict) for each in run.results] == [
        ("a", 0, "passed"),
        ("b", 0, "failed"),
        ("b", 1, "failed"),
    ]
    assert run.results[0].transcript.turns[0].answer == "It is done."
    assert "The tool's own summary agrees: total_cost 0.75, resolved 1." in imported.understood
    assert any(words.startswith("Attempts are trials.") for words in imported.understood)
    assert run.plan.n_planned == 3


def test_the_output_of_openhands_alone_is_read_with_its_report_and_its_errors(tmp_path: Path) -> None:
    files = {
        "output.jsonl": [_instance("a"), _instance("b")],
        "output_errors.jsonl": [_instance("c", error="no container")],
        "output.critic_attempt_1.jsonl": [_instance("a"), _instance("b")],
        "output.report.json": {"resolved_ids": ["a"], "unresolved_ids": ["b"]},
        "metadata.json": {"llm": {"model": "m"}, "critic": {}, "dataset": "d", "eval_limit": 4},
    }
    path = _fill(tmp_path / "run", files) / "output.jsonl"

    imported = read_path(path)
    run = _only_run(imported)

    assert [each.verdict for each in run.results] == ["passed", "failed", "errored"]
    assert (run.name, run.model, run.plan.n_planned) == ("d", "m", 4)
    assert any("own summary agrees" in words for words in imported.understood)


def test_a_broken_archive_leaves_the_row_as_it_is(tmp_path: Path) -> None:
    folder = _fill(tmp_path / "run", {"output.jsonl": [_instance("a")], "conversations/a.tar.gz": b"no archive"})

    assert len(_only_run(read_path(folder)).results) == 1


def _trial(task: str, **more: Any) -> dict[str, Any]:
    return {
        "task_name": task,
        "agent_info": {"name": "coder", "version": "1", "model_info": {"name": "m"}},
        "agent_result": {"n_input_tokens": 7, "n_cache_tokens": 2, "n_output_tokens": 3, "cost_usd": 0.5},
        "started_at": "2026-10-01T10:00:00Z",
        "finished_at": "2026-10-01T10:00:04Z",
        **more,
    }


def test_a_job_of_harbor_has_a_trial_for_each_folder(tmp_path: Path) -> None:
    folder = _fill(
        tmp_path / "job",
        {
            "result.json": {"n_total_trials": 4, "stats": {"n_trials": 3, "n_errors": 2}, "finished_at": "x"},
            "config.json": {},
            "sum__a/result.json": _trial("sum", verifier_result={"rewards": {"reward": 1.0}}),
            "sum__a/agent/trajectory.json": _trajectory("1 + 1", "2"),
            "sum__b/result.json": _trial("sum", verifier_result={"rewards": {"reward": 0.5}}),
            "product__c/result.json": _trial(
                "product", exception_info={"exception_type": "AgentTimeoutError", "exception_message": "600 s"}
            ),
        },
    )

    imported = read_path(folder)
    run = _only_run(imported)

    trials = [(run.cases[each.case_index].id, each.trial_index, each.verdict) for each in run.results]
    assert sorted(trials) == [("product", 0, "errored"), ("sum", 0, "passed"), ("sum", 1, "failed")]
    passed = next(each for each in run.results if each.verdict == "passed")
    assert passed.transcript.turns[0].answer == "2"
    assert passed.duration_ms == 4000
    assert sum(each.cost or 0 for each in run.results if each.verdict == "failed") == 0.5
    assert run.plan.n_planned == 4
    assert any("n_errors 2 (here 1)" in words for words in imported.understood)


def test_a_folder_that_no_tool_fills_is_refused_with_the_parts_that_are_known(tmp_path: Path) -> None:
    _fill(tmp_path / "notes", {"a.json": {}})

    with pytest.raises(UsageError, match=r"index\.jsonl or summary\.jsonl with metrics\.json"):
        read_path(tmp_path / "notes")


def test_an_outcome_is_chosen_only_where_there_are_several(tmp_path: Path) -> None:
    osmosis = _fill(tmp_path / "osmosis", {"index.jsonl": INDEX, "metrics.json": METRICS})
    job = _fill(
        tmp_path / "job",
        {"result.json": {}, "a__1/result.json": _trial("a", verifier_result={"rewards": {"x": 1, "y": 0}})},
    )

    with pytest.raises(FormatError, match="no outcome can be chosen"):
        read_path(osmosis, outcome="reward")
    assert [each.threshold for each in _only_run(read_path(job, outcome="y")).criteria] == [None, 1.0]
