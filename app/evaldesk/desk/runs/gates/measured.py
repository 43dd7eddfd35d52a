"""How often a gate failed the stored runs of an unchanged agent against each other. (reference/forecasts.md 7)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from typing import TypeAlias

from evaldesk.desk.runs.gates.conclusion import RunNumbers, conclude
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model import Gates
from evaldesk.model.comparison import PlayedCase
from evaldesk.model.forecast import UnchangedPairs
from evaldesk.model.stored import RunSummary
from evaldesk.statistics.case_comparison import compare_cases
from evaldesk.statistics.history.unchanged_pairs import unchanged_pairs
from evaldesk.store import RunStore
from evaldesk.store.runs.histories import NO_HISTORY, history_class

Fails: TypeAlias = Callable[[int, int], bool]

MOST_RUNS = 20
"""The newest runs whose pairs are compared: 380 of them."""
MOST_LIKELY_RUNS = 10
"""Of the rule `likely`, whose tests take longer: 90 pairs."""


def measured_pairs(runs: StoredRuns, run: RunSummary, gates: Gates) -> UnchangedPairs | None:
    """All ordered pairs of the newest runs of the class of `run`, with its cases and at least as many trials.

    None for a gate that stored runs cannot answer: one on a level, or one that plays fresh trials.
    """
    alone = Gates(max_regressions=gates.max_regressions, margin=gates.margin, regression_rule=gates.regression_rule)
    of_class = history_class(run.config)
    if not alone.compares or alone.regression_rule == "confirm":
        return None
    if of_class == NO_HISTORY:
        return UnchangedPairs(0, 0)
    most = MOST_LIKELY_RUNS if alone.regression_rule == "likely" else MOST_RUNS
    keys = runs.store.case_keys(run.id)
    alike = tuple(
        each.id
        for each in runs.store.list(limit=most, history_class=of_class)
        if each.n_least >= run.n_least and not each.n_todo and runs.store.case_keys(each.id) == keys
    )
    return _measure_pairs(runs.store, alone, alike, frozenset(run.config.left_out))


@lru_cache(maxsize=64)
def _measure_pairs(store: RunStore, gates: Gates, run_ids: tuple[int, ...], left_out: frozenset[str]) -> UnchangedPairs:
    """The pairs of these runs without the cases `left_out`, cached: trials of a run that ended never change."""
    runs = StoredRuns(store)
    summaries = [runs.summary(run_id) for run_id in run_ids]
    cases_of_runs = {
        run.id: [case for case in runs.played_cases([run]) if case.key.case_id not in left_out] for run in summaries
    }
    fails = _by_comparison(gates, cases_of_runs, {run.id: runs.numbers(run) for run in summaries})
    return unchanged_pairs(len(run_ids), sum(fails(before, after) for before, after in permutations(run_ids, 2)))


def _by_comparison(
    gates: Gates, cases_of_runs: Mapping[int, Sequence[PlayedCase]], numbers: Mapping[int, RunNumbers]
) -> Fails:
    def fails(before: int, after: int) -> bool:
        change = compare_cases(f"run {before}", cases_of_runs[before], cases_of_runs[after], rule=gates.regression_rule)
        return any(each.is_failed for each in conclude(gates, numbers[after], change).gates)

    return fails
