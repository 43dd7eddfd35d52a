"""The statistics of kinds of failure against known answers."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from tests.golden_values import golden

from evaldesk.model.failures import TRIALS
from evaldesk.pages.samples import drawing_orders, samples
from evaldesk.statistics.failure_modes import Stratum, accumulation, mode_changes, prevalence, saturation
from evaldesk.statistics.intervals import failure_bound
from evaldesk.statistics.judge_rate import labels_for_half_width, labels_to_add, neyman_allocation

MODES: dict[str, Any] = golden("modes")
Row = dict[str, Any]
Y = (12, 7, 4, 2, 1, 1)


def rows(key: str) -> list[Any]:
    return [pytest.param(row, id=str(at)) for at, row in enumerate(MODES[key])]


def near(value: Any) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


def apart(*strata: tuple[int, int, int]) -> list[Stratum]:
    """Strata (all, read, found) in which every trial read is of a case of its own."""
    return [Stratum(n, Counter((1, int(at < found)) for at in range(read))) for n, read, found in strata]


@pytest.mark.parametrize("row", rows("prevalence"))
def test_known_prevalence(row: Row) -> None:
    found = prevalence(apart(*row["rows"]))

    assert found
    assert (found.share, found.error, found.n_effective) == (near(row["p"]), near(row["se"]), near(row["n_eff"]))
    assert (found.interval.low, found.interval.high) == (near(row["low"]), near(row["high"]))


@pytest.mark.parametrize("row", rows("saturation"))
def test_known_saturation(row: Row) -> None:
    found = saturation(row["y"], row["T"])

    assert (found.n_modes, found.n_once, found.n_twice) == (row["S"], row["Q1"], row["Q2"])
    assert (found.unseen, found.coverage) == (near(row["unseen"]), near(row["coverage"]))
    assert found.expected_new == near(row["expected_new_in_next"])


def test_known_accumulation() -> None:
    known = MODES["accumulation"]

    for at, modes in known["curve"].items():
        assert accumulation(known["y"], known["T"], int(at)) == near(modes)


@pytest.mark.parametrize("row", rows("no_new_in"))
def test_known_bound_without_a_new_mode(row: Row) -> None:
    assert failure_bound(row["r"]) == near(row["upper95"])


def test_known_changes_of_modes() -> None:
    known = MODES["mode_change"]

    found = mode_changes(known["d"])

    for mode, change in found.items():
        assert (change.p, change.difference) == (near(known["p"][mode]), near(known["mean"][mode]))
    assert {mode: found[mode].p_holm for mode in known["holm"]} == {
        mode: near(value) for mode, value in known["holm"].items()
    }


def test_known_allocation_of_labels() -> None:
    known = MODES["neyman"]
    strata = list(zip(known["W"], known["true_good_share"], strict=True))

    assert list(neyman_allocation(known["m"], strata)) == [near(known["alloc"][0]), near(known["alloc"][1])]
    for width, n in known["labels_for_half_width"].items():
        assert labels_for_half_width(float(width), strata) == n


@pytest.mark.parametrize(
    ("times", "n_read", "unseen", "coverage"),
    [
        (Y, 30, 1.9333333333, 0.9283950617),
        ((12, 7, 4, 2, 2, 2), 30, 0.0, 1.0),
        ((1, 1, 1, 1, 1), 5, 8.0, 0.1111111111),
        ((3, 1, 1), 10, 0.9, 0.6727272727),
        ((), 10, 0.0, 0.0),
        ((1,), 1, 0.0, 0.0),
        ((1, 1), 1, 0.0, 0.0),
        ((1,), 2, 0.0, 0.0),
        ((12, 7, 1), 20, 0.0, 0.95),
    ],
)
def test_how_much_is_unseen(times: tuple[int, ...], n_read: int, unseen: float, coverage: float) -> None:
    found = saturation(times, n_read)

    assert [found.unseen, found.coverage] == pytest.approx([unseen, coverage], abs=1e-9)


def test_the_curve_of_many_trials_is_exact_at_its_ends() -> None:
    assert accumulation((9_000, 40, 1), 10_000, 10_000) == 3
    assert accumulation((9_000, 40, 1), 10_000, 1) == pytest.approx(0.9041, rel=1e-9)
    assert failure_bound(59) == pytest.approx(0.0495076099, abs=1e-10)
    assert failure_bound(0) == 1


def test_a_run_that_was_read_whole_has_a_known_share() -> None:
    found = prevalence(apart((40, 40, 10), (10, 10, 0)))

    assert found
    assert (found.share, found.error, found.n_effective) == (0.2, 0, None)
    assert (found.interval.low, found.interval.high) == (0.2, 0.2)


def test_no_finding_in_some_trials_is_no_certainty() -> None:
    found = prevalence(apart((100, 20, 0)))

    assert found
    assert (found.share, found.n_effective, found.interval.low) == (0, 20, 0)
    assert found.interval.high == pytest.approx(0.1611, abs=1e-4)


def test_trials_of_one_case_tell_less_than_those_of_many() -> None:
    by_trial = prevalence(apart((100, 20, 10)))
    by_case = prevalence([Stratum(100, {(10, 10): 1, (10, 0): 1})])

    assert by_trial
    assert by_case
    assert by_case.share == by_trial.share
    assert by_case.interval.high > by_trial.interval.high


def test_a_stratum_that_nobody_read_is_left_out() -> None:
    assert prevalence([Stratum(50, {})]) is None
    assert prevalence([*apart((40, 20, 5)), Stratum(50, {})]) == prevalence(apart((40, 20, 5)))


def test_one_trial_read_leaves_its_stratum_open() -> None:
    found = prevalence(apart((20, 1, 1)))

    assert found
    assert found.interval.low < 0.3


def test_labels_go_where_the_judge_errs_but_never_fewer_than_ten() -> None:
    assert labels_to_add(0.1, [(700, 0, 0), (300, 0, 0)]) == (68, 30)
    assert labels_to_add(0.1, [(700, 50, 50), (300, 4, 2)]) == (0, 11)
    assert labels_to_add(0.1, [(700, 60, 54), (300, 40, 16)]) == (0, 0)
    assert labels_to_add(0.1, [(5, 0, 0), (0, 0, 0)]) == (5, 0)
    assert labels_to_add(0.1, []) == ()


def test_more_than_24_moved_cases_are_told_by_the_normal_distribution() -> None:
    found = mode_changes({"wrong date": [-0.2] * 30 + [0.2] * 10, "none": []})

    assert found["wrong date"].p == pytest.approx(0.00157, abs=1e-5)
    assert (found["none"].p, found["none"].n_cases) == (1, 0)


def test_a_sample_counts_its_cases_as_one_by_one() -> None:
    chance, strips = Random(5), tuple("f" * n for n in (3, 1, 7, 2, 5, 1, 4))
    (order,) = drawing_orders(9, strips, "f").values()

    for n_read in (0, 1, len(order) - 1, len(order)):
        drawn = [*order][:n_read]
        found = {number for number in order if chance.random() < 0.4}
        (sample,) = samples({"f": order}, {*drawn, *[*order][n_read + 1 :]}).values()
        by_case = {case: [number for number in drawn if order[number] == case] for case in set(map(order.get, drawn))}
        pairs = Counter((len(trials), len(found.intersection(trials))) for trials in by_case.values())
        assert (sample.keys, sample.stratum(found)) == (frozenset(drawn), Stratum(len(order), pairs))
    assert all(divmod(number, TRIALS)[0] == case for number, case in order.items())
