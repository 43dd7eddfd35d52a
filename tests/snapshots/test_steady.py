"""Snapshots do not depend on the load of the machine: whatever a clock says, the text kept of it is the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.snapshots.rendered import steady

from evaldesk.model.comparison import Comparison
from evaldesk.model.conclusion import Interval
from evaldesk.web.render import ago, duration
from evaldesk.wording.comparison import MILLISECONDS, comparison_sentence, difference_why

NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61, 119, 3599, 3600, 7300, 86_400, 3 * 86_400])
def test_each_age_is_kept_as_the_same_word(seconds: int) -> None:
    assert steady(f"changed {ago(NOW - timedelta(seconds=seconds), NOW)}\n") == "changed <ago>\n"


def test_each_day_is_kept_as_the_same_word() -> None:
    days = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(365)]

    for moment in days:
        assert steady(f"run 2, {moment:%d %b}\nrun 1, {moment:%-d %b %Y}\n") == "run 2, <day>\nrun 1, <day>\n"


@pytest.mark.parametrize(
    "ms", [0, 0.002, 0.4, 1, 12, 999, 1000, 1234, 59_900, 60_000, 61_000, 3_599_000, 3_600_000, 9e7]
)
def test_each_duration_is_kept_as_the_same_word(ms: float) -> None:
    assert steady(f"It took {duration(ms)}.\n") == "It took <duration>.\n"


@pytest.mark.parametrize("difference", [-70_000, -1200, -3, -0.2, 0, 0.2, 3, 1200, 70_000])
@pytest.mark.parametrize("p", [0.0001, 0.5, 1.0])
@pytest.mark.parametrize("width", [None, 0, 0.5, 5, 90_000])
def test_each_change_of_time_is_kept_as_the_same_word(difference: float, p: float, width: float | None) -> None:
    interval = None if width is None else Interval(difference - width, difference + width)
    compared = Comparison(2, 0, 0, 1, 1, 0.0, difference, difference, None, interval, p, "t")

    row = f"Time of a trial\n{comparison_sentence(compared, MILLISECONDS)}\n12 ms\n13 ms\n"
    behind = f"Why\n: Time of a trial\n{difference_why(compared)}\n12 ms\n"

    assert steady(row) == "Time of a trial\n<change of time>\n<duration>\n<duration>\n"
    assert steady(behind) == "Why\n: Time of a trial\n<why of time>\n<duration>\n"


def test_numbers_that_no_clock_gives_are_kept() -> None:
    text = "2 of 4 passed; 95 % CI 0.00-1.00\n12 cases, p 0.027\n$0.0123\n5 trials\n"

    assert steady(text) == text
