"""Intervals at any stop: for exactly these cases, and for cases like these. (reference/forecasts.md 7)"""

from __future__ import annotations

from math import sqrt
from random import Random

import pytest

from evaldesk.desk.runs.gates.conclusion import CaseNumbers, Ending, RunNumbers, conclude
from evaldesk.model import Counts, Gates
from evaldesk.model.conclusion import Interval, Stop
from evaldesk.statistics.anytime import anytime_interval
from evaldesk.statistics.intervals import like_these, rate_interval
from evaldesk.wording.words import any_stop_words

STOP = Stop("likely", 5, 100, ())


def stopped(passed: list[int], n: int = 5) -> RunNumbers:
    """A run of a case for each number of passes, of `n` trials each, that stopped when it was decided."""
    cases = [CaseNumbers(f"c{at}", Counts(n, c, n - c)) for at, c in enumerate(passed)]
    return RunNumbers.of_cases(cases, endings=[Ending("finished", stop=STOP)])


def whole(passed: list[int], n: int = 5) -> RunNumbers:
    return RunNumbers.of_cases(CaseNumbers(f"c{at}", Counts(n, c, n - c)) for at, c in enumerate(passed))


def test_both_doubts_add_up_as_squares() -> None:
    found = like_these(0.9, Interval(0.8, 0.96), Interval(0.7, 0.98))

    assert found.low == pytest.approx(0.9 - sqrt(0.1**2 + 0.2**2))
    assert found.high == pytest.approx(min(1.0, 0.9 + sqrt(0.06**2 + 0.08**2)))


def test_a_stop_is_never_narrower_than_the_whole_run() -> None:
    chance = Random(5)
    for _ in range(200):
        passed = [chance.choice((0, 3, 5, 5, 5)) for _ in range(chance.randint(10, 30))]

        early, full = stopped(passed).interval, whole(passed).interval

        assert early is not None
        assert full is not None
        assert early.low <= full.low + 1e-12
        assert early.high >= full.high - 1e-12


def test_gates_are_decided_by_these_cases_and_the_headline_is_about_cases_like_them() -> None:
    run = stopped([5] * 16 + [2] * 4)

    assert run.gate_interval == anytime_interval(88, 100)
    clustered = rate_interval([(5, 5, 16), (5, 2, 4)])
    assert clustered is not None
    assert run.interval == like_these(0.88, anytime_interval(88, 100), clustered)
    gate = conclude(Gates(min_pass_rate=0.7, undecided="neutral"), run).gates[0]
    assert gate.answer == "held"
    assert run.any_stop == "95 % CI: for these 20 cases 75–96 %; for cases like them 70–100 %, at any stop"


def test_few_cases_cannot_speak_for_others() -> None:
    run = stopped([5] * 5)

    assert run.interval is None
    assert run.any_stop.endswith("at any stop; 5 cases cannot speak for others")
    assert whole([5] * 5).any_stop == ""
    assert any_stop_words(0, 0, None, None) == ""


@pytest.mark.parametrize("n_cases", [5, 20])
def test_no_point_of_pass_at_k_shows_an_interval_that_the_stopped_run_withholds(n_cases: int) -> None:
    """pass@1 and pass^1 are the pass rate, so they have its one interval; larger k have none that holds at any stop."""
    run = stopped([5] * (n_cases - 2) + [2, 3])

    first, *others = run.curve

    assert (first.at_interval, first.hat_interval) == (run.interval, run.interval)
    assert (run.interval is None) == (n_cases < 10)
    assert {(each.at_interval, each.hat_interval) for each in (*others, run.point_at(3))} == {(None, None)}
    gate = conclude(Gates(pass_hat=((3, 0.5),)), run).gates[0]
    assert "CI" not in gate.sentence


def test_a_whole_run_has_an_interval_at_each_k() -> None:
    assert all(point.at_interval and point.hat_interval for point in whole([5] * 18 + [2, 3]).curve)
