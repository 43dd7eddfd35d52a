"""Gates that rarely fail by chance and find a worse agent, as far as a history can tell. (reference/forecasts.md 6)"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING

from evaldesk.model.conclusion import CONFIRM
from evaldesk.model.forecast import FOUND, OFTEN, OFTEN_BY_HISTORY, Range
from evaldesk.model.forecast import SOUGHT as DROP
from evaldesk.statistics.history.build_tests import LOOK_LEVEL, SUITE_LEVEL, passes_of
from evaldesk.statistics.history.draws import Draws
from evaldesk.statistics.history.gates import (
    drop_answers,
    first_value,
    needed_passes,
    over_days,
    pass_sums,
    regression_chances,
    regressions_fail,
)
from evaldesk.statistics.history.sums import Sums

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats, Posterior

MOST_N = 20
_, FRESH = CONFIRM
FEWEST_EACH = 3
"""Trials of a case from which on its history tells something."""
CASES_SHARE = 0.01
"""What the tests of single cases add to the false alarms of the suite."""
_FIXED_FRESH = (5, 8, 12, 16, 20)
"""Fresh trials of a suspect that are tried for a fixed bar."""
_OFTEN_OF_PAIRS = 0.02
"""The limit of a fixed bar between two runs to come, at the upper end of a range that is too narrow for mixed cases.

With 5 % every second proposal fails more builds where half of the cases always pass and half 80 % of trials; with 2 %
one in fifteen does. (bench/simulate_forecasts.py)
"""
_MOST_LOOKS = 65
"""Parts into which the passes at the first look are cut, where there are more."""
_FEWEST_WITHOUT_FAILURE = 100
_POWER_FACTOR = 8.4
"""The square of the sum of the bars for 2 % false alarms and 80 % power."""
_MOST_ADVISED = 200
_PLANNED_POWER = 0.85
"""Planned for more than FOUND: the formula is an approximation."""


@dataclass(frozen=True, slots=True)
class Setting:
    """A gate: `n` trials a case, how often it fails unchanged and how often it finds the drop; `bar` in passes.

    `confirm` are the needed and the fresh trials of a fixed confirmation, `n_more` the mean number of trials that it
    plays beyond those if nothing changes.
    """

    n: int
    bar: int
    fails: Range
    finds: Range
    confirm: tuple[int, int] | None = None
    n_more: float = 0.0


def likely_forecast(draws: Draws, n_each: Sequence[int], *, drop: float = DROP) -> Setting:
    """How the rule `likely` behaves: the suite is worse where it passes no more than the bar of its history."""
    bar = history_bar(draws, n_each, SUITE_LEVEL)
    fails, finds = (Range.of(likely_fails(draws, n_each, each)) for each in (draws, draws.worse(drop)))
    return Setting(max(n_each), bar, fails, finds)


def likely_fails(draws: Draws, n_each: Sequence[int], now: Draws) -> Floats:
    """The chance of the rule `likely` to fail in each draw of `now`, by the bar from the history of `draws`."""
    bar = history_bar(draws, n_each, SUITE_LEVEL)
    return over_days(lambda each: pass_sums(each, n_each).at_most(bar), now)


def confirm_forecast(draws: Draws, n_each: Sequence[int], *, fresh: int = FRESH, drop: float = DROP) -> Setting:
    """How the rule `confirm` behaves: the suite looks low, and is low after `fresh` more trials of every case."""
    bar = history_bar(draws, [n + fresh for n in n_each], SUITE_LEVEL)
    fails, finds = (Range.of(confirm_fails(draws, n_each, each, fresh)) for each in (draws, draws.worse(drop)))
    return Setting(max(n_each), bar, fails, finds, n_more=fresh * draws.n_cases * share_that_looks_low(draws, n_each))


def confirm_fails(draws: Draws, n_each: Sequence[int], now: Draws, n_fresh: int = FRESH) -> Floats:
    """The chance of the rule `confirm` to fail in each draw of `now`, by the bars from the history of `draws`."""
    import numpy as np

    first = history_bar(draws, n_each, LOOK_LEVEL)
    bar = history_bar(draws, [n + n_fresh for n in n_each], SUITE_LEVEL)
    edges = np.unique(np.linspace(-1, first, min(first + 2, _MOST_LOOKS)).astype(int)).tolist()

    def of_day(each: Draws) -> Floats:
        first_sums, fresh_sums = pass_sums(each, n_each), pass_sums(each, [n_fresh] * each.n_cases)
        below = [first_sums.at_most(edge) for edge in edges]
        chances = 0 * below[0]
        for at in range(1, len(edges)):
            middle = (edges[at - 1] + 1 + edges[at]) // 2
            chances += (below[at] - below[at - 1]) * fresh_sums.at_most(bar - middle)
        return chances

    return over_days(of_day, now)


def share_that_looks_low(draws: Draws, n_each: Sequence[int]) -> float:
    """How often the suite of an unchanged agent looks low, so that every case is played again."""
    first = history_bar(draws, n_each, LOOK_LEVEL)
    return float(over_days(lambda each: pass_sums(each, n_each).at_most(first), draws).mean())


def history_bar(draws: Draws, n_each: Sequence[int], level: float) -> int:
    """The most passes of a build whose chance, with fewer ones, is at most `level`; -1 where even none is likelier."""
    cases = draws.cases
    if cases is None:
        sums = pass_sums(draws, n_each)
        return first_value(sums.most, lambda passes: float(sums.at_most(passes)[0]) > level) - 1
    kinds = [kind[:2] for kind in cases.kinds for _ in range(kind[2])]
    build = Counter((n_scored, n_passed, n) for (n_scored, n_passed), n in zip(kinds, n_each, strict=True))
    return passes_of(cases, build, draws.days).bar(level)


def proposed_likely(draws: Draws, *, drop: float = DROP) -> Setting | None:
    """The fewest trials with which the rule `likely` finds the drop; None where the history is too short or wide."""
    if draws.is_too_short:
        return None

    def forecast(n: int) -> Setting:
        return likely_forecast(draws, [n] * draws.n_cases, drop=drop)

    setting = _fewest(forecast, lambda it: it.finds.mean >= FOUND)
    # More trials find more, but the upper end goes up and down with the whole passes of the bar.
    while setting and not _is_quiet(setting):
        setting = forecast(setting.n + 1) if setting.n < MOST_N else None
    return setting


def proposed_confirm(draws: Draws, *, fresh: int = FRESH, drop: float = DROP) -> Setting | None:
    """The fewest trials with which the rule `confirm` finds the drop; None as above."""
    cases = draws.cases
    if draws.is_too_short:
        return None
    if cases is None:
        variances = [float((rates * (1 - rates)).mean()) for rates in (draws.case_means, draws.worse(drop).case_means)]
        n = confirm_trials(draws.n_cases, inf, variances[0], variances[1], fresh=fresh, drop=drop)
    else:
        each = cases.n_trials / cases.n_cases
        n = confirm_trials(
            cases.n_cases, each, cases.trial_variance(), cases.trial_variance(drop), fresh=fresh, drop=drop
        )
    # The formula is near; the forecast says whether it is enough.
    for each in range(n or MOST_N + 1, MOST_N + 1):
        setting = confirm_forecast(draws, [each] * draws.n_cases, fresh=fresh, drop=drop)
        if setting.finds.mean >= FOUND and _is_quiet(setting):
            return setting
    return None


def _is_quiet(setting: Setting) -> bool:
    """Whether a gate whose bar is the history fails rarely, by the limit that its forecast has."""
    return setting.fails.plus(CASES_SHARE).standing(OFTEN_BY_HISTORY) == "rarely"


def trials_without_failure(cases: Posterior) -> int:
    """The trials of each case that a history lacks in which none failed, before its bar is taken for quiet; else 0.

    60 of 60 come in one history of six where the rate is 0.97, and the bar that they give then fails 6 to 12 % of
    builds; 100 of 100 come in one of twenty.
    """
    n_passed = sum(passed * times for _, passed, times in cases.kinds)
    return max(0, -(-(_FEWEST_WITHOUT_FAILURE - cases.n_trials) // cases.n_cases)) if n_passed == cases.n_trials else 0


def trials_to_know_history(h: float, n_build: int) -> int:
    """The number of trials a case, about, from which on the upper end of a gate by history is at most its limit.

    After `h` of them, for a build of at most `n_build` trials a case. With three times as many trials of history as of
    the build, the bar is at 2.37 standard errors of the build, and a history that is lucky by 1.64 of its own lowers
    that to 1.42, which is 8 %; the tests of single cases add 1 %.
    """
    return min(_MOST_ADVISED, max(ceil(1.5 * h), 3 * n_build))


def confirm_trials(
    n_cases: int, h: float, before: float, after: float, *, fresh: int = FRESH, drop: float = DROP
) -> int | None:
    """The fewest trials a case with which the rule `confirm` finds the drop after `h` trials a case of history.

    `before` and `after` are the variances of a trial unchanged and after the drop. None up to MOST_N.
    """
    phi = NormalDist().cdf
    look, suite = (NormalDist().inv_cdf(1 - level) for level in (LOOK_LEVEL, SUITE_LEVEL))

    def power(n: int, bar: float) -> float:
        same, worse = (sqrt(max(1e-12, (v / n + before / h) / n_cases)) for v in (before, after))
        return phi((drop - bar * same) / worse)

    return next((n for n in range(1, MOST_N + 1) if power(n, look) * power(n + fresh, suite) >= _PLANNED_POWER), None)


def proposed_rate(draws: Draws, *, drop: float = DROP) -> Setting | None:
    """The fewest trials with which some bar on the pass rate is quiet at the upper end and finds the drop."""
    import numpy as np

    if draws.is_too_short:
        return None

    days = draws.days.coarse

    def best(n: int) -> Setting:
        n_each, n_trials = [n] * draws.n_cases, n * draws.n_cases
        # The sums of a day are costly, and the same for every bar.
        same, worse = (
            [(pass_sums(each.on_day(shift), n_each), weight) for shift, weight in days]
            for each in (draws, draws.worse(drop))
        )

        def fails(sums: Sequence[tuple[Sums, float]], bar: int) -> Range:
            most = needed_passes(n_trials, bar / 100) - 1
            return Range.of(np.sum([weight * each.at_most(most) for each, weight in sums], axis=0))

        bar = first_value(99, lambda bar: fails(same, bar).high > OFTEN) - 1
        return Setting(n, bar, fails(same, bar), fails(worse, bar))

    return _fewest(best, lambda it: it.bar > 0 and it.finds.mean >= FOUND)


def proposed_fixed_confirm(
    draws: Draws,
    threshold: float,
    max_regressions: int,
    *,
    passed_before: Sequence[bool] | None = None,
    drop: float = DROP,
) -> Setting | None:
    """The fewest trials with which a fixed number of fresh trials of suspects is quiet and finds the drop."""
    if draws.is_too_short:
        return None

    def fails(n: int, n_needed: int, fresh: int, worse: float = 0.0) -> Range:
        n_each, confirm = [n] * draws.n_cases, (n_needed, fresh)
        return Range.of(
            regressions_fail(
                draws, n_each, threshold, max_regressions, passed_before=passed_before, confirm=confirm, worse=worse
            )
        )

    most = _OFTEN_OF_PAIRS if passed_before is None else OFTEN
    # More trials make a flip likelier, so that what few find need not be found by more: no halving here.
    for n in range(1, MOST_N + 1):
        for fresh in _FIXED_FRESH:
            n_needed = next((each for each in range(fresh, 0, -1) if fails(n, each, fresh).high <= most), 0)
            finds = fails(n, n_needed, fresh, drop) if n_needed else None
            if finds and finds.mean >= FOUND:
                flips = regression_chances(draws, [n] * draws.n_cases, threshold, passed_before=passed_before)
                n_more = fresh * float(flips.sum(axis=1).mean())
                return Setting(n, n_needed, fails(n, n_needed, fresh), finds, (n_needed, fresh), n_more)
    return None


def proposed_margin(draws: Draws, margin: float, *, drop: float = DROP) -> Setting | None:
    """The fewest trials with which the interval of the difference tells the drop, and rarely an unchanged agent."""
    if draws.is_too_short:
        return None

    def best(n: int) -> Setting:
        n_each = [n] * draws.n_cases
        (_, same), (_, worse) = (drop_answers(draws, n_each, margin, worse=each) for each in (0.0, drop))
        return Setting(n, 0, Range.of(same), Range.of(worse))

    return _fewest(best, lambda it: it.fails.high <= OFTEN and it.finds.mean >= FOUND)


def _fewest(setting: Callable[[int], Setting], is_enough: Callable[[Setting], bool]) -> Setting | None:
    """The setting with the fewest trials up to MOST_N, by halving: a search of all of them takes seconds."""
    low, high = 1, MOST_N
    fewest = setting(high)
    if not is_enough(fewest):
        return None
    while low < high:
        middle = (low + high) // 2
        each = setting(middle)
        if is_enough(each):
            high, fewest = middle, each
        else:
            low = middle + 1
    return fewest


def fewest_history_trials(n_cases: int, before: float, now: float = 0.0, drop: float = DROP) -> int:
    """The trials of history a case below which no number of trials finds the drop; 0 where no history is enough.

    `now` is the variance of the mean of a case's trials in the build: 0 for any number of them.
    """
    room = n_cases * drop**2 / _POWER_FACTOR - now
    return ceil(before / room) if room > 0 else 0


def trials_without_history(n_cases: int, h: float, before: float, after: float, drop: float = DROP) -> int | None:
    """About how many trials a case find the drop after `h` trials a case of history; None where no number does."""
    room = n_cases * drop**2 / _POWER_FACTOR - before / h
    return ceil(after / room) if room > 0 else None
