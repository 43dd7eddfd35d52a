"""Every known value of a forecast is that of our code, and the grids agree with beta functions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.special import betaln
from tests.golden_values import golden

from evaldesk.model.conclusion import Interval
from evaldesk.model.forecast import Range
from evaldesk.statistics.anytime import anytime_interval
from evaldesk.statistics.history.build_tests import (
    case_chances,
    confirmed_verdict,
    likely_verdict,
    looks_low,
    passes_of,
)
from evaldesk.statistics.history.days import day_shifts
from evaldesk.statistics.history.draws import drawn_rates
from evaldesk.statistics.history.gates import meets_level, rate_fails, regressions_fail
from evaldesk.statistics.history.posterior import Posterior, posterior, rate_grid
from evaldesk.statistics.history.power import detectable, rates_of
from evaldesk.statistics.history.proposals import proposed_likely
from evaldesk.statistics.history.sizes import cases_to_show
from evaldesk.statistics.history.sums import pass_chances
from evaldesk.statistics.history.unchanged_pairs import unchanged_pairs
from evaldesk.statistics.intervals import like_these

GOLDEN = golden("forecasts")
EXACT, DRAWN = GOLDEN["tolerance"]["exact"], GOLDEN["tolerance"]["drawn"]


def rows(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("row", GOLDEN[name], ids=[f"{name} {at}" for at in range(len(GOLDEN[name]))])


def of(row: Any) -> Posterior:
    return posterior(tuple(kind) for kind in row["kinds"])


def is_range(found: Range, known: Any) -> bool:
    ends = (known["mean"], known["low"], known["high"])
    return (found.mean, found.low, found.high) == pytest.approx(ends, abs=DRAWN)


@rows("posterior")
def test_known_posteriors_of_cases(row: Any) -> None:
    cases = of(row)

    assert cases.weights @ cases.mu == pytest.approx(row["mu"], abs=EXACT)
    assert cases.weights @ cases.rho == pytest.approx(row["rho"], abs=EXACT)
    assert cases.case_means == pytest.approx(row["case_mean"], abs=EXACT)
    above = cases.of_kinds[:, rate_grid() > 0.99].sum(axis=1)
    assert above == pytest.approx(row["case_chance_above_0.99"], abs=EXACT)


@pytest.mark.parametrize("kinds", [[(3, 3, 20)], [(5, 0, 2), (5, 5, 18)], [(2, 1, 4), (2, 2, 16)]], ids=str)
def test_the_grids_agree_with_beta_functions(kinds: list[tuple[int, int, int]]) -> None:
    mu, rho = ((np.arange(n) + 0.5) / n for n in (1_000, 200))
    k = (1 - rho) / rho
    a, b = np.multiply.outer(mu, k), np.multiply.outer(1 - mu, k)
    logs = sum(times * (betaln(a + c, b + n - c) - betaln(a, b)) for n, c, times in kinds)
    weights = np.exp(logs - logs.max())
    means = [np.sum(weights * (a + c) / (a + b + n)) / weights.sum() for n, c, _ in kinds]

    assert posterior(kinds).case_means == pytest.approx(means, abs=0.003)


@rows("case_tail")
def test_known_chances_of_few_passes_of_a_case(row: Any) -> None:
    cases = of(row)

    for of_kind, known in zip(cases.of_kinds, row["at_most"], strict=True):
        assert of_kind @ pass_chances(row["n"], rate_grid()).cumsum(axis=1) == pytest.approx(known, abs=EXACT)


@rows("suite")
def test_known_chances_of_few_passes_of_a_suite(row: Any) -> None:
    cases, build = of(row), Counter({(n, c, row["n"]): times for n, c, times in row["kinds"]})

    found = [passes_of(cases, build).at_most(t) for t in row["t"]]

    assert found == pytest.approx(row["at_most"], abs=EXACT)
    assert passes_of(cases, build).bar(0.02) == row["bar"]


@rows("pairs")
def test_known_false_alarms_of_regressions_between_two_runs(row: Any) -> None:
    draws = drawn_rates(of(row))

    found = Range.of(regressions_fail(draws, [row["n"]] * draws.n_cases, row["threshold"], row["allowed"]))

    assert is_range(found, row)
    assert found.standing() == row["known"]


@rows("baseline")
def test_known_false_alarms_of_regressions_against_a_stored_baseline(row: Any) -> None:
    draws = drawn_rates(of(row))
    passed = [
        at < n_passed
        for (*_, times), n_passed in zip(row["kinds"], row["passed_cases_of_kind"], strict=True)
        for at in range(times)
    ]

    chances = regressions_fail(
        draws, [row["n"]] * draws.n_cases, row["threshold"], row["allowed"], passed_before=passed
    )

    assert is_range(Range.of(chances), row)


@rows("level")
def test_known_false_alarms_of_a_bar_on_the_pass_rate(row: Any) -> None:
    draws = drawn_rates(of(row))

    fails = rate_fails(draws, [row["n"]] * draws.n_cases, row["bar"])
    meets = meets_level(draws, lambda rates: rates, row["bar"])

    assert is_range(Range.of(fails), row["fails"])
    assert 1 - meets.mean() == pytest.approx(row["below"], abs=DRAWN)
    if row["false_alarm"]:
        assert is_range(Range.of(fails[meets]), row["false_alarm"])


@rows("propose")
def test_known_proposals(row: Any) -> None:
    found, known = proposed_likely(drawn_rates(of(row)), drop=row["drop"]), row["found"]

    assert (found is None) == (known is None)
    if found:
        assert (found.n, found.bar) == (known["n"], known["bar"])
        assert is_range(found.finds, known["finds"])
        assert is_range(found.fails, known["fails"])


@rows("verdict")
def test_known_verdicts_of_a_build(row: Any) -> None:
    history, now = ([tuple(case) for case in row[name]] for name in ("history", "now"))
    if row["rule"] == "likely":
        found = likely_verdict(history, now)
    else:
        suspects = [int(place) for place in row["suspects_fresh"]]
        fresh = [(5, row["suspects_fresh"][str(at)]) if at in suspects else (0, 0) for at in range(len(now))]
        assert looks_low(history, now) == row["looks_low"]
        fresh = [(5, again) for again in row["again"]] if row["looks_low"] else fresh
        found = confirmed_verdict(history, now, suspects, fresh)

    assert found.suite_chance == pytest.approx(row["suite_p"], abs=EXACT)
    assert found.case_chances == pytest.approx(row["case_p"], abs=EXACT)
    assert (found.is_suite_worse, list(found.worse_cases)) == (row["suite_worse"], row["cases_worse"])
    assert (found.is_suite_worse or bool(found.worse_cases)) == row["fails"]


def test_a_case_without_a_trial_now_is_not_worse() -> None:
    assert case_chances([(5, 5), (5, 4)], [(0, 0), (3, 3)]) == (1.0, 1.0)


@rows("day")
def test_known_shifts_of_days_and_their_bars(row: Any) -> None:
    runs = [[tuple(case) for case in run] for run in row["runs"]]
    totals = Counter((sum(n for n, _ in case), sum(passed for _, passed in case)) for case in zip(*runs, strict=True))
    cases = posterior((n, c, times) for (n, c), times in sorted(totals.items()))

    days = day_shifts(runs)

    assert days.weights == pytest.approx(tuple(row["sigma_weights"] or ()), abs=EXACT)
    assert days.sigma == pytest.approx(row["sigma_mean"] or 0, abs=EXACT)
    assert sum(chance for _, chance in days.coarse) == pytest.approx(1)
    for n, bars in row["bars_same_day_and_with_days"].items():
        build = Counter({(*total, int(n)): times for total, times in totals.items()})
        assert [passes_of(cases, build).bar(0.02), passes_of(cases, build, days).bar(0.02)] == bars


@rows("anytime")
def test_known_intervals_at_any_stop(row: Any) -> None:
    these = anytime_interval(row["passed"], row["scored"])
    found = like_these(row["passed"] / row["scored"], these, Interval(*row["clustered_now"]))

    assert (these.low, these.high) == pytest.approx(row["these_cases"], abs=EXACT)
    assert (found.low, found.high) == pytest.approx(row["cases_like_these"], abs=EXACT)


@pytest.mark.parametrize("row", [row for row in GOLDEN["sizes"] if "kinds" in row])
def test_known_variances_of_a_trial(row: Any) -> None:
    cases = of(row)

    assert cases.trial_variance() == pytest.approx(row["v_before"], abs=EXACT)
    assert cases.trial_variance(row["drop"]) == pytest.approx(row["v_after"], abs=EXACT)


@pytest.mark.parametrize(
    "row", [row for row in GOLDEN["sizes"] if "kinds" in row and row["spread"] == 0 and row["cases_needed"] >= 30]
)
def test_the_detectable_loss_of_30_cases_and_more_is_that_of_the_known_numbers(row: Any) -> None:
    loss = detectable(row["cases_needed"], row["n"], rates_of(of(row)), 1).loss

    assert loss == pytest.approx(row["drop"], abs=0.01)


@pytest.mark.parametrize(
    "row", [row for row in GOLDEN["sizes"] if "kinds" in row and row["spread"] == 0 and row["cases_needed"] < 30]
)
def test_fewer_cases_show_a_larger_loss_than_the_normal_distribution_says(row: Any) -> None:
    loss = detectable(row["cases_needed"], row["n"], rates_of(of(row)), 1).loss

    assert loss is None or loss > row["drop"]


@rows("more_cases")
def test_known_numbers_of_more_cases(row: Any) -> None:
    assert cases_to_show(row["n_cases"], row["difference"], row["error"]) == row["more"]


@rows("aa")
def test_known_intervals_of_measured_pairs(row: Any) -> None:
    found = unchanged_pairs(row["runs"], row["failing_ordered_pairs"])

    assert found.interval is not None
    assert found.share == pytest.approx(row["share"], abs=EXACT)
    assert (found.interval.low, found.interval.high) == pytest.approx(row["interval"], abs=EXACT)
