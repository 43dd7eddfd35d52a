"""How a budget becomes the trials of each case, from the history of the cases and the costs of earlier runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10

from evaldesk.desk.runs.histories import keys_of
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.model import Case
from evaldesk.model.comparison import ROUNDING
from evaldesk.model.conclusion import counted
from evaldesk.model.run import MAX_TRIALS
from evaldesk.model.stored import CaseRow
from evaldesk.run_options import BY_NAME, EVEN, USD, budget_of
from evaldesk.statistics.allocation import allocate_trials, variance_of
from evaldesk.store import RunStore
from evaldesk.store.runs.histories import NO_HISTORY, history_class
from evaldesk.wording.words import trials_each_words

MOST_EARLIER = 20
"""The newest earlier runs that are read."""
MOST_EACH = int(BY_NAME["n"].high)


@dataclass(frozen=True, slots=True)
class Subject:
    """The evidence of an allocation: the trials of these cases in runs of a class; empty without such a run."""

    cases: Sequence[Case]
    of_class: str = NO_HISTORY


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget as it was asked for; each case has at least `least` trials."""

    text: str
    allocate: str = EVEN
    least: int = 1

    @property
    def amount(self) -> float:
        """Trials or US dollars."""
        return budget_of(self.text)[0]

    @property
    def is_money(self) -> bool:
        """Whether it is in US dollars."""
        return budget_of(self.text)[1]

    @property
    def needs_earlier(self) -> bool:
        """Whether the allocation, or its number of trials, depends on earlier runs."""
        return self.is_money or self.allocate != EVEN

    def words(self, amount: float) -> str:
        """An amount as it is typed; dollars are rounded up, so that they are enough."""
        if not self.is_money:
            return f"{amount:.0f}"
        scale: int = 10 ** max(2, 2 - floor(log10(amount)))
        return f"{ceil(amount * scale - 1e-6) / scale:.10g}{USD}"

    def refusal(self, why: str) -> UsageError:
        """The error for a budget that cannot be spread."""
        return UsageError(f"budget = {self.text}: {why}", field="budget")


@dataclass(frozen=True, slots=True)
class Spread:
    """The trials of each case, and the earlier runs that said so, newest first."""

    n_each: tuple[int, ...]
    run_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The trials of a case in earlier runs: scored, passed, and the mean US dollars of one, None where not known."""

    n_scored: int = 0
    n_passed: int = 0
    cost: float | None = None


def with_budget(plan: RunPlan, budget: str, runs: StoredRuns) -> RunPlan:
    """The plan with the trials of each case that its `budget` gives.

    Raises UsageError for a budget that does not reach, or in US dollars where the cost of a trial is not known.
    """
    config = plan.config
    subject = Subject(plan.cases, history_class(config))
    spread_trials = spread(Budget(budget, config.allocate, config.n), subject, runs)
    allocated_plan = plan.with_trials(spread_trials.n_each)
    return replace(allocated_plan, config=replace(allocated_plan.config, allocated_from=spread_trials.run_ids))


def spread(budget: Budget, subject: Subject, runs: StoredRuns) -> Spread:
    """The trials of each case that a budget gives. Raises as `with_budget`."""
    cases, run_ids = (
        _earlier_of(subject, runs.store) if budget.needs_earlier else ((_Earlier(),) * len(subject.cases), ())
    )
    costs = _costs(budget, cases, run_ids) if budget.is_money else [1.0] * len(cases)
    _check_reach(budget, costs, run_ids)
    is_even = budget.allocate == EVEN
    weights = [1.0 if is_even else variance_of(case.n_passed, case.n_scored) for case in cases]
    n_each = allocate_trials(weights, costs, budget.amount, least=budget.least, most=MOST_EACH)
    if sum(n_each) > MAX_TRIALS:
        raise budget.refusal(f"{sum(n_each):,} trials are more than the {MAX_TRIALS:,} of one run")
    return Spread(n_each, run_ids)


def last_class(runs: StoredRuns, agent_id: str, evalset_id: str, model: str | None) -> str:
    """The class of the newest run of an agent, a model and an eval set; empty where there is none."""
    recent_runs = runs.store.list(agent_id=agent_id, evalset_id=evalset_id, limit=MOST_EARLIER)
    alike = (run for run in recent_runs if run.n_done > 0 and run.config.model == model)
    return next((each for run in alike if (each := history_class(run.config))), NO_HISTORY)


def _earlier_of(subject: Subject, runs: RunStore) -> tuple[Sequence[_Earlier], tuple[int, ...]]:
    """The history of each case, the mean cost of its trials in the newest runs, and the runs that they are of."""
    if subject.of_class == NO_HISTORY:
        return (_Earlier(),) * len(subject.cases), ()
    keys = keys_of("", subject.cases)
    history = runs.case_histories(subject.of_class, keys)
    priced: dict[str, list[CaseRow]] = {key.digest: [] for key in keys}
    for run in runs.list(history_class=subject.of_class, limit=MOST_EARLIER):
        for each in runs.case_outcomes(run.id):
            if each.digest in priced and each.n_done and not each.is_cost_unknown and (each.cost or each.tokens_in):
                priced[each.digest].append(each)
    cases = [
        _Earlier(case.scored, case.passed, _mean_cost(priced[key.digest]))
        for key, case in zip(keys, history.cases, strict=True)
    ]
    return cases, history.run_ids[:MOST_EARLIER]


def _mean_cost(cases: Sequence[CaseRow]) -> float | None:
    n = sum(case.n_done for case in cases)
    return sum(case.cost for case in cases) / n if n else None


def _costs(budget: Budget, cases: Sequence[_Earlier], run_ids: Sequence[int]) -> list[float]:
    """The US dollars of a trial of each case; where they are not known, or nothing, the mean of the others."""
    known_costs = [case.cost for case in cases if case.cost is not None]
    mean = sum(known_costs) / len(known_costs) if known_costs else 0.0
    if not mean:
        why = (
            f"the trials of run {run_ids[0]} cost nothing"
            if known_costs
            else "no earlier run of these cases tells its costs"
        )
        raise budget.refusal(f"{why}, so it is not known how many trials that is; say a number of trials, such as 200")
    return [case.cost or mean for case in cases]


def _check_reach(budget: Budget, costs: Sequence[float], run_ids: Sequence[int]) -> None:
    """Raise UsageError for a budget below the fewest trials of each case, or above the most."""
    n_cases, in_all = len(costs), sum(costs)
    cases = counted(n_cases, "case")
    if budget.least * in_all > budget.amount + ROUNDING:
        need = f"{cases} with {trials_each_words(budget.least, budget.least)} each need"
        by = f" by the costs of run {run_ids[0]}" if budget.is_money else ""
        least = budget.words(budget.least * in_all)
        raise budget.refusal(f"{need} {least}{by}; say that or more, or choose fewer cases or trials of each")
    if budget.amount > MOST_EACH * in_all + ROUNDING:
        most = budget.words(MOST_EACH * in_all)
        raise budget.refusal(f"{cases} with {MOST_EACH:,} trials each, the most, need {most}; say that or less")
