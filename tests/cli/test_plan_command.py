"""`evaldesk plan`: cost, time and detectable differences before the start, the same that `eval --vary` shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

from evaldesk.errors import EvaldeskError

PAID = """
from evaldesk import Event, Usage


def paid(message, session, model=""):
    yield Event("usage", usage=Usage(model or "small", tokens_in=1000, tokens_out=100, cost=0.04 if model else 0.01))
    yield message if message != "c3" else "no"
"""
ANSWERS = {f"c{at}": f"c{at}" for at in range(12)}


@pytest.fixture
def paid(place: CommandFolder) -> tuple[str, Path]:
    """An agent whose trials cost a cent, with a run of 24 trials of which 22 pass."""
    (place.folder / "paid.py").write_text(PAID)
    path = place.evalset("shop", ANSWERS)
    result = place.run("eval", "paid:paid", path, "--criterion", "response_match_score=0.8", "--n", 2)
    assert "22 of 24 passed" in result.output, result.output
    return "paid:paid", path


def planned(place: CommandFolder, *options: object) -> dict[str, Any]:
    result = place.run("plan", *options, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_plan_has_trials_cost_and_time_of_the_earlier_run(place: CommandFolder, paid: tuple[str, Path]) -> None:
    found = planned(place, *paid, "--vary", "temperature=0,1", "--vary", "top_p=0.1,0.5,1", "--n", 5)

    assert (found["n_variants"], found["n_cases"], found["n"], found["n_trials"]) == (6, 12, 5, 360)
    assert found["cost"] == pytest.approx(3.60)
    assert found["duration_ms"] > 0
    assert found["n_history_trials"] == 24
    assert {(each["run_id"], each["is_repriced"]) for each in found["variants"]} == {(1, False)}
    assert [each["name"] for each in found["factors"]] == ["temperature", "top_p"]
    between_levels = [each["smallest_difference"] for each in found["factors"]]
    assert 0 < between_levels[0] < between_levels[1] < found["smallest_difference"] < 1


@pytest.mark.parametrize(("own", "words"), [(20, "x 5 or more = 150"), (1, "x 5 or fewer = 112")])
def test_a_case_with_trials_of_its_own_is_planned_with_them(
    place: CommandFolder, paid: tuple[str, Path], own: int, words: str
) -> None:
    content = json.loads(paid[1].read_text())
    content["eval_cases"][0]["trials"] = own
    paid[1].write_text(json.dumps(content))
    vary = ("--vary", "temperature=0,1", "--n", 5)

    plan = place.run("plan", *paid, *vary).stdout
    single = planned(place, *paid, "--n", 5)["n_trials"]
    checked = place.run("eval", *paid, *vary, "--criterion", "response_match_score=0.8", "--check").stdout

    assert f"{words} trials" in plan
    assert f"{words} trials" in checked
    assert single == 11 * 5 + own


def test_a_case_with_trials_that_cannot_be_is_named_by_the_plan(place: CommandFolder, paid: tuple[str, Path]) -> None:
    content = json.loads(paid[1].read_text())
    content["eval_cases"][0]["trials"] = 0
    paid[1].write_text(json.dumps(content))

    result = place.run("plan", *paid, "--vary", "temperature=0,1")

    assert "trials must be 1 to 1,000" in str(result.exception)


def test_a_plan_in_words_names_the_difference_and_its_basis(place: CommandFolder, paid: tuple[str, Path]) -> None:
    result = place.run("plan", *paid, "--vary", "temperature=0,1", "--vary", "top_p=0.5,1", "--n", 5, "--see", 0.05)

    first, difference, basis, *variants, proposal = result.stdout.splitlines()
    assert first.startswith("2 x 2 variants x 12 cases x 5 = 240 trials, about $2.40, ")
    assert difference.startswith("Smallest difference that 12 x 5 can show, 4 times in 5: ")
    assert "between two levels of temperature" in difference
    assert "Only a loss: these cases pass too often" in difference
    assert basis == "By the pass rates of these cases in 24 earlier trials."
    assert variants[0] == "temperature=0/top_p=0.5: $0.01 a trial, as in run 1"
    assert proposal.startswith("To see 5 points: ")
    assert proposal.endswith("; with these 12 cases no number of trials is enough.")


def test_the_cost_of_a_proposal_is_that_of_its_trials(place: CommandFolder, paid: tuple[str, Path]) -> None:
    found = planned(place, *paid, "--vary", "temperature=0,1", "--see", 0.1)["see"]

    assert found["n"] == 3  # one trial of each says nothing about chance
    assert found["cost"] == pytest.approx(0.02 * 3 * found["n_cases"])
    again = planned(place, *paid, "--vary", "temperature=0,1", "--see", 0.2)["see"]
    assert again["n_cases"] < found["n_cases"]


def test_a_model_without_a_run_has_the_tokens_of_the_last_one_at_its_price(
    place: CommandFolder, paid: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    prices = {"dear": (2e-5, 1e-4, 2e-5)}
    monkeypatch.setattr("evaldesk.desk.experiments.estimates.listed_prices", prices.get)

    found = planned(place, *paid, "--vary", "model=dear,unknown", "--n", 2)

    costs = {each["name"]: each["cost_per_trial"] for each in found["variants"]}
    assert costs == {"dear": pytest.approx(1000 * 2e-5 + 100 * 1e-4), "unknown": None}
    assert found["cost"] is None
    shown = place.run("plan", *paid, "--vary", "model=dear,unknown", "--n", 2).stdout
    assert "cost not known of unknown" in shown
    assert "dear: $0.03 a trial, by the tokens of run 1 at its list price" in shown
    assert "unknown: cost not known: no earlier run with this model, and no list price of it" in shown


def test_a_model_that_was_played_has_its_own_cost(place: CommandFolder, paid: tuple[str, Path]) -> None:
    place.run("eval", *paid, "--criterion", "response_match_score=0.8", "--model", "big")

    found = planned(place, *paid, "--vary", "model=big,other")

    assert [(each["name"], each["run_id"], each["is_repriced"]) for each in found["variants"]] == [
        ("big", 2, False),
        ("other", 2, True),
    ]


def test_the_plan_of_one_run_has_the_figures_of_its_form(place: CommandFolder, paid: tuple[str, Path]) -> None:
    result = place.run("plan", *paid, "--n", 5, "--see", 0.05)

    first, difference, proposal = result.stdout.splitlines()
    assert first.startswith("12 cases x 5 = 60 trials, about $0.60, ")
    assert first.endswith("as in run 1.")
    assert difference.startswith("With your pass rates and 12 cases × 5 trials you would notice a drop of ")
    assert proposal.startswith("To see 5 points 4 times in 5: ")
    assert " cases x 5, about $" in proposal


@pytest.mark.parametrize("options", [[], ["--vary", "temperature=0,1"]], ids=["one run", "an experiment"])
def test_a_plan_without_an_earlier_run_makes_no_workspace_and_says_what_is_assumed(
    place: CommandFolder, options: list[str]
) -> None:
    result = place.run("plan", place.agent, place.evalset("new", ANSWERS), "--n", 3, "--see", 0.2, *options)

    assert result.exit_code == 0, result.output
    assert "cost not known" in result.stdout
    assert "These cases were never played: a " in result.stdout
    assert "To see 20 points" in result.stdout
    assert not (place.folder / ".evaldesk").exists()


def test_a_plan_imports_no_agent(place: CommandFolder) -> None:
    (place.folder / "broken.py").write_text("raise RuntimeError('this code ran')\n")

    result = place.run("plan", "broken:agent", place.evalset("new", ANSWERS), "--vary", "temperature=0,1")

    assert result.exit_code == 0, result.output


def test_a_start_and_a_check_show_the_figures_of_the_plan(place: CommandFolder, paid: tuple[str, Path]) -> None:
    options = ("--vary", "temperature=0,1", "--n", 2)
    plan = place.run("plan", *paid, *options).stdout.splitlines()

    checked = place.run("eval", *paid, "--criterion", "response_match_score=0.8", *options, "--check").stdout
    begun = place.run("eval", *paid, "--criterion", "response_match_score=0.8", *options).stderr
    quiet = place.run("eval", *paid, "--criterion", "response_match_score=0.8", *options, "--quiet").stderr

    assert checked.splitlines()[1:] == plan
    assert [line for line in plan[:3] if line not in begun] == []
    assert plan[0] not in quiet


def test_a_run_shows_the_figures_of_its_plan_before_it_starts(place: CommandFolder, paid: tuple[str, Path]) -> None:
    options = ("--criterion", "response_match_score=0.8", "--n", 2)
    plan = place.run("plan", *paid, "--n", 2)
    plan_object = planned(place, *paid, "--n", 2)

    checked = place.run("eval", *paid, *options, "--check").stdout
    check_object = json.loads(place.run("eval", *paid, *options, "--check", "--json").stdout)
    begun = place.run("eval", *paid, *options)
    silent = [place.run("eval", *paid, *options, flag).stderr for flag in ("--quiet", "--json")]

    lines = plan.stdout.splitlines()
    assert lines[0].startswith("12 cases x 2 = 24 trials, about $0.24, ")
    assert "4 times in 5" in lines[1]
    assert checked.splitlines()[-2:] == lines
    assert check_object["runs"][0]["estimate"] == plan_object
    assert begun.stderr.splitlines()[:2] == lines
    assert [line for each in silent for line in lines if line in each] == []


def test_the_figures_of_several_runs_name_each_of_them(place: CommandFolder, paid: tuple[str, Path]) -> None:
    other = place.evalset("other", {"a": "a"})

    begun = place.run("eval", *paid, other, "--criterion", "response_match_score=0.8", "--n", 2).stderr.splitlines()

    assert begun[0].startswith("paid-paid, shop: 12 cases x 2 = 24 trials, about $0.24, ")
    assert (
        begun[2]
        == "paid-paid, other: 1 case x 2 = 2 trials, cost not known: no earlier run of this agent and eval set."
    )
    assert begun[3] == "Smallest detectable difference: none with 1 case × 2 trials; add cases."


def test_a_budget_of_trials_is_planned_as_it_is_spread(place: CommandFolder, paid: tuple[str, Path]) -> None:
    begun = place.run("eval", *paid, "--criterion", "response_match_score=0.8", "--budget", 30).stderr

    assert begun.startswith("12 cases x 2 or more = 30 trials, about $0.30, ")


def test_a_budget_is_estimated_for_each_variant_before_the_start(place: CommandFolder, paid: tuple[str, Path]) -> None:
    begun = place.run(
        "eval", *paid, "--criterion", "response_match_score=0.8", "--vary", "temperature=0,1", "--budget", "1usd"
    ).stderr

    assert "temperature=0: $0.01 a trial, as in run 1" in begun
    assert "temperature=1: $0.01 a trial, as in run 1" in begun


REFUSED: dict[str, tuple[list[str], str]] = {
    "one variant": (["--vary", "temperature=0"], "at least 2 variants, and this has 1"),
    "no such baseline": (["--vary", "temperature=0,1", "--baseline-variant", "temperature=2"], "no variant named"),
    "no option": (["--vary", "temprature=0,1"], "did you mean 'temperature'?"),
    "no trials": (["--vary", "n=0,1"], "variant 'n=0': trials of each case: 1 to 1000, not 0"),
    "no temperature": (["--vary", "temperature=0,500"], "variant 'temperature=500'"),
    "no eval set": (["--vary", "evalset=nowhere.json,new.evalset.json"], "nowhere.json"),
}


@pytest.mark.parametrize(("options", "words"), REFUSED.values(), ids=REFUSED)
def test_a_plan_that_cannot_be_is_refused(place: CommandFolder, options: list[str], words: str) -> None:
    result = place.run("plan", place.agent, place.evalset("new", ANSWERS), *options)

    assert isinstance(result.exception, EvaldeskError | FileNotFoundError), result.output
    assert words in str(result.exception)


@pytest.mark.parametrize("difference", ["0", "5", "-0.1", "nan", "few"])
def test_a_difference_that_cannot_be_is_refused(place: CommandFolder, difference: str) -> None:
    result = place.run("plan", place.agent, place.evalset("new", ANSWERS), "--see", difference)

    assert result.exit_code == 2
    assert "--see" in result.output


@pytest.mark.parametrize("words", [[], ["agent"], ["agent", "one.json", "two.json"]], ids=["none", "one", "three"])
def test_a_plan_is_of_one_agent_and_one_eval_set(place: CommandFolder, words: list[str]) -> None:
    result = place.run("plan", *words)

    assert "name one agent and one eval set" in str(result.exception)


def test_a_case_that_is_not_there_is_named_with_the_nearest(place: CommandFolder) -> None:
    path = place.evalset("new", ANSWERS)

    assert planned(place, place.agent, f"{path}:case_1,case_2", "--vary", "temperature=0,1")["n_cases"] == 2
    assert "did you mean 'case_1'" in str(place.run("plan", place.agent, f"{path}:case1").exception)


def test_rates_are_those_of_the_instruction_of_the_baseline(place: CommandFolder) -> None:
    (place.folder / "told.py").write_text(
        "def told(message, instruction=''):\n    return 'no' if instruction else message\n\ntold.tells_cost = True\n"
    )
    path, criterion = place.evalset("shop", ANSWERS), ("--criterion", "response_match_score=0.8")
    place.run("eval", "told:told", path, *criterion)
    place.run("eval", "told:told", path, *criterion, "--instruction", "Say no.")

    found = planned(place, "told:told", path, "--vary", "instruction=as it is,Say no.", "--n", 5)

    assert [each["run_id"] for each in found["variants"]] == [1, 2]
    assert (found["smallest_gain"], found["smallest_loss"] is None) == (None, False)  # of 12 of 12 passed
