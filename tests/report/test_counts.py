"""`Counts`: the trials of a case or a run, counted once."""

from itertools import product
from typing import get_args

import pytest

from evaldesk.model import EXIT_CODES, Conclusion, Counts, Outcome


@pytest.mark.parametrize("ended", list(product((0, 2), repeat=5)), ids=str)
def test_planned_trials_are_the_four_verdicts_and_the_unplayed(ended: tuple[int, int, int, int, int]) -> None:
    passed, failed, errored, unscored, unplayed = ended

    counts = Counts(sum(ended), passed, failed, errored, unscored)

    assert counts.unplayed == unplayed
    assert counts.done + counts.unplayed == counts.planned
    assert counts.scored == passed + failed
    assert (counts.rate is None) == (passed + failed == 0)
    assert counts.all_passed == (ended == (2, 0, 0, 0, 0))


def test_errored_trials_are_scored_only_where_errors_are_failures() -> None:
    assert Counts(4, passed=1, errored=3).rate == 1.0
    assert Counts(4, passed=1, errored=3, errors_are_failures=True).rate == 0.25


def test_counts_of_cases_add_up_to_those_of_the_run() -> None:
    cases = [Counts(3, passed=1, failed=2), Counts(3, errored=1, unscored=1, not_applicable=1)]

    total = Counts.total(cases)

    assert total == Counts(6, 1, 2, 1, 1, not_applicable=1)
    assert total.asides == (("errored", 1), ("unscored", 1), ("not played", 1))


def test_only_a_run_that_passed_ends_a_command_with_code_0() -> None:
    codes = {outcome: Conclusion(outcome, Counts()).exit_code for outcome in get_args(Outcome)}

    assert codes == dict(EXIT_CODES)
    assert [outcome for outcome, code in codes.items() if code == 0] == ["passed"]
