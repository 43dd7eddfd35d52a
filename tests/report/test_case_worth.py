"""The worth of a case: known answers, and the cases of which nothing can be said."""

from __future__ import annotations

import pytest
from tests.golden_values import golden

from evaldesk.statistics.case_worth import correlate, discriminations, information_per_dollar
from evaldesk.statistics.intervals import failure_bound

GOLDEN = golden("sets")


@pytest.mark.parametrize(("n", "bound"), GOLDEN["saturated_failure_upper"].items())
def test_the_ceiling_of_failures_is_the_known_one(n: str, bound: float) -> None:
    assert failure_bound(int(n)) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize(("words", "value"), GOLDEN["information_per_dollar"].items())
def test_the_information_a_dollar_is_the_known_one(words: str, value: float) -> None:
    counts, _, cost = words.partition(" at $")
    n_passed, n_scored = map(int, counts.split("/"))

    assert information_per_dollar(n_passed, n_scored, float(cost)) == pytest.approx(value, rel=1e-9)


def test_planted_cases_tell_agents_apart_or_not() -> None:
    known = GOLDEN["discrimination"]
    runs = [{str(case): row[run] / 5 for case, row in enumerate(known["passes_of_5"])} for run in range(known["runs"])]

    correlations = discriminations(runs)

    for case in known["cases"]:
        found = correlations[str(case["case"])]
        if case["r"] is None:
            assert found is None
            continue
        assert found is not None
        assert (found.r, found.low, found.high) == pytest.approx((case["r"], case["low"], case["high"]), rel=1e-9)
        assert found.bearing == case["word"]


@pytest.mark.parametrize(
    ("some", "others"),
    [
        ([], []),
        ([1.0, 0.5, 0.0], [1.0, 0.5, 0.0]),
        ([0.3] * 9, [0.1 * n for n in range(9)]),
        ([0.1 * 3] * 5, [0.3] * 5),
    ],
)
def test_nothing_is_said_of_few_runs_or_of_a_side_that_never_varies(some: list[float], others: list[float]) -> None:
    assert correlate(some, others) is None


def test_a_case_alone_in_its_runs_has_no_rest() -> None:
    assert discriminations([{"a": n / 10} for n in range(10)]) == {"a": None}


def test_a_perfect_correlation_has_no_infinite_interval() -> None:
    found = correlate([0.0, 0.5, 1.0, 0.25, 0.75], [0.0, 0.5, 1.0, 0.25, 0.75])

    assert found is not None
    assert (found.low, found.r, found.high) == pytest.approx((1, 1, 1))
