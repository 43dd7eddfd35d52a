"""Live traffic: the share passed by day and release, one release against another, and the alarm over sampled scores."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from evaldesk.desk.inbox.scoring import LiveScore, alarm_state, live_days, release_change
from evaldesk.statistics.intervals import wilson
from evaldesk.wording.inbox import release_change_sentence

NOON = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
TODAY = date(2026, 11, 20)


def scores(
    n_passed: int, n_failed: int, *, release: str = "1.4", forced: bool = False, day: int = 0
) -> list[LiveScore]:
    """Passed conversations, then failed ones; forced ones have an error."""
    verdicts = [True] * n_passed + [False] * n_failed
    at = NOON + timedelta(days=day)
    return [LiveScore(at, release, forced, "forced" if forced else "sample", each) for each in verdicts]


def test_a_day_is_weighted_by_all_its_conversations() -> None:
    rows = [*scores(96, 4), *scores(4, 36, forced=True)]

    (found_day,) = live_days(rows, {(TODAY, "1.4", False): 9_960, (TODAY, "1.4", True): 40})

    assert (found_day.n_passed, found_day.n_scored) == (100, 140)
    assert found_day.share == pytest.approx((9_960 * 0.96 + 4) / 10_000)
    assert found_day.share
    assert found_day.interval
    assert found_day.interval.low < found_day.share < found_day.interval.high


def test_without_forced_scores_a_day_is_one_sample() -> None:
    error = LiveScore(NOON, "1.4", has_error=True, origin="sample", is_passed=False)

    (found_day,) = live_days([*scores(9, 0), error], {(TODAY, "1.4", False): 900, (TODAY, "1.4", True): 100})

    assert found_day.share == pytest.approx(0.9)


def test_a_part_without_a_score_leaves_the_share_unknown() -> None:
    (found_day,) = live_days(scores(0, 3, forced=True), {(TODAY, "1.4", False): 900, (TODAY, "1.4", True): 3})

    assert (found_day.share, found_day.interval, found_day.n_scored) == (None, None, 3)


def test_days_and_releases_stand_apart_in_order() -> None:
    rows = [*scores(1, 0, day=1), *scores(1, 1, release="1.5"), *scores(3, 1)]

    days = live_days(rows, {})

    assert [(day.day.day, day.release, day.n_passed, day.n_scored) for day in days] == [
        (20, "1.4", 3, 4),
        (20, "1.5", 1, 2),
        (21, "1.4", 1, 1),
    ]
    assert [day.share for day in days] == [0.75, 0.5, 1.0]  # more were scored than counted: then these are all


def test_two_releases_are_compared_by_their_sampled_conversations() -> None:
    # The drawn page of the inbox: 851 of 918 before, 104 of 140 after; 18 points less, could be 12 to 26.
    rows = [*scores(851, 67), *scores(104, 36, release="1.5"), *scores(0, 50, release="1.5", forced=True)]

    change = release_change(rows, "1.4", "1.5")

    assert change is not None
    assert (change.n_passed, change.n_scored) == ((851, 104), (918, 140))
    assert round(100 * change.difference) == -18
    assert [round(100 * end) for end in (change.interval.low, change.interval.high)] == [-26, -12]
    assert not change.could_be_chance
    sentence = release_change_sentence(change.before, change.difference, change.interval)
    assert sentence == "18 points less than release 1.4, could be 12 to 26."


def test_few_conversations_could_be_chance_and_none_are_no_rate() -> None:
    rows = [*scores(9, 1), *scores(8, 2, release="1.5")]
    change = release_change(rows, "1.4", "1.5")

    assert change is not None
    assert change.could_be_chance
    assert release_change(rows, "1.4", "1.6") is None
    assert wilson(9, 10).low < 0.9


def test_the_alarm_rings_again_after_it_began_again() -> None:
    rows = [score for _ in range(100) for score in scores(1, 1)]

    state = alarm_state(rows, 0.85, 0.001)

    assert state.rings[:3] == (20, 40, 60)  # golden/inbox.json: "half_from_start" is 20
    assert state.n_scored == 200
    assert 0 <= state.evidence < 1


def test_forced_scores_do_not_ring() -> None:
    assert alarm_state(scores(0, 200, forced=True), 0.85, 0.001).rings == ()
    assert alarm_state([], 0.85, 0.001).evidence == 0
    assert alarm_state(scores(0, 9), 0.85, 0.001).rings


def test_right_after_an_alarm_there_is_no_evidence() -> None:
    rows = scores(0, 9)
    first = alarm_state(rows, 0.85, 0.001).rings[0]

    assert alarm_state(rows[:first], 0.85, 0.001).evidence == 0
    assert alarm_state(rows[: first - 1], 0.85, 0.001).evidence > 0
