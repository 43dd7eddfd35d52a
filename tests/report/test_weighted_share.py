"""The weighted share of failures: the known answer, its coverage, and what it needs."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaldesk.model.conclusion import Interval
from evaldesk.statistics.intervals import newcombe, wilson
from evaldesk.statistics.weighted_share import ReadStratum, read_stratum, weighted_share

# Sizes, read and failed, and the answers, as in golden/inbox.json ("weighted").
ERRORS, THUMBS_DOWN, REST = ReadStratum(40, 40, 36), ReadStratum(120, 30, 18), ReadStratum(9840, 100, 4)


def draw_stratum(rng: Random, size: int, n_read: int, rate: float) -> tuple[int, ReadStratum]:
    """A stratum whose conversations fail with the chance `rate`: all its failures, and a draw without replacement."""
    fails = [rng.random() < rate for _ in range(size)]
    return sum(fails), ReadStratum(size, n_read, sum(rng.sample(fails, n_read)))


def test_each_stratum_counts_by_its_size() -> None:
    share = weighted_share([ERRORS, THUMBS_DOWN, REST])

    assert share is not None
    assert share.share == pytest.approx(0.05016, abs=1e-12)
    assert share.error == pytest.approx(0.020220232530766, rel=1e-12)
    assert share.interval.low == pytest.approx(0.022469081617370018, rel=1e-12)
    assert share.interval.high == pytest.approx(0.10819989648962035, rel=1e-12)
    assert share.share != pytest.approx(58 / 170, abs=0.2)


# The coverage that golden/inbox.json has for the first row is 95.65 % of 2,000 draws by scipy.
@pytest.mark.parametrize(
    ("strata", "at_least"),
    [
        pytest.param([(40, 40, 0.9), (120, 30, 0.6), (9840, 100, 0.04)], 0.93, id="golden"),
        pytest.param([(500, 60, 0.5)], 0.93, id="one stratum"),
        pytest.param([(300, 50, 0.02), (700, 50, 0.01)], 0.93, id="rare failures"),
        pytest.param([(60, 30, 0.97), (900, 60, 0.99)], 0.93, id="rare successes"),
    ],
)
def test_the_interval_covers_the_truth_as_often_as_it_says(
    strata: list[tuple[int, int, float]], at_least: float
) -> None:
    rng, n_covered, n_draws = Random(5), 0, 300
    for _ in range(n_draws):
        draws = [draw_stratum(rng, *stratum) for stratum in strata]
        truth = sum(n for n, _ in draws) / sum(size for size, _, _ in strata)
        share = weighted_share([stratum for _, stratum in draws])
        assert share is not None
        n_covered += share.interval.low <= truth <= share.interval.high

    assert n_covered / n_draws >= at_least


def test_without_a_failure_the_interval_is_wilsons() -> None:
    share = weighted_share([ReadStratum(10**9, 40, 0)])

    assert share is not None
    assert share.share == 0
    assert share.interval.low == 0
    assert share.interval.high == pytest.approx(wilson(0, 40).high, rel=1e-6)


def test_all_read_is_known_without_a_doubt() -> None:
    share = weighted_share([ReadStratum(10, 10, 3), ReadStratum(30, 30, 0)])

    assert share is not None
    assert (share.share, share.error, share.interval) == (0.075, 0.0, Interval(0.075, 0.075))


def test_a_stratum_of_which_nothing_was_read_leaves_the_share_unknown() -> None:
    assert weighted_share([ERRORS, ReadStratum(9840, 0, 0)]) is None
    assert weighted_share([]) is None
    assert weighted_share([ERRORS, ReadStratum(0, 0, 0)]) == weighted_share([ERRORS])


@pytest.mark.parametrize("counts", [(10, 11, 0), (10, 5, 6), (10, 5, -1)])
def test_counts_that_cannot_be_are_refused(counts: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="not in order"):
        ReadStratum(*counts)


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=5))
def test_the_interval_holds_the_share_within_0_and_1(rows: list[tuple[int, int, int]]) -> None:
    strata = []
    for size, percent, failed in rows:
        n_read = max(1, size * percent // 100)
        strata.append(ReadStratum(size, n_read, n_read * failed // 100))
    share = weighted_share(strata)

    assert share is not None
    assert 0 <= share.interval.low <= share.share + 1e-12
    assert share.share - 1e-12 <= share.interval.high <= 1


def test_the_difference_of_two_releases() -> None:
    interval = newcombe(104, 140, 851, 918)

    # The drawn page of the inbox: "18 points less than release 1.4, could be 12 to 26".
    assert [interval.low, interval.high] == pytest.approx([-0.26, -0.12], abs=0.005)
    mirrored = newcombe(851, 918, 104, 140)
    assert (mirrored.low, mirrored.high) == pytest.approx((-interval.high, -interval.low))


def test_a_conversation_that_stands_for_its_twins_counts_as_all_of_them() -> None:
    stratum = read_stratum(100, [(9, True), (1, False), (1, False), (1, False)])
    share = weighted_share([stratum])

    assert stratum.n_read == pytest.approx(144 / 84)  # Kish: 12^2 / (9^2 + 3)
    assert share is not None
    assert share.share == pytest.approx(9 / 12)  # and not 1 of 4
    assert read_stratum(100, [(1, True), (1, False)]) == ReadStratum(100, 2, 1)
    assert read_stratum(100, []) == ReadStratum(100, 0, 0)


def test_one_of_a_group_of_twins_leaves_a_doubt_where_all_groups_were_read() -> None:
    share = weighted_share([read_stratum(40, [(20, True), (20, False)])])

    assert share is not None
    assert share.interval.high - share.interval.low > 0.5


def test_the_interval_covers_the_truth_among_twins() -> None:
    rng, n_covered, n_draws = Random(5), 0, 300
    for _ in range(n_draws):
        groups = [[rng.random() < 0.3 for _ in range(rng.choice((1, 1, 1, 2, 5, 12)))] for _ in range(600)]
        conversations = [fails for group in groups for fails in group]
        readings = [(len(group), rng.choice(group)) for group in rng.sample(groups, 120)]
        share = weighted_share([read_stratum(len(conversations), readings)])
        assert share is not None
        n_covered += share.interval.low <= sum(conversations) / len(conversations) <= share.interval.high

    assert n_covered / n_draws >= 0.93
