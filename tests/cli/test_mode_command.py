"""`evaldesk mode`: kinds of failure listed, merged, checked, exported and imported in a shell."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from evaldesk.cli import cli
from evaldesk.errors import FormatError
from evaldesk.formats.criteria_file import load_criteria_file
from evaldesk.model import (
    AgentRef,
    Case,
    Criterion,
    Event,
    RunConfig,
    Score,
    Transcript,
    TrialResult,
    Turn,
    TurnRecord,
)
from evaldesk.model.failures import Anchor, FindingDraft
from evaldesk.settings import Settings
from evaldesk.store import Store


def workspace(home: Path, *, with_findings: bool = True) -> Path:
    """Ten trials of which five failed; four failed ones were read, two of them with a wrong date."""
    home.mkdir(exist_ok=True)
    with Store.open(Settings(home, (home,)).database) as store:
        cases = [Case(f"c{at}", (Turn("When?"),)) for at in range(10)]
        run_id = store.runs.create(RunConfig(AgentRef("dice", "dice:agent"), "set"), cases)
        verdicts = ["failed"] * 5 + ["passed"] * 5
        store.runs.record([TrialResult(run_id, at, 0, "finished", each) for at, each in enumerate(verdicts)])  # type: ignore[arg-type]
        if with_findings:
            for at in range(2):
                draft = FindingDraft(run_id, at, 0, "a week late", anchor=Anchor(0, quote="Friday"))
                store.failures.add(draft, "Ana", "wrong date")
            for at in range(2, 5):
                store.failures.clear(run_id, (at, 0), "Ana")
            store.failures.create_mode("Ana", name="asks twice", definition="The same question again.")
    return home


def run(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["mode", *words, "--workspace", str(home)], standalone_mode=False)


def shown(home: Path) -> Any:
    return json.loads(run(home, "list", "--json").stdout)


def test_kinds_of_failure_are_listed(tmp_path: Path) -> None:
    home = workspace(tmp_path / "home")

    assert run(home, "list").stdout == "wrong date: 2 trials, open\nasks twice: 0 trials, open\n"
    assert [(each["name"], each["trials_by_run"]) for each in shown(home)] == [
        ("wrong date", {"1": 2}),
        ("asks twice", {}),
    ]
    empty = workspace(tmp_path / "empty", with_findings=False)
    assert "No kinds of failure yet" in run(empty, "list").stdout


def test_a_merge_and_its_undo(tmp_path: Path) -> None:
    home = workspace(tmp_path / "home")

    assert "Merged “wrong date” into “asks twice”" in run(home, "merge", "WRONG DATE", "asks twice").stdout
    assert [(each["name"], each["trials_by_run"]) for each in shown(home)] == [("asks twice", {"1": 2})]
    assert run(home, "undo").stdout == "Undone: “wrong date” merged into “asks twice”\n"
    assert len(shown(home)) == 2
    assert "known: wrong date, asks twice" in str(run(home, "merge", "nothing", "asks twice").exception)


@pytest.mark.parametrize(
    ("bound", "answer", "exit_code"),
    [("wrong date=0.2", "held", 0), ("wrong date=0.1", "failed", 1), ("asks twice=0", "held", 0)],
)
def test_a_gate_on_a_kind_of_failure(tmp_path: Path, bound: str, answer: str, exit_code: int) -> None:
    home = workspace(tmp_path / "home")

    found = run(home, "check", "1", "--max-mode", bound)

    assert found.stdout.startswith(f"{answer}: {bound.partition('=')[0]}: ")
    assert "of 10 scored trials" in found.stdout
    assert _exit_code(found) == exit_code


def test_a_gate_is_undecided_while_nothing_was_read(tmp_path: Path) -> None:
    home = workspace(tmp_path / "home", with_findings=False)
    with Store.open(Settings(home, (home,)).database) as store:
        store.failures.create_mode("Ana", name="wrong date")

    found = run(home, "check", "1", "--max-mode", "wrong date=0.05")

    assert found.stdout.startswith("undecided: wrong date: none of the failed trials drawn first was read")
    assert _exit_code(found) == 3


@pytest.mark.parametrize("bound", ["wrong date", "wrong date=2", "wrong date=nan", "wrong date=x"])
def test_a_bound_that_is_none_is_refused(tmp_path: Path, bound: str) -> None:
    found = run(workspace(tmp_path / "home"), "check", "1", "--max-mode", bound)

    assert "NAME=RATE" in str(found.exception)


def test_an_export_is_taken_in_once_by_a_workspace_with_the_same_run(tmp_path: Path) -> None:
    home, other = workspace(tmp_path / "home"), workspace(tmp_path / "other", with_findings=False)
    file = tmp_path / "failures.json"
    run(home, "export", "-o", str(file))

    first = run(other, "import", str(file), "--by", "Ben")
    second = run(other, "import", str(file), "--by", "Ben")

    assert first.stdout == "Imported 2 new kinds of failure, 2 new findings and 3 trials with nothing wrong.\n"
    assert second.stdout == "Imported 0 new kinds of failure and 0 new findings.\n"
    assert run(other, "export").stdout == run(home, "export").stdout
    assert run(other, "undo", "--by", "Ben").exit_code == 0  # the second import, which changed nothing
    run(other, "undo", "--by", "Ben")
    assert shown(other) == []


def test_an_export_says_the_same_after_its_import_whatever_became_of_the_kinds(tmp_path: Path) -> None:
    """Kinds retired twice under one name beside one in use, reopened, merged; the same words at two places."""
    home, other, used = (workspace(tmp_path / name, with_findings=name == "home") for name in ("home", "other", "used"))
    file = tmp_path / "failures.json"
    with Store.open(Settings(home, (home,)).database) as store:
        failures = store.failures
        for _ in range(2):
            (mode,) = [each for each in failures.modes() if each.is_active and each.name == "wrong date"]
            failures.retire(mode.id, "Ana")
            failures.add(FindingDraft(1, 0, 0, "again", anchor=Anchor(0)), "Ben", "wrong date")
        failures.add(FindingDraft(1, 0, 0, "again", anchor=Anchor(0, 1)), "Ben", "wrong date")
        failures.mark_fixed(2, 1, "Ana")
        failures.add(FindingDraft(1, 1, 0, "", 2), "Ana")
        failures.add(FindingDraft(1, 2, 0, "why?"), "Ana")
        failures.merge(failures.create_mode("Ana", name="wrong day"), 2, "Ana")
    with Store.open(Settings(used, (used,)).database) as store:
        store.failures.add(FindingDraft(1, 4, 0, "mine"), "Cy", "Wrong date")
    run(home, "export", "-o", str(file))

    for each in (other, used):
        run(each, "import", str(file), "--by", "Ben")

    assert run(other, "export").stdout == file.read_text("utf-8")
    assert run(home, "import", str(file), "--by", "Ben").stdout.startswith("Imported 0 new kinds of failure and 0 new")
    assert [each["name"] for each in shown(used)] == ["Wrong date", "asks twice"]
    names = [each["name"] for each in json.loads(run(used, "export").stdout)["modes"]]
    assert names == ["Wrong date", "asks twice", "wrong date", "wrong date"]
    run(other, "undo", "--by", "Ben")
    assert json.loads(run(other, "export").stdout)["modes"] == []


def test_shares_and_the_life_of_a_kind_are_what_they_were_after_an_import(tmp_path: Path) -> None:
    home, other = workspace(tmp_path / "home"), workspace(tmp_path / "other", with_findings=False)
    elsewhere = workspace(tmp_path / "elsewhere", with_findings=False)
    file = tmp_path / "failures.json"
    for each in (home, other):
        with Store.open(Settings(each, (each,)).database) as store:
            run_id = store.runs.create(RunConfig(AgentRef("dice", "dice:agent"), "set"), [Case("c0", (Turn("When?"),))])
            store.runs.record([TrialResult(run_id, 0, 0, "finished", "passed")])
            if each == home:
                store.failures.mark_fixed(1, run_id, "Ana")
                store.failures.clear(run_id, (0, 0), "Ben")
    run(home, "export", "-o", str(file))

    run(other, "import", str(file), "--by", "Ben")
    run(elsewhere, "import", str(file), "--by", "Ben")

    gates = [run(each, "check", "1", "--max-mode", "wrong date=0.05").stdout for each in (home, other)]
    assert gates[0] == gates[1]
    assert "20 % of 10 scored trials" in gates[0]
    assert shown(other) == shown(home)
    assert [each["life"] for each in shown(other)] == ["fixed", "open"]
    assert [each["fixed_in"] for each in shown(elsewhere)] == [None, None]  # its run 2 is not there


def test_findings_of_other_trials_are_counted_and_left_out(tmp_path: Path) -> None:
    file = tmp_path / "failures.json"
    findings = [
        {"run": run_id, "case": case, "trial_index": trial, "mode": "late", "note": "n", "author": "Ana"}
        for run_id, case, trial in ((1, "c0", 0), (1, "c0", 7), (1, "gone", 0), (9, "c0", 0))
    ]
    file.write_text(json.dumps({"evaldesk_failures": 1, "modes": [], "findings": findings}))

    found = run(workspace(tmp_path / "home", with_findings=False), "import", str(file))

    assert "1 new finding." in found.stdout
    assert "3 findings are on trials that are not in this workspace." in found.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "expected an object"),
        ("{}", "evaldesk mode export"),
        ('{"evaldesk_failures": 1}', "expected a list"),
        ('{"evaldesk_failures": 1, "modes": [{"name": ""}], "findings": []}', "at most 60 letters"),
        ('{"evaldesk_failures": 1, "modes": [], "findings": [{"run": -1}]}', "author"),
        ('{"evaldesk_failures": 1, "modes": [], "findings": [{"author": "A", "run": -1}]}', "whole number"),
        ('{"evaldesk_failures": 1, "modes": [{"name": "a", "retired_at": "May"}], "findings": []}', "a moment such as"),
        (
            '{"evaldesk_failures": 1, "modes": [], "findings": [{"author": "A", "run": 1, "trial_index": 0}]}',
            "needs a note or a mode",
        ),
    ],
)
def test_a_file_that_is_none_names_the_place(tmp_path: Path, content: str, said: str) -> None:
    home, file = workspace(tmp_path / "home", with_findings=False), tmp_path / "failures.json"
    file.write_text(content)

    found = run(home, "import", str(file))

    assert isinstance(found.exception, FormatError | SystemExit)
    assert said in str(found.exception) + found.output
    assert shown(home) == []


def test_findings_are_given_out_as_tables_with_the_words_around_what_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = workspace(tmp_path / "home")
    monkeypatch.setenv("SHOP_API_KEY", "sk-0123456789abcdef")
    said = "x" * 300 + " You leave on Friday, sk-0123456789abcdef. " + "y" * 300
    turns = (TurnRecord("When?", (Event("agent_message", text=said),)),)
    with Store.open(Settings(home, (home,)).database) as store:
        run_id = store.runs.create(RunConfig(AgentRef("dice", "dice:agent"), "set"), [Case("=c", (Turn("When?"),))])
        store.runs.record([TrialResult(run_id, 0, 0, "finished", "failed", transcript=Transcript(turns))])
        store.failures.add(FindingDraft(run_id, 0, 0, "=late", anchor=Anchor(0, 0, 314, 320, "Friday")), "Ana", "other")
        store.failures.add(FindingDraft(run_id, 0, 0, "no mark"), "Ana")

    lines = [json.loads(line) for line in run(home, "export", "--format", "jsonl").stdout.splitlines()]
    table = run(home, "export", "other", "--format", "jsonl").stdout

    assert [(each["mode"], each["case"], each["note"]) for each in lines[2:]] == [
        ("other", "=c", "=late"),
        ("", "=c", "no mark"),
    ]
    assert lines[2]["excerpt"].startswith("…" + "x" * 100)
    assert "leave on Friday, [SHOP_API_KEY]. yy" in lines[2]["excerpt"]
    assert lines[3]["excerpt"] == f"When?\n\n{said[:393]}…".replace("sk-0123456789abcdef", "[SHOP_API_KEY]")
    assert lines[0]["excerpt"] == ""
    assert table.splitlines() == [json.dumps(lines[2], separators=(",", ":"), ensure_ascii=False)]
    assert "sk-0123456789abcdef" not in table


def test_the_codebook_as_markdown_shows_every_text_as_it_stands(tmp_path: Path) -> None:
    home = workspace(tmp_path / "home")
    with Store.open(Settings(home, (home,)).database) as store:
        hostile = "<img src=x> [a](javascript:b)\n# head"
        store.failures.create_mode("Ana", name="*bold*", definition=hostile)
        store.failures.add(FindingDraft(1, 3, 0, hostile), "Ana")

    text = run(home, "export", "--format", "markdown").stdout

    assert text.startswith(
        "# Kinds of failure\n\n## wrong date\n\nOpen.\n\n- a week late (Ana, run 1, c0, trial 1, turn 1)\n"
    )
    assert "  > Friday\n" in text
    assert "## \\*bold\\*\n" in text
    assert "Counts: &lt;img src=x&gt; \\[a\\]\\(javascript:b\\) \\# head" in text
    assert "\n## Without a kind\n\n- &lt;img" in text
    only = run(home, "export", "asks twice", "--format", "markdown").stdout
    assert re.findall("^#+ .*", only, re.MULTILINE) == ["# Kinds of failure", "## asks twice"]


def test_kinds_that_were_filled_in_elsewhere_come_back_to_their_notes(tmp_path: Path) -> None:
    home, file = workspace(tmp_path / "home"), tmp_path / "findings.jsonl"
    with Store.open(Settings(home, (home,)).database) as store:
        store.failures.add(FindingDraft(1, 2, 0, "-what?; 'yes'"), "Ben")
        store.failures.add(FindingDraft(1, 3, 0, "why?\nno", anchor=Anchor(0, quote="a, b")), "Ben")
    file.write_text(run(home, "export", "--format", "jsonl").stdout)

    untouched = run(home, "import", str(file), "--by", "Cy").stdout
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("\n".join(json.dumps(row | {"mode": row["mode"] or "no reason"}) for row in lines))
    named, again = (run(home, "import", str(file), "--by", "Cy").stdout for _ in range(2))

    assert untouched == again == "Imported 0 new kinds of failure and 0 new findings.\n"
    assert named == "Imported 1 new kind of failure, 0 new findings and a kind for 2 notes.\n"
    findings = json.loads(run(home, "export").stdout)["findings"]
    assert [(each["mode"], each["author"]) for each in findings[2:]] == [("no reason", "Ben")] * 2
    assert [each["note"] for each in findings[2:]] == ["-what?; 'yes'", "why?\nno"]
    for _ in range(2):
        run(home, "undo", "--by", "Cy")
    assert [each["mode"] for each in json.loads(run(home, "export").stdout)["findings"][2:]] == ["", ""]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.csv", "a,b\n1,2\n", "a.csv: findings come in as JSON or JSON lines"),
        ("a.jsonl", '{"run": 1}\n', "a.jsonl:1:1: author"),
        ("a.jsonl", '{"run": 1, "case": "c0", "trial_index": 0, "author": "A", "note": "n"}\n[]\n', "a.jsonl:2:1"),
    ],
)
def test_a_table_that_is_none_names_its_line(tmp_path: Path, name: str, content: str, said: str) -> None:
    home, file = workspace(tmp_path / "home", with_findings=False), tmp_path / name
    file.write_text(content)

    found = run(home, "import", str(file))

    assert isinstance(found.exception, FormatError)
    assert said in str(found.exception)
    assert shown(home) == []


def _exit_code(found: Result) -> int:
    return int(found.exception.code or 0) if isinstance(found.exception, SystemExit) else found.exit_code


def test_the_judge_of_a_kind_is_a_criteria_file_and_is_held_against_the_findings(tmp_path: Path) -> None:
    home = workspace(tmp_path / "home")
    assert "No run has a judge of it yet" in run(home, "judge", "wrong date").stdout
    file = tmp_path / "criteria.json"
    file.write_text(run(home, "judge", "wrong date", "--criteria").stdout)
    criteria = tuple(load_criteria_file(file).criteria)

    with Store.open(Settings(home, (home,)).database) as store:
        key = store.failures.modes()[0].key
        assert criteria == (Criterion("failure_mode/wrong-date", 1.0, {"failure": "wrong date", "kind": key}),)
        config = replace(store.runs.summary(1).config, criteria=criteria, source_run_id=1)
        run_id = store.runs.create(config, list(store.runs.cases(1)))
        scores = [(Score(criteria[0].metric, float(at > 0)),) for at in range(10)]
        store.runs.record([TrialResult(run_id, at, 0, "finished", "failed", scores=scores[at]) for at in range(10)])

    shown = run(home, "judge", "WRONG date").stdout
    found = "Agrees on 4 of 5 trials: finds it in 1 of 2 where people found it, in 0 of 3 where they did not. "
    assert shown.startswith(f"Run 2: {found}")
    assert "The judge says 10 %; corrected about 20 %, 95 % CI " in shown
