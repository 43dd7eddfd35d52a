"""Criteria of an eval set, and of a case among them: planned, judged, shown, set and taken back in each door."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import lasting_budget, tool_answer

from evaldesk import evaluate
from evaldesk.errors import UsageError
from evaldesk.metrics import criteria_of_case
from evaldesk.model import Case, Criterion
from evaldesk.model.evalset import own_bars
from evaldesk.model.options import UserConfig
from evaldesk.pages.door.tools import Caller
from evaldesk.store import Store

ANSWERS = {"one": "one", "two": "wrong", "three": "three"}
LOOSE = {"response_match_score": 0.0}
BOTH = (Criterion("response_match_score", 0.8), Criterion("final_state_match", 1.0), Criterion("response_exact"))


def write(place: CommandFolder, of_set: Any = None, **of_cases: Any) -> Path:
    """The set `words` with criteria of the set, and of cases."""
    path = place.evalset("words", ANSWERS)
    content = json.loads(path.read_text())
    if of_set is not None:
        content["criteria"] = of_set
    for case in content["eval_cases"]:
        if case["eval_id"] in of_cases:
            case["criteria"] = of_cases[case["eval_id"]]
    path.write_text(json.dumps(content))
    return path


def play(place: CommandFolder, path: Path, *arguments: object) -> Any:
    """The answer of a run that names no file of criteria; one stands beside the set."""
    return json.loads(place.run("eval", place.agent, path, "--json", *arguments).stdout)


def open_workspace(place: CommandFolder) -> None:
    """Make the database of the workspace, as a first run or a desk does."""
    (place.folder / ".evaldesk").mkdir()
    Store.open(place.folder / ".evaldesk/evaldesk.db").close()


def strips(place: CommandFolder, run_id: int) -> list[str]:
    return list(place.store().runs.strips(run_id))


def test_criteria_of_the_set_decide_before_those_of_a_file_beside_it(place: CommandFolder) -> None:
    assert (place.folder / "test_config.json").is_file()

    answer = play(place, write(place, LOOSE))

    assert strips(place, 1) == ["p", "p", "p"]
    assert [each["threshold"] for each in answer["runs"][0]["criteria"]] == [0.0]
    assert place.store().runs.summary(1).config.is_by_set


@pytest.mark.parametrize("rules", [("--strict",), ("--compat", "adk")], ids=" ".join)
def test_the_file_beside_the_set_decides_by_the_rules_of_another_tool(
    place: CommandFolder, rules: tuple[str, ...]
) -> None:
    (place.folder / "test_config.json").write_text(json.dumps({"criteria": {"response_match_score": 0.75}}))
    path = write(place, LOOSE)
    result = place.run("eval", place.agent, path, *rules)
    overrides: Any = {"strict": True} if rules == ("--strict",) else {"compat": "adk"}
    evaluate(place.agent, path, workspace=place.folder, **overrides)

    runs = [place.store().runs.summary(run_id) for run_id in (1, 2)]
    assert [run.config.criteria for run in runs] == [(Criterion("response_match_score", 0.75),)] * 2
    assert not any(run.config.is_by_set for run in runs)
    assert "criteria of its own" not in result.stderr


def test_names_that_do_not_judge_are_not_said_to(place: CommandFolder) -> None:
    strict = {"response_match_score": 0.8, "response_exact": 1.0}
    path = write(place, strict, case_2=["response_exact", "another", "\x1b[31m" + "x" * 100_000])

    play(place, path)

    reasons = [each.reason for each in place.store().runs.trial(1, 1, 0).scores if not each.is_applicable]
    assert reasons == ["This case is judged by response_exact only."]


def test_criteria_of_a_run_decide_before_those_of_the_set(place: CommandFolder) -> None:
    play(place, write(place, LOOSE), "--criterion", "response_match_score=0.8")

    assert strips(place, 1) == ["p", "f", "p"]
    assert not place.store().runs.summary(1).config.is_by_set


def test_a_case_names_its_own_among_them(place: CommandFolder) -> None:
    strict = {"response_match_score": 0.8, "response_exact": 1.0, "final_state_match": 1.0}
    path = write(place, strict, case_2={"response_match_score": 0}, case_3=["response_exact"])

    play(place, path)
    scores = {score.metric: score for score in place.store().runs.trial(1, 1, 0).scores if score.turn is None}

    assert strips(place, 1) == ["p", "p", "p"]
    assert scores["response_match_score"].threshold == 0.0
    assert not scores["response_exact"].is_applicable
    assert scores["response_exact"].reason == "This case is judged by response_match_score only."
    assert place.store().runs.summary(1).config.n_narrowed == 2


def test_a_rescoring_keeps_to_the_criteria_of_the_case(place: CommandFolder) -> None:
    play(place, write(place, case_2={"response_match_score": 0}))

    place.run("run", "rescore", "1", "--config-file-path", place.folder / "test_config.json")

    assert strips(place, 2) == strips(place, 1) == ["p", "p", "p"]


def test_the_python_api_has_those_of_the_set_and_its_cases(place: CommandFolder) -> None:
    path = write(place, {"response_match_score": 0.8}, case_2={"response_match_score": 0.0})

    by_set = evaluate(place.agent, path, workspace=place.folder)
    by_run = evaluate(place.agent, write(place, LOOSE), criteria={"response_match_score": 0.8}, workspace=place.folder)

    assert [case.trials[0].verdict for case in by_set.cases] == ["passed", "passed", "passed"]
    assert [case.trials[0].verdict for case in by_run.cases] == ["passed", "failed", "passed"]


@pytest.mark.parametrize(
    ("value", "metrics"),
    [
        (["final_state_match"], {"final_state_match": 1.0, "response_exact": None}),
        ({"response_match_score": 0.5}, {"response_match_score": 0.5, "response_exact": None}),
        ({"response_match_score": {"threshold": 0.5}}, {"response_match_score": 0.5, "response_exact": None}),
        ({"response_match_score": None}, {"response_match_score": 0.8, "response_exact": None}),
        (["another_metric"], {each.metric: each.threshold for each in BOTH}),
        (["response_exact"], {each.metric: each.threshold for each in BOTH}),
        ("final_state_match", {each.metric: each.threshold for each in BOTH}),
        ({"response_match_score": float("inf")}, {"response_match_score": 0.8, "response_exact": None}),
        ({"response_match_score": 10**400}, {"response_match_score": 0.8, "response_exact": None}),
        ({"response_match_score": True}, {"response_match_score": 0.8, "response_exact": None}),
        ([1, None, ["x"]], {each.metric: each.threshold for each in BOTH}),
    ],
    ids=repr,
)
def test_a_column_of_that_name_narrows_only_where_it_names_a_deciding_metric(
    value: Any, metrics: dict[str, float | None]
) -> None:
    narrowed = criteria_of_case(Case("a", extra={"criteria": value}), BOTH)

    assert {each.metric: each.threshold for each in narrowed} == metrics


def test_the_command_sets_and_takes_back(place: CommandFolder) -> None:
    open_workspace(place)
    path = write(place)
    before = json.loads(path.read_text())

    of_set = place.run("evalset", "criteria", "words", "response_match_score=0.5", "response_exact=1")
    of_case = place.run("evalset", "criteria", "words", "--case", "case_2", "response_match_score = 0.25")
    content = json.loads(path.read_text())
    log = json.loads(place.run("evalset", "log", "words", "--json").stdout)["items"]
    place.run("evalset", "criteria", "words", "--clear")
    cleared = place.run("evalset", "criteria", "words", "--clear", "--case", "case_2")

    assert of_set.stdout == "words: response_match_score = 0.5; response_exact = 1\n"
    assert of_case.stdout.splitlines()[1:] == ["case_2: response_match_score = 0.25"]
    assert content["criteria"] == {"response_match_score": 0.5, "response_exact": 1}
    assert [case.get("criteria") for case in content["eval_cases"]] == [None, {"response_match_score": 0.25}, None]
    assert len(log) == 3
    assert cleared.stdout == "words: no criteria of its own\n"
    assert json.loads(path.read_text()) == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("response_match=0.5",), "response_match_score"),
        (("response_match_score=7",), "out of range"),
        (("response_match_score",), "write METRIC = THRESHOLD"),
        (("response_match_score=null",), "threshold"),
        (('{"a": 1}=1',), "name a function or an address"),
        (("os:system=1",), "name a function or an address"),
        (("--case", "nobody", "response_match_score"), "nobody"),
        (("--case", "case_1", "no_such_metric"), "no_such_metric"),
        (("--case", "case_1", "response_match_score=nan"), "number"),
        (("response_match_score=0.5", "--clear"), "not both"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_refused_and_nothing_is_written(
    place: CommandFolder, words: tuple[str, ...], sentence: str
) -> None:
    open_workspace(place)
    path = write(place)
    before = path.read_bytes()

    result = place.run("evalset", "criteria", "words", *words)

    assert result.exit_code != 0
    assert sentence in str(result.exception) + result.output
    assert path.read_bytes() == before


def test_a_set_with_code_among_its_criteria_is_not_played(place: CommandFolder) -> None:
    result = place.run("eval", place.agent, write(place, {"os:system": 1.0}))

    assert result.exit_code != 0
    assert "the criteria of the eval set name a function or an address" in str(result.exception)


def test_an_export_and_its_import_have_them(place: CommandFolder) -> None:
    write(place, {"response_match_score": 0.5}, case_2=["response_match_score"])

    result = place.run("export", "words", "--format", "adk", "-o", place.folder / "copy.evalset.json")
    content = json.loads((place.folder / "copy.evalset.json").read_text())

    assert result.exit_code == 0, result.output
    assert content["criteria"] == {"response_match_score": 0.5}
    assert content["eval_cases"][1]["criteria"] == ["response_match_score"]
    assert own_bars(Case("a", extra=content["eval_cases"][1])) == {"response_match_score": None}


@pytest.mark.parametrize("value", [{"response_match_score": 7}, {"response_match_score": {"threshold": -1}}], ids=repr)
def test_a_threshold_of_a_case_out_of_range_is_refused_before_anything_is_played(
    place: CommandFolder, value: Any
) -> None:
    path = write(place, {"response_match_score": 0.8}, case_2=value)

    by_command = place.run("eval", place.agent, path)
    with pytest.raises(UsageError, match="case 'case_2', criteria: response_match_score: threshold"):
        evaluate(place.agent, path, workspace=place.folder)
    by_variants = place.run("eval", place.agent, path, "--vary", "n=1,2")
    by_shard = place.run("eval", place.agent, path, "--shard", "1/1", "-o", place.folder / "part.json")

    for refused in (by_command, by_variants, by_shard):
        assert isinstance(refused.exception, UsageError)
        assert "case 'case_2', criteria: response_match_score: threshold" in str(refused.exception)
    assert place.store().runs.list() == []
    assert play(place, path, "--strict", "--config-file-path", place.folder / "test_config.json")["runs"]


def test_other_settings_of_the_file_beside_a_set_with_criteria_count_in_each_door(place: CommandFolder) -> None:
    path = write(place, {"response_match_score": 0.8})
    config = {"criteria": {"response_exact": 1.0}, "user_simulator_config": {"max_allowed_invocations": 3}}
    (place.folder / "test_config.json").write_text(json.dumps(config))

    play(place, path)
    evaluate(place.agent, path, workspace=place.folder)

    by_python, by_command = (run.config for run in place.store().runs.list())
    assert by_python.user == by_command.user
    assert by_python.user != UserConfig()
    assert by_python.criteria == by_command.criteria == (Criterion("response_match_score", 0.8),)
    assert by_python.is_by_set
    assert by_command.is_by_set


DOOR_CRITERIA = {"response_match_score": 0.8, "response_exact": 1}
DOOR_CASES: dict[str, Any] = {"case_2": {"response_match_score": 0.0}, "case_3": ["response_exact"]}


def scores(place: CommandFolder, run_id: int) -> dict[str, list[Any]]:
    """Verdict and scores of each case of a run, with the thresholds that judged them."""
    store = place.store()
    cases = {case_id: at for at, (case_id, _) in enumerate(store.runs.case_versions(run_id))}
    trials = {case_id: store.runs.trial(run_id, at, 0) for case_id, at in cases.items()}
    return {
        case_id: [trial.verdict, *sorted((each.metric, each.value, each.threshold) for each in trial.scores)]
        for case_id, trial in trials.items()
    }


def test_shards_that_are_merged_judge_by_the_same_criteria_as_the_whole_run(place: CommandFolder) -> None:
    path = write(place, DOOR_CRITERIA, **DOOR_CASES)
    whole = play(place, path, "--min-pass-rate", "1")
    files = [place.folder / f"part{number}.json" for number in (1, 2, 3)]
    for number, file in enumerate(files, 1):
        place.run("eval", place.agent, path, "--min-pass-rate", "1", "--shard", f"{number}/3", "-o", file)

    merged = json.loads(place.run("run", "merge", *[file for file in files if file.exists()], "--json").stdout)

    assert strips(place, 1) == ["p", "p", "p"]
    assert [merged[part] for part in ("outcome", "gates", "reasons")] == [
        whole[part] for part in ("outcome", "gates", "reasons")
    ]


def test_each_variant_of_an_experiment_judges_by_the_criteria_of_set_and_case(place: CommandFolder) -> None:
    path = write(place, DOOR_CRITERIA, **DOOR_CASES)
    play(place, path)

    place.run("eval", place.agent, path, "--vary", "temperature=0,1")

    assert len(place.store().runs.list()) == 3
    assert scores(place, 2) == scores(place, 3) == scores(place, 1)
    assert scores(place, 1)["case_2"][0] == "passed"


def test_a_run_that_a_coding_agent_starts_judges_by_the_criteria_of_set_and_case(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place, DOOR_CRITERIA, **DOOR_CASES)
    play(place, path)
    driver = SimpleNamespace(Popen=lambda *_, **__: SimpleNamespace(pid=1), DEVNULL=subprocess.DEVNULL)
    monkeypatch.setattr("evaldesk.desk.runs.handover.subprocess", driver)

    asked = {"agent": place.agent.name, "set": "words"}
    answer = tool_answer(place.folder, "start_run", asked, Caller(allowed=frozenset({"run"}), budget=lasting_budget(5)))
    place.run("run", "resume", answer["id"])

    assert scores(place, answer["id"]) == scores(place, 1)
