"""`--baseline`: every case of an earlier run is found again by eval set, id and content, and its fate is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from evaldesk.desk.runs.gates.conclusion import CaseNumbers, Ending, RunNumbers, conclude
from evaldesk.desk.runs.rescoring import plan_rescoring
from evaldesk.errors import UsageError
from evaldesk.model import Counts, Criterion, Gates
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.evalset import CaseKey
from evaldesk.statistics.case_comparison import compare_cases

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import CommandFolder


SAYS = {"one": "one", "two": "two"}


def states(path: Path) -> dict[str, str]:
    """The state of each case since the baseline, as the results tell it."""
    told: dict[str, Any] = json.loads(path.read_text())
    return {f"{case['evalset']}:{case['case_id']}": case["state"] for case in told["baseline"]["cases"]}


def test_two_eval_sets_may_share_case_ids_and_a_regression_in_either_is_found(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, beta = place.evalset("alpha", {"one": "one"}), place.evalset("beta", {"two": "two"})
    place.eval(alpha, beta, "-o", "base.json")
    monkeypatch.setenv("ECHO_WRONG", "one")

    result = place.eval(alpha, beta, "--baseline", "base.json", "-o", "now.json", "--summary", "now.md")

    assert result.exit_code == 1, result.output
    assert "1 of 2 cases regressed against base.json, 0 allowed" in result.output
    assert "Regressed: alpha:case_1\n" in result.output
    assert "- `alpha:case_1` turn 1" in (place.folder / "now.md").read_text()
    assert states(place.folder / "now.json") == {"alpha:case_1": "same", "beta:case_1": "same"}


@pytest.mark.parametrize("asked", [("two/same", "one/same"), ("two/same",), ("one/same", "two/same")])
def test_a_case_of_one_of_two_files_of_the_same_name_is_found_by_its_content_in_any_order(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...]
) -> None:
    for folder in ("one", "two"):
        (place.folder / folder).mkdir()
    files = {name: place.evalset(name, {name: name}) for name in ("one/same", "two/same")}
    place.eval(*files.values(), "-o", "base.json")
    monkeypatch.setenv("ECHO_WRONG", "two/same")

    result = place.eval(*(files[name] for name in asked), "--baseline", "base.json")

    assert result.exit_code == 1, result.output
    assert f"1 of {len(asked)} case" in result.output
    assert "edited since" not in result.output
    assert [conclusion_of(place, 3 + n)[0] for n in range(len(asked))] == [
        "failed" if name == "two/same" else "passed" for name in asked
    ]


def test_an_edited_case_of_one_of_two_files_of_the_same_name_is_of_that_file_in_any_order(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("one", "two"):
        (place.folder / folder).mkdir()
    files = {name: place.evalset(name, {name: name}) for name in ("one/same", "two/same")}
    place.eval(*files.values(), "-o", "base.json")
    place.evalset("one/same", {"edited": "edited"})
    monkeypatch.setenv("ECHO_WRONG", "two/same")

    result = place.eval(*reversed(files.values()), "--baseline", "base.json", "-o", "now.json")

    assert result.exit_code == 1, result.output
    assert "Regressed: two/same:case_1" in result.output
    assert states(place.folder / "now.json") == {"one/same:case_1": "edited since", "two/same:case_1": "same"}
    assert [conclusion_of(place, 3 + n)[0] for n in range(2)] == ["failed", "undecided"]  # the second compares nothing


def test_the_run_of_one_of_two_files_of_the_same_name_is_compared_with_that_file(place: CommandFolder) -> None:
    for folder in ("one", "two"):
        (place.folder / folder).mkdir()
    first, second = (place.evalset(name, {name: name}) for name in ("one/same", "two/same"))
    for path in (first, second):
        path.write_text(json.dumps({**json.loads(path.read_text()), "name": "Same"}))
    place.eval(second)

    result = place.eval(first, second, "--baseline", 1)

    assert "0 of 1 case regressed against run 1" in result.output
    assert "1 new since run 1" in result.output
    assert f"{first}\n" in result.output
    assert f"{second}\n" in result.output
    assert [conclusion_of(place, run)[0] for run in (2, 3)] == ["undecided", "passed"]


@pytest.mark.parametrize("rest", [(), ("--stop-when-decided", "exact", "--n", 3)])
def test_the_cases_of_an_eval_set_with_another_name_are_found_by_their_content(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch, rest: tuple[object, ...]
) -> None:
    place.eval(place.evalset("old", {"one": "one", "two": "two", "three": "three"}), "-o", "base.json")
    now = place.evalset("new", {"one": "one", "two": "two", "three": "edited"})
    monkeypatch.setenv("ECHO_WRONG", "two")

    result = place.eval(now, "--baseline", "base.json", "-o", "now.json", "--summary", "now.md", *rest)

    told = "The cases of eval set old were found in new, by their content"
    assert result.exit_code == 1, result.output
    assert "1 of 2 cases regressed against base.json" in result.output or "1 of 3 cases regressed" in result.output
    assert states(place.folder / "now.json") == {
        "new:case_1": "same",
        "new:case_2": "same",
        "new:case_3": "edited since",
    }
    assert told in (place.folder / "now.md").read_text()
    assert conclusion_of(place, 2)[0] == "failed"


def test_another_eval_set_is_not_taken_for_one_with_another_name(place: CommandFolder) -> None:
    place.eval(place.evalset("old", SAYS), place.evalset("kept", {"one": "one"}), "-o", "base.json")

    place.eval(place.evalset("new", {"one": "else", "four": "four"}), "--baseline", "base.json", "-o", "now.json")
    place.eval(place.evalset("kept", {"one": "one"}), "--baseline", "base.json", "-o", "kept.json")

    assert set(states(place.folder / "now.json").values()) == {"gone", "new"}
    assert states(place.folder / "kept.json")["kept:case_1"] == "same"


def test_what_was_edited_is_said_and_not_compared(place: CommandFolder) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)
    place.evalset("first", {"one": "one", "two": "another answer"})

    result = place.eval(path, "--baseline", 1, "-o", "now.json")

    assert "0 of 1 case regressed against run 1" in result.output
    assert "1 edited since, not compared: case_2" in result.output
    assert states(place.folder / "now.json") == {"first:case_1": "same", "first:case_2": "edited since"}


def test_a_case_that_lost_its_reference_is_named_and_a_lost_verdict_is_a_regression(place: CommandFolder) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)
    told = json.loads(path.read_text())
    del told["eval_cases"][1]["conversation"][0]["final_response"]
    path.write_text(json.dumps(told))

    result = place.eval(path, "--baseline", 1, "-o", "now.json")

    assert states(place.folder / "now.json")["first:case_2"] == "lost its reference"
    assert "Regressed: case_2 (no verdict now)" in result.output
    assert "1 lost a reference and its verdict: case_2" in result.output
    assert "not compared: case_2" not in result.output
    assert result.exit_code != 0


def test_a_case_that_passed_and_has_no_verdict_now_is_a_regression(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)
    monkeypatch.setenv("ECHO_RAISE", "two")

    result = place.eval(path, "--baseline", 1, "--max-error-rate", "1", "-o", "now.json")

    assert "1 of 2 cases regressed against run 1, 0 allowed. 0 fixed, 0 broken, 1 lost its verdict" in result.output
    assert states(place.folder / "now.json")["first:case_2"] == "lost its verdict"
    assert result.exit_code == 1


def test_cases_that_are_gone_and_new_are_named(place: CommandFolder) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)
    told = json.loads(path.read_text())
    told["eval_cases"][1] = told["eval_cases"][1] | {"eval_id": "other"}
    told["eval_cases"][1]["conversation"][0]["final_response"] = {"parts": [{"text": "two"}, {"text": ""}]}
    told["eval_cases"][1]["conversation"][0]["user_content"] = {"parts": [{"text": "two "}]}
    path.write_text(json.dumps(told))

    result = place.eval(path, "--baseline", 1, "-o", "now.json")

    assert "0 of 1 case regressed against run 1, 0 allowed; 1 case of it is gone" in result.output
    assert "1 gone since run 1: case_2. 1 new since run 1: other" in result.output
    assert sorted(states(place.folder / "now.json").values()) == ["gone", "new", "same"]


def test_a_case_with_another_id_is_found_by_its_content(place: CommandFolder) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)
    told = json.loads(path.read_text())
    told["eval_cases"][1]["eval_id"] = "renamed"
    path.write_text(json.dumps(told))

    result = place.eval(path, "--baseline", 1, "-o", "now.json")

    assert "0 of 2 cases regressed against run 1" in result.output
    assert states(place.folder / "now.json") == {"first:case_1": "same", "first:renamed": "same"}


def test_a_baseline_of_another_eval_set_holds_nothing_back_and_does_not_hold(place: CommandFolder) -> None:
    place.eval(place.evalset("first", SAYS))

    result = place.eval(place.evalset("second", {"three": "three", "four": "four"}), "--baseline", 1)

    assert "No case has a verdict in both runs" in result.output
    assert result.exit_code == 3


def test_a_baseline_of_the_first_version_is_still_read(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place.evalset("first", SAYS)
    case = {"n_failed": 0, "n_errored": 0, "n_unscored": 0}
    passed, failed = {"is_passed": True, "n_passed": 3, "pass_rate": 1.0}, {"is_passed": False, "n_passed": 0}
    cases = [
        case | passed | {"case_id": "case_1"},
        case | failed | {"case_id": "case_2", "n_failed": 3, "pass_rate": 0.0},
    ]
    run = {"run_id": 4, "evalset_id": "first-0123abcd", "n": 3, "cases": cases}
    (place.folder / "old.json").write_text(json.dumps({"evaldesk_version": "0.1", "runs": [run]}))
    monkeypatch.setenv("ECHO_WRONG", "one")

    result = place.eval(path, "--baseline", "old.json")

    assert "1 of 2 cases regressed against old.json, 0 allowed. 1 fixed, 1 broken" in result.output


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version": 4, "runs": []}', "version 4 is not known, versions 1 to 3 are"),
        ('{"version": 2, "runs": [{"cases": [{"case_id": "one"}]}]}', "this contains no runs"),
        ("[]", "this contains no runs"),
        ("{", "this is not JSON"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused_before_the_start(place: CommandFolder, text: str, said: str) -> None:
    (place.folder / "odd.json").write_text(text)

    result = place.eval(place.evalset("first", SAYS), "--baseline", "odd.json")

    assert isinstance(result.exception, UsageError)
    assert said in str(result.exception)
    with place.store() as store:
        assert store.runs.list() == []


def conclusion_of(place: CommandFolder, run_id: int) -> tuple[str, list[dict[str, Any]]]:
    """What `run info` concludes of a run, and its gates."""
    told: dict[str, Any] = json.loads(place.run("run", "info", run_id, "--json").output)["data"]["results"]
    return told["outcome"], told["gates"]


def test_the_baseline_is_frozen_with_the_run_so_that_every_page_has_the_answer_of_the_command(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path, "-o", "base.json")
    place.eval(path, "--baseline", "base.json", "-o", "same.json")
    monkeypatch.setenv("ECHO_WRONG", "one")
    place.eval(path, "--baseline", "base.json", "-o", "worse.json")

    (place.folder / "base.json").unlink()

    for run_id, name, outcome in ((2, "same", "passed"), (3, "worse", "failed")):
        told = json.loads((place.folder / f"{name}.json").read_text())
        assert conclusion_of(place, run_id) == (outcome, told["gates"]) == (told["outcome"], told["gates"])


def test_each_run_of_a_command_is_compared_with_its_own_eval_set(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    alpha, beta = place.evalset("alpha", {"one": "one"}), place.evalset("beta", {"two": "two"})
    (place.folder / "again").mkdir()
    again = place.evalset("again/alpha", {"three": "three"})
    place.eval(alpha, beta, again, "-o", "base.json")
    monkeypatch.setenv("ECHO_WRONG", "three")

    place.eval(alpha, beta, again, "--baseline", "base.json")

    assert [conclusion_of(place, run_id)[0] for run_id in (4, 5, 6)] == ["passed", "passed", "failed"]
    assert conclusion_of(place, 4)[1][0]["sentence"].startswith("0 of 1 case regressed against base.json")
    assert "gone" not in conclusion_of(place, 4)[1][0]["sentence"]


def test_a_run_that_is_scored_again_keeps_its_baseline(place: CommandFolder) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)
    place.eval(path, "--baseline", 1)

    with place.store() as store:
        plan = plan_rescoring(store.runs, 2, [Criterion("response_match_score", 0.5)])

        assert plan.baseline == store.runs.baseline(2)
        assert plan.baseline is not None
        assert plan.baseline.name == "run 1"


def test_how_a_whole_run_got_to_its_end_is_no_reason_of_its_failure() -> None:
    taken_over = "Taken over from a process on vm, which is gone: trials that were under way there are played again."
    whole = RunNumbers.of_cases(
        [CaseNumbers("a", Counts(2, passed=1, failed=1))], endings=[Ending("finished", taken_over)]
    )
    broken = RunNumbers.of_cases(
        [CaseNumbers("a", Counts(2, passed=1))], endings=[Ending("failed", "No host came back.")]
    )

    assert conclude(Gates(), whole).reasons == ("every trial must pass: 1 of 2 trials passed",)
    assert conclude(Gates(), broken).reasons[0] == "No host came back."


def test_a_case_that_was_not_played_is_no_regression() -> None:
    before, after = PlayedCase(CaseKey("set", "a"), "pp"), PlayedCase(CaseKey("set", "a"), "..")
    numbers = RunNumbers.of_cases([CaseNumbers("a", Counts(2))], endings=[Ending("stopped", "The cost is too high.")])

    (gate, *_) = conclude(Gates(max_regressions=0), numbers, compare_cases("run 1", [before], [after])).gates

    assert (gate.answer, gate.names) == ("undecided", ())


@pytest.mark.parametrize(
    ("before", "after", "answer", "names"),
    [
        ("pppppp", "pppppf", "held", ()),
        ("pppppp", "ffffff", "failed", ("a",)),
        ("pppppp", "eeeeee", "failed", ("a",)),
        ("ppp", "fff", "failed", ("a",)),
        ("p", "f", "undecided", ()),
        ("ffffff", "ffffff", "held", ()),
    ],
)
def test_by_the_likely_rule_a_case_regressed_when_it_dropped_by_more_than_chance(
    before: str, after: str, answer: str, names: tuple[str, ...]
) -> None:
    sides = ([PlayedCase(CaseKey("set", "a"), letters)] for letters in (before, after))
    counts = Counts(len(after), after.count("p"), after.count("f"), after.count("e"))
    numbers = RunNumbers.of_cases([CaseNumbers("a", counts)])
    gates = Gates(max_regressions=0, regression_rule="likely", max_error_rate=1.0)

    (gate, *_) = conclude(gates, numbers, compare_cases("run 1", *sides, rule="likely")).gates

    assert (gate.answer, gate.names) == (answer, names)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("ppppp", "p", "Too few trials to see 15 points 4 times in 5: 3 more trials a case would do"),
        ("p", "ppppp", "Too little history to see 15 points 4 times in 5: at least 2 more trials a case are needed"),
        ("ppppp", "ppppp", ""),
    ],
)
def test_the_likely_rule_advises_more_trials_only_to_those_who_have_too_few(
    before: str, after: str, words: str
) -> None:
    sides = [[PlayedCase(CaseKey("set", str(at)), letters) for at in range(20)] for letters in (before, after)]
    numbers = RunNumbers.of_cases([CaseNumbers(str(at), Counts(len(after), len(after))) for at in range(20)])
    gates = Gates(max_regressions=0, regression_rule="likely")

    conclusion = conclude(gates, numbers, compare_cases("run 1", *sides, rule="likely"))

    assert conclusion.outcome == "passed"
    assert words in conclusion.gates[0].sentence
    assert ("Too" in conclusion.gates[0].sentence) == bool(words)


def test_the_rule_holds_in_all_that_the_command_writes(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path, "--n", 6, "-o", "base.json")
    likely = ("--n", 6, "--baseline", "base.json", "--regression-rule", "likely")
    unchanged = place.eval(path, *likely)
    monkeypatch.setenv("ECHO_WRONG", "one")

    result = place.eval(path, *likely, "-o", "now.json", "--summary", "now.md", "--junit", "now.xml")

    assert (unchanged.exit_code, result.exit_code) == (0, 1)
    assert "1 of 2 cases regressed by more than chance against base.json, 0 allowed" in result.output
    told = json.loads((place.folder / "now.json").read_text())
    assert (told["baseline"]["rule"], told["baseline"]["n_regressed"]) == ("likely", 1)
    assert [case["is_regression"] for case in told["baseline"]["cases"]] == [True, False]
    assert "- `case_1` turn 1" in (place.folder / "now.md").read_text()
    assert "regressed by more than chance" in (place.folder / "now.xml").read_text()
    assert conclusion_of(place, 3) == (told["outcome"], told["gates"])


@pytest.mark.parametrize(
    "asked",
    [
        ("--min-pass-rate", "0.5"),
        ("--min-case-pass-rate", "0"),
        ("--pass-at", "1=0.5"),
        ("--max-error-rate", "0.5"),
        ("--min-scored", "2"),
    ],
    ids=" ".join,
)
def test_a_gate_of_the_command_is_stored_with_the_run(
    place: CommandFolder, asked: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHO_WRONG", "one")

    place.eval(place.evalset("first", SAYS), *asked, "-o", "now.json")

    told = json.loads((place.folder / "now.json").read_text())
    assert asked[0] in [each["name"].partition(" ")[0] for each in told["gates"]]
    assert conclusion_of(place, 1) == (told["outcome"], told["gates"])


def test_a_pass_rate_near_its_bar_says_what_to_do() -> None:
    numbers = RunNumbers.of_cases(
        [CaseNumbers(str(index), Counts(1, int(index < 17), int(index >= 17))) for index in range(20)]
    )

    conclusion = conclude(Gates(min_pass_rate=0.9), numbers)

    assert conclusion.gates[0].sentence.endswith("; too close to 0.9 to be sure, add cases")
