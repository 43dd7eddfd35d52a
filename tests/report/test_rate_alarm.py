"""The alarm of a pass rate: known evidence, when it rings, and how seldom it rings without a reason."""

from __future__ import annotations

from math import exp, log
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.statistics.rate_alarm import RateAlarm, log_evidence

NINE_OF_TEN = [True] * 9 + [False]


def first_alarm(results: list[bool], bar: float = 0.85, alpha: float = 0.001) -> int | None:
    """The number of results after which the alarm rings first; None where it does not."""
    alarm = RateAlarm(bar, alpha)
    return next((n for n, is_passed in enumerate(results, 1) if alarm.add(is_passed)), None)


# golden/inbox.json ("e_value"), computed by scipy's incomplete beta function.
@pytest.mark.parametrize(
    ("n_passed", "n_failed", "bar", "evidence"),
    [
        (8, 4, 0.9, 3.9852369852369915),
        (3, 3, 0.95, 70.14285714285687),
        (90, 10, 0.9, 0.04755067144629285),
        (80, 20, 0.9, 9.386037398480354),
        (0, 2, 0.9, 37.000000000000014),
        (0, 3, 0.9, 277.7500000000003),
        (0, 0, 0.9, 1.0),
    ],
)
def test_results_have_the_known_evidence(n_passed: int, n_failed: int, bar: float, evidence: float) -> None:
    assert exp(log_evidence(n_passed, n_failed, bar)) == pytest.approx(evidence, rel=1e-10)


@given(st.integers(0, 200), st.integers(0, 200), st.floats(0.02, 0.98))
def test_the_evidence_is_a_fair_bet_at_the_bar(n_passed: int, n_failed: int, bar: float) -> None:
    now = log_evidence(n_passed, n_failed, bar)

    mean = bar * exp(log_evidence(n_passed + 1, n_failed, bar) - now)
    mean += (1 - bar) * exp(log_evidence(n_passed, n_failed + 1, bar) - now)

    assert mean == pytest.approx(1, rel=1e-7)


def test_five_hundred_failures_stay_a_number() -> None:
    # With no pass it is (1 - (1 - bar)^(n + 1)) / ((n + 1) bar (1 - bar)^n).
    assert log_evidence(0, 500, 0.99) == pytest.approx(-500 * log(0.01) - log(501) - log(0.99), rel=1e-12)


# golden/inbox.json ("detector"): bar 0.85, alpha 0.001.
@pytest.mark.parametrize(
    ("results", "at"),
    [
        pytest.param(NINE_OF_TEN * 5 + [False] * 50, 54, id="90 % x 50, then all fail"),
        pytest.param(NINE_OF_TEN * 30, None, id="steady 90 % x 300"),
        pytest.param([True, False] * 100, 20, id="half from the start"),
    ],
)
def test_the_alarm_rings_where_it_is_known(results: list[bool], at: int | None) -> None:
    assert first_alarm(results) == at


def test_a_drop_rings_soon_and_not_before() -> None:
    # golden/inbox.json: 40 series of .90, from 100 on .65; median 33 results later, none before.
    rng, delays = Random(3), []
    for _ in range(40):
        for _ in range(400):  # the series without a drop comes first there
            rng.random()
        results = [rng.random() < 0.9 for _ in range(100)] + [rng.random() < 0.65 for _ in range(300)]
        delays.append((first_alarm(results) or 400) - 100)

    assert sorted(delays)[20] == 33
    assert min(delays) > 0
    assert median(delays) < 40


def test_a_rate_at_the_bar_rings_seldom() -> None:
    rng, alarm, n_alarms = Random(11), RateAlarm(0.85, 0.01), 0
    for _ in range(6_000):
        n_alarms += alarm.add(rng.random() < 0.85)

    assert n_alarms <= 60


def test_the_alarm_starts_again_after_it_rang() -> None:
    alarm = RateAlarm(0.85, 0.001)

    rings = [n for n in range(1, 200) if alarm.add(n % 2 == 1)]

    assert rings[:3] == [20, 40, 60]


def test_the_evidence_rises_to_1_where_it_rings() -> None:
    alarm = RateAlarm(0.85, 0.001)

    shares = []
    for n in range(20):
        alarm.add(n % 2 == 0)
        shares.append(alarm.evidence)

    assert shares[0] < shares[10] < 1 <= shares[19]


@pytest.mark.parametrize(("bar", "alpha"), [(0, 0.1), (1, 0.1), (0.5, 0), (0.5, 1), (float("nan"), 0.1)])
def test_a_bar_that_is_no_chance_is_refused(bar: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        RateAlarm(bar, alpha)
