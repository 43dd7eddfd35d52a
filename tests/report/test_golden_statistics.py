"""Statistics against the known answers beside the checkout."""

from __future__ import annotations

import math
from statistics import fmean, pstdev
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.model.stored import MetricRow
from evaldesk.statistics.agreement import agreement, nominal_alpha
from evaldesk.statistics.anytime import anytime_interval
from evaldesk.statistics.comparison import benjamini_hochberg, compare_scores, holm
from evaldesk.statistics.exact_tests import mcnemar
from evaldesk.statistics.intervals import (
    clustered_error,
    failure_bound,
    fewest_passes,
    g_pass_at_k,
    rate_interval,
    t_95,
)
from evaldesk.statistics.judge_rate import correct_rate
from evaldesk.statistics.noise import chance_to_see, disagreement, is_flaky, smallest_gap, split_pass_noise

STATS: dict[str, Any] = golden("stats")
Row = dict[str, Any]


def near(value: Any) -> Any:
    """`value` but for rounding; None is None."""
    return None if value is None else pytest.approx(value, rel=1e-9, abs=1e-12)


def rows(*keys: str) -> list[Any]:
    """The known answers under `keys`."""
    found: Any = STATS
    for key in keys:
        found = found[key]
    return [pytest.param(row, id="-".join(map(str, list(row.values())[:4]))) for row in found]


@pytest.mark.parametrize("row", rows("g_pass_k", "cases"))
def test_known_g_pass_at_k(row: Row) -> None:
    assert fewest_passes(row["k"], row["tau"]) == row["at_least"]
    assert g_pass_at_k(row["n"], row["c"], row["k"], row["tau"]) == near(row["g_pass_at_k"])


@pytest.mark.parametrize("row", rows("g_pass_k", "mg_cases"))
def test_known_mg_pass_at_k(row: Row) -> None:
    k = row["k"]

    chances = [g_pass_at_k(row["n"], row["c"], k, i / k) or 0.0 for i in range(math.ceil(k / 2) + 1, k + 1)]

    assert 2 / k * sum(chances) == near(row["mg_pass_at_k"])


@pytest.mark.parametrize("row", rows("proportion_ci", "rule_of_three"))
def test_known_bounds_without_a_failure(row: Row) -> None:
    assert failure_bound(row["n"]) == near(row["upper95_when_zero_failures"])


@pytest.mark.parametrize("row", rows("sequential", "cases"))
def test_known_anytime_intervals(row: Row) -> None:
    found = anytime_interval(row["c"], row["n"])

    assert (found.low, found.high) == near(row["cs95"])


def test_the_known_variance_split() -> None:
    known = STATS["clustered_se"]["variance_split"]
    values: list[float] = STATS["clustered_se"]["cases"][0]["values"]
    cases = [values[at : at + 5] for at in range(0, len(values), 5)]

    split = split_pass_noise([(5, int(sum(case)), 1) for case in cases])

    assert split is not None
    assert split.within_cases == near(known["within_case"])
    assert split.between_cases == near(known["between_case"])
    for k, error in known["se_of_mean_if_k_runs"].items():
        assert split.error(8, int(k)) == near(error)


@pytest.mark.parametrize("row", rows("clustered_se", "cases"))
def test_known_naive_errors_follow_from_the_deviation(row: Row) -> None:
    n, mean = len(row["values"]), fmean(row["values"])
    squares = math.fsum((value - mean) ** 2 for value in row["values"])

    found = MetricRow("m", None, n, 0, n, mean, 0.0, 1.0, squares, squares)

    assert found.mean == near(row["mean"])
    assert found.std == near(pstdev(row["values"]))
    assert found.std / (found.n - 1) ** 0.5 == near(row["se_naive"])


@pytest.mark.parametrize("row", rows("clustered_se", "cases"))
def test_known_clustered_errors(row: Row) -> None:
    sums = dict.fromkeys(row["cluster_ids"], 0.0)
    for value, cluster in zip(row["values"], row["cluster_ids"], strict=True):
        sums[cluster] += value - row["mean"]

    found = clustered_error(row["n"], row["clusters"], sum(each**2 for each in sums.values()))

    assert found == near(row["se_cluster_cr1"])
    low, high = (row["mean"] + side * t_95(row["clusters"] - 1) * found for side in (-1, 1))
    assert [low, high] == near(row["ci95_t_cr1"])


def test_the_known_interval_of_a_rate_over_repeated_trials() -> None:
    known = STATS["clustered_se"]["cases"][0]
    cases = [int(sum(known["values"][at : at + 5])) for at in range(0, 40, 5)]

    found = rate_interval([(5, c, 1) for c in cases])

    assert found is not None
    assert [found.low, found.high] == near(known["ci95_t_cr1"])


@pytest.mark.parametrize("row", rows("agreement", "cohen_kappa"))
def test_known_kappas(row: Row) -> None:
    pairs = [(i, j) for i, cells in enumerate(row["table"]) for j, n in enumerate(cells) for _ in range(n)]

    found = agreement(pairs)

    assert found.n_agreed / found.n == near(row["observed_agreement"])
    assert found.kappa == near(row["kappa"])
    if found.interval is not None:
        assert [found.interval.low, found.interval.high] == near(row["ci95"])
    else:
        assert row.get("ci95") in (None, [1.0, 1.0])


def test_the_known_alpha() -> None:
    known = STATS["agreement"]["krippendorff"]
    units = [
        {str(at): label for at, label in enumerate(column) if label is not None}
        for column in zip(*known["data"], strict=True)
    ]

    assert nominal_alpha(units) == near(known["alpha"]["nominal"])


def test_the_known_paired_comparison() -> None:
    known = STATS["paired"]
    before = {f"case {at}": score for at, score in enumerate(known["b"])}
    after = {f"case {at}": score for at, score in enumerate(known["a"])}

    found = compare_scores(before, after)

    assert found
    assert found.difference == near(known["mean_diff"])
    assert found.error == near(known["se_paired"])
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == near(known["ci95_t"])
    assert (found.p, found.test) == (known["p_sign_flip_exact"], "sign flip")
    assert (found.n_better, found.n_worse) == (known["wins"], known["losses"])
    assert found.n_cases - found.n_better - found.n_worse == known["ties"]


@pytest.mark.parametrize("row", rows("mcnemar", "cases"))
def test_known_mcnemar_tables(row: Row) -> None:
    fixed, broken = row["only_a_passes"], row["only_b_passes"]
    n_cases = fixed + broken + row["both_pass"] + row["both_fail"]

    assert mcnemar(fixed, broken) == near(row["p_exact"])
    assert (fixed - broken) / n_cases == near(row["diff"])


def test_the_known_fewest_flips_that_tell() -> None:
    known = STATS["power"]["smallest_exact_mcnemar_win"]

    assert mcnemar(known["b"], 0) == near(known["p"])
    assert mcnemar(known["b"] - 1, 0) == near(known["b5_p"])


def test_the_known_corrections_for_many_tests() -> None:
    known = STATS["multiple_tests"]

    assert holm(known["p"]) == near(known["holm"])
    assert benjamini_hochberg(known["p"]) == near(known["bh"])
    assert holm(known["p"][::-1]) == near(known["holm"][::-1])


@pytest.mark.parametrize("row", rows("power", "paired_cases"))
def test_known_sample_sizes(row: Row) -> None:
    variances = {"case_variance": row["omega2"], "trial_variance": row["s2a"]}

    gap = smallest_gap(row["n_ceil"], row["k"], **variances)

    one_less = smallest_gap(row["n_ceil"] - 1, row["k"], **variances)
    assert gap is not None
    assert one_less is not None
    assert gap <= row["delta"] < one_less
    assert gap == near(row["delta"] * (row["n"] / row["n_ceil"]) ** 0.5)


@pytest.mark.parametrize("row", rows("flakiness", "cases"))
def test_known_flaky_cases(row: Row) -> None:
    assert is_flaky(row["n"], row["c"]) == row["flaky"]
    assert disagreement(row["n"], row["c"]) == near(row["disagreement"])


@pytest.mark.parametrize("row", rows("flakiness", "seen_at_least_one_failure"))
def test_known_chances_to_see_a_failure(row: Row) -> None:
    assert chance_to_see(row["fail_rate"], row["runs"]) == near(row["prob"])


@pytest.mark.parametrize("row", rows("judge_correction", "rogan_gladen", "cases"))
def test_known_corrected_rates(row: Row) -> None:
    found = correct_rate(row["judge_pass_rate"], row["sensitivity"], row["specificity"])

    assert found is not None
    assert found.corrected == near(row["corrected"])
    assert found.unclipped == near(row["unclipped"])
