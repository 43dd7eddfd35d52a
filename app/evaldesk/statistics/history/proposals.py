"""Gates that rarely fail by chance and find a worse agent, as far as a history can tell. (reference/forecasts.md 6)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from evaldesk.statistics.history.build_tests import LOOK_LEVEL, SUITE_LEVEL, suite_bar
from evaldesk.statistics.history.days import SAME_DAY, DayShifts
from evaldesk.statistics.history.draws import OFTEN, Draws, Range, drawn_rates
from evaldesk.statistics.history.gates import needed_passes, over_days, pass_sums, regressions_fail
from evaldesk.statistics.history.posterior import Posterior

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats

DROP = 0.15
"""A proposed gate finds an agent whose pass rate is lower by this much, in the share FOUND of builds."""
FOUND = 0.8
MOST_N = 20
FRESH = 5
"""Fresh trials of a case that is played again."""
CASES_SHARE = 0.01
"""What the tests of single cases add to the false alarms of the suite."""
_MOST_FALSE = 0.10
"""The upper end of the false alarms of a bar from the history, whose 2 % already contain the doubt."""
_FEWEST_EACH, _FEWEST = 3, 50
_POWER_FACTOR = 8.4
"""The square of the sum of the bars for 2 % false alarms and 80 % power."""
_PLANNED_POWER = 0.85
"""Planned for more than FOUND: the formula is an approximation."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A gate: `n` trials a case, how often it fails unchanged and how often it finds the drop; `bar` in passes.

    `confirm` are the needed and the fresh trials of a fixed confirmation.
    """

    n: int
    bar: int
    fails: Range
    finds: Range
    confirm: tuple[int, int] | None = None


def is_too_little(cases: Posterior) -> bool:
    """Whether there are too few trials to know or to propose anything."""
    return cases.fewest_trials < _FEWEST_EACH or cases.n_trials < _FEWEST


def likely_forecast(cases: Posterior, n: int, *, drop: float = DROP, days: DayShifts = SAME_DAY) -> Setting:
    """How the rule `likely` behaves with `n` trials a case."""
    draws = drawn_rates(cases)
    n_each = [n] * draws.n_cases
    bar = suite_bar(cases, _build(cases, n), SUITE_LEVEL, days)

    def fails(now: Draws) -> Range:
        return Range.of(over_days(lambda each: pass_sums(each, n_each).at_most(bar), now, days))

    return Setting(n, bar, fails(draws), fails(draws.worse(drop)))


def confirm_forecast(cases: Posterior, n: int, *, drop: float = DROP, days: DayShifts = SAME_DAY) -> Setting:
    """How the rule `confirm` behaves: the suite looks low after `n` trials a case, and is low after FRESH more."""
    import numpy as np

    draws = drawn_rates(cases)
    first = suite_bar(cases, _build(cases, n), LOOK_LEVEL, days)
    both = suite_bar(cases, _build(cases, n + FRESH), SUITE_LEVEL, days)

    def fails(now: Draws) -> Range:
        def of_day(each: Draws) -> Floats:
            seen, fresh = pass_sums(each, [n] * each.n_cases), pass_sums(each, [FRESH] * each.n_cases)
            edges = np.unique(np.linspace(-1, first, min(first + 2, 65)).astype(int))
            below = [seen.at_most(int(edge)) for edge in edges]
            found = below[0] * 0.0
            for at in range(1, len(edges)):
                middle = (int(edges[at - 1]) + 1 + int(edges[at])) // 2
                found = found + (below[at] - below[at - 1]) * fresh.at_most(both - middle)
            return found

        return Range.of(over_days(of_day, now, days))

    return Setting(n, both, fails(draws), fails(draws.worse(drop)))


def proposed_likely(cases: Posterior, *, drop: float = DROP, days: DayShifts = SAME_DAY) -> Setting | None:
    """The fewest trials with which the rule `likely` finds the drop; None where the history is too short or wide."""
    if is_too_little(cases):
        return None

    def forecast(n: int) -> Setting:
        return likely_forecast(cases, n, drop=drop, days=days)

    found = _fewest(forecast, lambda it: it.finds.mean >= FOUND)
    # More trials find more, but the upper end goes up and down with the whole passes of the bar.
    while found and found.fails.high > _MOST_FALSE:
        found = forecast(found.n + 1) if found.n < MOST_N else None
    return found


def proposed_confirm(cases: Posterior, *, drop: float = DROP, days: DayShifts = SAME_DAY) -> Setting | None:
    """The fewest trials with which the rule `confirm` finds the drop; None as above."""
    if is_too_little(cases):
        return None
    n = confirm_trials(
        cases.n_cases, cases.n_trials / cases.n_cases, cases.trial_variance(), cases.trial_variance(drop)
    )
    found = confirm_forecast(cases, n, drop=drop, days=days) if n else None
    return found if found and found.fails.high <= _MOST_FALSE else None


def confirm_trials(n_cases: int, h: float, before: float, after: float, drop: float = DROP) -> int | None:
    """The fewest trials a case with which the rule `confirm` finds the drop after `h` trials a case of history.

    `before` and `after` are the variances of a trial unchanged and after the drop. None up to MOST_N.
    """
    phi = NormalDist().cdf
    look, suite = (NormalDist().inv_cdf(1 - level) for level in (LOOK_LEVEL, SUITE_LEVEL))

    def power(n: int, bar: float) -> float:
        same, worse = (sqrt(max(1e-12, (v / n + before / h) / n_cases)) for v in (before, after))
        return phi((drop - bar * same) / worse)

    return next((n for n in range(1, MOST_N + 1) if power(n, look) * power(n + FRESH, suite) >= _PLANNED_POWER), None)


def proposed_rate(cases: Posterior, *, drop: float = DROP, days: DayShifts = SAME_DAY) -> Setting | None:
    """The fewest trials with which some bar on the pass rate is quiet at the upper end and finds the drop."""
    if is_too_little(cases):
        return None
    draws = drawn_rates(cases)

    def best(n: int) -> Setting:
        n_each, whole = [n] * draws.n_cases, n * draws.n_cases

        def fails(now: Draws, bar: float) -> Range:
            needed = needed_passes(whole, bar)
            return Range.of(over_days(lambda each: pass_sums(each, n_each).at_most(needed - 1), now, days))

        low, high = 0, 99
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fails(draws, middle / 100).high <= OFTEN else (low, middle - 1)
        return Setting(n, low, fails(draws, low / 100), fails(draws.worse(drop), low / 100))

    return _fewest(best, lambda it: it.bar > 0 and it.finds.mean >= FOUND)


def proposed_fixed_confirm(
    cases: Posterior,
    threshold: float,
    allowed: int,
    *,
    passed_before: Sequence[bool] | None = None,
    drop: float = DROP,
    days: DayShifts = SAME_DAY,
) -> Setting | None:
    """The fewest trials with which a fixed number of fresh trials of suspects is quiet and finds the drop."""
    if is_too_little(cases):
        return None
    draws = drawn_rates(cases)

    def best(n: int) -> Setting:
        def fails(needed: int, worse: float = 0.0) -> Range:
            return Range.of(
                regressions_fail(
                    draws,
                    [n] * draws.n_cases,
                    threshold,
                    allowed,
                    passed_before=passed_before,
                    confirm=(needed, 2 * FRESH),
                    worse=worse,
                    days=days,
                )
            )

        needed = next((each for each in range(2 * FRESH, 0, -1) if fails(each).high <= OFTEN), 0)
        return Setting(n, needed, fails(needed), fails(needed, drop), (needed, 2 * FRESH))

    return _fewest(best, lambda it: it.bar > 0 and it.finds.mean >= FOUND)


def _fewest(setting: Callable[[int], Setting], is_enough: Callable[[Setting], bool]) -> Setting | None:
    """The setting with the fewest trials up to MOST_N, by halving: a search of all of them takes seconds."""
    low, high = 1, MOST_N
    found = setting(high)
    if not is_enough(found):
        return None
    while low < high:
        middle = (low + high) // 2
        each = setting(middle)
        if is_enough(each):
            high, found = middle, each
        else:
            low = middle + 1
    return found


def history_needed(n_cases: int, before: float, drop: float = DROP) -> int:
    """The trials of history a case below which no number of trials finds the drop."""
    return ceil(_POWER_FACTOR * before / (n_cases * drop**2))


def trials_without_history(n_cases: int, h: float, before: float, after: float, drop: float = DROP) -> int | None:
    """About how many trials a case find the drop after `h` trials a case of history; None where no number does."""
    left = n_cases * drop**2 / _POWER_FACTOR - before / h
    return ceil(after / left) if left > 0 else None


def _build(cases: Posterior, n: int) -> Counter[tuple[int, int, int]]:
    return Counter({(scored, passed, n): times for scored, passed, times in cases.kinds})
