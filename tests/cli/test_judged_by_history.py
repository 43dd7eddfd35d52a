"""Runs judged by the history of their cases: one answer with a database and without one, and for good."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk.desk.runs.stored_runs import StoredRuns

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import CommandFolder

SAYS = {"one": "one", "two": "two", "three": "three", "flaky": "flaky"}
HALF = ("--n", 4, "--pass-threshold", 0.5)
"""The flaky case passes half of its trials, which is enough."""


@pytest.fixture
def played(place: CommandFolder) -> Path:
    """The eval set after three runs of the agent; the last is in base.json."""
    path = place.evalset("first", SAYS)
    for _ in range(3):
        place.eval(path, *HALF, "-o", "base.json")
    return path


def gate_of(place: CommandFolder, path: Path, baseline: object, *more: object) -> dict[str, Any]:
    """The answer of the gate on regressions, and the exit code."""
    rule = ("--regression-rule", "confirm", "--baseline", baseline, "-o", "now.json")
    result = place.eval(path, *HALF, *rule, *more)
    (gate,) = (
        each
        for each in json.loads((place.folder / "now.json").read_text())["gates"]
        if each["name"] == "--max-regressions"
    )
    return {**gate, "code": result.exit_code, "sentence": gate["sentence"].replace("base.json", "run 3")}


def test_a_baseline_file_holds_the_passes_and_trials_of_each_case_over_all_runs(
    place: CommandFolder, played: Path
) -> None:
    (run,) = json.loads((place.folder / "base.json").read_text())["runs"]

    assert [case["history"] for case in run["cases"]] == [[12, 12], [12, 12], [12, 12], [12, 6]]
    assert run["history_days"] == {"n_runs": 3, "weights": []}


@pytest.mark.parametrize(("wrong", "code"), [("", 0), ("one", 1)], ids=["unchanged", "worse"])
def test_a_file_without_a_database_judges_as_the_run_with_one(
    wrong: str, code: int, place: CommandFolder, played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHO_WRONG", wrong)

    even = ("--confirm", 4)  # of which the flaky case passes half
    with_runs = gate_of(place, played, 3, *even, "--junit", "now.xml", "--summary", "now.md")
    told = json.loads(place.run("run", "info", 4, "--json").stdout)["data"]["results"]
    shutil.rmtree(place.folder / ".evaldesk")
    with_file = gate_of(place, played, "base.json", *even)

    assert with_runs == with_file
    assert with_runs["code"] == code
    assert (with_runs["answer"], with_runs["is_held"]) == (("held", True), ("failed", False))[code]
    assert with_runs["sentence"] in [gate["sentence"] for gate in told["gates"]]
    assert ("case_1 failed 4 of 4 (worse, 12 of 12 before, by chance in" in with_runs["sentence"]) == bool(wrong)
    assert "regressed by more than chance" in (place.folder / "now.xml").read_text()


def test_a_file_of_an_older_version_has_the_trials_of_its_run_only(place: CommandFolder, played: Path) -> None:
    value = json.loads((place.folder / "base.json").read_text())
    for run in value["runs"]:
        del run["history_days"]
        for case in run["cases"]:
            del case["history"]
    (place.folder / "old.json").write_text(json.dumps(value))

    with place.store() as store:
        old, new = (StoredRuns(store.runs).baseline(str(place.folder / name)) for name in ("old.json", "base.json"))

    assert [case.past for case in old.cases] == [(4, 4), (4, 4), (4, 4), (4, 2)]
    assert [case.past for case in new.cases] == [(12, 12), (12, 12), (12, 12), (12, 6)]


def test_the_history_is_that_of_the_beginning_without_the_trials_that_it_judges(
    place: CommandFolder, played: Path
) -> None:
    before = gate_of(place, played, 3)
    with place.store() as store:
        runs = StoredRuns(store.runs)
        judged = store.runs.baseline(4)
        first = runs.conclusion(runs.summary(4))
        place.eval(played, *HALF)
        again = StoredRuns(store.runs).conclusion(runs.summary(4))
        now = runs.history(runs.summary(3))

    assert judged
    assert sum(case.past[0] for case in judged.cases) == 48
    assert now.n_scored >= 80
    assert before["sentence"] == next(gate.sentence for gate in first.gates if gate.name == "--max-regressions")
    assert again == first


@pytest.mark.parametrize(
    "history",
    [[1], [2, 3], ["a", 1], {"scored": 3}, None, [3.5, 1], [5000, 4000], [True, True]],
    ids=["one number", "more passed", "text", "object", "null", "a fraction", "more than are written", "yes"],
)
def test_a_history_that_cannot_be_is_refused(history: object, place: CommandFolder, played: Path) -> None:
    value = json.loads((place.folder / "base.json").read_text())
    value["runs"][0]["cases"][0]["history"] = history
    (place.folder / "bad.json").write_text(json.dumps(value))

    result = place.eval(played, "--baseline", "bad.json")

    assert "bad.json: this contains a run that cannot be: a history " in f"{result.output} {result.exception}"
    assert "name a file that `evaldesk eval -o FILE.json` wrote" in f"{result.output} {result.exception}"


def test_how_many_fresh_trials_are_played_can_be_asked_for(
    place: CommandFolder, played: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHO_WRONG", "one")

    found = gate_of(place, played, 3, "--confirm", 2)

    assert "case_1 failed 2 of 2 (worse" in found["sentence"]
    value = json.loads((place.folder / "now.json").read_text())["baseline"]
    assert value["confirm"] == "2"
    assert all(0 <= case["chance"] <= 1 for case in value["cases"])
    assert value["suites"][0]["scored"] == 16
