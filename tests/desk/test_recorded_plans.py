"""An imported run is concluded from what was planned: a file that lacks trials, or ended early, has not passed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.islands import of_tools

from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.imports.importing import ImportDesk
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import FormatError
from evaldesk.formats.exchange import FORMATS
from evaldesk.formats.files import names_for, read_file, suffix_of, write_file
from evaldesk.model import Case, Conclusion, Criterion, RecordedPlan, Turn
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.transcripts.messages.turns import Message, turns_of
from evaldesk.transcripts.recorded import RecordedRun, recorded_score, recorded_trial

pytestmark = of_tools("atif", "inspect", "openai_evals", "openhands", "osmosis", "promptfoo", "swe_agent", "tau")

Concluded = Callable[[bytes, str], Conclusion]


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("migrated") / "evaldesk.db"
    Store.open(path).close()
    return path


@pytest.fixture
def store(tmp_path: Path, migrated: Path) -> Iterator[Store]:
    database = tmp_path / ".evaldesk" / "evaldesk.db"
    database.parent.mkdir()
    copyfile(migrated, database)
    with Store.open(database) as opened:
        yield opened


@pytest.fixture
def concluded(tmp_path: Path, store: Store) -> Concluded:
    """The conclusion of the one run of a file."""
    settings = Settings(tmp_path, (tmp_path,))
    desk = ImportDesk(settings, store, EvalSetDesk(settings, store))

    def conclude(data: bytes, source: str) -> Conclusion:
        taken = desk.take_in(read_file(data, source), source=source, name=f"set{len(store.imports.list())}")
        runs = StoredRuns(store.runs)
        run = runs.summary(taken.run_ids[-1])
        assert runs.result(run.id).conclusion.outcome == runs.conclusion(run).outcome
        return runs.conclusion(run)

    return conclude


def tau2(*trials: tuple[str, int], num_trials: int = 2, **more: Any) -> dict[str, Any]:
    tasks = [{"id": name, "user_scenario": {"instructions": "Ask."}} for name in ("t1", "t2")]
    row = {"messages": [{"role": "user", "content": "Hi"}], "termination_reason": "agent_stop"}
    rows = [{"task_id": name, "trial": trial, "reward_info": {"reward": 1.0}, **row, **more} for name, trial in trials]
    return {"info": {"num_trials": num_trials}, "tasks": tasks, "simulations": rows}


def tau_bench(*trials: tuple[int, int], **more: Any) -> list[dict[str, Any]]:
    info = {"task": {"instruction": "Ask."}, "reward_info": {"reward": 1.0}}
    rows = [{"task_id": task, "trial": trial, "reward": 1.0, "info": info, "traj": []} for task, trial in trials]
    return [{**row, **more} for row in rows]


def osmosis(*runs: tuple[int, int], n_runs: int = 2, **more: Any) -> dict[str, Any]:
    row = {"success": True, "scores": {"f": 1.0}, "duration_ms": 1, "tokens": 1}
    found = [{"row_index": index, "run_index": run, **row} for index, run in runs]
    return {"config": {"n_runs": n_runs, "pass_threshold": 1.0, "eval_fns": ["f"]}, "runs": found, **more}


def inspect(*epochs: tuple[str, int], status: str = "success", **more: Any) -> dict[str, Any]:
    row = {"input": "q", "target": "4", "messages": [], "scores": {"match": {"value": "C"}}}
    samples = [{"id": name, "epoch": epoch, **row, **more} for name, epoch in epochs]
    dataset = {"samples": 2, "sample_ids": ["a", "b"]}
    spec = {"task": "sums", "dataset": dataset, "config": {"epochs": 2}}
    return {"version": 2, "status": status, "eval": spec, "plan": {}, "samples": samples}


def promptfoo(*tests: int, n_errors: int = 0, n_passed: int | None = None) -> dict[str, Any]:
    rows = [
        {"promptIdx": 0, "testIdx": test, "vars": {"q": test}, "success": True, "response": {"output": "a"}}
        for test in tests
    ]
    stats = {"successes": len(tests) if n_passed is None else n_passed, "failures": 0, "errors": n_errors}
    return {"evalId": "e", "results": {"version": 3, "results": rows, "stats": stats, "prompts": []}}


def openhands(*instances: str, limit: int = 2, resolved: bool = True) -> bytes:
    metadata = {"llm": {"model": "m"}, "critic": {"kind": "PassCritic"}, "eval_limit": limit}
    row = {"test_result": {"report": {"resolved": resolved}}, "history": [], "metadata": metadata}
    return b"\n".join(json.dumps({"instance_id": name, **row}).encode() for name in instances)


def openai_evals(*rows: int, total: int = 3, status: str = "pass") -> dict[str, Any]:
    evals = {"object": "eval", "id": "e", "name": "sums", "testing_criteria": []}
    run = {"object": "eval.run", "id": "r", "eval_id": "e", "status": "completed", "result_counts": {"total": total}}
    ids = {"object": "eval.run.output_item", "run_id": "r", "eval_id": "e", "status": status}
    question, answer = [{"role": "user", "content": "q"}], [{"role": "assistant", "content": "a"}]
    items = [
        {**ids, "id": f"o{row}", "datasource_item": {"q": row}, "sample": {"input": question, "output": answer}}
        for row in rows
    ]
    return {"object": "list", "data": [evals, run, *items]}


ALL = (("t1", 0), ("t1", 1), ("t2", 0), ("t2", 1))
NUMBERS = ((0, 0), (0, 1), (1, 0), (1, 1))
EPOCHS = (("a", 1), ("a", 2), ("b", 1), ("b", 2))
WHOLE = {
    "tau2": tau2(*ALL),
    "tau-bench": tau_bench(*NUMBERS),
    "osmosis": osmosis(*NUMBERS),
    "inspect": inspect(*EPOCHS),
    "promptfoo": promptfoo(0, 1, 2),
    "openhands": openhands("a", "b"),
    "openai-evals": openai_evals(0, 1, 2),
}
"""A file of each format that tells its plan, with every trial of it."""

TRUNCATED = {
    "tau2-a-trial": (tau2(*ALL[:3]), "1 of 4 planned trials is not in the file"),
    "tau2-a-task": (tau2(*ALL[:2]), "2 of 4 planned trials are not in the file"),
    "tau-bench-a-trial": (tau_bench(*NUMBERS[1:]), "1 of 4 planned trials is not in the file"),
    "osmosis-a-run": (osmosis(*NUMBERS[:3]), "1 of 4 planned trials is not in the file"),
    "osmosis-all-second-runs": (osmosis((0, 0), (1, 0)), "2 of 4 planned trials are not in the file"),
    "osmosis-a-row": (
        osmosis(*NUMBERS[:2], summary={"total_runs": 6}),
        "4 of 6 planned trials are not in the file",
    ),
    "osmosis-in-progress": (
        osmosis(*NUMBERS, status="in_progress"),
        "the run had not ended when the file was written: in_progress",
    ),
    "osmosis-stopped": (
        osmosis(*NUMBERS, summary={"stopped_early": True, "stop_reason": "401"}),
        "the run was stopped before its end: 401",
    ),
    "inspect-an-epoch": (inspect(*EPOCHS[:3]), "1 of 4 planned trials is not in the file"),
    "inspect-a-sample": (inspect(*EPOCHS[:2]), "2 of 4 planned trials are not in the file"),
    "inspect-cancelled": (inspect(*EPOCHS, status="cancelled"), "the run was stopped before its end: cancelled"),
    "inspect-crashed": (inspect(*EPOCHS, status="error"), "the run broke off: error"),
    "inspect-killed": (
        inspect(*EPOCHS, status="started"),
        "the run had not ended when the file was written: started",
    ),
    "promptfoo-errors": (promptfoo(0, 1, 2, n_errors=7), "7 of 10 planned trials are not in the file"),
    "openai-evals-rows": (openai_evals(0), "2 of 3 planned trials are not in the file"),
    "openhands-an-instance": (openhands("a", "b", limit=3), "1 of 3 planned trials is not in the file"),
}
OVERFULL = {
    "tau2-a-trial-twice": tau2(*ALL, ALL[0]),
    "tau2-a-trial-more": tau2(*ALL, ("t1", 2)),
    "tau-bench-a-trial-twice": tau_bench(*NUMBERS, NUMBERS[0]),
    "osmosis-a-run-twice": osmosis(*NUMBERS, NUMBERS[0]),
    "osmosis-a-run-more": osmosis(*NUMBERS, (1, 2)),
    "inspect-an-epoch-twice": inspect(*EPOCHS, EPOCHS[0]),
    "inspect-a-sample-more": inspect(*EPOCHS, ("c", 1), ("c", 2)),
    "promptfoo-a-row-twice": promptfoo(0, 1, 2, 2, n_passed=3),
    "promptfoo-a-row-more": promptfoo(0, 1, 2, n_passed=2),
    "openai-evals-a-row-twice": openai_evals(0, 1, 2, 2),
    "openai-evals-a-row-more": openai_evals(0, 1, 2, 3),
    "openhands-an-instance-twice": openhands("a", "b", "a"),
    "openhands-an-instance-more": openhands("a", "b", "c"),
}


SAMPLES = Path(__file__).parents[1] / "formats/exchange_samples"


def samples_of_runs() -> dict[str, tuple[bytes, str]]:
    """A file of its tool for each format that records runs, by reflection over all formats, and its name."""
    found = {}
    for name in FORMATS:
        (path,) = (each for each in SAMPLES.iterdir() if each.name.partition(".")[0] == name)
        if read_file(path.read_bytes(), path.name).runs:
            found[name] = (path.read_bytes(), path.name)
    return found


OF_RUNS = samples_of_runs()


def with_each_entry_doubled(name: str) -> bytes:
    """The sample with each trial, event or span in it twice."""
    data, _ = OF_RUNS[name]
    if name in ("openhands", "openhands-log", "langsmith", "braintrust"):
        return data.rstrip() + b"\n" + data
    file = json.loads(data)
    if isinstance(file, list):
        return encoded(file + file)
    if name == "mlflow":
        return encoded([file, file])
    if name == "openai-evals":
        items = [each for each in file["data"] if each["object"] == "eval.run.output_item"]
        return encoded({**file, "data": [*file["data"], *items]})
    key = {
        "adk-results": "eval_case_results",
        "agents-cli-results": "eval_case_results",
        "agents-cli-traces": "eval_cases",
        "atif": "steps",
        "inspect": "samples",
        "osmosis-results": "rows",
        "otel": "resourceSpans",
        "promptfoo": "results",
        "swe-agent": "trajectory",
        "tau2-results": "simulations",
    }[name]
    within = file["results"] if name == "promptfoo" else file
    within[key] = [*within[key], *within[key]]
    return encoded(file)


WITHOUT_VERDICTS = {"agents-cli-results", "agents-cli-traces"}
"""Formats of scores without thresholds, whose runs pass with no number of trials: formats/test_agents_cli.py."""
IS_NO_PLANNED_TRIAL = {
    "adk-results": "an entry has no number: more of them are more trials",
    "atif": "a step has no id: it was made twice",
}


@pytest.mark.parametrize("name", OF_RUNS)
def test_what_a_file_has_twice_counts_once_and_the_earlier_is_said(name: str) -> None:
    """Of each format that records runs, whatever it says of its plan."""
    data, source = OF_RUNS[name]
    (once,), over = read_file(data, source).runs, read_file(with_each_entry_doubled(name), source)
    (run,) = over.runs

    ends = [[(trial.case_index, trial.trial_index, trial.verdict) for trial in each.results] for each in (once, run)]
    assert is_passed(run) <= is_passed(once)
    if name in IS_NO_PLANNED_TRIAL:
        assert set(ends[0]) <= set(ends[1])
        return
    assert (ends[1], run.plan) == (ends[0], once.plan)
    is_by_trial = len(once.results) > 1
    assert any("the later counts" in words for words in over.kept) == is_by_trial


@pytest.mark.parametrize("name", OF_RUNS)
def test_no_part_of_a_file_has_a_run_with_more_passed_trials(name: str) -> None:
    """A file of each format that is cut at 40 places: refused, or without a verdict that the whole does not have."""
    data, source = OF_RUNS[name]
    whole = verdicts_of(data, source)
    for at in range(1, 40):
        with suppress(FormatError):
            cut = verdicts_of(data[: len(data.rstrip()) * at // 40], source)
            assert cut["passed"] <= whole["passed"], at


def verdicts_of(data: bytes, source: str) -> Counter[str]:
    return Counter(trial.verdict for run in read_file(data, source).runs for trial in run.results)


def test_each_format_that_tells_its_plan_has_a_file_that_lacks_some_and_one_that_has_more() -> None:
    """Told by their samples, so that a new format that records runs needs its own."""
    told = {name for name, (data, source) in OF_RUNS.items() if read_file(data, source).runs[0].plan.n_planned}
    lacking = {read_file(encoded(file), name_of(file)).format for file, _ in TRUNCATED.values()}
    overfull = {read_file(encoded(file), name_of(file)).format for file in OVERFULL.values()}

    others = {"adk-results", "swe-agent", *WITHOUT_VERDICTS}
    assert told - lacking == others, "they have tests of their own"
    assert told - overfull == others, "a trial has no number, one trial has no other, and no trial passes"


def recorded(n: int, plan: RecordedPlan) -> RecordedRun:
    """A run of ours with two cases and `n` passed trials."""
    metric = Criterion("m", 1.0)
    turns = turns_of([Message("user", "q"), Message("agent", "a")])
    trial = recorded_trial(turns, scores=[recorded_score(metric, 1.0)], criteria=[metric])
    results = [replace(trial, case_index=at % 2, trial_index=at // 2) for at in range(n)]
    cases = tuple(Case(name, (Turn("q"),)) for name in "ab")
    return RecordedRun("r", "agent", cases, tuple(results), (metric,), plan=plan)


@pytest.mark.parametrize("name", names_for("run"))
def test_a_run_that_is_exported_takes_its_plan_along(concluded: Concluded, name: str) -> None:
    whole, cut = recorded(4, RecordedPlan(4, 2, "finished")), recorded(3, RecordedPlan(4, 1, "stopped", "by Ann"))

    found = [concluded(write_file(run, name), "r" + suffix_of(name)) for run in (whole, cut)]

    assert [each.outcome for each in found] == ["passed", "undecided"]
    reasons = ("1 of 4 planned trials is not in the file", "the run was stopped before its end: by Ann")
    assert found[1].reasons[:2] == reasons


@cache
def whole_files() -> dict[str, tuple[bytes, str]]:
    """A file of each format with nothing but passed trials, and its name."""
    ours = {name: (write_file(recorded(4, RecordedPlan(4, 2, "finished")), name), name) for name in names_for("run")}
    files = {name: (data, "r" + suffix_of(form)) for name, (data, form) in ours.items()}
    return files | {f"{name} of its tool": (encoded(file), name_of(file)) for name, file in WHOLE.items()}


def is_passed(run: RecordedRun) -> bool:
    """Whether nothing about the run keeps its conclusion from being passed."""
    is_whole = not run.plan.is_cut and len(run.results) >= (run.plan.n_planned or 0)
    return is_whole and all(result.verdict == "passed" for result in run.results)


@given(data=st.data())
@settings(max_examples=150)
def test_no_file_that_is_cut_has_a_run_that_passed(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(whole_files())))
    file, source = whole_files()[name]
    assert all(map(is_passed, read_file(file, source).runs))
    cut = file[: data.draw(st.integers(1, len(file.rstrip()) - 1))]

    with suppress(FormatError):
        assert not any(map(is_passed, read_file(cut, source).runs))


ATIF: dict[str, Any] = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s",
    "agent": {"name": "a"},
    "steps": [{"source": "user", "message": "q"}, {"source": "agent", "message": "a"}],
}


@pytest.mark.parametrize(
    ("more", "is_cut"),
    [
        ({"final_metrics": {"total_steps": 2}}, False),
        ({"final_metrics": {"total_steps": 9}}, True),
        ({"continued_trajectory_ref": "next.json"}, True),
    ],
    ids=["whole", "fewer-steps", "goes-on"],
)
def test_a_trajectory_without_its_last_steps_is_of_a_run_that_had_not_ended(
    more: dict[str, Any], *, is_cut: bool
) -> None:
    (run,) = read_file(encoded(ATIF | more), "r.json").runs

    assert run.plan.is_cut == is_cut


@pytest.mark.parametrize(
    ("status", "plan", "verdict"),
    [
        ("submitted", "finished", "unscored"),
        ("exit_context", "finished", "unscored"),
        ("exit_api", "finished", "errored"),
        (None, "unfinished", "unscored"),
    ],
)
def test_an_attempt_of_swe_agent_says_how_it_ended(status: str | None, plan: str, verdict: str) -> None:
    history = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]

    (run,) = read_file(encoded({"trajectory": [], "history": history, "info": {"exit_status": status}}), "r.traj").runs

    assert (run.plan.status, run.results[0].verdict) == (plan, verdict)


def test_results_of_adk_lack_trials_where_a_case_has_fewer_than_another(concluded: Concluded) -> None:
    invocation = {"user_content": {"parts": [{"text": "q"}]}}
    row = {"final_eval_status": 1, "eval_metric_result_per_invocation": [{"actual_invocation": invocation}]}
    file = {"eval_set_id": "s", "eval_case_results": [{"eval_id": name, **row} for name in "aab"]}

    assert concluded(encoded(file), "r.evalset_result.json").reason == "1 of 4 planned trials is not in the file"


def encoded(file: Any) -> bytes:
    return file if isinstance(file, bytes) else json.dumps(file).encode()


def name_of(file: Any) -> str:
    return "r.jsonl" if isinstance(file, bytes) else "r.json"


@pytest.mark.parametrize("name", WHOLE)
def test_a_file_with_every_planned_trial_passes(concluded: Concluded, name: str) -> None:
    assert concluded(encoded(WHOLE[name]), name_of(WHOLE[name])).outcome == "passed"


@pytest.mark.parametrize("name", TRUNCATED)
def test_a_file_without_some_of_its_plan_is_undecided_and_says_why(concluded: Concluded, name: str) -> None:
    file, reason = TRUNCATED[name]

    found = concluded(encoded(file), name_of(file))

    assert (found.outcome, found.reason) == ("undecided", reason)


@pytest.mark.parametrize("name", OVERFULL)
def test_a_file_with_more_than_its_plan_is_concluded_from_all_of_it(concluded: Concluded, name: str) -> None:
    found = concluded(encoded(OVERFULL[name]), name_of(OVERFULL[name]))

    assert found.outcome == "passed"
    assert found.counts.planned == found.counts.passed


@pytest.mark.parametrize("name", [name for name in WHOLE if name != "promptfoo"])
def test_a_failure_of_a_truncated_file_stays_a_failure(concluded: Concluded, name: str) -> None:
    failing = {
        "tau2": tau2(*ALL[:3], reward_info={"reward": 0.0}),
        "tau-bench": tau_bench(*NUMBERS[1:], reward=0.0),
        "osmosis": osmosis(*NUMBERS[:3], config={"n_runs": 2, "pass_threshold": 2.0, "eval_fns": ["f"]}),
        "inspect": inspect(*EPOCHS[:3], status="error", scores={"match": {"value": "I"}}),
        "openhands": openhands("a", resolved=False),
        "openai-evals": openai_evals(0, status="fail"),
    }

    assert concluded(encoded(failing[name]), name_of(failing[name])).outcome == "failed"
