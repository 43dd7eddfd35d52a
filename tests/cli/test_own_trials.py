"""Cases that name their own number of trials: planned, foretold, played and judged with it, in each door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import CommandFolder
from tests.cli.test_quarantine import play, play_shards

from evaldesk import evaluate
from evaldesk.model import Case
from evaldesk.model.evalset import own_trials

ANSWERS = {"one": "one", "two": "wrong", "three": "three", "four": "four"}


def write(place: CommandFolder, **trials: Any) -> Path:
    """The set `words`, whose cases of these names have their own number of trials."""
    path = place.evalset("words", ANSWERS)
    content = json.loads(path.read_text())
    for case in content["eval_cases"]:
        if case["eval_id"] in trials:
            case["trials"] = trials[case["eval_id"]]
    path.write_text(json.dumps(content))
    return path


def strips(place: CommandFolder, run_id: int) -> list[str]:
    return list(place.store().runs.strips(run_id))


def test_a_case_has_its_own_trials_and_weighs_as_much_as_any_other(place: CommandFolder) -> None:
    answer = play(place, write(place, case_1=5), "--n", "2", "--min-pass-rate", "0.75")

    assert strips(place, 1) == ["ppppp", "ff", "pp", "pp"]
    assert answer["counts"]["n_planned"] == 11
    assert (answer["exit_code"], answer["runs"][0]["pass_rate"]) == (0, 0.75)
    assert (answer["runs"][0]["n_least"], answer["runs"][0]["n_most"]) == (2, 5)


def test_every_case_may_have_its_own_trials_also_a_single_one(place: CommandFolder) -> None:
    path = write(place, case_1=3, case_2=1, case_3=3, case_4=2)

    play(place, path, "--n", "4")
    place.eval(f"{path}:case_1", "--n", "4")

    assert [strips(place, run_id) for run_id in (1, 2)] == [["ppp", "f", "ppp", "pp"], ["ppp"]]


@pytest.mark.parametrize(
    "gates",
    [
        ("--pass-hat", "2=0.5"),
        ("--stop-when-decided", "exact", "--min-pass-rate", "0.7"),
        ("--max-error-rate", "0.1", "--min-scored", "9"),
    ],
    ids=" ".join,
)
def test_gates_are_answered_over_them(place: CommandFolder, gates: tuple[str, ...]) -> None:
    answer = play(place, write(place, case_3=4), "--n", "2", *gates)

    assert answer["outcome"] in ("passed", "failed")
    assert not [gate for gate in answer["gates"] if gate["answer"] == "undecided"]


def test_a_check_foretells_them_and_a_gate_counts_them(place: CommandFolder) -> None:
    path = write(place, case_1=7)

    checked = json.loads(place.eval(path, "--check", "--json").stdout)["runs"][0]
    refused = place.eval(path, "--min-scored", "11")

    assert (checked["n_trials"], checked["n_least"], checked["n_most"]) == (10, 1, 7)
    assert "the run has 4 cases and 10 trials" in str(refused.exception)


def test_a_budget_spreads_its_own(place: CommandFolder) -> None:
    play(place, write(place, case_1=7), "--budget", "8")

    assert list(map(len, strips(place, 1))) == [2, 2, 2, 2]


def test_a_rescoring_has_the_trials_that_were_played(place: CommandFolder) -> None:
    play(place, write(place, case_1=3))

    place.run("run", "rescore", "1", "--config-file-path", place.folder / "test_config.json")

    assert list(map(len, strips(place, 2))) == [3, 1, 1, 1]


def test_shards_have_them_as_the_whole_run(place: CommandFolder) -> None:
    path = write(place, case_1=3, case_4=2)
    whole = play(place, path, "--min-pass-rate", "0.5")

    merged = json.loads(place.run("run", "merge", *play_shards(place, path, "--min-pass-rate", "0.5"), "--json").stdout)

    assert merged["counts"] == whole["counts"]
    assert merged["gates"] == whole["gates"]


def test_the_python_api_plays_them(place: CommandFolder) -> None:
    result = evaluate(
        place.agent, write(place, case_3=4), criteria={"response_match_score": 0.8}, workspace=place.folder
    )

    assert [len(case.trials) for case in result.cases] == [1, 1, 4, 1]


@pytest.mark.parametrize("n", [0, -1, 1_001, 10**30])
def test_a_number_that_cannot_be_is_refused_with_its_case(place: CommandFolder, n: int) -> None:
    result = place.eval(write(place, case_2=n))

    assert f"case 'case_2': trials must be 1 to 1,000, got {n}" in str(result.exception)
    assert result.exit_code != 0


@pytest.mark.parametrize("column", ["3", 2.5, True, None, [3], {"n": 3}], ids=repr)
def test_another_column_of_that_name_is_no_number_of_trials(column: Any) -> None:
    assert own_trials(Case("c", extra={"trials": column})) is None
