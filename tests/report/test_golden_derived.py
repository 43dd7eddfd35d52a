"""The golden values follow from their definitions, by enumeration and in exact fractions, without any code of ours."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product
from statistics import correlation, fmean, variance
from typing import Any

import pytest
from tests.golden_values import golden

DECISIONS, MODES, PASSK, STATS = golden("decisions"), golden("modes"), golden("passk"), golden("stats")
Z95 = 1.959963984540054
Row = dict[str, Any]
SUITE = [(10, 10)] * 12 + [(10, 9)] * 4 + [(10, 8)] * 2 + [(10, 5), (10, 0)]


def near(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def near_all(values: list[float]) -> Any:
    return [near(value) for value in values]


def holm(ordered: list[float]) -> list[float]:
    """Each of the ordered p values times the number of those from it on, never below the one before, and 1 at most."""
    return [
        min(1.0, max((len(ordered) - at) * p for at, p in enumerate(ordered[: end + 1]))) for end in range(len(ordered))
    ]


def is_end_of_wilson(end: float, p: float, n: float) -> bool:
    """Whether a rate is as far from the one that was seen as its own standard error allows at 95 %."""
    return end in (0.0, 1.0) or math.isclose((p - end) ** 2, Z95**2 * end * (1 - end) / n, rel_tol=1e-7)


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
    assert all(k > n and value == float(c == n) for n, c, k, value, *_ in PASSK["edge_k_gt_n"])
    of_1_3_5_10, to_n, below_n = PASSK["k_values_reported"].values()
    for name in of_1_3_5_10:
        n = int(name)
        powers = [2**power for power in range(n.bit_length())]
        assert of_1_3_5_10[name] == [k for k in (1, 3, 5, 10) if k <= n and n > 1]
        assert to_n[name] == sorted({*powers, n} if n > 1 else ())
        assert below_n[name] == (powers if len(powers) > 1 else [])


def test_a_case_holds_as_often_as_its_binomial_says() -> None:
    for row in DECISIONS["case_rule"]:
        assert row["need"] == n_needed(row["n"], row["threshold"])
        assert row["pass_"] == near(at_least(row["n"], row["need"], row["p"]))


def test_a_gate_over_cases_is_one_binomial_of_those_that_can_pass() -> None:
    can_pass = {
        "20 cases at .9, n=1, bar .9": (20, 0.9),
        "20 at .95, n=5, bar .9": (20, 0.95),
        "49 at .99, one at 0, n=10, bar .9": (49, 0.99),
    }

    for row in DECISIONS["pooled_gate"]:
        n_cases, p = can_pass[row["name"]]
        assert row["need"] == n_needed(row["cases"] * row["n"], row["bar"])
        assert row["holds"] == near(at_least(n_cases * row["n"], row["need"], p))
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
        if once and twice:
            seen = 1 - Fraction(once, sum(row["y"])) * Fraction(
                (row["T"] - 1) * once, (row["T"] - 1) * once + 2 * twice
            )
            assert row["coverage"] == near(float(seen))
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
    names = sorted(MODES["mode_change"]["p"], key=MODES["mode_change"]["p"].get)
    assert [MODES["mode_change"]["holm"][name] for name in names] == near_all(
        holm([MODES["mode_change"]["p"][name] for name in names])
    )


def test_strata_are_weighed_by_their_size() -> None:
    for row in MODES["prevalence"]:
        total = sum(size for size, _, _ in row["rows"])
        share = sum(Fraction(size, total) * Fraction(found, read) for size, read, found in row["rows"])
        spread = Fraction(0)
        for size, read, found in row["rows"]:
            variance = Fraction(found, read) * (1 - Fraction(found, read)) / (read - 1)
            spread += Fraction(size, total) ** 2 * (1 - Fraction(read, size)) * variance

        assert (row["p"], row["se"]) == (near(float(share)), near(math.sqrt(spread)))
        assert row["n_eff"] == near(row["p"] * (1 - row["p"]) / row["se"] ** 2)
        assert is_end_of_wilson(row["low"], row["p"], row["n_eff"])
        assert is_end_of_wilson(row["high"], row["p"], row["n_eff"])


def test_labels_go_where_verdicts_of_the_judge_are_least_certain() -> None:
    row = MODES["neyman"]
    deviations = [math.sqrt(share * (1 - share)) for share in row["true_good_share"]]
    weights = [size * each for size, each in zip(row["W"], deviations, strict=True)]

    assert row["alloc"] == near_all([row["m"] * each / sum(weights) for each in weights])
    assert row["se_neyman"] == near(sum(weights) / math.sqrt(row["m"]))
    for half, n in row["labels_for_half_width"].items():
        assert Z95 * sum(weights) / math.sqrt(n) <= float(half) < Z95 * sum(weights) / math.sqrt(n - 1)


def test_pass_of_k_counts_draws_of_passes() -> None:
    for row in STATS["pass_k"]["cases"]:
        n, c, k = row["n"], row["c"], row["k"]
        at_least_one = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
        every_one = Fraction(math.comb(c, k), math.comb(n, k))
        for name, exact in (("pass_at_k", at_least_one), ("pass_hat_k", every_one)):
            assert row[name] == near(float(exact))
            assert row[f"{name}_exact"] is None or Fraction(row[f"{name}_exact"]) == exact
        assert row["wrong_plugin_pass_at_k"] == near(1 - (1 - c / n) ** k)
        assert row["wrong_plugin_pass_hat_k"] == near((c / n) ** k)
    for row in STATS["g_pass_k"]["cases"]:
        n, c, k = row["n"], row["c"], row["k"]
        draws = [math.comb(c, won) * math.comb(n - c, k - won) for won in range(row["at_least"], k + 1)]
        assert row["at_least"] == n_needed(k, row["tau"])
        assert row["g_pass_at_k"] == near(sum(draws) / math.comb(n, k))
    for row in STATS["g_pass_k"]["mg_cases"]:
        n, c, k = row["n"], row["c"], row["k"]
        above_half = sum(
            max(0, won - math.ceil(k / 2)) * math.comb(c, won) * math.comb(n - c, k - won) for won in range(k + 1)
        )
        assert row["mg_pass_at_k"] == near(2 / k * above_half / math.comb(n, k))


def test_pass_of_k_of_a_suite_is_the_mean_over_the_draws_of_its_cases() -> None:
    for suite in STATS["pass_k_suites"]:
        n, cases = suite["n"], suite["c_per_case"]
        draws = {
            (c, int(k)): [sum(draw) for draw in combinations([1] * c + [0] * (n - c), int(k))]
            for c in {*cases}
            for k in suite["pass_at_k"]
        }
        for k in suite["pass_at_k"]:
            every = [draws[c, int(k)] for c in cases]
            at_least_one = sum(Fraction(sum(won > 0 for won in case), len(case)) for case in every)
            every_one = sum(Fraction(sum(won == int(k) for won in case), len(case)) for case in every)
            assert suite["pass_at_k"][k] == near(float(at_least_one / len(cases)))
            assert suite["pass_hat_k"][k] == near(float(every_one / len(cases)))
        for name in suite.get("published", {}).keys() - {"source"}:
            published = suite["published"][name]
            for k, value in published["values"].items():
                assert round(suite[name][k], published["digits"]) == value


def test_the_ends_of_an_interval_make_the_count_as_rare_as_it_says() -> None:
    for row in STATS["proportion_ci"]["cases"]:
        c, n, (low, high) = row["c"], row["n"], row["clopper_pearson95"]
        assert low == 0 if c == 0 else at_least(n, c, low) == pytest.approx(0.025, rel=1e-7)
        assert high == 1 if c == n else 1 - at_least(n, c + 1, high) == pytest.approx(0.025, rel=1e-7)
        assert all(is_end_of_wilson(end, row["p"], n) for end in row["wilson95"])
        for end, side in zip(row["wald95_do_not_use"], (-1, 1), strict=True):
            assert end == near(row["p"] + side * Z95 * math.sqrt(row["p"] * (1 - row["p"]) / n))
    for row in STATS["proportion_ci"]["rule_of_three"]:
        assert (1 - row["upper95_when_zero_failures"]) ** row["n"] == near(0.05)
    for row in STATS["sequential"]["cases"]:
        c, n = row["c"], row["n"]
        for end in {*row["cs95"]} - {0.0, 1.0}:
            evidence = 1 / ((n + 1) * math.comb(n, c)) / (end**c * (1 - end) ** (n - c))
            assert evidence == pytest.approx(20, rel=1e-6)


def test_flips_of_verdicts_are_those_of_a_coin() -> None:
    for row in STATS["mcnemar"]["cases"]:
        n, m = row["only_a_passes"] + row["only_b_passes"], min(row["only_a_passes"], row["only_b_passes"])
        at_most = Fraction(sum(math.comb(n, k) for k in range(m + 1)), 2**n)

        assert row["p_exact"] == near(float(min(Fraction(1), 2 * at_most)))
        assert row["p_mid"] == near(float(min(Fraction(1), 2 * at_most - Fraction(math.comb(n, m), 2**n))))
        n_cases = n + row["both_pass"] + row["both_fail"]
        assert row["diff"] == near((row["only_a_passes"] - row["only_b_passes"]) / n_cases)
        for name, less in (("p_chi2", 0), ("p_chi2_continuity", 1)):
            # A chi-squared of one degree of freedom is the square of a normal.
            known = math.erfc(abs(n - 2 * m - less) / math.sqrt(2 * n)) if n else None
            assert row[name] is None if known is None else row[name] == near(known)
    fewest = STATS["power"]["smallest_exact_mcnemar_win"]
    assert (fewest["p"], fewest["b5_p"]) == (2 / 2 ** fewest["b"], 2 / 2 ** (fewest["b"] - 1))
    assert fewest["p"] < 0.05 <= fewest["b5_p"]


def test_paired_differences_are_told_by_their_mean_and_all_signs() -> None:
    row = STATS["paired"]
    steps = [round(10 * (a - b)) for a, b in zip(row["a"], row["b"], strict=True)]
    sums = [abs(sum(map(math.prod, zip(signs, steps, strict=True)))) for signs in product((1, -1), repeat=len(steps))]
    mean = sum(steps) / len(steps) / 10
    squares = sum((step / 10 - mean) ** 2 for step in steps) / (len(steps) - 1)

    assert (row["mean_diff"], row["se_paired"]) == (near(mean), near(math.sqrt(squares / len(steps))))
    assert row["t"] == near(row["mean_diff"] / row["se_paired"])
    assert row["sign_flips_at_least_as_extreme"] == sum(each >= abs(sum(steps)) for each in sums)
    assert row["p_sign_flip_exact"] == near(row["sign_flips_at_least_as_extreme"] / row["enumerated"])
    assert row["se_unpaired"] == near(math.sqrt((variance(row["a"]) + variance(row["b"])) / len(steps)))
    assert row["corr"] == near(correlation(row["a"], row["b"]))
    signs = [(step > 0) - (step < 0) for step in steps]
    assert (row["wins"], row["losses"], row["ties"]) == tuple(map(signs.count, (1, -1, 0)))


def test_errors_of_clusters_add_up_their_own_deviations() -> None:
    for row in STATS["clustered_se"]["cases"]:
        sums: dict[str, float] = {}
        for name, value in zip(row["cluster_ids"], row["values"], strict=True):
            sums[name] = sums.get(name, 0.0) + value - row["mean"]
        squares = sum(each**2 for each in sums.values())

        assert row["mean"] == near(sum(row["values"]) / row["n"])
        assert row["se_cluster_cr0"] == near(math.sqrt(squares) / row["n"])
        assert row["se_cluster_cr1"] == near(math.sqrt(squares * len(sums) / (len(sums) - 1)) / row["n"])
        assert row["se_naive"] == near(math.sqrt(variance(row["values"]) / row["n"]))
        assert row["design_effect_cr1"] == near((row["se_cluster_cr1"] / row["se_naive"]) ** 2)
        # The naive variance, and what pairs of different values of a cluster add to it. (Miller 2024)
        pairs = squares - sum((value - row["mean"]) ** 2 for value in row["values"])
        assert row["se_cluster_miller"] == near(math.sqrt(row["se_naive"] ** 2 + pairs / row["n"] ** 2))
    split, values = STATS["clustered_se"]["variance_split"], STATS["clustered_se"]["cases"][0]["values"]
    cases = [values[at : at + 5] for at in range(0, len(values), 5)]
    within = sum(map(variance, cases)) / len(cases)
    between = variance(list(map(fmean, cases))) - within / 5
    assert (split["within_case"], split["between_case"]) == (near(within), near(between))
    for k, error in split["se_of_mean_if_k_runs"].items():
        assert error == near(math.sqrt((between + within / int(k)) / len(cases)))


def test_agreement_is_measured_beyond_that_of_chance() -> None:
    for row in STATS["agreement"]["cohen_kappa"]:
        table, total = row["table"], sum(map(sum, row["table"]))
        observed = Fraction(sum(table[at][at] for at in range(len(table))), total)
        chance = sum(
            Fraction(sum(table[at]), total) * Fraction(sum(line[at] for line in table), total)
            for at in range(len(table))
        )

        assert (row["observed_agreement"], row["chance_agreement"]) == (near(float(observed)), near(float(chance)))
        assert row["kappa"] is None if chance == 1 else row["kappa"] == near(float((observed - chance) / (1 - chance)))


def test_sizes_corrections_and_flaky_cases_follow_from_their_formulas() -> None:
    known = STATS["multiple_tests"]
    n, power = len(known["p"]), STATS["power"]

    assert known["holm"] == near_all(holm(known["p"]))
    assert known["bonferroni"] == near_all([min(1.0, n * p) for p in known["p"]])
    assert known["bh"] == near_all(
        [min(min(1.0, n * p / (at + 1)) for at, p in enumerate(known["p"]) if at >= start) for start in range(n)]
    )
    for row in power["paired_cases"]:
        spread = row["omega2"] + (row["s2a"] + row["s2b"]) / row["k"]
        assert row["n"] == near((power["z_alpha2"] + power["z_beta"]) ** 2 * spread / row["delta"] ** 2)
        assert row["n_ceil"] == math.ceil(row["n"])
    for row in STATS["flakiness"]["cases"]:
        n, c = row["n"], row["c"]
        assert row["flaky"] == (0 < c < n)
        assert row["disagreement"] == (None if n < 2 else near(2 * c * (n - c) / (n * (n - 1))))
    for row in STATS["flakiness"]["seen_at_least_one_failure"]:
        assert row["prob"] == near(1 - (1 - row["fail_rate"]) ** row["runs"])
    for row in STATS["judge_correction"]["rogan_gladen"]["cases"]:
        corrected = (row["judge_pass_rate"] + row["specificity"] - 1) / (row["sensitivity"] + row["specificity"] - 1)
        assert (row["unclipped"], row["corrected"]) == (near(corrected), near(min(1.0, max(0.0, corrected))))
