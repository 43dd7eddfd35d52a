"""`evaldesk eval --vary` and `evaldesk experiment`: variants from the shell, their answers, and requests refused."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from math import isnan
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder

import evaldesk
from evaldesk.cli.runs.shared import opened_desk
from evaldesk.desk.experiments.experiments import ExperimentDesk
from evaldesk.errors import EvaldeskError, UsageError
from evaldesk.pages.experiment import read_experiment_page
from evaldesk.pages.run_table import read_table_page
from evaldesk.pages.runs.table_query import TableQuery

ANSWERS = {f"c{at}": f"c{at}" for at in range(6)}


def begin(place: CommandFolder, *options: object) -> Any:
    """An experiment on six cases."""
    evalset = place.evalset("shop", ANSWERS)
    return place.run("eval", place.agent, evalset, "--criterion", "response_match_score=0.8", *options)


def test_a_grid_plays_each_combination_and_shows_which_may_be_best(place: CommandFolder) -> None:
    result = begin(place, "--vary", "temperature=0,1", "--vary", "top_p=0.5,1", "--n", 2, "--json")

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    names = [f"temperature={t}/top_p={p}" for t in (0, 1) for p in (0.5, 1)]
    assert [each["name"] for each in found["variants"]] == names
    assert [each["run_id"] for each in found["variants"]] == [1, 2, 3, 4]
    assert {each["status"] for each in found["variants"]} == {"finished"}
    assert found["may_be_best"] == names
    assert [(each["pass_rate"], each["n_trials"]) for each in found["rates"]] == [(1.0, 12)] * 4
    assert [each["word"] for each in found["differences"]] == ["cannot be told"] * 3
    assert [each["factor"] for each in found["effects"]] == ["temperature", "top_p", "temperature"]
    options = [place.store().runs.summary(run).config.model_options for run in (1, 2, 3, 4)]
    assert [(each.temperature, each.top_p) for each in options] == [(0, 0.5), (0, 1), (1, 0.5), (1, 1)]


def test_variants_have_one_seed_so_that_a_trial_of_a_case_has_the_same_in_all(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,0.5,1", "--n", 1)

    assert len({place.store().runs.summary(run).config.seed for run in (1, 2, 3)}) == 1


def test_an_experiment_is_listed_shown_exported_extended_and_reported(place: CommandFolder, tmp_path: Path) -> None:
    begin(place, "--vary", "temperature=0,0.5", "--experiment", "warm or cold", "--baseline-variant", "temperature=0.5")

    listed = place.run("experiment", "list")
    shown = place.run("experiment", "show", 1)
    rows = list(csv.DictReader(io.StringIO(place.run("experiment", "show", 1, "--csv").stdout)))
    added = place.run("experiment", "add", 1, "--vary", "temperature=0.9")
    place.run("experiment", "report", 1, "-o", tmp_path / "report.md")

    assert "warm or cold: 2 variants, runs 1, 2" in listed.stdout
    assert "temperature=0 cannot be told from temperature=0.5" in shown.stdout
    assert [(row["variant"], row["pass_rate"], row["word"]) for row in rows] == [
        ("temperature=0", "1.0", "cannot be told"),
        ("temperature=0.5", "1.0", "baseline"),
    ]
    assert added.exit_code == 0, added.output
    assert "temperature=0.9: 100 %" in added.stdout
    assert "| temperature=0.9 | 100 %" in (tmp_path / "report.md").read_text()


def test_a_worse_variant_has_a_word_and_fails_no_build_without_a_gate(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.folder / "weak.py").write_text("def weak(message):\n    return 'nothing'\n\nweak.tells_cost = True\n")

    result = begin(place, "--vary", f"agent={place.agent},weak:weak", "--n", 2, "--json")
    found = json.loads(result.stdout) if result.exit_code == 0 else {}

    assert result.exit_code == 0, result.output
    assert [each["word"] for each in found["differences"]] == ["worse"]
    assert found["best"] == place.agent.name


@pytest.mark.parametrize(("variant", "code"), [("temperature=0", 0), ("temperature=1", 0)])
def test_a_gate_counts_for_the_named_variant(place: CommandFolder, variant: str, code: int) -> None:
    result = begin(place, "--vary", "temperature=0,1", "--min-pass-rate", "0.9", "--gate-variant", variant)

    assert result.exit_code == code, result.output
    assert f"{variant}: passed" in result.output


def test_a_gate_counts_after_a_resumption_too(place: CommandFolder) -> None:
    (place.folder / "weak.py").write_text("def weak(message):\n    return 'nothing'\n\nweak.tells_cost = True\n")
    gate = ("--min-pass-rate", "0.9", "--gate-variant", "weak:weak")
    cut = begin(place, "--vary", f"agent={place.agent},weak:weak", "--n", 3, "--budget", 20, *gate)
    resumed = place.run("experiment", "resume", 1, "--budget", 100)

    assert cut.exit_code == 130, cut.output
    assert resumed.exit_code == 1, resumed.output
    assert "weak:weak: failed" in resumed.output


def basis_of(place: CommandFolder, number: int) -> str:
    """The line of the page on the cases and the order of an experiment."""
    with opened_desk(str(place.folder)) as desk:
        return read_experiment_page(desk, number, {}).basis


def test_every_door_tells_a_variant_that_was_played_at_another_time(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,1", "--n", 1)
    first = place.run("experiment", "show", 1).stdout
    first_basis = basis_of(place, 1)

    added = place.run("experiment", "add", 1, "--vary", "temperature=0.5").stdout
    later = "temperature=0.5 was added later, and played at another time than the others."

    assert later in added
    assert later in place.run("experiment", "report", 1).stdout
    assert "added later" not in first
    assert first_basis == "2 variants, the same 6 cases, played in turn"
    assert basis_of(place, 1) == "3 variants, the same 6 cases, played not all at one time"


def test_variants_of_two_sets_tell_the_cases_that_they_share(place: CommandFolder) -> None:
    other = place.evalset("other", {**ANSWERS, "c0": "changed", "more": "more"})

    begin(place, "--vary", f"evalset=shop.evalset.json,{other}", "--n", 1)

    assert basis_of(place, 1) == "2 variants, 7 cases, of which 6 are in all, played in turn"


def test_a_deleted_baseline_is_told_and_another_one_may_be_chosen(place: CommandFolder) -> None:
    gate = ("--min-pass-rate", "0.9", "--gate-variant", "temperature=0")
    begin(place, "--vary", "temperature=0,1,0.5", "--n", 1, *gate)
    place.run("run", "rm", 1, "--yes")

    shown = place.run("experiment", "show", 1).stdout
    other = place.run("experiment", "show", 1, "--baseline-variant", "temperature=1").stdout
    report = place.run("experiment", "report", 1, "--baseline-variant", "temperature=1").stdout
    gone = place.run("experiment", "show", 1, "--baseline-variant", "temperature=0")
    resumed = place.run("experiment", "resume", 1)

    assert "temperature=0, the baseline, has no scored trial, so that no variant is compared with it." in shown
    assert "was deleted: restore it with `evaldesk trash restore run-1`, or choose another one" in shown
    assert "temperature=0.5 cannot be told from temperature=1" in other
    assert "temperature=0.5 cannot be told from temperature=1" in report
    assert "the run of temperature=0 was deleted" in str(gone.exception)
    assert resumed.exit_code == 3, resumed.output
    assert "temperature=0: undecided, since its run was deleted" in resumed.output
    with opened_desk(str(place.folder)) as desk:
        notes = read_experiment_page(desk, 1, {}).notes
    assert "temperature=0 was the baseline: choose another column by its menu, or restore the run." in notes


def test_an_experiment_that_another_shell_stops_says_how_it_goes_on(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = ExperimentDesk.play

    async def stop_and_play(self: ExperimentDesk, experiment_id: int, *values: Any) -> Any:
        await self.stop(experiment_id)
        return await play(self, experiment_id, *values)

    monkeypatch.setattr(ExperimentDesk, "play", stop_and_play)
    stopped = begin(place, "--vary", "temperature=0,1", "--n", 20)
    monkeypatch.undo()

    assert stopped.exit_code == 130, stopped.output
    assert "Stopped. Continue with: evaldesk experiment resume 1" in stopped.stderr


def test_a_budget_stops_all_variants_and_says_which_blocks_count(place: CommandFolder) -> None:
    result = begin(place, "--vary", "temperature=0,1", "--n", 3, "--budget", 20)

    assert result.exit_code == 0, result.output
    assert "only 1 trial of each case count" in result.output
    assert sum(place.store().runs.summary(run).n_done for run in (1, 2)) == 20


SPENT = "The experiment began as many trials as its budget has: 20 trials."


def test_a_variant_is_not_added_under_a_budget_that_is_spent(place: CommandFolder) -> None:
    cut = begin(place, "--vary", "temperature=0,1", "--n", 3, "--budget", 20)

    added = place.run("experiment", "add", 1, "--vary", "temperature=0.5")
    not_enough = place.run("experiment", "add", 1, "--vary", "temperature=0.5", "--budget", 20)

    assert f"{SPENT} Go on with more than that of: evaldesk experiment resume 1 --budget 20" in cut.stderr
    for each in (added, not_enough):
        assert isinstance(each.exception, UsageError)
        assert str(each.exception).startswith(f"{SPENT} No further trial would begin; name a larger one")
    store = place.store()
    assert [run.id for run in store.runs.list()] == [2, 1]
    assert len(store.experiments.get(1).plan.variants) == 2


def test_a_larger_budget_is_one_of_all_trials_together(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,1", "--n", 3, "--budget", 20)

    added = place.run("experiment", "add", 1, "--vary", "temperature=0.5", "--budget", 26)
    resumed = place.run("experiment", "resume", 1, "--budget", 54)

    assert added.exit_code == resumed.exit_code == 0, added.output + resumed.output
    assert "26 trials" in added.stderr
    assert re.search(r"26 of 54 trials done; 28 left, .+\.", resumed.stderr)
    assert "Budget of all trials together: 54 trials; spent so far: 26 trials." in resumed.stderr
    runs = [place.store().runs.summary(number) for number in (1, 2, 3)]
    assert [(run.n_done, run.status) for run in runs] == [(18, "finished")] * 3
    assert place.store().experiments.get(1).plan.budget == "54"
    assert "Not all trials were played" not in resumed.stdout


@pytest.mark.parametrize("budget", ["0", "-3", "few", "1e999usd", "20eur"])
@pytest.mark.parametrize("command", [("add", 1, "--vary", "temperature=0.5"), ("resume", 1)], ids=["add", "resume"])
def test_a_budget_that_cannot_be_is_refused(place: CommandFolder, command: tuple[object, ...], budget: str) -> None:
    begin(place, "--vary", "temperature=0,1", "--n", 1, "--budget", 6)

    result = place.run("experiment", *command, f"--budget={budget}")

    assert isinstance(result.exception, UsageError)
    assert "--budget" in str(result.exception)
    assert place.store().experiments.get(1).plan.budget == "6"


def test_a_variant_without_a_trial_takes_none_from_the_others(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check_nothing(*_: object) -> None:
        """Earlier versions added variants under a spent budget."""

    monkeypatch.setattr(ExperimentDesk, "_check_budget", check_nothing)
    begin(place, "--vary", "temperature=0,1", "--n", 3, "--budget", 20)

    added = place.run("experiment", "add", 1, "--vary", "temperature=0.5")

    assert added.exit_code == 0, added.output
    assert place.store().runs.summary(3).n_done == 0
    assert "only 1 trial of each case count" in added.output
    assert "temperature=0: 100 %" in added.output


def test_an_experiment_goes_on_with_its_cases_and_tells_that_the_set_was_changed(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,1", "--n", 1)
    told = "shop.evalset.json was changed since; experiment 1 goes on with its cases as they were."
    before = place.run("experiment", "add", 1, "--vary", "temperature=0.2").stderr
    place.evalset("shop", {"another": "another", **ANSWERS})

    added = place.run("experiment", "add", 1, "--vary", "temperature=0.5")
    resumed = place.run("experiment", "resume", 1)

    assert told not in before
    assert added.exit_code == 0, added.output
    assert told in added.stderr
    assert told in resumed.stderr
    runs = [place.store().runs.summary(number) for number in (1, 2, 3, 4)]
    assert [run.n_cases for run in runs] == [6] * 4
    assert len({(run.config.evalset_version, run.config.set_version) for run in runs}) == 1
    assert "100 %" in next(line for line in added.stdout.splitlines() if line.startswith("temperature=0.5"))


def test_resuming_an_experiment_plays_the_rest(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,1", "--n", 2)

    result = place.run("experiment", "resume", 1)

    assert result.exit_code == 0, result.output
    assert "no trial left to play" in result.output


def test_a_leader_is_confirmed_on_fresh_trials_that_are_pooled_with_nothing(place: CommandFolder) -> None:
    (place.folder / "follower.py").write_text(AGENT_FILE)
    path = place.evalset("numbers", {str(at): f"right {at}" for at in range(N_CASES)})
    options = ("--vary", "instruction=low,middle,high", "--n", 2, "--top-p", 0.5)
    place.run("eval", "follower:follows", path, "--criterion", "response_match_score=0.8", *options)

    result = place.run("experiment", "confirm", 1)

    assert result.exit_code == 0, result.output
    assert "high against low, fresh trials: high is better than low" in result.stdout
    runs = [place.store().runs.summary(number) for number in (1, 4, 3, 5)]
    assert [run.config.model_options.instruction for run in runs] == ["low", "low", "high", "high"]
    assert [run.config.model_options.top_p for run in runs] == [0.5] * 4
    assert [(run.n_cases, run.config.n, run.n_done) for run in runs] == [(N_CASES, 2, 2 * N_CASES)] * 4
    assert runs[1].config.seed == runs[3].config.seed != runs[0].config.seed
    assert runs[1].config.criteria == runs[0].config.criteria


def test_an_experiment_without_a_leader_has_nothing_to_confirm(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,1")

    result = place.run("experiment", "confirm", 1)

    assert result.exit_code == 1
    assert "no leader and baseline with trials to confirm" in str(result.exception)


def test_the_cost_of_an_added_variant_is_told_before_it_begins(place: CommandFolder) -> None:
    begun = begin(place, "--vary", "temperature=0,1", "--n", 1, "--budget", 100)

    added = place.run("experiment", "add", 1, "--vary", "temperature=0.5")
    larger = place.run("experiment", "add", 1, "--vary", "temperature=0.2,0.7", "--budget", "2usd")

    assert "Budget of all trials together: 100 trials.\n" in begun.stderr
    lines = added.stderr.splitlines()
    assert lines[0].startswith("1 variant x 6 cases x 1 = 6 trials, $0")
    assert lines[1].startswith("6 x 1 can show no difference between two variants 4 times in 5")
    assert "Budget of all trials together: 100 trials; spent so far: 12 trials." in lines
    assert larger.stderr.startswith("2 variants x 6 cases x 1 = 12 trials, $0")
    assert "Budget of all trials together: $2; spent so far: $0.\n" in larger.stderr


def test_the_cost_of_a_confirmation_is_told_before_it_begins_and_may_have_a_budget(place: CommandFolder) -> None:
    (place.folder / "follower.py").write_text(AGENT_FILE)
    path = place.evalset("numbers", {str(at): f"right {at}" for at in range(N_CASES)})
    options = ("--vary", "instruction=low,high", "--n", 2)
    place.run("eval", "follower:follows", path, "--criterion", "response_match_score=0.8", *options)

    result = place.run("experiment", "confirm", 1, "--budget", 20)

    assert result.exit_code == 0, result.output
    assert result.stderr.startswith(f"2 variants x {N_CASES} cases x 2 = {4 * N_CASES} trials, $0")
    assert "Budget of all trials together: 20 trials.\n" in result.stderr
    assert sum(place.store().runs.summary(run_id).n_done for run_id in (3, 4)) == 20


def test_nothing_is_estimated_for_a_variant_that_cannot_begin(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,1", "--n", 3, "--budget", 20)

    added = place.run("experiment", "add", 1, "--vary", "temperature=0.5")

    assert str(added.exception).startswith(SPENT)
    assert "1 variant x" not in added.stderr


def test_an_added_variant_has_the_other_options_of_the_first(place: CommandFolder) -> None:
    begin(place, "--vary", "temperature=0,1", "--top-p", 0.5, "--n", 2)

    place.run("experiment", "add", 1, "--vary", "temperature=2")

    options = [place.store().runs.summary(run).config for run in (1, 3)]
    assert [(each.model_options.temperature, each.model_options.top_p, each.n) for each in options] == [
        (0, 0.5, 2),
        (2, 0.5, 2),
    ]


def test_check_plays_nothing_and_counts_the_trials(place: CommandFolder) -> None:
    result = begin(place, "--vary", "temperature=0,1,0.5", "--n", 5, "--check", "--json")

    assert json.loads(result.stdout)["n_trials"] == 6 * 5 * 3
    assert place.store().runs.list() == []


MANY = ",".join(str(at / 100) for at in range(61))
REFUSED: dict[str, tuple[list[str], str]] = {
    "one value": (["--vary", "temperature=0"], "at least 2 variants, and this has 1"),
    "61 values": (["--vary", f"temperature={MANY}"], "61 = 61 variants are more than 60"),
    "a grid over 60": (
        ["--vary", "temperature=0,1,2,3,4,5,6,7", "--vary", "max_tokens=1,2,3,4,5,6,7,8"],
        "8 x 8 = 64 variants are more than 60",
    ),
    "two equal values": (["--vary", "temperature=0.50,0.5"], "is the same as"),
    "an empty value": (["--vary", "temperature=0,,1"], "one of its values is empty"),
    "no value": (["--vary", "temperature"], "wanted OPTION=VALUE,VALUE"),
    "an unknown option": (["--vary", "temprature=0,1"], "did you mean 'temperature'"),
    "a value out of range": (["--vary", "temperature=0,hot"], "variant 'temperature=hot'"),
    "an option of the experiment": (["--vary", "concurrency=1,2"], "concurrency is one for all variants"),
    "an option twice": (["--vary", "top_p=0,1", "--vary", "top_p=0.1,0.2"], "varied twice"),
    "an unknown baseline": (["--vary", "top_p=0,1", "--baseline-variant", "top_p=2"], "top_p=2"),
    "an unknown gate variant": (["--vary", "top_p=0,1", "--gate-variant", "other"], "other"),
    "a gate without a variant": (["--vary", "top_p=0,1", "--min-pass-rate", "0.9"], "add --gate-variant NAME"),
    "a missing file": (["--vary", "note=@none.md,b"], "note is one for all variants"),
    "a baseline run": (["--vary", "top_p=0,1", "--baseline", "3"], "--baseline-variant"),
    "files": (["--vary", "top_p=0,1", "-o", "x.json"], "evaldesk experiment show ID --json"),
    "options without variants": (["--drop-worse"], "--drop-worse is of an experiment"),
    "an unknown agent": (["--vary", "agent=nowhere/at_all,elsewhere"], "variant 'at_all': 'nowhere/at_all' is neither"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_requests_are_refused_before_any_trial(place: CommandFolder, name: str) -> None:
    options, words = REFUSED[name]

    result = begin(place, *options)

    assert isinstance(result.exception, EvaldeskError), result.output
    assert words in str(result.exception)
    assert not (place.folder / ".evaldesk/evaldesk.db").exists() or place.store().runs.list() == []


def test_variants_with_different_numbers_of_trials_are_played_and_told(place: CommandFolder) -> None:
    begun = begin(place, "--vary", "n=1,3", "--allow-equal").output
    shown = place.run("experiment", "show", 1)
    report = place.run("experiment", "report", 1).output
    equal = begin(place, "--vary", "temperature=0,1").output

    sentence = "The variants have different numbers of trials; each case weighs the same."
    assert [sentence in each for each in (begun, shown.output, report, equal)] == [True, True, True, False]
    assert [store.n_most for store in (place.store().runs.summary(run) for run in (1, 2))] == [1, 3]


@pytest.mark.parametrize("values", ["0.50,0.5", "0.5,0.5,0.5"])
def test_equal_variants_are_allowed_where_chance_is_to_be_seen(place: CommandFolder, values: str) -> None:
    result = begin(place, "--vary", f"temperature={values}", "--allow-equal")

    assert result.exit_code == 0, result.output
    assert "cannot be told" in result.output


@pytest.mark.parametrize("options", [["--model", "a/x", "--model", "a/y"], ["--model", "a/x,a/y"]])
def test_several_models_are_variants(place: CommandFolder, options: list[str]) -> None:
    result = begin(place, *options, "--check", "--json")

    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["variants"] == ["a/x", "a/y"]


def test_an_escaped_comma_is_part_of_a_model(place: CommandFolder) -> None:
    result = begin(place, "--model", r"a/x\,y,a/z", "--check", "--json")

    assert json.loads(result.stdout)["variants"] == ["a/x,y", "a/z"]


def test_prompts_of_files_are_variants_whose_pass_rates_are_those_of_the_instruction(place: CommandFolder) -> None:
    (place.folder / "prompted.py").write_text(
        "def agent(message, instruction='say nothing'):\n"
        "    return message if instruction == 'repeat' else 'nothing'\n\nagent.tells_cost = True\n"
    )
    for name, text in (("p1", "say nothing"), ("p2", "repeat")):
        (place.folder / f"{name}.md").write_text(text)
    before = (place.folder / "prompted.py").read_text()
    evalset = place.evalset("shop", ANSWERS)

    result = place.run(
        *("eval", "prompted:agent", evalset, "--criterion", "response_match_score=0.8"),
        *("--vary", "instruction=@p1.md,@p2.md", "--n", 2, "--json"),
    )

    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert [(each["variant"], each["pass_rate"]) for each in found["rates"]] == [("p1", 0.0), ("p2", 1.0)]
    assert (found["best"], found["differences"][0]["word"]) == ("p2", "better")
    assert (place.folder / "prompted.py").read_text() == before


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ("instruction=@none.md,b", "none.md"),
        ("instruction=@empty.md,b", "the file is empty"),
        ("instruction=a,b", "takes no instruction"),
        ("instruction@planner=a,b", "planner"),
        ("temperature@planner=0,1", "only an instruction is of one agent"),
    ],
)
def test_bad_instructions_are_refused(place: CommandFolder, vary: str, words: str) -> None:
    (place.folder / "empty.md").write_text(" \n")

    result = begin(place, "--vary", vary)

    assert isinstance(result.exception, EvaldeskError), result.output
    assert words in str(result.exception)


def test_the_report_of_an_experiment_holds_no_secret(
    place: CommandFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(place, "--vary", "temperature=0,1", "--experiment", "hunter2-hunter2")
    monkeypatch.setenv("SHOP_API_KEY", "hunter2-hunter2")

    report = place.run("experiment", "report", 1)
    place.run("experiment", "report", 1, "-o", tmp_path / "report.md")

    for text in (report.stdout, (tmp_path / "report.md").read_text("utf-8")):
        assert text.startswith("# Experiment 1: [SHOP")
        assert "hunter2" not in text


RIGHT = {"low": 4, "middle": 8, "high": 16}
"""The number of cases that each instruction gets right."""
N_CASES = 16
AGENT_FILE = f"""
RIGHT = {RIGHT!r}

def follows(message, instruction="low"):
    return "right " + message if int(message) < RIGHT[instruction] else "wrong"

follows.tells_cost = True
"""


def test_tables_from_runs_files_and_evaluate_are_equal(place: CommandFolder) -> None:
    (place.folder / "follower.py").write_text(AGENT_FILE)
    agent = "follower:follows"
    path = place.evalset("numbers", {str(at): f"right {at}" for at in range(N_CASES)})
    criterion = ("--criterion", "response_match_score=0.8", "--n", 2)

    result = evaldesk.evaluate(
        agent,
        path,
        criteria={"response_match_score": 0.8},
        variants=[{"instruction": name} for name in RIGHT],
        n=2,
        workspace=place.folder,
        experiment="by Python",
    )
    place.run("eval", agent, path, *criterion, "--vary", "instruction=low,middle,high", "--experiment", "by shell")
    for name in RIGHT:
        place.run("eval", agent, path, *criterion, "--instruction", name, "-o", place.folder / f"{name}.json")
    by_python, by_shell = (_shown(place, number) for number in (1, 2))
    by_runs = _compared(place, 1, 2, 3)
    by_files = _compared(place, *(place.folder / f"{name}.json" for name in RIGHT))

    rows = result.table().to_dict("records")
    of_rows = [_values(row, row["low"], row["high"]) for row in rows]
    assert of_rows == by_runs == by_files
    for name in ("rates", "differences", "pairs", "may_be_best", "best", "luck", "sentence"):
        assert by_python[name] == by_shell[name], name
    assert [each["pass_rate"] for each in by_python["rates"]] == [row["pass_rate"] for row in rows]
    assert [each["family_low"] for each in by_python["differences"]] == [row["family_low"] for row in rows[1:]]
    with opened_desk(str(place.folder)) as desk:
        page = read_experiment_page(desk, 1, {})
        assert [group.rate for group in page.table.groups] == [row["pass_rate"] for row in rows]
        table = read_table_page(desk, TableQuery.of("/table", (1, 2, 3), {}, names_runs=True))
    assert [group.rate for group in table.table.groups] == [row["pass_rate"] for row in rows]
    assert table.panel is not None
    assert [each.words for each in page.panel.variants] == [each.words for each in table.panel.variants]
    assert table.warnings == []


def _shown(place: CommandFolder, number: int) -> Any:
    return json.loads(place.run("experiment", "show", number, "--json").stdout)


def _compared(place: CommandFolder, *names: object) -> list[tuple[object, ...]]:
    runs = json.loads(place.run("compare", *names, "--json").stdout)["runs"]
    return [_values(run, *run["interval"]) for run in runs]


def _values(row: Mapping[str, Any], low: float, high: float) -> tuple[object, ...]:
    """The values of a variant that every door has."""
    values = (row["difference"], row["p"], row["holm_p"])
    numbers = [None if value is None or isnan(value) else value for value in values]
    return (row["pass_rate"], low, high, row["word"], row["may_be_best"], *numbers)
