"""The sentences of forecasts: no chance reads 0, and each figure says what it rests on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from evaldesk.desk.runs.gates.forecasts import gate_forecasts, history_subject
from evaldesk.model import Gates
from evaldesk.model.forecast import Basis, GateForecast, Range
from evaldesk.model.history import CaseHistory, SetHistory
from evaldesk.wording.forecasts import days_sentence, forecast_sentence, measured_sentence, notes_of, range_words

QUIET = GateForecast(
    "--max-regressions 0",
    "--max-regressions 0",
    "not known yet",
    Range(0.001, 0.0, 0.004),
    Range(0.001, 0.0, 0.004),
    Basis(20, 140, 140, n_runs=7, fewest=7),
)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [(0.0, 0.004, "under 1 %"), (0.0, 0.37, "under 1–37 %"), (0.006, 0.05, "1–5 %"), (0.2, 1.0, "20–100 %")],
)
def test_no_end_of_a_range_reads_zero(low: float, high: float, words: str) -> None:
    assert range_words(Range((low + high) / 2, low, high)) == words


def test_a_gate_that_hardly_fails_does_not_fail_between_0_and_0() -> None:
    assert "this gate fails under 1 % of unchanged builds" in forecast_sentence(QUIET)


@pytest.mark.parametrize(
    ("low", "words"), [(0.0, "this gate fails up to 12 % of"), (0.02, "this gate fails between 2 and 12 % of")]
)
def test_a_range_that_begins_near_0_has_one_end(low: float, words: str) -> None:
    alarm = Range(0.03, low, 0.12)

    assert words in forecast_sentence(replace(QUIET, fails=alarm, false_alarm=alarm))


@pytest.mark.parametrize(
    ("n_runs", "words"),
    [
        (4, "Computed for one day: 5 runs are needed to see whether days differ."),
        (7, "Computed for one day: your 7 runs failed too seldom to tell whether days differ."),
    ],
)
def test_runs_that_all_passed_are_not_called_missing(n_runs: int, words: str) -> None:
    assert days_sentence(replace(QUIET, basis=replace(QUIET.basis, n_runs=n_runs))) == words


@pytest.mark.parametrize(
    ("passed", "words"),
    [(None, "for two runs to come"), ([True] * 10, "against the stored baseline")],
    ids=["to come", "stored"],
)
def test_a_forecast_of_flips_says_which_baseline_it_is_about(passed: list[bool] | None, words: str) -> None:
    history = SetHistory(tuple(CaseHistory(10, 9) for _ in range(10)))
    subject = history_subject(history, [3] * 10, 1.0, passed)
    assert subject

    (flips,) = gate_forecasts(Gates(max_regressions=0), subject, is_searched=False)
    (level,) = gate_forecasts(Gates(min_pass_rate=0.8), subject, is_searched=False)

    assert f"These figures are {words}." in notes_of(flips)
    assert "These figures are" not in " ".join(notes_of(level))


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        (
            Gates(max_regressions=0, regression_rule="confirm"),
            "Not measured: stored runs contain no fresh trials of this rule.",
        ),
        (Gates(min_pass_rate=0.9), ""),
    ],
    ids=["confirm", "a level"],
)
def test_a_rule_that_cannot_be_measured_says_so(gates: Gates, words: str) -> None:
    assert measured_sentence(None, gates) == words


def test_fewer_fresh_trials_are_foreseen_where_only_suspects_are_played_again() -> None:
    history = SetHistory(tuple(CaseHistory(10, 9) for _ in range(10)))
    subject = history_subject(history, [3] * 10, 1.0)
    assert subject

    none, some = (
        gate_forecasts(Gates(max_regressions=most, regression_rule="confirm"), subject, is_searched=False)[0].n_more
        for most in (0, 2)
    )

    assert 0 < some < none
