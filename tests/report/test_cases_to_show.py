"""How many more cases would show a difference that chance could explain."""

from __future__ import annotations

import pytest

from evaldesk.statistics.comparison import cases_to_show, compare_scores
from evaldesk.wording.comparison import next_words


def changed(*differences: float) -> int | None:
    before = dict.fromkeys(range(len(differences)), 0.0)
    found = compare_scores(before, dict(enumerate(differences)))
    assert found
    return cases_to_show(found)


@pytest.mark.parametrize("differences", [(0.0,) * 10, (1.0,) * 10, (1.0, -1.0) * 5, (0.5,)])
def test_what_is_shown_or_nothing_needs_no_more_cases(differences: tuple[float, ...]) -> None:
    assert changed(*differences) is None
    assert next_words(None) == ""


def test_so_many_cases_of_the_same_spread_do_show_the_difference() -> None:
    seen = (1.0, 0.0, 0.0, 0.0, -1.0, 1.0, 0.0, 0.0, 0.0, 0.0)
    n_more = changed(*seen)

    assert n_more is not None
    assert 10 + n_more > 10
    times = -(-(10 + n_more) // 10)
    assert changed(*(seen * (times + 1))) is None  # the same cases again and again
    assert changed(*(seen * max(1, times // 4))) is not None


def test_the_words_say_what_to_do() -> None:
    assert next_words(1) == "If the difference is real, about 1 more case like these would show it, 4 times in 5."
    assert (
        next_words(1200) == "If the difference is real, about 1,200 more cases like these would show it, 4 times in 5."
    )
