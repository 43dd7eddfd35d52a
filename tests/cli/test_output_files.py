"""The files that `evaldesk eval` writes for builds and for tables."""

from __future__ import annotations

import csv
import json
from errno import ENOSPC
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from tests.faulty_disk import FaultyDisk

from evaldesk.desk.runs.case_reports import CaseReport
from evaldesk.desk.runs.run_result import CaseResult
from evaldesk.errors import UsageError
from evaldesk.model import Case, Conclusion, Counts, ErrorRecord, GateOutcome, TrialResult, Turn
from evaldesk.pages.reports.junit import junit_suite, junit_xml
from evaldesk.pages.reports.markdown import case_annotation

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

ANSWERS = {"one": "one", "x | y": "`<b>@you</b>`", "raise": "x"}


def test_junit_keeps_errors_apart_from_failures(place: CommandFolder) -> None:
    place.eval(place.evalset("first", ANSWERS), "--junit", "out/results.xml")

    root = ET.parse(place.folder / "out/results.xml").getroot()  # noqa: S314 - our own file
    assert [root.get(key) for key in ("tests", "failures", "errors", "skipped")] == ["6", "3", "2", "0"]
    passed, failed, errored, *gates = root.findall("testsuite/testcase")
    assert [(each.get("name"), [child.tag for child in each]) for each in gates] == [
        ("every trial must pass", ["failure"]),
        ("--max-error-rate", ["error"]),
        ("conclusion", ["failure"]),  # whatever the errored trial would bring
    ]
    assert [child.tag for child in passed] == ["properties"]
    counts = {each.get("name"): each.get("value") for each in errored.iter("property")}
    assert counts == {
        "evaldesk_planned": "1",
        "evaldesk_passed": "0",
        "evaldesk_failed": "0",
        "evaldesk_errored": "1",
        "evaldesk_unscored": "0",
        "evaldesk_unplayed": "0",
    }
    failure, error = failed.find("failure"), errored.find("error")
    assert failure is not None
    assert error is not None
    assert "expected answer" in (failure.text or "")
    assert "ValueError: raise was asked for" in (error.get("message") or "")


def test_the_results_say_why_pass_at_k_is_not_defined_or_over_fewer_cases(place: CommandFolder) -> None:
    answers = {"one": "one", "two": "two", "raise": "raise"}

    place.eval(place.evalset("first", answers), "--n", 3, "--pass-at", "2=0.5", "-o", "out.json")
    place.eval(place.evalset("second", {"raise": "x"}), "--n", 2, "-o", "none.json")

    found, none = (json.loads((place.folder / name).read_text())["runs"][0] for name in ("out.json", "none.json"))
    assert found["pass_at_k"] == found["pass_hat_k"] == {"1": 1.0, "2": 1.0, "3": 1.0}
    assert found["pass_k_notes"]["3"] == "over the 2 of 3 cases that have 3 scored trials"
    assert none["pass_at_k"] == none["pass_hat_k_interval"] == {"1": None, "2": None}
    assert none["pass_k_notes"] == {
        "1": "undefined: no case has 1 scored trial",
        "2": "undefined: no case has 2 scored trials",
    }


def test_a_file_that_cannot_be_written_is_said_after_the_verdict(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    FaultyDisk(1, ENOSPC, lasts=True).insert(monkeypatch)
    result = place.eval(place.evalset("first", {"one": "one"}), "--junit", "results.xml")

    assert "1 of 1 passed" in result.stdout
    assert isinstance(result.exception, UsageError)
    assert "results.xml: No space left on device; the run is stored" in str(result.exception)


def test_the_summary_names_regressions_first_and_escapes_what_files_say(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.evalset("first", {"one": "one", "x | y": "x | y"})
    place.eval(path)
    monkeypatch.setenv("ECHO_WRONG", "x | y")

    place.eval(path, "--baseline", 1, "--summary", "summary.md")

    text = (place.folder / "summary.md").read_text()
    lines = text.splitlines()
    assert lines[:2] == ["<!-- evaldesk -->", "## ❌ Evaluation did not pass"]
    assert lines[3:6] == ["**Regressed against run 1:**", "", lines[5]]
    assert lines[5].startswith("- `case_2` turn 1: response\\_match\\_score")
    assert "Against run 1: 0 fixed, 1 broken. Pass rate: 50 points worse, could be chance" in text
    assert "**1 of 2 passed; too few trials for a rate**" in text
    assert "<b>" not in text


def test_the_summary_of_a_step_is_appended(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    step = place.folder / "step.md"
    step.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(step))

    place.eval(place.evalset("first", {"one": "one"}), "--summary", step)

    assert step.read_text().startswith("before\n<!-- evaldesk -->\n## ✅ Evaluation passed")


def test_tables_of_trials_and_scores(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "=1+1", "raise": "x"})

    place.eval(path, "--n", 2, "-o", "a.csv", "-o", "a.scores.csv", "-o", "a.jsonl", "-o", "a.scores.json")

    rows = list(csv.DictReader((place.folder / "a.csv").read_text().splitlines()))
    assert [(row["case_id"], row["trial_index"], row["verdict"]) for row in rows] == [
        ("case_1", "0", "failed"),
        ("case_1", "1", "failed"),
        ("case_2", "0", "errored"),
        ("case_2", "1", "errored"),
    ]
    scores = list(csv.DictReader((place.folder / "a.scores.csv").read_text().splitlines()))
    assert [(row["metric"], row["turn"], row["value"]) for row in scores][:2] == [
        ("response_match_score", "1", "0.0"),
        ("response_match_score", "", "0.0"),
    ]
    lines = [json.loads(line) for line in (place.folder / "a.jsonl").read_text().splitlines()]
    assert [line["response_match_score"] for line in lines] == [0.0, 0.0, None, None]
    assert json.loads((place.folder / "a.scores.json").read_text())["runs"][0]["n_errored"] == 2


def test_a_table_holds_no_formula(place: CommandFolder) -> None:
    place.eval(place.evalset("first", {"=1+1": "x"}), "-o", "a.csv")

    assert next(csv.DictReader((place.folder / "a.csv").read_text().splitlines()))["answer"] == "'=1+1"


def test_parquet_holds_the_trials(place: CommandFolder) -> None:
    pytest.importorskip("pyarrow")
    import pandas as pd

    place.eval(place.evalset("first", {"one": "one"}), "-o", "a.parquet", "-o", "a.scores.parquet")

    assert list(pd.read_parquet(place.folder / "a.parquet").verdict) == ["passed"]
    assert list(pd.read_parquet(place.folder / "a.scores.parquet").value) == [1.0, 1.0]


def test_annotations_mark_the_file(place: CommandFolder) -> None:
    result = place.eval(place.evalset("first", ANSWERS), "--annotations")

    marks = [line for line in result.stdout.splitlines() if line.startswith("::")]
    assert marks[0] == "::error title=Gate every trial must pass::1 of 3 trials passed (1 errored)"
    assert marks[2].startswith("::error file=first.evalset.json,title=case_2%3A 0 of 1 passed::trial 1 failed: turn 1")
    assert marks[3].startswith("::warning file=first.evalset.json,title=case_3%3A nothing was scored::trial 1 errored")


def test_only_cases_that_a_failed_gate_names_are_errors_of_a_failed_run(place: CommandFolder) -> None:
    path = place.evalset("first", {"one": "one", "two": "wrong"})

    result = place.eval(path, "--annotations", "--min-pass-rate", 0.9, "--min-scored", 1)

    marks = [line for line in result.stdout.splitlines() if line.startswith("::")]
    assert [mark.partition(" ")[0] for mark in marks] == ["::error", "::warning"]
    assert marks[0].startswith("::error title=Gate --min-pass-rate::")


HOSTILE = "a\n::add-mask::b\x00\x1b[2J\ufffe]]>"


ERRORED = Conclusion("undecided", Counts(1, errored=1), (GateOutcome("--max-error-rate", "failed", "1 of 1 errored"),))


def _hostile() -> CaseResult:
    error = ErrorRecord("agent_raised", HOSTILE, f"::set-env name=a::b\n{HOSTILE}")
    trial = TrialResult(1, 0, 0, "errored", "errored", error=error)
    return CaseResult(Case(HOSTILE, (Turn("hi"),)), (trial,), 1)


def test_what_an_agent_says_is_no_workflow_command() -> None:
    line = case_annotation(_hostile(), HOSTILE)

    assert len(line.splitlines()) == 1
    assert line.startswith("::warning file=")
    assert not any(line.strip().startswith("::") for line in _hostile().diff().splitlines())


def test_what_an_agent_says_is_legal_xml() -> None:
    suite = junit_suite(HOSTILE, [(CaseReport.of(_hostile()), HOSTILE)], ERRORED)
    case = ET.fromstring(junit_xml([suite])).find("testsuite/testcase")  # noqa: S314

    assert case is not None
    assert "\x1b" not in (case.get("name") or "")
