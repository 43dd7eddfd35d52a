"""`evaldesk gate explain`: how often a gate fails although nothing changed, before anything is played."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from evaldesk.cli import cli
from evaldesk.desk.runs.gates.forecasts import ASSUMED_RATES, DROPS
from evaldesk.model.conclusion import STOP_RULES, UNDECIDED

AGENT = "def root_agent(message):\n    return message\n"
SET = {
    "eval_set_id": "echo",
    "eval_cases": [
        {
            "eval_id": f"case_{index}",
            "conversation": [
                {
                    "user_content": {"parts": [{"text": "hello"}]},
                    "final_response": {"parts": [{"text": "hello" if index else "bye"}]},
                }
            ],
        }
        for index in range(3)
    ],
}


def explain(arguments: str) -> Result:
    return CliRunner().invoke(cli, ["gate", "explain", *arguments.split()])


def test_an_unchanged_agent_fails_a_baseline_gate_as_often_as_is_known() -> None:
    result = explain("--cases 20 --rate 0.9 --n 5 --pass-threshold 1 --max-regressions 0 --json")

    found = json.loads(result.output)
    assert found["false_alarm"] == pytest.approx(0.9960595740, abs=1e-9)
    assert found["holds"] == pytest.approx(1 - 0.9960595740, abs=1e-9)


def test_the_words_name_the_false_alarms_and_another_gate() -> None:
    result = explain("--cases 20 --rate 0.9 --max-regressions 0")

    assert "If every case passes 90 % of the time and nothing changes, this gate fails 85 % of builds." in result.output
    assert re.search(r"Better: --n \d+ --max-regressions 0 --regression-rule confirm: fails about", result.output)


def test_a_worse_agent_passes_a_gate_less_often_the_worse_it_is() -> None:
    result = explain("--cases 20 --rate 0.9 --n 2 --min-pass-rate 0.8 --json")

    (gate,) = json.loads(result.output)["by_rate"]["0.9"]
    chances = [gate["holds"], *(gate["holds_when_worse"][f"{drop:g}"] for drop in DROPS)]
    assert chances == sorted(chances, reverse=True)


@pytest.mark.parametrize("rule", ["likely", "confirm", "confirm --confirm 10"])
def test_a_rule_whose_bar_is_the_history_fails_at_most_3_percent_of_builds(rule: str) -> None:
    result = explain(f"--cases 20 --rate 0.9 --n 10 --max-regressions 0 --regression-rule {rule} --json")

    found = json.loads(result.output)
    assert 0.01 < found["false_alarm"] <= 0.03
    assert found["standing"] == "rarely"
    assert found["by_rate"]["0.9"][0]["holds_when_worse"]["0.15"] < 0.05


@pytest.mark.parametrize(
    ("asked", "false_alarm", "more"),
    [
        ("--n 1 --confirm 3/6", 1 - (1 - 0.09 * 0.0012700) ** 20, 10.8),
        ("--n 1 --confirm 1/1", 0.1654101672, 1.8),
    ],
)
def test_confirming_a_regression_has_few_false_alarms(asked: str, false_alarm: float, more: float) -> None:
    result = explain(f"--cases 20 --rate 0.9 {asked} --max-regressions 0 --regression-rule confirm --json")

    found = json.loads(result.output)
    assert found["false_alarm"] == pytest.approx(false_alarm, abs=1e-6)
    assert found["by_rate"]["0.9"][0]["more_trials"] == pytest.approx(more, abs=0.01)


def test_a_gate_that_finds_a_worse_agent_is_proposed_and_then_kept() -> None:
    found = json.loads(explain("--cases 20 --rate 0.9 --min-pass-rate 0.9 --json").output)

    (gate,) = found["by_rate"]["0.9"]
    assert gate["proposal"]["options"] == "--n 2 --min-pass-rate 0.82"
    words = explain(f"--cases 20 --rate 0.9 {gate['proposal']['options']}").output
    assert "Better:" not in words
    assert "this one plays the fewest trials: keep it." in words


def test_an_agent_below_a_level_has_no_false_alarm_and_no_milder_gate() -> None:
    found = json.loads(explain("--cases 20 --rate 0.8 --min-pass-rate 0.9 --json").output)

    (gate,) = found["by_rate"]["0.8"]
    assert (gate["standing"], gate["false_alarm"], gate["proposal"]) == ("below the bar", None, None)
    assert "is below this bar" in gate["sentence"]


def test_no_gate_is_proposed_where_none_finds_a_worse_agent() -> None:
    found = json.loads(explain("--cases 1 --rate 0.5 --max-regressions 0 --json").output)

    assert found["by_rate"]["0.5"][0]["proposal"] is None


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("--confirm 3/5 --max-regressions 0", "--confirm needs --regression-rule confirm"),
        ("--regression-rule confirm", "--regression-rule confirm needs --max-regressions"),
        ("--regression-rule confirm --max-regressions 0 --confirm 5/3", "R from M to 100"),
        ("--regression-rule confirm --max-regressions 0 --confirm half", "M/R, such as 3/5"),
    ],
)
def test_fresh_trials_that_cannot_be_asked_for_are_refused(asked: str, words: str) -> None:
    result = explain(f"--cases 20 --rate 0.9 {asked}")

    assert words in f"{result.output} {result.exception}"


def test_without_a_rate_usual_rates_are_shown() -> None:
    result = explain("--cases 10 --min-pass-rate 0.9")

    for rate in ASSUMED_RATES:
        assert f"With a pass rate of {rate:g} in every case" in result.output


def test_a_gate_that_is_stricter_than_it_looks_says_so() -> None:
    result = explain("--cases 4 --rate 0.9 --n 5 --min-case-pass-rate 0.9")

    assert "4 of 5 trials of a case are 80 %, less than 90 %: every trial must pass." in result.output


def test_without_a_gate_every_trial_must_pass() -> None:
    found = json.loads(explain("--cases 3 --rate 0.9 --n 2 --json").output)

    assert found["holds"] == pytest.approx(0.9**6)
    assert found["by_rate"]["0.9"][0]["name"] == "every trial must pass"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--cases 20 --n 5 --pass-hat 8=0.8", "pass^8 with --n 5 is never defined; say --n 8 or more"),
        ("--min-pass-rate 0.9", "name a run by --from, or the number of cases by --cases"),
        ("--cases 20 --regression-rule likely", "--regression-rule likely needs --max-regressions"),
        ("--from 1 --cases 3", "leave --cases and --rate out"),
    ],
)
def test_what_cannot_be_computed_is_refused(arguments: str, words: str) -> None:
    result = explain(arguments)

    assert result.exception is not None
    assert words in str(result.exception)


def test_a_k_that_is_named_twice_is_refused() -> None:
    result = explain("--cases 2 --n 2 --pass-at 2=0.5 --pass-at 2=0.7")

    assert result.exit_code == 2
    assert "each K is at least 1 and named once" in result.output


def test_a_stored_run_gives_cases_trials_and_rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "echo.evalset.json").write_text(json.dumps(SET))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["eval", ".", "echo.evalset.json", "--n", "2"])

    found = json.loads(explain("--from 1 --max-regressions 0 --json").output)

    assert (found["cases"], found["n"]) == (3, 2)
    assert found["standing"] == "not known yet"  # six trials say little, though its cases always pass, or never
    assert found["false_alarm_range"][1] > 0.05
    assert found["history"] == {"runs": 1, "scored": 6, "passed": 4}
    assert list(found["by_rate"]) == ["run 1"]

    longer = json.loads(explain("--from 1 --n 4 --pass-threshold 0.5 --max-regressions 0 --json").output)
    assert (longer["n"], longer["pass_threshold"]) == (4, 0.5)


@pytest.mark.parametrize("asked", ["--max-regressions 0", "--max-regressions 0 --regression-rule confirm"])
def test_json_has_each_line_of_the_text(asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "echo.evalset.json").write_text(json.dumps(SET))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["eval", ".", "echo.evalset.json", "--n", "2"])

    found = json.loads(explain(f"--from 1 {asked} --json").output)
    lines = explain(f"--from 1 {asked}").output.splitlines()

    (gate,) = found["by_rate"]["run 1"]
    expected = [f"{gate['name']}: {gate['sentence']}", *gate["notes"], found["measured_sentence"]]
    assert [line.strip() for line in lines[3:] if line] == expected
    assert all(expected)


def test_a_run_without_a_scored_trial_says_nothing_of_its_gates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "agent.py").write_text("def root_agent(message):\n    raise ConnectionError\n")
    (tmp_path / "echo.evalset.json").write_text(json.dumps(SET))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["eval", ".", "echo.evalset.json"])

    result = explain("--from 1 --min-pass-rate 0.5")

    assert str(result.exception) == "run 1 has no scored trials to estimate pass rates from; name another run"


def test_a_run_with_a_budget_gives_the_trials_of_each_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "echo.evalset.json").write_text(json.dumps(SET))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["eval", ".", "echo.evalset.json", "--budget", "5"])

    found = json.loads(explain("--from 1 --min-pass-rate 0.6 --margin 0 --json").output)
    words = explain("--from 1 --min-pass-rate 0.7").output

    assert (found["cases"], found["n"], found["n_most"], found["trials"]) == (3, 1, 2, 5)
    assert [gate["name"] for gate in found["by_rate"]["run 1"]] == ["--min-pass-rate 0.6", "--margin 0"]
    assert "3 cases, 1 to 2 trials each." in words
    assert "One trial a case says nothing yet about how often it wobbles." in words or "at the bar" in words


def test_a_margin_is_explained_and_the_trials_that_it_needs_are_proposed() -> None:
    found = json.loads(explain("--cases 20 --rate 0.9 --n 5 --margin 0.05 --json").output)
    said = explain("--cases 20 --rate 0.9 --n 13 --margin 0.05").output

    (gate,) = found["by_rate"]["0.9"]
    # The spread is not drawn beside the difference; of all outcomes these are 0.0008 and 0.568.
    assert gate["false_alarm"] == pytest.approx(0.0008, abs=0.001)
    assert gate["holds_when_worse"]["0.15"] == pytest.approx(0.568, abs=0.06)
    assert (gate["proposal"]["options"], gate["is_proposed"]) == ("--n 13 --margin 0.05", False)
    assert "this one plays the fewest trials: keep it." in said


def test_a_gate_that_misses_a_worse_agent_says_what_helps() -> None:
    said = explain("--cases 2 --rate 0.9 --pass-at 1=0.5").output

    assert "To find such an agent more often, add cases or play more trials of each." in said


def test_a_number_too_close_to_its_bar_counts_as_is_asked() -> None:
    asked = "--cases 20 --rate 0.9 --n 5 --min-pass-rate 0.9"

    found = {each: json.loads(explain(f"{asked} --undecided {each} --json").output) for each in UNDECIDED}
    said = explain(f"{asked} --undecided neutral").output

    neutral, (gate,) = found["neutral"], found["neutral"]["by_rate"]["0.9"]
    assert neutral["false_alarm"] + neutral["holds"] + neutral["neutral"] == pytest.approx(1)
    assert found["pass"]["false_alarm"] == pytest.approx(neutral["false_alarm"])
    assert found["fail"]["holds"] == pytest.approx(neutral["holds"])
    assert found["fail"]["neutral"] == found["pass"]["neutral"] == 0
    assert gate["name"] == "--min-pass-rate 0.9 --undecided neutral"
    assert gate["neutral_when_worse"]["0.15"] == pytest.approx(0.056, abs=0.02)
    assert "It is too close to tell in about 9" in said
    assert "15 points worse under 1 % of builds, and is too close to tell in 6 %" in said


def test_a_gate_that_is_mostly_too_close_to_tell_says_what_helps() -> None:
    said = explain("--cases 4 --rate 0.9 --n 5 --min-pass-rate 0.9 --undecided neutral").output

    assert "It is too close to tell in most builds: add cases, play more trials of each, or ask for less." in said


@pytest.mark.parametrize("rule", STOP_RULES)
def test_a_stop_says_after_how_many_trials_it_comes(rule: str) -> None:
    said = explain(f"--cases 20 --rate 0.9 --n 30 --min-pass-rate 0.83 --stop-when-decided {rule}").output
    likely = explain(f"--cases 20 --rate 0.9 --n 5 --margin 0.05 --stop-when-decided {rule}").output

    assert "It stops after about " in said
    assert ("At most one likely stop in 20 is wrong." in likely) == (rule == "likely")


def test_a_stored_run_gives_its_gates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "agent.py").write_text(AGENT)
    (tmp_path / "echo.evalset.json").write_text(json.dumps(SET))
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(cli, ["eval", ".", "echo.evalset.json", "--n", "2", "--min-pass-rate", "0.9"])
    confirm = ["--baseline", "1", "--regression-rule", "confirm", "--confirm", "2/3"]
    CliRunner().invoke(cli, ["eval", ".", "echo.evalset.json", "--n", "2", *confirm])
    CliRunner().invoke(cli, ["eval", ".", "echo.evalset.json", "--n", "2"])

    def gates(arguments: str) -> list[str]:
        (found,) = json.loads(explain(f"{arguments} --json").output)["by_rate"].values()
        return [gate["name"] for gate in found]

    assert gates("--from 1") == ["--min-pass-rate 0.9"]
    assert gates("--from 1 --undecided neutral") == ["--min-pass-rate 0.9 --undecided neutral"]
    assert gates("--from 1 --max-regressions 1") == ["--max-regressions 1"]
    assert gates("--from 2") == ["--max-regressions 0 --regression-rule confirm --confirm 2/3"]
    assert gates("--from 2 --confirm 1/2") == ["--max-regressions 0 --regression-rule confirm --confirm 1/2"]
    assert gates("--from 2 --regression-rule any") == ["--max-regressions 0"]
    assert gates("--from 3") == ["every trial must pass"]
