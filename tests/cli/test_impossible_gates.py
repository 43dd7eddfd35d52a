"""A gate that can give only one answer is refused before anything is played, in words that say what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from evaldesk.errors import UsageError

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

SAYS = {"one": "one", "two": "two"}


def n_runs(place: CommandFolder) -> int:
    with place.store() as store:
        return len(store.runs.list())


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ["--min-scored", "3"],
            "--min-scored 3 can never hold: the run has 2 cases and 2 trials; say --min-scored 2 or less, or raise --n",
        ),
        (
            ["--baseline", "1", "--max-regressions", "2"],
            "--max-regressions 2 can never fail: the run has 2 cases and 2 trials; say --max-regressions 1 or less",
        ),
        (
            ["--baseline", "1", "--max-regressions", "0", "--regression-rule", "likely"],
            "--regression-rule likely can never fail: after 2 trials of 2 cases in the baseline, so few trials could "
            "all fail by chance; say --n 2 or more, or compare with a run of more trials",
        ),
    ],
    ids=["scored", "regressions", "likely"],
)
@pytest.mark.parametrize("check", [[], ["--check"]], ids=["played", "checked"])
def test_a_gate_with_only_one_answer_is_refused(
    place: CommandFolder, asked: list[str], said: str, check: list[str]
) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)

    result = place.eval(path, *asked, *check)

    assert isinstance(result.exception, UsageError)
    assert said == str(result.exception)
    assert n_runs(place) == 1


@pytest.mark.parametrize(
    "asked",
    [
        ["--min-scored", "2"],
        ["--min-scored", "4", "--n", "2"],
        ["--baseline", "1", "--max-regressions", "1"],
    ],
    ids=" ".join,
)
def test_a_gate_with_two_answers_is_played(place: CommandFolder, asked: list[str]) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path)

    result = place.eval(path, *asked)

    assert result.exit_code == 0, result.output
    assert n_runs(place) == 2


def test_the_trials_of_all_eval_sets_of_a_command_count_together(place: CommandFolder) -> None:
    alpha, beta = place.evalset("alpha", SAYS), place.evalset("beta", SAYS)

    result = place.eval(alpha, beta, "--min-scored", "4")

    assert result.exit_code == 0, result.output


def test_the_likely_rule_is_played_where_the_baseline_has_trials_enough(place: CommandFolder) -> None:
    path = place.evalset("first", SAYS)
    place.eval(path, "--n", 4)

    result = place.eval(path, "--n", 4, "--baseline", "1", "--regression-rule", "likely")

    assert "can never fail" not in result.output
    assert n_runs(place) == 2


def test_a_baseline_in_which_nothing_passed_is_not_called_too_small(
    place: CommandFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.evalset("first", SAYS)
    monkeypatch.setenv("ECHO_WRONG", "one,two")
    place.eval(path, "--n", 4)

    result = place.eval(path, "--n", 4, "--baseline", "1", "--regression-rule", "likely")

    assert "can never fail" not in result.output
    assert n_runs(place) == 2
