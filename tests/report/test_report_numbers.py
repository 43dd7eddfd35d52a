"""pass@k, pass^k and intervals against known answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction
from typing import Any

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from tests.golden_values import golden

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import (
    clustered_error,
    curve_point,
    mean_interval,
    pass_at_k,
    pass_curve,
    pass_hat_k,
    rate_interval,
    t_95,
    wilson,
)

STATS: dict[str, Any] = golden("stats")
PASSK: dict[str, Any] = golden("passk")
Row = dict[str, Any]
MOCK = [(3, 1, 1), (5, 2, 1), (4, 2, 1), (4, 3, 1), (5, 4, 1), (5, 5, 4), (4, 4, 2), (1, 1, 1)]


def rows(*keys: str) -> list[Any]:
    """The known answers of stats.json under `keys`."""
    found: Any = STATS
    for key in keys:
        found = found[key]
    return [pytest.param(row, id=row.get("name") or "-".join(map(str, list(row.values())[:3]))) for row in found]


@pytest.mark.parametrize("row", rows("pass_k", "cases"))
def test_known_pass_at_k_and_pass_hat_k(row: Row) -> None:
    at_k, hat_k = pass_at_k(row["n"], row["c"], row["k"]), pass_hat_k(row["n"], row["c"], row["k"])

    assert at_k == pytest.approx(row["pass_at_k"], rel=1e-12, abs=1e-15)
    assert hat_k == pytest.approx(row["pass_hat_k"], rel=1e-12, abs=1e-15)
    if row["pass_at_k_exact"]:
        assert (at_k, hat_k) == (float(Fraction(row["pass_at_k_exact"])), float(Fraction(row["pass_hat_k_exact"])))


@pytest.mark.parametrize("row", rows("pass_k", "undefined"))
def test_undefined_is_none_and_never_a_number(row: Row) -> None:
    assert pass_at_k(row["n"], row["c"], row["k"]) is None
    assert pass_hat_k(row["n"], row["c"], row["k"]) is None


def test_recorded_pass_at_k_of_another_tool() -> None:
    for n, c, k, old, new, exact in [*PASSK["table"], *PASSK["huge"]]:
        found = pass_at_k(n, c, k)
        assert found == pytest.approx(float(Fraction(exact)) if exact else old, rel=1e-12), (n, c, k)
        assert found == pytest.approx(new, abs=PASSK["recommended_tolerance"])
    for n, c, k, *_ in PASSK["edge_k_gt_n"]:
        assert pass_at_k(n, c, k) is None


@pytest.mark.parametrize("row", rows("pass_k_suites"))
def test_known_suites_are_means_over_cases(row: Row) -> None:
    c_per_case: list[int] = row["c_per_case"]
    counts = [(row["n"], c, times) for c, times in Counter(c_per_case).items()]

    curve = {point.k: point for point in pass_curve(counts)}

    for k, value in row["pass_at_k"].items():
        assert curve[int(k)].pass_at_k == pytest.approx(value)
    for k, value in row["pass_hat_k"].items():
        assert curve[int(k)].pass_hat_k == pytest.approx(value)
    published = row.get("published", {})
    for name in ("pass_at_k", "pass_hat_k"):
        for k, value in published.get(name, {}).get("values", {}).items():
            assert round(getattr(curve[int(k)], name), published[name]["digits"]) == value


@pytest.mark.parametrize(
    ("n", "c", "k", "at_k", "hat_k"),
    [
        pytest.param(5, 2, 1, 0.4, 0.4, id="k-1-is-the-rate"),
        pytest.param(5, 2, 2, 0.7, 0.1, id="both"),
        pytest.param(5, 1, 5, 1.0, 0.0, id="one-of-all"),
        pytest.param(5, 5, 5, 1.0, 1.0, id="all"),
        pytest.param(5, 0, 3, 0.0, 0.0, id="none"),
        pytest.param(3, 3, 5, None, None, id="k-above-n"),
        pytest.param(0, 0, 1, None, None, id="nothing-scored"),
        pytest.param(5, 2, 0, None, None, id="k-below-1"),
        pytest.param(5, 6, 1, None, None, id="c-above-n"),
    ],
)
def test_one_case(n: int, c: int, k: int, at_k: float | None, hat_k: float | None) -> None:
    assert (pass_at_k(n, c, k), pass_hat_k(n, c, k)) == (at_k, hat_k)


@given(st.integers(1, 40), st.data())
def test_one_case_is_a_draw_without_replacement(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))

    assert pass_at_k(n, c, k) == pytest.approx(scipy.stats.hypergeom.sf(0, n, c, k), abs=1e-12)
    assert pass_hat_k(n, c, k) == pytest.approx(scipy.stats.hypergeom.pmf(k, n, c, k), abs=1e-12)


def test_cases_with_too_few_trials_are_left_out_and_counted() -> None:
    point = curve_point([(5, 5, 1), (2, 0, 3)], 3)

    assert (point.pass_at_k, point.pass_hat_k, point.n_cases) == (1.0, 1.0, 1)


def test_the_curve_ends_at_the_fewest_scored_trials_of_a_case() -> None:
    assert [point.k for point in pass_curve([(3, 1, 2), (2, 2, 1), (0, 0, 4)])] == [1, 2]
    assert pass_curve([(0, 0, 4)]) == ()
    assert [point.k for point in pass_curve([(100, 50, 1)])] == [*range(1, 21), 32, 64, 100]


@pytest.mark.parametrize("row", rows("proportion_ci", "cases"))
def test_known_wilson_intervals(row: Row) -> None:
    found = wilson(row["c"], row["n"])

    assert (found.low, found.high) == pytest.approx(row["wilson95"], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("row", rows("clustered_se", "cases"))
def test_known_clustered_intervals(row: Row) -> None:
    by_cluster: dict[str, list[float]] = defaultdict(list)
    for value, cluster in zip(row["values"], row["cluster_ids"], strict=True):
        by_cluster[cluster].append(value)
    n, mean = row["n"], row["mean"]
    cluster_squares = sum((sum(values) - len(values) * mean) ** 2 for values in by_cluster.values())
    squares = sum((value - mean) ** 2 for value in row["values"])

    found = mean_interval(
        mean=mean, n=n, n_cases=len(by_cluster), squares=squares, cluster_squares=cluster_squares, low=-9, high=9
    )

    assert clustered_error(n, len(by_cluster), cluster_squares) == pytest.approx(row["se_cluster_cr1"], rel=1e-9)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(row["ci95_t_cr1"], rel=1e-9)


@pytest.mark.parametrize("row", rows("clustered_se", "cases")[:1])
def test_a_rate_has_the_interval_of_the_mean_of_its_zeros_and_ones(row: Row) -> None:
    by_cluster: dict[str, list[int]] = defaultdict(list)
    for value, cluster in zip(row["values"], row["cluster_ids"], strict=True):
        by_cluster[cluster].append(value)

    found = rate_interval([(len(values), sum(values), 1) for values in by_cluster.values()])

    assert found is not None
    assert (found.low, found.high) == pytest.approx(row["ci95_t_cr1"], rel=1e-9)


def test_student_quantiles_are_those_of_scipy() -> None:
    for df in [*range(1, 210), 500, 10_000, 1_000_000]:
        assert t_95(df) == pytest.approx(float(scipy.special.stdtrit(df, 0.975)), rel=1e-11)


def test_the_drawn_run_has_the_interval_that_was_drawn() -> None:
    found = rate_interval(MOCK)

    assert found is not None
    assert (round(found.low, 2), round(found.high, 2)) == (0.66, 0.98)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        pytest.param([(0, 0, 3)], None, id="nothing-scored"),
        pytest.param([(1, 1, 9), (1, 0, 1)], wilson(9, 10), id="one-trial-a-case"),
        pytest.param([(5, 3, 1)], wilson(3, 5), id="a-single-case"),
        pytest.param([(5, 5, 10)], wilson(10, 10), id="all-passed"),
        pytest.param([(5, 0, 10)], wilson(0, 10), id="none-passed"),
        pytest.param([(5, 5, 10), (0, 0, 2)], wilson(10, 10), id="unscored-cases-do-not-count"),
    ],
)
def test_intervals_where_clusters_say_nothing(counts: list[tuple[int, int, int]], expected: Interval | None) -> None:
    assert rate_interval(counts) == expected


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 4)), max_size=6))
def test_a_rate_lies_in_its_interval_and_the_interval_in_the_range(counts: list[tuple[int, int, int]]) -> None:
    counts = [(max(n, c), min(n, c), times) for n, c, times in counts]

    found = rate_interval(counts)

    n = sum(row[0] * row[2] for row in counts)
    assert (found is None) == (n == 0)
    if found:
        rate = sum(row[1] * row[2] for row in counts) / n
        assert 0 <= found.low <= rate + 1e-12
        assert rate - 1e-12 <= found.high <= 1
        assert found.high - found.low > 1e-6


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        pytest.param({"mean": 0.5, "n": 1, "n_cases": 1, "squares": 0, "cluster_squares": 0}, None, id="one-value"),
        pytest.param(
            {"mean": 1.0, "n": 50, "n_cases": 10, "squares": 0, "cluster_squares": 0}, wilson(10, 10), id="all-full"
        ),
        pytest.param(
            {"mean": 5.0, "n": 4, "n_cases": 4, "squares": 0, "cluster_squares": 0, "low": 1, "high": 5},
            Interval(1 + 4 * wilson(4, 4).low, 5.0),
            id="another-range",
        ),
    ],
)
def test_intervals_of_means_at_the_edge(numbers: Row, expected: Interval | None) -> None:
    assert mean_interval(**numbers) == expected


def test_a_single_case_is_judged_by_its_trials() -> None:
    found = mean_interval(mean=0.5, n=4, n_cases=1, squares=0.12, cluster_squares=0.0)

    assert found is not None
    assert found.high - 0.5 == pytest.approx(t_95(3) * 0.1)
