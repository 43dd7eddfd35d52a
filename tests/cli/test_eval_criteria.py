"""Which criteria `evaldesk eval` takes: those of the file named, those beside the eval set, and none that is wrong."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import FormatError, UsageError
from evaldesk.pages.runs.page import read_run
from evaldesk.pages.runs.view import RunQuery

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder


def _criteria(place: CommandFolder) -> dict[str, float | None]:
    with place.store() as store:
        return {each.metric: each.threshold for each in store.runs.list()[0].config.criteria}


def test_the_config_beside_one_eval_set_is_taken(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one"})
    config = path.parent / "test_config.json"
    config.write_text(
        json.dumps({"criteria": {"response_exact": 0.5}, "user_simulator_config": {"model": "demo/user"}})
    )

    result = place.run("eval", place.agent, path)

    assert f"The criteria are those of {config}." in result.output
    assert _criteria(place) == {"response_exact": 0.5}
    with place.store() as store:
        assert store.runs.list()[0].config.user.model == "demo/user"


def test_the_config_beside_is_not_taken_where_another_is_named_or_several_are_run(place: CommandFolder) -> None:
    paths = [place.evalset(name, {"one": "one"}) for name in ("first", "second")]
    (paths[0].parent / "test_config.json").write_text('{"criteria": {"response_exact": 0.5}}')
    named = paths[0].parent / "other.json"
    named.write_text('{"criteria": {"response_contains": 1}}')

    result = place.run("eval", place.agent, *paths)
    assert f"default criteria, not those of {paths[0].parent / 'test_config.json'};" in result.stderr
    assert set(_criteria(place)) == {"tool_trajectory_avg_score", "response_match_score"}

    place.run("eval", place.agent, paths[0], "--config-file-path", named)
    assert _criteria(place) == {"response_contains": 1.0}


def test_a_wrong_config_is_refused_before_anything_is_played(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one"})
    config = path.parent / "test_config.json"
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"criteria": {"response_exakt": 1}}, "did you mean 'response_exact'?"),
        ({"criteria": {"response_exact": 7}}, "out of range"),
        ({"criteria": {"nowhere_at_all:f": 1}}, "Cannot import module 'nowhere_at_all'"),
    ]

    for value, said in refusals:
        config.write_text(json.dumps(value))
        result = place.run("eval", place.agent, path)
        assert isinstance(result.exception, FormatError | UsageError), result.output
        assert said in str(result.exception)
    missing = place.run("eval", place.agent, path, "--config-file-path", path.parent / "test_confg.json")
    assert "did you mean" in str(missing.exception)
    with place.store() as store:
        assert store.runs.list() == []


def test_each_case_of_which_adk_says_something_else_is_named_in_both_directions(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": None, "three": "other"})
    (place.folder / "test_config.json").unlink()

    lenient = place.run("eval", place.agent, path, "--criterion", "response_match_score=0.8").output
    strict = place.run("eval", place.agent, path, "--strict").output

    assert "case_2: unscored here, failed by `adk eval`: " in lenient
    assert "case_1: unscored here, passed by `adk eval`: " in strict
    assert "case_3: unscored here, failed by `adk eval`: " in strict
    assert "case_1: " not in lenient
    assert "case_3: " not in lenient.replace("case_3\n", "")


def test_cases_of_which_adk_says_something_else_stand_under_the_name_of_their_eval_set(place: CommandFolder) -> None:
    first, second = place.evalset("first", {"one": "one", "raise": "two"}), place.evalset("second", {"raise": "one"})
    (place.folder / "test_config.json").unlink()

    lines = place.run("eval", place.agent, first, second).output.splitlines()

    said = [line for line in lines if line in ("first", "second") or " here, failed by " in line]
    assert [line.partition(":")[0] for line in said][-4:] == ["first", "case_2", "second", "case_1"]


def test_eval_says_once_where_a_metric_has_nothing_to_judge(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": "two"})
    (place.folder / "test_config.json").unlink()

    result = place.run("eval", place.agent, path)
    as_json = place.run("eval", place.agent, path, "--json")

    assert result.output.count("Tool trajectory: asserted in 0 of 2 cases") == 1
    (run,) = json.loads(as_json.stdout)["runs"]
    assert (run["n_passed"], run["n_unscored"]) == (2, 0)
    assert [each["sentence"] for each in run["not_applicable"]] == ["Tool trajectory: asserted in 0 of 2 cases"]
    assert "Tool trajectory: asserted in 0 of 2 cases" in place.run("run", "info", "1").output


def test_every_door_says_in_how_many_cases_a_metric_asserts_something(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": "two", "three": "three"})
    (path.parent / "test_config.json").unlink(missing_ok=True)
    value = json.loads(path.read_text())
    value["eval_cases"][1]["final_session_state"] = {"seen": "nothing"}
    path.write_text(json.dumps(value))
    summary, junit, results = (path.parent / name for name in ("summary.md", "junit.xml", "results.json"))
    options = ("--criterion", "response_match_score=0.8", "--criterion", "final_state_match=1", "--n", "2")

    shown = place.run("eval", place.agent, path, *options, "--summary", summary, "--junit", junit, "-o", results)

    said = "Final state: asserted in 1 of 3 cases"
    assert shown.output.count(said) == 1
    assert summary.read_text().count(said) == 1
    assert place.run("run", "info", "1").output.count(said) == 1
    run = json.loads(results.read_text())["runs"][0]
    assert [each["sentence"] for each in run["not_applicable"]] == [said]
    assert run["n_not_applicable"] == sum(case["n_not_applicable"] for case in run["cases"]) == 4
    assert [case["n_not_applicable"] for case in run["cases"]] == [2, 0, 2]
    with place.store() as store:
        result = StoredRuns(store.runs).result(1)
        page = read_run(store.runs, 1, RunQuery())
    assert [case.counts.not_applicable for case in result] == [2, 0, 2]
    assert result.counts == result.conclusion.counts
    assert list(page.asserted) == [said]


def test_run_info_and_the_results_name_the_same_means(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": "other", "three": None})
    (path.parent / "test_config.json").unlink(missing_ok=True)
    results = path.parent / "results.json"

    place.run("eval", place.agent, path, "--criterion", "response_match_score=0.8", "--n", "2", "-o", results)

    text = place.run("run", "info", "1").output
    told = json.loads(place.run("run", "info", "1", "--json").stdout)["data"]["results"]["metrics"]
    (written,) = json.loads(results.read_text())["runs"][0]["metrics"]
    assert told == [written]
    assert (written["n"], written["mean"], round(written["mean_unscored_as_0"], 3)) == (4, 0.5, 0.333)
    line = next(line for line in text.splitlines() if line.startswith("response_match_score"))
    assert line.split(",")[0].split(None, 1)[1].startswith(f"mean {written['mean']:.3f}")
    assert ", passes with at least 0.80, of 4" in line
    assert line.endswith(f"of 4 of 6 trials scored; mean_unscored_as_0 {written['mean_unscored_as_0']:.3f}")
