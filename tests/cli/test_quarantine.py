"""Cases in quarantine: they are played and shown, in no gate of any door, and told beside every conclusion."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.door_calls import tool_answer

from evaldesk import evaluate
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.desk.trash import open_desk
from evaldesk.formats.files import read_file
from evaldesk.formats.mapped_rows import read_columns, read_mapped
from evaldesk.model.evalset import QUARANTINE
from evaldesk.pages.gates import read_gates
from evaldesk.settings import read_settings
from evaldesk.store import Store

ANSWERS = {"one": "one", "two": "wrong", "three": "three", "flaky": "flaky"}


def write(place: CommandFolder, *tagged: str, answers: dict[str, str] | None = None, tag: str = QUARANTINE) -> Path:
    """The set `words` with cases case_1, case_2, …, of which some have the tag."""
    path = place.evalset("words", answers or ANSWERS)
    content = json.loads(path.read_text())
    for case in content["eval_cases"]:
        case["tags"] = [tag] if case["eval_id"] in tagged else []
    path.write_text(json.dumps(content))
    return path


def play(place: CommandFolder, path: Path, *options: object) -> dict[str, Any]:
    """The result of a command as JSON, with its exit code."""
    result = place.eval(path, "--json", *options)
    answer: dict[str, Any] = json.loads(result.stdout)
    return {**answer, "exit_code": result.exit_code}


def play_shards(place: CommandFolder, path: Path, *options: object, n: int = 3) -> list[Path]:
    """The result files of the shards that have cases."""
    files = [place.folder / f"part{number}.json" for number in range(1, n + 1)]
    for number, file in enumerate(files, 1):
        place.eval(path, "--shard", f"{number}/{n}", *options, "-o", file)
    return [file for file in files if file.exists()]


def outcomes_in(junit: Path) -> list[tuple[str | None, str]]:
    """The name of each case in JUnit XML, and the tag that says how it ended; empty where it passed."""
    tags = ("failure", "error", "skipped")
    return [
        (case.get("name"), next((tag for tag in tags if case.find(tag) is not None), ""))
        for case in ET.fromstring(junit.read_text()).iter("testcase")  # noqa: S314 - our own file
    ]


GATES = (
    (),
    ("--min-pass-rate", "1"),
    ("--min-case-pass-rate", "1"),
    ("--n", "2", "--pass-at", "2=1"),
    ("--n", "2", "--pass-hat", "2=1"),
    ("--n", "4", "--stop-when-decided", "exact", "--min-pass-rate", "0.9"),
    ("--n", "4", "--stop-when-decided", "likely", "--min-case-pass-rate", "0.5"),
    ("--stop-when-decided", "exact", "--min-pass-rate", "1"),
    ("--n", "2", "--pass-threshold", "0.9"),
    ("--budget", "12", "--min-pass-rate", "1"),
)


@pytest.mark.parametrize("gates", GATES, ids=" ".join)
def test_a_failing_case_in_quarantine_flips_no_gate(place: CommandFolder, gates: tuple[str, ...]) -> None:
    failing = play(place, write(place), *gates)
    held = play(place, write(place, "case_2", "case_4"), *gates)
    alone = play(place, write(place, answers={"one": "one", "three": "three"}), *gates)

    assert (failing["outcome"], held["outcome"], alone["outcome"]) == ("failed", "passed", "passed")
    assert (failing["exit_code"], held["exit_code"]) == (1, 0)
    *others, left_out = held["gates"]
    assert left_out["name"] == "--without"
    assert left_out["sentence"].startswith("2 cases in quarantine are in no gate: case_2 (0 of ")
    if "--budget" not in gates:  # which gives two cases more trials each than four
        assert others == alone["gates"]
        assert held["counts"] == alone["counts"]


@pytest.mark.parametrize("gates", GATES, ids=" ".join)
def test_a_passing_case_in_quarantine_hides_no_failing_one(place: CommandFolder, gates: tuple[str, ...]) -> None:
    answer = play(place, write(place, "case_1", "case_3"), *gates)

    assert (answer["outcome"], answer["exit_code"]) == ("failed", 1)
    assert {case["case_id"]: case.get("is_left_out", False) for run in answer["runs"] for case in run["cases"]} == {
        "case_1": True,
        "case_2": False,
        "case_3": True,
        "case_4": False,
    }


def test_a_set_in_quarantine_as_a_whole_is_no_pass(place: CommandFolder) -> None:
    path = write(place, *(f"case_{n}" for n in range(1, 5)))

    for gates in ((), ("--min-pass-rate", "0.1"), ("--n", "2", "--stop-when-decided", "exact", "--min-pass-rate", "0")):
        answer = play(place, path, *gates)

        assert answer["outcome"] == "undecided"
        assert answer["exit_code"] == 3
        assert "every case is in quarantine" in answer["reasons"]


def test_none_of_the_tags_lets_every_case_count(place: CommandFolder) -> None:
    path = write(place, "case_2", "case_4")

    assert play(place, path, "--without", "none")["outcome"] == "failed"
    assert play(place, path, "--without", "tag:slow")["outcome"] == "failed"
    assert play(place, write(place, "case_2", "case_4", tag="slow"), "--without", "tag:slow, tag:x")["exit_code"] == 0


def test_only_chosen_tags_are_played(place: CommandFolder) -> None:
    answer = play(place, write(place, "case_1", "case_3", tag="smoke"), "--only", "tag:smoke")

    assert [case["case_id"] for case in answer["runs"][0]["cases"]] == ["case_1", "case_3"]
    assert answer["exit_code"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--only", "tag:nothing"), "no case has such a tag"),
        (("--only", "smoke"), "write tag:NAME"),
        (("--without", "tag:"), "write tag:NAME"),
        (("--without", "quarantine"), "write tag:NAME"),
    ],
)
def test_a_filter_of_another_form_is_refused(place: CommandFolder, options: tuple[str, str], words: str) -> None:
    result = place.eval(write(place), *options)

    assert words in str(result.exception)


def test_errors_of_a_case_in_quarantine_are_not_counted(place: CommandFolder) -> None:
    path = write(place, "case_2", answers={"one": "one", "raise": "x"})

    answer = play(place, path)

    assert (answer["outcome"], answer["counts"]["n_errored"], answer["counts"]["n_planned"]) == ("passed", 0, 1)


class TestBaselines:
    def judged(self, place: CommandFolder, path: Path, *more: object) -> dict[str, Any]:
        return play(place, path, "--max-regressions", "0", *more)

    @pytest.mark.parametrize("form", ["run", "file"])
    def test_a_regression_in_quarantine_is_no_regression_and_no_deleted_case(
        self, place: CommandFolder, form: str
    ) -> None:
        good = {"one": "one", "two": "two", "three": "three"}
        file = place.folder / "base.json"
        assert place.eval(write(place, answers=good), "-o", file).exit_code == 0
        bad = {**good, "two": "wrong"}
        base = "1" if form == "run" else file

        free = self.judged(place, write(place, answers=bad), "--baseline", base)
        held = self.judged(place, write(place, "case_2", answers=bad), "--baseline", base)

        assert (free["exit_code"], held["exit_code"]) == (1, 0)
        sentence = held["gates"][0]["sentence"]
        assert "deleted" not in sentence
        assert "case_2" not in sentence

    @pytest.mark.parametrize("form", ["run", "file"])
    def test_a_case_that_left_quarantine_must_pass_though_it_failed_in_the_baseline(
        self, place: CommandFolder, form: str
    ) -> None:
        answers = {"one": "one", "two": "wrong", "three": "three"}
        file = place.folder / "base.json"
        assert place.eval(write(place, "case_2", answers=answers), "-o", file).exit_code == 0
        base = "1" if form == "run" else file

        freed = self.judged(place, write(place, answers=answers), "--baseline", base)
        still = self.judged(place, write(place, "case_2", answers=answers), "--baseline", base)

        assert (freed["exit_code"], still["exit_code"]) == (1, 0)
        assert "case_2" in " ".join(freed["reasons"])

    @pytest.mark.parametrize("rule", ["any", "likely"])
    def test_a_stop_by_a_baseline_looks_at_no_case_in_quarantine(self, place: CommandFolder, rule: str) -> None:
        good = {"one": "one", "two": "two", "three": "three"}
        for _ in range(2):
            assert place.eval(write(place, answers=good), "--n", 3).exit_code == 0
        options = ("--baseline", "2", "--n", 3, "--stop-when-decided", "exact", "--regression-rule", rule)

        held = self.judged(place, write(place, "case_2", answers={**good, "two": "wrong"}), *options)

        assert held["exit_code"] == 0

    def test_a_margin_is_over_the_cases_that_gates_ask_for(self, place: CommandFolder) -> None:
        good = {"one": "one", "two": "two", "three": "three"}
        assert place.eval(write(place, answers=good), "--n", 5).exit_code == 0
        bad = write(place, "case_2", "case_3", answers={"one": "one", "two": "wrong", "three": "wrong"})

        assert play(place, bad, "--n", 5, "--baseline", "1", "--margin", "0.05")["exit_code"] == 0

    @pytest.mark.parametrize("form", ["run", "file"])
    @pytest.mark.parametrize(
        ("before", "after", "wrong", "exit_code"),
        [
            ((), (), "two", 1),
            ((), ("case_2",), "two", 0),
            ((), ("case_2", "case_5"), "two,five", 0),
            ((), ("case_5",), "two,five", 1),
            (("case_2",), ("case_2",), "two", 0),
            (("case_2",), (), "two", 1),
            (("case_2",), (), "", 0),
        ],
        ids=["free", "held", "both held", "another held", "still held", "freed and failed", "freed and passed"],
    )
    def test_merged_shards_answer_as_the_whole_run(
        self,
        place: CommandFolder,
        monkeypatch: pytest.MonkeyPatch,
        form: str,
        before: tuple[str, ...],
        after: tuple[str, ...],
        wrong: str,
        exit_code: int,
    ) -> None:
        answers = {word: word for word in ("one", "two", "three", "four", "five", "six")}
        file = place.folder / "base.json"
        monkeypatch.setenv("ECHO_WRONG", "two" if before else "")
        assert place.eval(write(place, *before, answers=answers), "-o", file).exit_code == 0
        monkeypatch.setenv("ECHO_WRONG", wrong)
        path, gates = write(place, *after, answers=answers), ("--max-regressions", "0", "--margin", "0.1")
        options = (*gates, "--baseline", "1" if form == "run" else file)

        whole_junit, junit = place.folder / "whole.xml", place.folder / "merged.xml"
        whole = play(place, path, *options, "--junit", whole_junit)
        files = play_shards(place, path, *options)
        merged = place.run("run", "merge", *files, "--json", "--junit", junit)

        answer = json.loads(merged.stdout)
        assert len(files) > 1
        assert (merged.exit_code, whole["exit_code"]) == (exit_code, exit_code)
        for part in ("outcome", "gates", "reasons", "baseline"):
            assert answer[part] == whole[part]
        assert {case["case_id"] for case in answer["baseline"]["cases"]}.isdisjoint(after)
        assert outcomes_in(junit) == outcomes_in(whole_junit)
        assert {name for name, tag in outcomes_in(junit) if tag == "skipped"} == {*after}


class TestForecasts:
    """Forecasts and checks before a run are over the cases that its gates ask for, as its conclusion is."""

    @pytest.mark.parametrize("gates", [("--min-pass-rate", "0.9"), ("--max-regressions", "0")], ids=" ".join)
    def test_gates_are_explained_as_for_a_set_without_the_case(
        self, place: CommandFolder, gates: tuple[str, ...]
    ) -> None:
        answers = {"one": "one", "two": "wrong", "three": "three"}
        play(place, write(place, "case_2", answers=answers), "--n", "3")
        play(place, write(place, answers={"one": "one", "three": "three"}), "--n", "3")

        held, alone = (
            json.loads(place.run("gate", "explain", "--from", run, *gates, "--json").stdout) for run in (1, 2)
        )

        assert held["cases"] == 2
        assert held["by_rate"]["run 1"] == alone["by_rate"]["run 2"]

    def test_the_page_of_gates_forecasts_the_cases_that_they_ask_for(self, place: CommandFolder) -> None:
        play(place, write(place, "case_2", "case_4"), "--n", "3", "--min-pass-rate", "0.9")

        (row,) = read_gates(place.store().runs).rows

        assert row.figures
        assert (row.figures.forecast.basis.n_cases, row.figures.forecast.basis.n_scored) == (2, 6)

    def test_unchanged_runs_are_compared_without_the_case_also_from_before_its_quarantine(
        self, place: CommandFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = {"one": "one", "two": "two", "three": "three"}
        for wrong in ("", "two", "", "two"):
            monkeypatch.setenv("ECHO_WRONG", wrong)
            play(place, write(place, answers=answers))
        play(place, write(place, "case_2", answers=answers))

        free, held = (
            json.loads(place.run("gate", "explain", "--from", run, "--max-regressions", "0", "--json").stdout)[
                "measured"
            ]
            for run in (4, 5)
        )

        assert free["failed"] > 0
        assert (held["runs"], held["failed"]) == (5, 0)

    def test_a_warning_of_false_alarms_is_about_the_other_cases(
        self, place: CommandFolder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        answers = {word: word for word in ("one", "two", "three", "four", "five", "six")}
        for wrong in ("", "two") * 3:
            monkeypatch.setenv("ECHO_WRONG", wrong)
            play(place, write(place, answers=answers))
        monkeypatch.setenv("ECHO_WRONG", "")
        gates = ("--max-regressions", "0", "--baseline", "5")

        free = place.eval(write(place, answers=answers), *gates)
        held = place.eval(write(place, "case_2", answers=answers), *gates)

        assert "Note: --max-regressions 0: 33 of 36 passed so far" in free.stderr
        assert "Note: --max-regressions 0: 35 of 35 passed so far" in held.stderr

    @pytest.mark.parametrize(
        ("tagged", "options", "words"),
        [
            (("case_2",), ("--min-scored", "4"), "can never hold: the run has 3 cases and 3 trials beside 1 case in "),
            (("case_2",), ("--min-scored", "7", "--budget", "8"), "the run has 3 cases and 6 trials beside 1 case in "),
            (("case_2",), ("--max-regressions", "3", "--baseline", "1"), "the run has 3 cases and 3 trials beside 1 "),
            (tuple(f"case_{n}" for n in range(1, 5)), ("--min-scored", "1"), "take one out, or say --without none"),
        ],
        ids=["scored", "budget", "regressions", "all"],
    )
    def test_a_gate_that_only_these_cases_could_answer_is_refused(
        self, place: CommandFolder, tagged: tuple[str, ...], options: tuple[str, ...], words: str
    ) -> None:
        play(place, write(place))

        result = place.eval(write(place, *tagged), *options)

        assert words in str(result.exception)


def test_every_door_tells_the_cases_in_quarantine(place: CommandFolder) -> None:
    junit, summary = place.folder / "junit.xml", place.folder / "summary.md"
    sentence = "2 cases in quarantine are in no gate: case_2 (0 of 1, tagged outside), case_4 (1 of 1, tagged outside)"
    path = write(place, "case_2", "case_4")
    result = place.eval(path, "--junit", junit, "--summary", summary)
    assert result.exit_code == 0
    headline = "passed, without 2 cases in quarantine"

    assert sentence in result.stdout
    assert headline.capitalize() in result.stdout.splitlines()
    run_facts = place.run("run", "info", "1").stdout
    assert sentence in run_facts
    assert headline in run_facts
    assert "2 cases in quarantine are in no gate" in summary.read_text()
    assert summary.read_text().splitlines()[1] == "## ✅ Evaluation passed, without 2 cases in quarantine"
    run_of_tool = tool_answer(place.folder, "get_run", {"run": "1"})
    assert sentence in json.dumps(run_of_tool)
    assert f'"headline": "{headline}"' in json.dumps(run_of_tool)
    root = ET.fromstring(junit.read_text())  # noqa: S314 - our own file
    cases = {case.get("name"): case for case in root.iter("testcase")}
    skipped = cases["case_2"].find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "in quarantine, in no gate: 0 of 1 passed"
    assert root.get("failures") == root.get("errors") == "0"
    assert sentence in ET.tostring(cases["--without"], encoding="unicode")
    assert cases["conclusion"].findtext("system-out") == headline
    report = place.folder / "report.html"
    assert place.run("report", "1", "-o", report).exit_code == 0
    assert "in quarantine are in no gate" in report.read_text()
    assert f"<b>{headline.capitalize()}.</b>" in report.read_text()


def test_the_headline_of_a_failure_counts_the_cases_in_quarantine(place: CommandFolder) -> None:
    junit, summary = place.folder / "junit.xml", place.folder / "summary.md"
    path = write(place, "case_4")

    result = place.eval(path, "--junit", junit, "--summary", summary, "--annotations")

    headline = "failed, without 1 case in quarantine"
    assert result.exit_code == 1
    assert any(line.startswith(f"{headline.capitalize()}: ") for line in result.stdout.splitlines())
    assert "## ❌ Evaluation did not pass, without 1 case in quarantine" in summary.read_text().splitlines()
    conclusion = next(
        case
        for case in ET.fromstring(junit.read_text()).iter("testcase")  # noqa: S314 - our own file
        if case.get("name") == "conclusion"
    )
    failure = conclusion.find("failure")
    assert failure is not None
    assert str(failure.get("message")).startswith(f"{headline}; ")


def test_the_python_api_judges_as_the_stored_run(place: CommandFolder) -> None:
    path = write(place, "case_2", "case_4")

    result = evaluate(place.agent, path, criteria={"response_match_score": 0.8}, workspace=place.folder)
    stored = StoredRuns(place.store().runs)
    run = stored.summary(result.id)

    assert result.conclusion == stored.conclusion(run)
    assert (result.conclusion.outcome, len(result.cases), result.counts.planned) == ("passed", 4, 2)


def test_shards_tell_the_same_as_the_whole_run(place: CommandFolder) -> None:
    path = write(place, "case_2", answers={"one": "one", "two": "wrong", "three": "three", "four": "four"})
    whole = play(place, path)

    merged = place.run("run", "merge", *play_shards(place, path, n=2), "--json")

    answer = json.loads(merged.stdout)
    assert (merged.exit_code, answer["outcome"]) == (0, "passed")
    assert answer["gates"] == whole["gates"]


def test_shards_with_other_tags_in_no_gate_are_not_merged(place: CommandFolder) -> None:
    path = write(place, "case_2", answers={word: word for word in ("one", "two", "three", "four", "five", "six")})
    first, second, *others = play_shards(place, path)
    number = second.stem.removeprefix("part")
    place.eval(path, "--shard", f"{number}/3", "--without", "none", "-o", second)

    merged = place.run("run", "merge", first, second, *others)

    assert f"{second} has in no gate: none, {first} tag:quarantine; play all shards alike" in str(merged.exception)


def test_a_tag_that_is_set_after_the_run_changes_no_conclusion(place: CommandFolder) -> None:
    path = write(place)
    assert place.eval(path).exit_code == 1

    write(place, "case_2", "case_4")

    stored = StoredRuns(place.store().runs)
    assert stored.conclusion(stored.summary(1)).outcome == "failed"


def test_an_import_tells_the_cases_that_come_in_quarantine(place: CommandFolder) -> None:
    held = read_file(write(place, "case_2", "case_4").read_bytes(), "words.evalset.json")
    free = read_file(write(place).read_bytes(), "words.evalset.json")
    mapped = read_mapped(b"q,t\nhi,quarantine\nho,smoke\n", "words.csv", read_columns("input=q,tags=t"))

    assert "2 cases in quarantine, which no gate asks for: tag quarantine." in held.understood
    assert "1 case in quarantine, which no gate asks for: tag quarantine." in mapped.understood
    assert not any("quarantine" in words for words in free.understood)


def test_a_named_run_is_not_continued_once_its_quarantine_is_another(place: CommandFolder) -> None:
    """A run keeps the cases that no gate asks for, so a case that is back would go on unasked for."""
    path = write(place, "case_2", "case_4")
    held = place.eval(path, "--name", "nightly")
    assert held.exit_code == 0, held.output

    write(place)
    again = place.eval(path, "--name", "nightly")
    by_option = place.eval(write(place, "case_2", "case_4"), "--name", "nightly", "--without", "none")

    for refused in (again, by_option):
        assert "run 1 began with other inputs: 2 cases in no gate, now 0" in str(refused.exception)


def test_a_comparison_leaves_out_what_is_in_quarantine_in_one_of_the_runs(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"one": "one", "two": "two", "three": "three"}
    assert place.eval(write(place, answers=answers)).exit_code == 0
    monkeypatch.setenv("ECHO_WRONG", "two")
    assert place.eval(write(place, answers=answers)).exit_code == 1
    assert place.eval(write(place, "case_2", answers=answers)).exit_code == 0

    free, held = (place.run("compare", 1, run, "--max-drop", "0.05") for run in (2, 3))

    assert (free.exit_code, held.exit_code) == (1, 0)
    assert "1 case in quarantine is not compared." in held.stdout
    assert "in quarantine" not in free.stdout


def test_tags_of_a_data_set_in_the_database_count_in_each_door(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place)
    before = path.read_bytes()
    assert play(place, path)["outcome"] == "failed"
    monkeypatch.setattr("evaldesk.store.evalsets.large.DATA_SET", 100)
    with open_desk(read_settings(place.folder, (place.folder,), environment={})) as desk:
        (set_id,) = (file.id for file in desk.evalsets.list())
        desk.evalsets.cases.change_tags(set_id, ["case_2", "case_4"], [QUARANTINE, "slow"], [])

    played = play(place, path)
    slow = play(place, path, "--only", "tag:slow", "--without", "none")
    result = evaluate(place.agent, path, criteria={"response_match_score": 0.8}, workspace=place.folder)

    assert (played["outcome"], played["exit_code"]) == ("passed", 0)
    assert "2 cases in quarantine are in no gate: case_2 (0 of 1" in str(played["gates"])
    assert [case["case_id"] for case in slow["runs"][0]["cases"]] == ["case_2", "case_4"]
    assert result.conclusion.gates[-1].names == ("case_2", "case_4")
    assert path.read_bytes() == before


def test_exports_and_copies_of_a_data_set_have_its_tags(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(place)
    before = path.read_bytes()
    monkeypatch.setattr("evaldesk.store.evalsets.large.DATA_SET", 100)
    name = path.name.removesuffix(".evalset.json")
    untagged = place.run("export", name).stdout  # without a database
    Store.open(read_settings(place.folder, (place.folder,), environment={}).database).close()
    with open_desk(read_settings(place.folder, (place.folder,), environment={})) as desk:
        (set_id,) = (file.id for file in desk.evalsets.list())
        desk.evalsets.cases.change_tags(set_id, ["case_2"], [QUARANTINE], [])
        by_page = desk.evalsets.export(set_id, "adk").data
        copy_id = desk.evalsets.duplicate(set_id)
        tags = {case.id: case.tags for case in desk.evalsets.evalset(copy_id).cases}
        author = desk.store.case_tags.authors(copy_id, QUARANTINE, ["case_2"])["case_2"]

    exported = place.run("export", name)

    assert exported.exit_code == 0, exported.output
    assert exported.stdout.encode().strip() == by_page.strip()
    assert QUARANTINE in exported.stdout
    assert QUARANTINE not in untagged
    assert [case_id for case_id, own in tags.items() if QUARANTINE in own] == ["case_2"]
    assert author.is_added
    assert path.read_bytes() == before


def tag_at_desk(place: CommandFolder, *names: str, author: str = "jo", takes: bool = False) -> None:
    """Put cases in quarantine at the desk of a person, or take them out."""
    settings = replace(read_settings(place.folder, (place.folder,), environment={}), me=author)
    Store.open(settings.database).close()
    with open_desk(settings) as desk:
        (set_id,) = (file.id for file in desk.evalsets.list())
        added, removed = ([], [QUARANTINE]) if takes else ([QUARANTINE], [])
        desk.evalsets.cases.change_tags(set_id, names, added, removed)


def test_the_conclusion_names_the_person_who_tagged_a_case(place: CommandFolder) -> None:
    path = write(place, "case_2", "case_3")
    tag_at_desk(place, "case_4")
    summary, file = place.folder / "summary.md", place.folder / "run.json"
    sentence = (
        "3 cases in quarantine are in no gate: case_2 (0 of 1, tagged outside), case_3 (1 of 1, tagged outside), "
        "case_4 (1 of 1, tagged by jo)"
    )

    result = place.eval(path, "--summary", summary, "-o", file)
    tag_at_desk(place, "case_4", takes=True)
    tag_at_desk(place, "case_4", author="ben")

    # Frozen when the run began, whoever changes the tag later.
    assert sentence in result.stdout
    assert sentence in place.run("run", "info", "1").stdout
    assert sentence in json.dumps(tool_answer(place.folder, "get_run", {"run": "1"}))
    assert "tagged by jo" in summary.read_text()
    cases = json.loads(file.read_text())["runs"][0]["cases"]
    assert [case.get("tag_author") for case in cases] == [None, "", "", "jo"]
    assert "of 1, tagged by ben)" in place.eval(path).stdout
    python = evaluate(place.agent, path, criteria={"response_match_score": 0.8}, workspace=place.folder)
    assert "of 1, tagged by ben)" in python.conclusion.gates[-1].sentence


def test_a_tag_that_the_desk_took_away_and_the_file_has_again_is_one_of_outside(place: CommandFolder) -> None:
    path = write(place)
    tag_at_desk(place, "case_2")
    tag_at_desk(place, "case_2", takes=True)

    write(place, "case_2")

    assert "case_2 (0 of 1, tagged outside)" in str(play(place, path)["gates"])


def test_the_author_is_the_one_of_a_tag_that_this_run_leaves_out_by(place: CommandFolder) -> None:
    path = write(place, "case_4", tag="slow")
    tag_at_desk(place, "case_4")

    gates = play(place, path, "--without", "tag:slow")["gates"]

    assert "case_4 (1 of 1, tagged outside)" in str(gates)


def test_merged_shards_name_the_persons_as_the_whole_run_does(place: CommandFolder) -> None:
    path = write(place, "case_2", answers={"one": "one", "two": "wrong", "three": "three"})
    tag_at_desk(place, "case_3")
    files = play_shards(place, path, n=2)

    merged = json.loads(place.run("run", "merge", *files, "--json").stdout)

    assert merged["gates"] == play(place, path)["gates"]
    assert "tagged by jo" in str(merged["gates"])


def test_a_person_who_tags_cases_of_a_large_set_is_named(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(place)
    monkeypatch.setattr("evaldesk.store.evalsets.large.WHOLE", 100)

    tag_at_desk(place, "case_2")

    assert QUARANTINE in path.read_text()
    assert "case_2 (0 of 1, tagged by jo)" in str(play(place, path)["gates"])


def test_a_name_of_a_person_adds_no_line_to_a_conclusion(place: CommandFolder) -> None:
    path = write(place)
    tag_at_desk(place, "case_2", author="jo\n## Evaluation passed\u202e" + "x" * 500)

    sentence = play(place, path)["gates"][-1]["sentence"]

    assert "\n" not in sentence
    assert "\u202e" not in sentence
    assert len(sentence) < 400
