"""`evaldesk compare`: runs and result files, without an agent; the exit code says whether one dropped too far."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evaldesk.cli.compare import compare
from evaldesk.model import AgentRef, Case, RunConfig, TrialResult, Turn
from evaldesk.store import Store

N = 5


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with three runs of eight cases that pass 5, 4 and 2 of 5 trials each."""
    (tmp_path / ".evaldesk").mkdir()
    monkeypatch.chdir(tmp_path)
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as store:
        for passes in ([5] * 8, [5, 4, 4, 5, 4, 4, 5, 4], [2, 1, 2, 3, 2, 1, 2, 3]):
            stored(store, passes)
    return tmp_path


def stored(store: Store, passes: Sequence[int]) -> int:
    config = RunConfig(AgentRef("dice", "dice:root_agent"), "calc", n=N)
    run_id = store.runs.create(config, [Case(f"c{at}", (Turn("hi"),)) for at in range(len(passes))])
    store.runs.record(
        [
            TrialResult(run_id, case, at, "finished", "passed" if at < n else "failed")
            for case, n in enumerate(passes)
            for at in range(N)
        ]
    )
    store.runs.set_status(run_id, "finished")
    return run_id


def asked(*arguments: str) -> Result:
    return CliRunner().invoke(compare, list(arguments))


def result_file(folder: Path, name: str, strips: Sequence[str]) -> str:
    """A result file as `evaldesk eval -o` writes the cases of a baseline."""
    cases = [
        {
            "evalset": "calc",
            "case_id": f"c{at}",
            "ordinal": 0,
            "digest": "",
            "trials": strip,
            "pass_threshold": 1.0,
            "errors_are_failures": False,
            "asserted": {},
        }
        for at, strip in enumerate(strips)
    ]
    (folder / name).write_text(json.dumps({"version": 3, "runs": [{"cases": cases}]}), "utf-8")
    return name


def test_runs_are_compared_with_the_first_one(home: Path) -> None:
    answer = asked("1", "2", "3")

    assert answer.exit_code == 0
    assert "run 3 is worse than run 1 by" in answer.output
    assert "run 1: 100 % (" in answer.output
    assert "run 2: 88 % (" in answer.output
    assert answer.output.count(" over 8 cases, 40 trials; ") == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("1", "2", "--max-drop", "0.2"), 0, "held"),
        (("1", "2", "3", "--max-drop", "0.2"), 1, "failed: below run 1: run 3 by 60 points"),
        (("1", "3", "--baseline", "3", "--max-drop", "0"), 0, "held: no pass rate is more than 0 points below run 3"),
        (("3", "--baseline", "1", "--max-drop", "0.1"), 1, "failed"),
    ],
)
def test_the_exit_code_is_that_of_the_drop(home: Path, arguments: tuple[str, ...], code: int, words: str) -> None:
    answer = asked(*arguments)

    assert (answer.exit_code, words in answer.output) == (code, True), answer.output


def test_files_need_no_workspace_and_equal_the_runs(home: Path, tmp_path: Path) -> None:
    strips = ["p" * n + "f" * (N - n) for n in [2, 1, 2, 3, 2, 1, 2, 3]]
    good, bad = (
        result_file(tmp_path, name, each) for name, each in (("main.json", ["ppppp"] * 8), ("pr.json", strips))
    )

    of_files, of_runs = (json.loads(asked(*names, "--json").output) for names in ((good, bad), ("1", "3")))

    for file, run in zip(of_files["runs"], of_runs["runs"], strict=True):
        assert {**file, "name": "", "mark": ""} == {**run, "name": "", "mark": ""}
    (tmp_path / ".evaldesk" / "evaldesk.db").unlink()
    assert asked(good, bad, "--max-drop", "0.1").exit_code == 1


def test_one_rate_is_shown_where_the_cases_have_unequal_trials(home: Path, tmp_path: Path) -> None:
    strips = ["pppppppp", "f", "p", "p", "p", "p"]
    names = [result_file(tmp_path, name, strips) for name in ("one.json", "two.json")]

    answer, summary = asked(*names), tmp_path / "summary.md"
    asked(*names, "--summary", str(summary))

    rate, interval = json.loads(asked(*names, "--json").output)["runs"][0]["pass_rate"], "(30–100 %)"
    assert rate == pytest.approx(5 / 6)  # the mean of cases, and not 12 of 13 trials
    assert answer.output.count(f"83 % {interval} over 6 cases, 13 trials; ") == 2
    assert summary.read_text("utf-8").count(f"83 % {interval} over 6 cases, 13 trials |") == 2


def test_without_a_shared_case_the_drop_is_undecided(home: Path, tmp_path: Path) -> None:
    empty = result_file(tmp_path, "empty.json", [])

    answer = asked("1", empty, "--max-drop", "0.1")

    assert (answer.exit_code, "undecided: no scored case in common" in answer.output) == (3, True)


def test_the_summary_is_markdown(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "steps.md"))
    (tmp_path / "steps.md").write_text("earlier\n", "utf-8")

    for name in ("own.md", str(tmp_path / "steps.md")):
        asked("1", "3", "--summary", name, "--max-drop", "0.1")

    assert (tmp_path / "own.md").read_text("utf-8").startswith("### run 3 is worse than run 1")
    assert (tmp_path / "steps.md").read_text("utf-8").startswith("earlier\n### run 3")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("1",), "2 to 20"),
        (("1", "1"), "named twice"),
        (tuple(map(str, range(1, 22))), "2 to 20"),
        (("1", "missing.json"), "missing"),
        (("1", "3", "--max-drop", "nan"), "nan is not a number between 0 and 1"),
        (("1", "3", "--max-drop", "inf"), "inf"),
    ],
)
def test_a_comparison_that_cannot_be_says_why(home: Path, arguments: tuple[str, ...], words: str) -> None:
    answer = asked(*arguments)

    assert answer.exit_code != 0
    assert words in str(answer.exception) + answer.output
