"""How often a gate fails, in each draw of the rates of its cases: exact, or by the normal for many trials.

`n_each` are the trials of each case in the order of the draws' columns. (reference/forecasts.md 2, decisions.md 2.1)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, comb, inf, lcm, sqrt
from typing import TYPE_CHECKING

from evaldesk.model.comparison import FEWEST_ALIKE
from evaldesk.statistics.history.draws import Draws, columns_of
from evaldesk.statistics.history.sums import Sums, ValueTable, expected_squares, pass_chances, sum_of
from evaldesk.statistics.intervals import mean_interval, t_95, wilson

if TYPE_CHECKING:
    from evaldesk.statistics.history.posterior import Floats

ROUNDING = 1e-9
_MOST_CURVE_VALUES = 2_048


def needed_passes(n: int, share: float) -> int:
    """The fewest of `n` trials that must pass to reach `share`, 0 to 1."""
    return ceil(n * share - ROUNDING)


def case_holds(n: int, threshold: float, rates: Floats) -> Floats:
    """The chance that a case passes at least the share `threshold` of `n` trials, at each rate."""
    import numpy as np

    n_needed = needed_passes(n, threshold)
    if n_needed <= 0:
        return np.ones(len(rates))
    if n_needed == n:
        return rates**n
    chances: Floats = np.clip(pass_chances(n, rates)[:, n_needed:].sum(axis=1), 0.0, 1.0)
    return chances


def over_days(chance: Callable[[Draws], Floats], draws: Draws) -> Floats:
    """A chance in each draw, averaged over the shifts of a day."""
    import numpy as np

    chances: Floats = np.sum([weight * chance(draws.on_day(shift)) for shift, weight in draws.days.coarse], axis=0)
    return chances


def both_over_days(chances: Callable[[Draws], tuple[Floats, Floats]], draws: Draws) -> tuple[Floats, Floats]:
    """Two chances in each draw, averaged over the shifts of a day."""
    import numpy as np

    means = np.sum([weight * np.array(chances(draws.on_day(shift))) for shift, weight in draws.days.coarse], axis=0)
    return means[0], means[1]


def pass_sums(draws: Draws, n_each: Sequence[int]) -> Sums:
    """The passes of all trials."""
    import numpy as np

    return sum_of(
        [
            ValueTable(draws.counts(columns), pass_chances(n, draws.rates), np.arange(n + 1))
            for n, columns in columns_of(n_each)
        ]
    )


def rate_fails(draws: Draws, n_each: Sequence[int], least: float) -> Floats:
    """The chance that the pass rate stays below `least`; with uneven trials each case weighs the same."""
    ns = sorted(set(n_each))
    if len(ns) == 1:
        return pass_sums(draws, n_each).at_most(needed_passes(ns[0] * draws.n_cases, least) - 1)
    n_steps = _steps(ns)
    sums = sum_of(_rate_tables(draws, n_each, n_steps), _MOST_CURVE_VALUES)
    return sums.at_most(needed_passes(n_steps * draws.n_cases, least) - 1)


def case_fails(draws: Draws, n_each: Sequence[int], share: float) -> Floats:
    """The chance that some case passes less than `share` of its trials."""
    import numpy as np

    with np.errstate(divide="ignore"):
        logs = [
            draws.counts(columns) @ np.maximum(np.log(case_holds(n, share, draws.rates)), -1e6)
            for n, columns in columns_of(n_each)
        ]
    failing: Floats = -np.expm1(np.sum(logs, axis=0))
    return failing


def curve_fails(draws: Draws, n: int, k: int, least: float, *, is_hat: bool) -> Floats:
    """The chance that the mean pass^k where `is_hat`, else pass@k, of `n` trials a case stays below `least`."""
    table, unit = _curve_table(draws, n, k, is_hat=is_hat)
    least_sum = ceil(draws.n_cases * unit * least * (1 - ROUNDING))
    return sum_of([table], _MOST_CURVE_VALUES).at_most(least_sum - 1)


def meets_level(draws: Draws, of_case: Callable[[Floats], Floats], least: float, *, is_every: bool = False) -> Floats:
    """Whether the mean of a value over cases, or every one, reaches `least`, in each draw.

    The last rate below 1 counts as 1: only a point of the grid is 1.
    """
    import numpy as np

    values = of_case(np.where(draws.rates >= 0.9996, 1.0, draws.rates))[draws.places]
    meets: Floats = (values.min(axis=1) if is_every else values.mean(axis=1)) >= least - ROUNDING
    return meets


def regressions_fail(
    draws: Draws,
    n_each: Sequence[int],
    threshold: float,
    max_regressions: int,
    *,
    passed_before: Sequence[bool] | None = None,
    confirm: tuple[int, int] | None = None,
    worse: float = 0.0,
) -> Floats:
    """The chance that more than `max_regressions` cases pass in the baseline and do not pass now.

    `passed_before` are the verdicts of a stored baseline; None where it is still to be played. With `confirm` (needed,
    trials) only cases count that also pass fewer than the needed ones of so many fresh trials. `worse` lowers the rates
    of now.
    """
    import numpy as np

    chances = np.zeros(len(draws.places))
    before = draws.days.coarse if passed_before is None else ((0, 1.0),)
    for shift_before, weight_before in before:
        for shift, weight in draws.days.coarse:
            now = draws.on_day(shift).worse(worse)
            of_case = regression_chances(
                now, n_each, threshold, passed_before=passed_before, confirm=confirm, before=draws.on_day(shift_before)
            )
            chances += weight_before * weight * more_than(max_regressions, of_case)
    return chances


def regression_chances(
    draws: Draws,
    n_each: Sequence[int],
    threshold: float,
    *,
    passed_before: Sequence[bool] | None = None,
    confirm: tuple[int, int] | None = None,
    before: Draws | None = None,
) -> Floats:
    """The chance of each case to regress on one day, by draw; `before` has the rates of the baseline, or those of now.

    The cases that did not pass in a stored baseline are left out.
    """
    import numpy as np

    by_case = np.empty(draws.places.shape)
    for n, places in columns_of(n_each):
        of_rate = 1 - case_holds(n, threshold, draws.rates)
        if confirm:
            of_rate = of_rate * (1 - case_holds(confirm[1], confirm[0] / confirm[1], draws.rates))
        if passed_before is None:
            of_rate = of_rate * case_holds(n, threshold, (before or draws).rates)
        by_case[:, places] = of_rate[draws.places[:, places]]
    return by_case if passed_before is None else by_case[:, np.array(passed_before, bool)]


def more_than(most: int, chances: Floats) -> Floats:
    """The chance that more than `most` of independent events happen; a column an event, a row a draw."""
    import numpy as np

    n_rows, n_events = chances.shape
    if most >= n_events:
        return np.zeros(n_rows)
    if not most:
        with np.errstate(divide="ignore"):
            some: Floats = -np.expm1(np.log1p(-chances).sum(axis=1))
        return some
    sums = np.zeros((n_rows, most + 1))
    sums[:, 0] = 1.0
    for event in chances.T:
        happens = sums * event[:, None]
        sums -= happens
        sums[:, 1:] += happens[:, :-1]
    beyond: Floats = np.clip(1 - sums.sum(axis=1), 0.0, 1.0)
    return beyond


def rate_answers(draws: Draws, n_each: Sequence[int], least: float) -> tuple[Floats, Floats]:
    """The chances that the interval of the pass rate lies above `least`, and below it, in each draw."""
    ns, n_cases = sorted(set(n_each)), draws.n_cases
    if n_cases == 1 or ns == [1]:
        sums = pass_sums(draws, n_each)
        below = first_value(sums.most, lambda passed: wilson(passed, sums.most).high >= least)
        above = first_value(sums.most, lambda passed: wilson(passed, sums.most).low >= least)
        return 1 - sums.at_most(above - 1), sums.at_most(below - 1)
    unit = _steps(ns)

    def ends(total: float, squares: float) -> tuple[float, float]:
        interval = mean_interval(
            mean=total / unit / n_cases,
            n=n_cases,
            n_cases=n_cases,
            squares=squares / unit**2,
            cluster_squares=squares / unit**2,
        )
        return (interval.low, interval.high) if interval else (0.0, 1.0)

    return _mean_answers(_rate_tables(draws, n_each, unit), ends, least)


def curve_answers(draws: Draws, n: int, k: int, least: float, *, is_hat: bool) -> tuple[Floats, Floats]:
    """The chances that the interval of pass^k where `is_hat`, else of pass@k, lies above `least`, and below it.

    The interval is Student's: that of drawn cases, which the gate has, is as wide.
    """
    table, unit = _curve_table(draws, n, k, is_hat=is_hat)
    n_cases = draws.n_cases

    def ends(total: float, squares: float) -> tuple[float, float]:
        if n_cases < FEWEST_ALIKE:
            return 0.0, 1.0
        interval = mean_interval(
            mean=total / unit / n_cases,
            n=n_cases,
            n_cases=n_cases,
            squares=squares / unit**2,
            cluster_squares=squares / unit**2,
        )
        return (interval.low, interval.high) if interval else (0.0, 1.0)

    return _mean_answers([table], ends, least)


def drop_answers(draws: Draws, n_each: Sequence[int], margin: float, *, worse: float = 0.0) -> tuple[Floats, Floats]:
    """The chances that the interval of the difference of two runs lies above -`margin`, and below it.

    Both runs are still to be played; `worse` lowers the rates of the second.
    """
    import numpy as np

    unit, n_cases = _steps(sorted(set(n_each))), draws.n_cases

    def ends(total: float, squares: float) -> tuple[float, float]:
        middle = total / unit / n_cases - 1  # values are shifted by one, so that none is negative
        if squares == 0 and n_cases < FEWEST_ALIKE:
            return -inf, inf
        half = t_95(n_cases - 1) * sqrt(squares / unit**2 / (n_cases - 1) / n_cases) if n_cases > 1 else 0.0
        return middle - half, middle + half

    answers = np.zeros((2, len(draws.places)))
    for shift, weight in draws.days.coarse:
        now = draws.on_day(shift).worse(worse)
        tables = []
        for n, columns in columns_of(n_each):
            before, after = pass_chances(n, draws.rates), pass_chances(n, now.rates)
            chances = np.array([np.convolve(one[::-1], two) for one, two in zip(before, after, strict=True)])
            values = np.rint(np.arange(2 * n + 1) * unit / n).astype(int)
            tables.append(ValueTable(draws.counts(columns), chances, values))
        answers += weight * np.array(_mean_answers(tables, ends, -margin - ROUNDING))
    return answers[0], answers[1]


def _mean_answers(
    tables: Sequence[ValueTable], ends: Callable[[float, float], tuple[float, float]], bar: float
) -> tuple[Floats, Floats]:
    """The chances that the interval of a mean lies above the bar, and below it, in each draw.

    `ends` of the interval are of the sum of the values and of their squared deviations over cases. The latter are not
    drawn beside the sum: they are those that are expected with this sum.
    """
    import numpy as np

    sums = sum_of(tables)
    n_cases = int(sum(table.counts[0].sum() for table in tables))
    squares = expected_squares(tables, sums)

    def apart(row: int, value: int) -> float:
        variation = squares(row, value) - value * value / n_cases
        return variation if variation > 1e-7 else 0.0

    rows = range(len(sums.mean))
    below = [first_value(sums.most, lambda v, row=row: ends(v, apart(row, v))[1] >= bar) - 1 for row in rows]  # type: ignore[misc]
    above = [first_value(sums.most, lambda v, row=row: ends(v, apart(row, v))[0] >= bar) - 1 for row in rows]  # type: ignore[misc]
    return 1 - sums.at_most(np.array(above)), sums.at_most(np.array(below))


def first_value(most: int, is_so: Callable[[int], bool]) -> int:
    """The least value from which on it is so, up to `most`; one more where it never is."""
    low, high = 0, most + 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if is_so(middle) else (middle + 1, high)
    return low


def _steps(ns: Sequence[int]) -> int:
    """The steps of a rate of 1: finer ones than a tenth of a trial move nothing."""
    return min(lcm(*ns), 10 * max(ns))


def _rate_tables(draws: Draws, n_each: Sequence[int], unit: int) -> list[ValueTable]:
    import numpy as np

    return [
        ValueTable(
            draws.counts(columns), pass_chances(n, draws.rates), np.rint(np.arange(n + 1) * unit / n).astype(int)
        )
        for n, columns in columns_of(n_each)
    ]


def _curve_table(draws: Draws, n: int, k: int, *, is_hat: bool) -> tuple[ValueTable, float]:
    """The values of pass^k or pass@k in whole numbers, and the number that stands for 1."""
    import numpy as np

    unit = comb(n, k)
    values = [comb(c, k) if is_hat else unit - comb(n - c, k) for c in range(n + 1)]
    scale = max(1, unit * draws.n_cases // 10**6)  # whole numbers beyond 64 bits are rounded
    table = ValueTable(draws.counts(), pass_chances(n, draws.rates), np.array([value // scale for value in values]))
    return table, unit / scale
