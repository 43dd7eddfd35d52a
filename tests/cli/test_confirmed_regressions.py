"""`--regression-rule confirm --confirm M/R`: a case that seems to have regressed is played again before it counts."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from evaldesk.desk.runs.gates.conclusion import CaseNumbers, RunNumbers, conclude
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Counts, Gates
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.evalset import CaseKey
from evaldesk.statistics.case_comparison import compare_cases

if TYPE_CHECKING:
    from click.testing import Result
    from tests.cli.conftest import CommandFolder

SCRIPTED = '''
from pathlib import Path

ANSWERS = Path(__file__).with_name("answers.txt")


def root_agent(message):
    """Says what it hears; for `scripted` the next line of answers.txt says what to do."""
    if not message.startswith("scripted"):
        return message
    this, *later = ANSWERS.read_text().split() or ["right"]
    ANSWERS.write_text(" ".join(later))
    if this == "error":
        raise ValueError("an error was asked for")
    return message if this == "right" else "no"


root_agent.tells_cost = True
'''
CONFIRM = ("--baseline", "base.json", "--regression-rule", "confirm")


def script(place: CommandFolder, answers: str) -> None:
    (place.agent / "answers.txt").write_text(answers)


@pytest.fixture
def suspicious(place: CommandFolder) -> CommandFolder:
    """A place with an agent that answers as its script says, and the baseline of a run in which both cases passed."""
    (place.agent / "agent.py").write_text(SCRIPTED)
    script(place, "")
    place.eval(place.evalset("first", {"scripted": "scripted", "two": "two"}), "-o", "base.json")
    return place


def play(place: CommandFolder, answers: str, *more: object, confirm: str = "3/5") -> Result:
    script(place, answers)
    rule = (*CONFIRM, "--confirm", confirm)
    return place.eval(place.folder / "first.evalset.json", *rule, "-o", "now.json", *more)


def told(place: CommandFolder) -> Any:
    return json.loads((place.folder / "now.json").read_text())


def test_a_flip_that_fresh_trials_do_not_confirm_is_no_regression(suspicious: CommandFolder) -> None:
    result = play(suspicious, "wrong right wrong right wrong right")

    assert result.exit_code == 0, result.output
    assert (
        "0 of 2 cases regressed against base.json, 0 allowed. Played again, 3 of 5 must pass: case_1 passed 3 of 5"
        in (result.output)
    )


def test_a_flip_that_fresh_trials_confirm_fails_the_gate(suspicious: CommandFolder) -> None:
    result = play(suspicious, "wrong right wrong wrong wrong right", "--junit", "now.xml", "--summary", "now.md")

    assert result.exit_code == 1
    assert "1 of 2 cases regressed against base.json, 0 allowed" in result.output
    assert "case_1 passed 2 of 5" in result.output
    assert "Regressed: case_1" in result.output
    assert told(suspicious)["baseline"]["cases"][0]["confirming"] == {"n_passed": 2, "n_failed": 3, "n_planned": 5}
    assert "case_1 passed 2 of 5" in (suspicious.folder / "now.xml").read_text()
    assert r"case\_1 passed 2 of 5" in (suspicious.folder / "now.md").read_text()


def test_every_door_names_the_confirmed_case_and_calls_the_other_flipped(suspicious: CommandFolder) -> None:
    """Two cases fail at first: one fails again when played again, the other passes 4 of 5."""
    path = suspicious.evalset("first", {"scripted": "scripted", "scripted two": "scripted two"})
    script(suspicious, "")
    suspicious.eval(path, "-o", "base.json")

    files = ("--junit", "now.xml", "--summary", "now.md", "--annotations", "--concurrency", 1)
    result = play(suspicious, " ".join(["wrong", "wrong", *["wrong", "right"] * 4, "wrong", "wrong"]), *files)

    errors = [line for line in result.output.splitlines() if line.startswith("::error") and "case_" in line]
    warnings = [line for line in result.output.splitlines() if line.startswith("::warning")]
    suite = ET.parse(suspicious.folder / "now.xml").getroot()  # noqa: S314 - our own file
    first, second = (suite.find(f".//testcase[@name='{name}']") for name in ("case_1", "case_2"))
    assert first is not None
    assert second is not None
    assert "Regressed: case_1" in result.output
    assert [failure.get("message") for failure in suite.findall("testsuite/testcase[@name='case_1']/failure")]
    assert second.find("failure") is None
    assert "flipped, passed 4 of 5 when played again" in (second.findtext("system-out") or "")
    assert any("case_1" in line and "passed 0 of 5 when played again" in line for line in errors)
    assert not any("title=case_2" in line for line in errors)
    assert any("case_2" in line and "flipped%2C passed 4 of 5 when played again" in line for line in warnings)


def test_how_many_of_how_many_can_be_asked_for(suspicious: CommandFolder) -> None:
    result = play(suspicious, "wrong right wrong", confirm="2/2")

    assert result.exit_code == 1
    assert "Played again, 2 of 2 must pass: case_1 passed 1 of 2" in result.output


def test_without_a_suspect_nothing_is_played_again(suspicious: CommandFolder) -> None:
    result = play(suspicious, "right")

    assert result.exit_code == 0
    assert "Played again" not in result.output
    assert told(suspicious)["counts"]["n_planned"] == 2


def test_fresh_trials_are_in_no_count_of_the_run_and_can_be_opened(suspicious: CommandFolder) -> None:
    play(suspicious, "wrong right right right right right")

    with suspicious.store() as store:
        runs = StoredRuns(store.runs)
        run = runs.summary(2)
        assert run.counts == Counts(2, passed=1, failed=1)
        assert store.runs.newest_counts(2, 100).done == 2
        assert sum(n for values in store.runs.score_counts(2).values() for _, n in values) == 2
        assert next(runs.rows(2)).verdicts == "f"
        assert [store.runs.trial(2, 0, index).verdict for index in range(1, 6)] == ["passed"] * 5
        assert store.runs.neighbours(2, 0, 5).previous_trial == (0, 4)
        assert runs.conclusion(run).outcome == "passed"


def test_errors_of_fresh_trials_leave_the_gate_undecided_until_they_are_tried_again(suspicious: CommandFolder) -> None:
    result = play(suspicious, "wrong right right error error wrong")

    assert result.exit_code == 3, result.output
    assert "case_1 passed 2 of 5, 2 without a verdict; resume the run, or retry its errors" in result.output

    script(suspicious, "right right")
    suspicious.run("run", "retry", 2)

    with suspicious.store() as store:
        runs = StoredRuns(store.runs)
        assert runs.conclusion(runs.summary(2)).outcome == "passed"
        assert runs.summary(2).counts == Counts(2, passed=1, failed=1)
        assert next(runs.rows(2)).verdicts == "f"


@pytest.mark.parametrize("is_planned", [True, False], ids=["between fresh trials", "before they were planned"])
def test_a_killed_run_plays_its_fresh_trials_when_it_is_resumed(suspicious: CommandFolder, *, is_planned: bool) -> None:
    play(suspicious, "wrong wrong wrong wrong wrong wrong")
    undone = "UPDATE trial SET verdict = NULL, status = 'planned' WHERE run_id = 2 AND trial_index >= 1"
    gone = "DELETE FROM trial WHERE run_id = 2 AND trial_index >= 1"
    with closing(sqlite3.connect(suspicious.folder / ".evaldesk/evaldesk.db")) as database, database:
        database.execute(undone if is_planned else gone)
        todo = 5 if is_planned else 0
        database.execute("UPDATE run SET status = 'running', driver = '', n_confirming_todo = ? WHERE id = 2", (todo,))

    script(suspicious, "right right right wrong wrong")
    (suspicious.folder / "now.json").unlink()
    resumed = suspicious.run("run", "resume", 2)

    assert "✓ held   --max-regressions: 0 of 2 cases regressed" in resumed.stdout
    assert told(suspicious)["outcome"] == "passed"
    assert "Written: " in resumed.stderr
    with suspicious.store() as store:
        runs = StoredRuns(store.runs)
        assert runs.conclusion(runs.summary(2)).outcome == "passed"


@pytest.mark.parametrize(
    ("confirming", "answer"),
    [
        ("ppp..", "held"),
        ("fff..", "failed"),
        ("ppff.", "undecided"),
        ("ppffe", "undecided"),
        ("", "undecided"),
        ("eeeee", "undecided"),
    ],
)
def test_the_gate_answers_as_soon_as_the_fresh_trials_tell(confirming: str, answer: str) -> None:
    key = CaseKey("set", "a")
    before, after = PlayedCase(key, "p"), PlayedCase(key, "f", confirming=confirming)
    change = compare_cases("run 1", [before], [after], rule="confirm", confirm=(3, 5))

    (gate, *_) = conclude(
        Gates(max_regressions=0, regression_rule="confirm", confirm=(3, 5)),
        RunNumbers.of_cases([CaseNumbers("a", Counts(1, failed=1))]),
        change,
    ).gates

    assert gate.answer == answer


def test_a_case_that_lost_its_verdict_regressed_and_is_not_played_again() -> None:
    key = CaseKey("set", "a")
    change = compare_cases("run 1", [PlayedCase(key, "p")], [PlayedCase(key, "u")], rule="confirm")

    assert [case.name for case in change.regressions] == ["a"]
    assert not change.played_again


def test_fresh_trials_need_the_rule_that_plays_them(suspicious: CommandFolder) -> None:
    result = suspicious.eval(suspicious.folder / "first.evalset.json", "--baseline", "base.json", "--confirm", "3/5")

    assert "--confirm needs --regression-rule confirm" in f"{result.output} {result.exception}"


@pytest.mark.parametrize(("rule", "is_warned"), [("any", True), ("confirm", False)])
def test_a_gate_that_often_fails_by_chance_says_what_to_add(
    place: CommandFolder, *, rule: str, is_warned: bool
) -> None:
    path = place.evalset("first", {"flaky": "flaky", "two": "two"})
    place.eval(path, "--n", 4, "--pass-threshold", 0.5)

    result = place.eval(path, "--n", 4, "--pass-threshold", 0.5, "--baseline", 1, "--regression-rule", rule)

    assert ("--max-regressions 0: " in result.output and "of unchanged builds" in result.output) == is_warned
    advice = re.search(r"Add --regression-rule confirm: not known yet \((?:under )?\d+–\d+ %\)\.", result.output)
    assert bool(advice) == is_warned, result.output


def test_a_fixed_bar_is_forecast_and_warned_of(place: CommandFolder) -> None:
    path = place.evalset("first", {"flaky": "flaky", "two": "two"})
    place.eval(path, "--n", 4, "--pass-threshold", 0.5)
    rule = ("--baseline", 1, "--regression-rule", "confirm", "--confirm", "3/5")

    result = place.eval(path, "--n", 4, "--pass-threshold", 0.5, *rule)

    assert "--confirm 3/5 ignores what each case did before; --confirm 5 does not: not known yet (" in result.output
    assert "of unchanged builds" in result.output


def test_a_baseline_without_a_flaky_case_gives_no_warning(place: CommandFolder) -> None:
    path = place.evalset("first", {"two": "two"})
    place.eval(path, "--n", 4)

    assert "Warning" not in place.eval(path, "--n", 4, "--baseline", 1).output
