"""The duration and cost of a run, and the differences it can show, before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from evaldesk.desk.runs.gates.forecasts import MOST_PREVIEWED
from evaldesk.desk.runs.histories import keys_of
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model.history import SetHistory
from evaldesk.statistics.history.posterior import Posterior, posterior_of
from evaldesk.statistics.history.power import MOST_CASES, UNKNOWN_RATES, detectable, fewest, rates_of
from evaldesk.statistics.noise import smallest_gap
from evaldesk.wording.comparison import drop_sentence, gap_sentence, points_words


@dataclass(frozen=True, slots=True)
class VisibleRow:
    """The smallest difference between two runs of this shape that will not look like chance, in words."""

    shape: str
    words: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class RunProposal:
    """The fewest cases with `n` trials of each that show a difference 4 times in 5; None where no number is enough."""

    difference: float
    n_cases: int | None
    n: int
    cost: float | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Trials to play, cost and time as in the last run of the same agent and eval set, and the detectable difference.

    `difference` is None where none shows. `visible` is a sentence on it without its full stop, `rows` have the numbers
    for other shapes; `is_of_history` tells whether they rest on trials of the cases, and not on a typical spread.
    """

    n_trials: int
    last_run: int | None
    cost: float | None
    ms: float | None
    difference: float | None
    visible: str
    rows: tuple[VisibleRow, ...]
    is_of_history: bool


def estimate(
    runs: StoredRuns | None,
    agent_id: str,
    evalset_id: str,
    *,
    n_cases: int,
    n: int,
    concurrency: int,
    n_trials: int | None = None,
    history: SetHistory | None = None,
) -> Estimate:
    """The cost of a run of `n_cases` cases with `n` trials each, and the difference it can show by their `history`.

    `n_trials` are the trials of a budget; a case has `n` in the mean. `runs` is None in a workspace without any.
    """
    cases = posterior_of(history.trials) if history and history.n_scored else None
    last = runs.find_last_run(agent_id, evalset_id) if runs else None
    n_trials = n_cases * n if n_trials is None else n_trials
    return Estimate(
        n_trials=n_trials,
        last_run=last.id if last else None,
        cost=last.cost / last.n_done * n_trials if last and not last.is_cost_unknown else None,
        ms=last.mean_ms * n_trials / max(1, min(concurrency, n_trials)) if last and last.mean_ms else None,
        difference=_possible(_gap(n_cases, n, cases)),
        visible=_sentence(n_cases, n, cases),
        rows=_rows(n_cases, n, cases),
        is_of_history=cases is not None,
    )


def estimate_of_run(runs: StoredRuns, plan: RunPlan) -> Estimate:
    """The estimate of a run that is about to start, by the history of its cases."""
    config, n_trials = plan.config, sum(plan.n_each)
    last = runs.find_last_run(config.agent.id, config.evalset_id)
    history = None
    if last and 0 < len(plan.cases) <= MOST_PREVIEWED:
        history = runs.history(last, keys_of(config.evalset_name, plan.cases))
    return estimate(
        runs,
        config.agent.id,
        config.evalset_id,
        n_cases=len(plan.cases),
        n=n_trials // max(1, len(plan.cases)),
        concurrency=config.concurrency,
        n_trials=n_trials,
        history=history,
    )


def propose(plan: Estimate, difference: float, n: int, history: SetHistory | None) -> RunProposal:
    """The fewest cases like those of the plan that show a difference 4 times in 5 with `n` trials of each."""
    cases = posterior_of(history.trials) if history and history.n_scored else None

    def is_enough(n_cases: int) -> bool:
        gap = _gap(n_cases, n, cases)
        return gap is not None and gap <= difference

    n_cases = fewest(MOST_CASES, is_enough)
    cost = None
    if n_cases is not None and plan.cost is not None and plan.n_trials:
        cost = plan.cost / plan.n_trials * n_cases * n
    return RunProposal(difference, n_cases, n, cost)


def _sentence(n_cases: int, n: int, cases: Posterior | None) -> str:
    gap = _gap(n_cases, n, cases)
    return gap_sentence(n_cases, n, gap) if cases is None else drop_sentence(n_cases, n, gap)


def _rows(n_cases: int, n: int, posterior: Posterior | None) -> tuple[VisibleRow, ...]:
    shapes = {(n_cases, 1), (n_cases, n), (n_cases, max(5, n)), (max(30, 2 * n_cases), n), (max(60, 5 * n_cases), n)}
    return tuple(
        VisibleRow(f"{cases} × {trials}", _visible(_gap(cases, trials, posterior)), (cases, trials) == (n_cases, n))
        for cases, trials in sorted(shapes)
    )


def _gap(n_cases: int, n: int, cases: Posterior | None) -> float | None:
    """The smallest difference that shows 4 times in 5, as in an experiment of two variants; None where none does.

    Infinite for cases without a history that are too few for any. (decision 505)
    """
    if cases is not None:
        return detectable(n_cases, n, rates_of(cases), 1).loss
    gap = smallest_gap(n_cases, n)
    if gap is None:
        return None
    loss = detectable(n_cases, n, UNKNOWN_RATES, 1).loss
    return inf if loss is None else max(gap, loss)


def _visible(gap: float | None) -> str:
    difference = _possible(gap)
    return "none" if difference is None else points_words(difference)


def _possible(gap: float | None) -> float | None:
    return None if gap is None or gap > 1 else gap
