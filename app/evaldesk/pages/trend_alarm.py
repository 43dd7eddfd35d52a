"""The alarm of a trend: a newest run that passed fewer trials than its last runs allow. (reference/sets.md 3)

The rule is that of the gate `likely`: the bar comes from the history of the same cases, and it is the bar of a build.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from evaldesk.model.comparison import SuiteChange
from evaldesk.model.set_trend import TrendCase, TrendRun
from evaldesk.model.set_versions import set_diff
from evaldesk.statistics.history.build_tests import SUITE_LEVEL, Trials, suite_chance, usual_passes
from evaldesk.statistics.history.days import day_shifts
from evaldesk.statistics.history.draws import missing_history
from evaldesk.statistics.history.posterior import posterior_of

N_HISTORY = 10
"""The comparable runs before the newest one that make its history."""


def alarm_runs(compared: Sequence[TrendRun]) -> list[int]:
    """The ids of the runs whose cases an alarm reads: the newest run and those before it; none without any before."""
    return [run.id for run in compared[-N_HISTORY - 1 :]] if len(compared) > 1 else []


def newest_verdict(
    compared: Sequence[TrendRun], rows: Sequence[TrendCase], level: float = SUITE_LEVEL
) -> SuiteChange | None:
    """The newest run against the runs before it; None where their history is too short to tell anything.

    `compared` are the newest runs in a row with the same cases and criteria, `rows` the cases of `alarm_runs`. Cases
    in quarantine are left out, as of every gate.
    """
    run_ids = alarm_runs(compared)
    if not run_ids:
        return None
    by_run: dict[int, list[TrendCase]] = {run_id: [] for run_id in run_ids}
    for row in rows:
        if row.run_id in by_run:
            by_run[row.run_id].append(row)
    left_out = set(compared[-1].left_out)
    newest = [row for row in by_run[run_ids[-1]] if row.n_scored and row.case_id not in left_out]
    builds = tuple(_of_newest(by_run[run_id], newest) for run_id in run_ids[:-1])
    history = tuple(
        (sum(n for n, _ in trials), sum(passed for _, passed in trials)) for trials in zip(*builds, strict=True)
    )
    if not history or not any(n for n, _ in history):
        return None
    now = tuple((row.n_scored, row.n_passed) for row in newest)
    verdict = _verdict(history, now, builds)
    if verdict is None:
        return None
    usual_range, chance = verdict
    n_scored, n_passed = sum(n for n, _ in now), sum(passed for _, passed in now)
    return SuiteChange("", n_scored, n_passed, usual_range, chance, is_worse=chance <= level)


def _of_newest(rows: Sequence[TrendCase], newest: Sequence[TrendCase]) -> tuple[Trials, ...]:
    """The scored and passed trials in an earlier run of the cases of the newest one; none of a case it lacks."""
    trials: Mapping[tuple[str, str], Trials] = {(row.case_id, row.digest): (row.n_scored, row.n_passed) for row in rows}
    diff = set_diff([*trials], [(row.case_id, row.digest) for row in newest])
    earlier = {(case.after_id, case.after): (case.before_id, case.before) for case in diff.comparable}
    return tuple(trials.get(earlier.get((row.case_id, row.digest), ("", "")), (0, 0)) for row in newest)


@lru_cache(maxsize=128)
def _verdict(
    history: tuple[Trials, ...], now: tuple[Trials, ...], builds: tuple[tuple[Trials, ...], ...]
) -> tuple[tuple[int, int], float] | None:
    """The usual passes and the chance of so few; pages ask for those of the same runs again and again."""
    if missing_history(posterior_of(history)):
        return None
    days = day_shifts([build for build in builds if any(n for n, _ in build)])
    return usual_passes(history, now, days), suite_chance(history, now, days)
