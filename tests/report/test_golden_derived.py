"""The golden values follow from their definitions, by enumeration and in exact fractions, without any code of ours."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product
from typing import Any

import pytest
from tests.golden_values import golden

DECISIONS, MODES, PASSK = golden("decisions"), golden("modes"), golden("passk")
Row = dict[str, Any]
SUITE = [(10, 10)] * 12 + [(10, 9)] * 4 + [(10, 8)] * 2 + [(10, 5), (10, 0)]


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def n_needed(n: int, threshold: float) -> int:
    return math.ceil(n * threshold - 1e-9)


def at_least(n: int, m: int, p: float) -> float:
    return sum(math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(m, n + 1))


def regression(n: int, c: int, m: int, threshold: float) -> Fraction:
    """The share of all disjoint draws of m and m of n trials, c passed, the first passing and the second not."""
    trials = [1] * c + [0] * (n - c)
    hits = total = 0
    for first in combinations(range(n), m):
        rest = [each for each in range(n) if each not in first]
        if sum(trials[each] for each in first) < n_needed(m, threshold):
            total += math.comb(n - m, m)
            continue
        for second in combinations(rest, m):
            total += 1
            hits += sum(trials[each] for each in second) < n_needed(m, threshold)
    return Fraction(hits, total)


def test_pass_at_k_counts_the_draws_without_a_pass() -> None:
    for n, c, k, value, _, fraction in [*PASSK["table"], *PASSK["huge"]]:
        exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))

        assert value == pytest.approx(float(exact), rel=PASSK["recommended_tolerance"])
        assert fraction is None or Fraction(fraction) == exact


def test_a_case_holds_as_often_as_its_binomial_says() -> None:
    for row in DECISIONS["case_rule"]:
        assert row["need"] == n_needed(row["n"], row["threshold"])
        assert row["pass_"] == near(at_least(row["n"], row["need"], row["p"]))


def test_a_gate_over_alike_cases_is_one_binomial() -> None:
    rates = {"20 cases at .9, n=1, bar .9": 0.9, "20 at .95, n=5, bar .9": 0.95}
    known = {row["name"]: row for row in DECISIONS["pooled_gate"]}

    for name, p in rates.items():
        assert known[name]["holds"] == near(at_least(known[name]["of"], known[name]["need"], p))
    every = [row["holds"] for row in DECISIONS["every_case"]]
    assert every == [near(at_least(5, 4, 0.9) ** 20), near(at_least(10, 8, 0.95) ** 20), 0.0]


def test_a_baseline_alarms_falsely_where_more_cases_flip_than_are_allowed() -> None:
    for row in DECISIONS["no_change_baseline"]:
        q = at_least(row["n"], n_needed(row["n"], row["threshold"]), row["p"])

        assert row["false_alarm"] == near(at_least(row["cases"], row["allowed"] + 1, q * (1 - q)))


def test_draws_of_stored_trials_regress_as_often_as_their_enumeration_says() -> None:
    for row in DECISIONS["aa_case"]:
        assert Fraction(row["chance"]) == regression(row["n"], row["c"], row["m"], row["threshold"])
    for name, threshold in (("aa_suite", 1.0), ("aa_suite_majority", 0.6)):
        chances = {(n, c): regression(n, c, 5, threshold) for n, c in {*SUITE}}
        assert DECISIONS[name]["expected_regressions"] == near(float(sum(chances[case] for case in SUITE)))
        assert DECISIONS[name]["at_least_one"] == near(float(1 - math.prod(1 - chances[case] for case in SUITE)))


def test_a_case_stops_when_it_is_decided() -> None:
    for row in DECISIONS["curtailed"]:
        n, m, p = row["n"], row["m"], Fraction(row["p"]).limit_denominator(10**6)
        open_cases, expected, passes = {(0, 0): Fraction(1)}, Fraction(0), Fraction(0)
        for _ in range(n):
            expected += sum(open_cases.values())
            following: dict[tuple[int, int], Fraction] = {}
            for (won, lost), chance in open_cases.items():
                for place, share in (((won + 1, lost), p), ((won, lost + 1), 1 - p)):
                    following[place] = following.get(place, Fraction(0)) + chance * share
            passes += sum(chance for (won, _), chance in following.items() if won == m)
            open_cases = {place: each for place, each in following.items() if place[0] < m and place[1] <= n - m}
        assert (row["expected_trials"], row["passes"]) == (near(float(expected)), near(float(passes)))


def test_anytime_evidence_is_the_ratio_of_likelihoods() -> None:
    for row in DECISIONS["anytime"]:
        c, n = row["c"], row["n"]
        mixture = 1 / ((n + 1) * math.comb(n, c))
        for bound in {row["low"], row["high"]} - {0.0, 1.0}:
            assert mixture / (bound**c * (1 - bound) ** (n - c)) == pytest.approx(20, rel=1e-6)
    for row in DECISIONS["anytime_first_stop"]:
        for key, p in (("all_pass_stop_at", row["bar"]), ("all_fail_stop_at", 1 - row["bar"])):
            assert row[key] == next(n for n in range(1, 1000) if 1 / ((n + 1) * p**n) > 20)
    for row in DECISIONS["sign_evalue"]:
        n = row["wins"] + row["losses"]
        assert row["e"] == near(2**n / ((n + 1) * math.comb(n, row["wins"])))


def test_modes_that_nobody_saw_follow_from_those_seen_once_and_twice() -> None:
    for row in MODES["saturation"]:
        once, twice, share = row["y"].count(1), row["y"].count(2), Fraction(row["T"] - 1, row["T"])
        unseen = share * (Fraction(once**2, 2 * twice) if twice else Fraction(once * (once - 1), 2))

        assert (row["S"], row["U"], row["unseen"]) == (len(row["y"]), sum(row["y"]), near(float(unseen)))
        assert row["expected_new_in_next"] == near(once / row["T"])
    known = MODES["accumulation"]
    for t, n_modes in known["curve"].items():
        missed = [math.comb(known["T"] - y, int(t)) / math.comb(known["T"], int(t)) for y in known["y"]]
        assert n_modes == near(sum(1 - each for each in missed))
    for row in MODES["no_new_in"]:
        assert (1 - row["upper95"]) ** row["r"] == near(0.05)


def test_changes_of_modes_are_told_by_all_flips_of_their_signs() -> None:
    for mode, differences in MODES["mode_change"]["d"].items():
        steps = [round(10 * each) for each in differences if each]
        sums = [
            abs(sum(map(math.prod, zip(signs, steps, strict=True)))) for signs in product((1, -1), repeat=len(steps))
        ]

        assert MODES["mode_change"]["p"][mode] == near(sum(each >= abs(sum(steps)) for each in sums) / len(sums))


def test_strata_are_weighed_by_their_size() -> None:
    for row in MODES["prevalence"]:
        total = sum(size for size, _, _ in row["rows"])
        share = sum(Fraction(size, total) * Fraction(found, read) for size, read, found in row["rows"])
        spread = Fraction(0)
        for size, read, found in row["rows"]:
            variance = Fraction(found, read) * (1 - Fraction(found, read)) / (read - 1)
            spread += Fraction(size, total) ** 2 * (1 - Fraction(read, size)) * variance

        assert (row["p"], row["se"]) == (near(float(share)), near(math.sqrt(spread)))
