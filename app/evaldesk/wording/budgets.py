"""How a budget was spread over the cases of a run, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from evaldesk.model import RunConfig
from evaldesk.run_options import EVEN, budget_of, budget_words
from evaldesk.wording.comparison import named_words
from evaldesk.wording.words import trials_each

MOST_RUNS = 3


def spread_sentence(config: RunConfig, n_cases: int, n_trials: int, n_least: int, n_most: int) -> str:
    """The sentence of a run that is planned; empty without a budget."""
    if config.budget is None:
        return ""
    return budget_sentence(config.budget, config.allocate, config.allocated_from, n_cases, n_trials, n_least, n_most)


def budget_sentence(
    budget: str, allocate: str, run_ids: Sequence[int], n_cases: int, n_trials: int, n_least: int, n_most: int
) -> str:
    """`200 trials for 20 cases, 4 to 24 each: more where the outcome was less certain in runs 12, 11.`

    Of a budget in dollars it says that the costs are those of earlier runs.
    """
    is_money = budget_of(budget)[1]
    about = f"{budget_words(budget)} is about " if is_money else ""
    trials = "1 trial" if n_trials == 1 else f"{n_trials:,} trials"
    cases = "1 case" if n_cases == 1 else f"{n_cases:,} cases"
    why = _why(allocate, _runs(run_ids)) + (f", by the costs of {_runs(run_ids)}" if is_money else "")
    return f"{about}{trials} for {cases}, {trials_each(n_least, n_most)} each: {why}."


def _why(allocate: str, runs: str) -> str:
    if allocate == EVEN:
        return "spread evenly"
    if not runs:
        return "spread evenly, since no earlier run of this agent, model and cases is known"
    return f"more where the outcome was less certain in {runs}"


def _runs(run_ids: Sequence[int]) -> str:
    if not run_ids:
        return ""
    numbers = named_words([str(run_id) for run_id in run_ids], MOST_RUNS)
    return f"run {numbers}" if len(run_ids) == 1 else f"runs {numbers}"
