"""The answer and the sentence of each gate, at its threshold and beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from evaldesk.desk.runs.gates.conclusion import OF_THE_RUN, CaseNumbers, Ending, RunNumbers, Spent, conclude
from evaldesk.model import Counts, Gates
from evaldesk.model.comparison import PlayedCase, RunChange
from evaldesk.model.conclusion import Stop
from evaldesk.model.evalset import CaseKey
from evaldesk.statistics.case_comparison import compare_cases

STOPPED = Ending("stopped")
HALF, ONE = "too close to 0.5 to be sure, add cases", "too few trials for a rate"


def numbers(letters: str) -> RunNumbers:
    """A run with a case for each word; a point is a trial that was not played, since the run was stopped."""
    cases = [
        CaseNumbers(f"c{at}", Counts(len(each), each.count("p"), each.count("f"), each.count("e"), each.count("u")))
        for at, each in enumerate(letters.split())
    ]
    return RunNumbers.of_cases(cases, costs=Spent(0.5), endings=[STOPPED] if "." in letters else [])


@pytest.mark.parametrize(
    ("letters", "gates", "answer", "sentence"),
    [
        ("pf", {"min_pass_rate": 0.5}, "held", f"pass rate 0.5 is at least 0.5: 1 of 2 passed; {ONE}; {HALF}"),
        ("pf", {"min_pass_rate": 0.51}, "failed", "pass rate 0.5 is below 0.51"),
        ("pf", {"min_pass_rate": 0.0}, "held", f"pass rate 0.5 is at least 0: 1 of 2 passed; {ONE}"),
        ("ff", {"min_pass_rate": 0.0}, "held", f"pass rate 0 is at least 0: 0 of 2 passed; {ONE}"),
        (
            "uu",
            {"min_pass_rate": 0.5},
            "undecided",
            "no trial was scored (2 unscored), so no pass rate is at least 0.5",
        ),
        ("p" * 50, {"min_pass_rate": 0.9}, "held", "pass rate 1 is at least 0.9: 50 of 50 passed; 95 % CI 93–100 %"),
        ("ppp.", {"min_pass_rate": 0.75}, "held", "pass rate 1 is at least 0.75"),
        ("ppf.", {"min_pass_rate": 0.75}, "undecided", "pass rate 0.667 is below 0.75"),
        ("pff.", {"min_pass_rate": 0.75}, "failed", "pass rate 0.333 is below 0.75"),
        ("pff.", {"min_pass_rate": 0.5}, "undecided", "pass rate 0.333 is below 0.5"),
        ("pp.. ff", {"min_pass_rate": 0.5}, "undecided", "pass rate 0.5 is at least 0.5"),
        ("pppp pf", {"min_pass_rate": 0.75}, "held", "pass rate 0.75 is at least 0.75: 5 of 6 passed"),
        ("pppp pf", {"min_pass_rate": 0.76}, "failed", "pass rate 0.75 is below 0.76: 5 of 6 passed"),
        ("pf", {"min_pass_rate": 0.5, "undecided": "fail"}, "undecided", "pass rate 0.5 is at least 0.5"),
        ("ff", {"min_pass_rate": 0.5, "undecided": "pass"}, "failed", "pass rate 0 is below 0.5"),
        ("ff", {"min_pass_rate": 0.5, "undecided": "fail"}, "undecided", "pass rate 0 is below 0.5"),
        ("pf.", {"min_pass_rate": 0.3, "undecided": "fail"}, "failed", "pass rate 0.5 is at least 0.3"),
        ("pp", {"min_pass_rate": 1.0, "undecided": "fail"}, "held", "pass rate 1 is at least 1"),
        ("ff", {"min_pass_rate": 0.0, "undecided": "fail"}, "held", "pass rate 0 is at least 0"),
        ("pp pf", {"min_case_pass_rate": 0.5}, "held", "each of 2 cases passed at least 0.5 of its trials"),
        ("pp", {"min_case_pass_rate": 1.0}, "held", "the one case passed at least 1 of its trials"),
        (
            "pp pf",
            {"min_case_pass_rate": 0.6},
            "failed",
            "1 of 2 cases passed less than 0.6 of its trials: c1 (1 of 2)",
        ),
        ("ff pf uu", {"min_case_pass_rate": 0.6}, "failed", "3 of 3 cases passed less than 0.6 of their trials: "),
        (
            "pp uu",
            {"min_case_pass_rate": 0.5},
            "undecided",
            "1 of 2 cases passed less than 0.5 of its trials: c1 (no scor",
        ),
        ("pp p.", {"min_case_pass_rate": 0.5}, "held", "each of 2 cases passed at least 0.5 of its trials (1 not"),
        ("pf pp", {"pass_at": ((2, 1.0),)}, "held", "pass@2 1 is at least 1; 95 % CI 0.34–1.00"),
        ("pf pp", {"pass_hat": ((2, 0.5),)}, "held", "pass^2 0.5 is at least 0.5; 95 % CI 0.00–1.00"),
        ("pf pp", {"pass_hat": ((2, 0.6),)}, "failed", "pass^2 0.5 is below 0.6; 95 % CI 0.00–1.00"),
        ("pf pp", {"pass_hat": ((2, 0.6),), "undecided": "fail"}, "undecided", "pass^2 0.5 is below 0.6"),
        ("p f", {"pass_hat": ((2, 0.5),)}, "undecided", "pass^2 is undefined: no case has 2 scored trials"),
        ("pf pe", {"pass_at": ((2, 0.5),)}, "held", "pass@2 is undefined: only 1 of 2 cases has 2 scored trials"),
        (
            "pf pp pe",
            {"pass_hat": ((2, 0.5),)},
            "undecided",
            "pass^2 0.5 is at least 0.5; 95 % CI 0.00–1.00; over the 2 of 3",
        ),
        ("pf pp p.", {"pass_hat": ((2, 0.5),)}, "undecided", "pass^2 0.5 is at least 0.5"),
        ("pp", {"max_cost": 0.5}, "held", "the run cost $0.50, within $0.5"),
        ("pp", {"max_cost": 0.4}, "failed", "the run cost $0.50, more than $0.4"),
        ("p.", {"max_cost": 0.5}, "undecided", "the run cost $0.50, within $0.5; 1 of 2 trials was not played"),
        (
            "p..",
            {"max_cost": 0.4},
            "failed",
            "the run cost $0.50, more than $0.4; it was stopped, and 2 of 3 trials were",
        ),
        ("ppf", {"min_scored": 3}, "held", "3 of 3 trials scored, 3 must be"),
        ("ppe", {"min_scored": 3}, "failed", "2 of 3 trials scored, 3 must be (1 errored)"),
        ("pp.", {"min_scored": 3}, "undecided", "2 of 3 trials scored, 3 must be (1 not played)"),
        ("pe.", {"min_scored": 3}, "failed", "1 of 3 trials scored, 3 must be (1 errored, 1 not played)"),
        ("ppe", {"max_error_rate": 0.34}, "held", "1 of 3 trials errored (33 %), within the tolerated 0.34"),
        ("ppe", {"max_error_rate": 0.33}, "failed", "1 of 3 trials errored (33 %), more than the tolerated 0.33"),
        ("pe..", {"max_error_rate": 0.5}, "held", "1 of 2 trials errored (50 %), within the tolerated 0.5"),
        ("ppu", {"max_unscored_rate": 0.34}, "held", "1 of 3 trials unscored (33 %), within the tolerated 0.34"),
        ("ppu", {"max_unscored_rate": 0.3}, "failed", "1 of 3 trials unscored (33 %), more than the tolerated 0.3"),
        ("pp", {"max_error_rate": 0.1}, "held", "0 of 2 trials errored (0 %), within the tolerated 0.1"),
    ],
)
def test_a_gate_answers_at_its_threshold(letters: str, gates: dict[str, Any], answer: str, sentence: str) -> None:
    name = "--" + next(iter(gates)).replace("_", "-")

    (found,) = (each for each in conclude(Gates(**gates), numbers(letters)).gates if each.name.startswith(name))

    assert found.answer == answer
    assert found.sentence.startswith(sentence)


@pytest.mark.parametrize(
    ("letters", "least", "is_close"), [("ff", 0.0, False), ("pf", 0.0, False), ("pf", 0.1, True), ("pp", 1.0, True)]
)
def test_a_rate_is_too_close_where_its_threshold_lies_inside_the_interval(
    letters: str, least: float, is_close: bool
) -> None:
    found = conclude(Gates(min_pass_rate=least), numbers(letters)).gates[0]

    assert found.sentence.endswith("to be sure, add cases") == is_close


@pytest.mark.parametrize(
    ("letters", "gates", "names"),
    [
        ("pp pf ff uu", {}, ("c1", "c2")),
        ("pp pf ff uu", {"min_case_pass_rate": 0.5}, ("c2", "c3")),
        ("pp", {}, ()),
    ],
)
def test_a_gate_names_the_cases_that_did_not_reach_it(
    letters: str, gates: dict[str, Any], names: tuple[str, ...]
) -> None:
    assert conclude(Gates(**gates), numbers(letters)).gates[0].names == names


@pytest.mark.parametrize(
    ("letters", "share", "is_passed"),
    [("ppppf", 0.8, True), ("pppff", 0.8, False), ("ppppe", 1.0, True), ("e", 0.0, None)],
)
def test_a_case_passes_by_the_share_of_its_scored_trials(letters: str, share: float, is_passed: bool | None) -> None:
    (case,) = numbers(letters).cases

    assert replace(case, pass_threshold=share).is_passed is is_passed


@pytest.mark.parametrize(
    ("letters", "gates", "outcome", "reasons"),
    [
        ("pp", {}, "passed", ()),
        ("pf", {}, "failed", ("every trial must pass: 1 of 2 trials passed",)),
        ("pu", {"max_unscored_rate": 0.5}, "passed", ()),
        ("pu", {}, "undecided", ("--max-unscored-rate: 1 of 2 trials unscored (50 %), more than the tolerated 0",)),
        (
            "pu",
            {"unscored_are_failures": True, "max_unscored_rate": 1.0},
            "failed",
            ("every trial must pass: 1 of 2 ",),
        ),
        ("uu", {"max_unscored_rate": 1.0}, "undecided", ("every trial must pass: 0 of 2 trials passed (2 unscored)",)),
        ("uu", {"all_must_pass": False, "max_unscored_rate": 1.0}, "undecided", ("no trial was scored",)),
        ("ff", {"all_must_pass": False}, "passed", ()),
        ("", {"all_must_pass": False}, "undecided", ("no trial was planned",)),
        ("pe", {"max_error_rate": 0.5}, "passed", ()),
        ("fe", {}, "failed", ("every trial must pass: 0 of 2 trials passed (1 errored)", "--max-error-rate: 1 of 2 ")),
        ("pe", {}, "undecided", ("--max-error-rate: 1 of 2 trials errored", "every trial must pass: 1 of 2 trials")),
        ("fe", {"max_error_rate": 0.5}, "failed", ("every trial must pass: 0 of 2 trials passed (1 errored)",)),
        (
            "p.",
            {},
            "interrupted",
            ("1 of 2 trials was not played", "every trial must pass: 1 of 2 trials passed (1 no"),
        ),
        ("pf", {"min_pass_rate": 0.6, "undecided": "neutral"}, "neutral", ("--min-pass-rate: pass rate 0.5 is below",)),
        ("pf", {"min_pass_rate": 0.6, "undecided": "pass"}, "passed", ()),
        ("pf", {"min_pass_rate": 0.4, "undecided": "fail"}, "failed", ("--min-pass-rate: pass rate 0.5 is at least",)),
        ("pf", {"min_pass_rate": 0.6, "undecided": "neutral", "max_cost": 0.4}, "failed", ("--max-cost", "--min-pass")),
    ],
)
def test_the_outcome_of_a_run_and_its_reasons(
    letters: str, gates: dict[str, Any], outcome: str, reasons: tuple[str, ...]
) -> None:
    found = conclude(Gates(**gates), numbers(letters))

    assert found.outcome == outcome
    assert len(found.reasons) == len(reasons)
    assert all(reason.startswith(words) for reason, words in zip(found.reasons, reasons, strict=True))


@pytest.mark.parametrize(
    ("max_cost", "reason", "is_interruption"),
    [(0.4, "the limit of cost", False), (0.4, "", True), (0.6, "the limit of cost", True), (None, "the desk", True)],
)
def test_a_stopped_run_is_interrupted_but_where_it_reached_its_limit_of_cost(
    max_cost: float | None, reason: str, is_interruption: bool
) -> None:
    run = replace(numbers("pp."), endings=(Ending("stopped", reason),))  # it has cost 0.5

    assert (conclude(Gates(max_cost=max_cost), run).outcome == "interrupted") == is_interruption


def test_trials_that_were_not_played_leave_a_run_open_unless_it_was_decided_before_them() -> None:
    run, gates = replace(numbers("pp."), endings=()), Gates(min_pass_rate=0.5)
    stop = Stop("exact", 1, 2, conclude(gates, run).gates)

    assert conclude(gates, run).outcome == "undecided"
    assert conclude(gates, replace(run, endings=(Ending("finished", stop=stop),))).outcome == "passed"


def test_failures_are_not_greyed_by_errors() -> None:
    """40 failed and 8 errored of 140: no outcome of the 8 makes every trial pass."""
    run = numbers(" ".join(["ppfff"] * 13 + ["ppppf"] + ["peppp"] * 8 + ["ppppp"] * 6))

    found = conclude(Gates(), run)

    assert (run.counts.failed, run.counts.errored, found.outcome, found.exit_code) == (40, 8, "failed", 1)
    assert "92 of 140 trials passed (8 errored)" in found.reason


MISSING = {"errored": "e", "not played": "."}
JUDGED: dict[str, dict[str, Any]] = {
    "every trial must pass": {},
    "--min-pass-rate": {"min_pass_rate": 0.6},
    "--min-pass-rate --undecided fail": {"min_pass_rate": 0.6, "undecided": "fail"},
    "--min-pass-rate --undecided neutral": {"min_pass_rate": 0.9, "undecided": "neutral"},
    "--min-case-pass-rate": {"min_case_pass_rate": 0.5},
    "--pass-at": {"pass_at": ((2, 0.7),)},
    "--pass-hat": {"pass_hat": ((2, 0.4),)},
    "--max-regressions": {"max_regressions": 0, "baseline": "run 1"},
    "--max-regressions 1": {"max_regressions": 1, "baseline": "run 1"},
    "--margin": {"margin": 0.2, "baseline": "run 1"},
}
"""A request for each gate on verdicts, by its name."""


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("name", JUDGED)
def test_a_gate_is_decided_where_no_verdict_of_the_missing_trials_changes_it(name: str, missing: str) -> None:
    """All ways in which the trials without a verdict can end give the answer, or else it is open."""
    gates, letter, draw = Gates(**JUDGED[name]), MISSING[missing], Random(7)
    answers = Counter[str]()
    for _ in range(60):
        n = draw.choice((2, 3))
        n_cases, n_missing = (7, 0.5) if name == "--margin" else (3, 2)
        rates = (3, draw.choice((1, 4, 20)), n_missing)
        letters = ["".join(draw.choices(f"pf{letter}", rates, k=n)) for _ in range(n_cases)]
        if not 0 < "".join(letters).count(letter) <= 6:
            continue

        (found,) = (each for each in conclude(gates, *compared(letters, gates)).gates if each.name not in OF_THE_RUN)

        answers[found.answer] += 1
        ends = {judged(filled, gates) for filled in fillings(letters, letter)}
        wanted = "failed" if ends == {"failed"} else "held" if ends == {"held"} else "undecided"
        assert found.answer in (wanted, "undecided"), letters
        assert found.answer == wanted or gates.undecided or name == "--margin", letters
    assert (answers["failed"] and len(answers) > 1) or gates.undecided


def fillings(letters: list[str], missing: str) -> Iterator[list[str]]:
    """The run with each way in which its missing trials can end."""
    whole = " ".join(letters)
    for ends in product("pf", repeat=whole.count(missing)):
        left = iter(ends)
        yield "".join(next(left) if letter == missing else letter for letter in whole).split()


def compared(letters: list[str], gates: Gates) -> tuple[RunNumbers, RunChange | None]:
    """The numbers of the run, and its change against a run in which every trial passed."""
    before, now = (
        [PlayedCase(CaseKey("set", f"c{at}"), each) for at, each in enumerate(side)]
        for side in (["ppp"] * len(letters), letters)
    )
    return numbers(" ".join(letters)), compare_cases("run 1", before, now) if gates.compares else None


def judged(letters: list[str], gates: Gates) -> str:
    (found,) = conclude(gates, *compared(letters, gates)).gates
    return "failed" if found.is_failed else found.answer
