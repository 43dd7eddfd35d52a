"""How a budget becomes the trials of each case, from the earlier runs of the same agent, model and cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, log10

from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import UsageError
from evaldesk.matching.case_version import case_version
from evaldesk.model import Case
from evaldesk.model.comparison import ROUNDING
from evaldesk.model.conclusion import counted
from evaldesk.model.run import MAX_TRIALS
from evaldesk.model.stored import CaseRow, RunSummary
from evaldesk.run_options import BY_NAME, EVEN, USD, budget_of
from evaldesk.statistics.allocation import allocated, variance_of
from evaldesk.store import RunStore
from evaldesk.wording.words import trials_each_words

MOST_EARLIER = 20
"""The newest earlier runs that are read."""
MOST_EACH = int(BY_NAME["n"].high)


@dataclass(frozen=True, slots=True)
class Subject:
    """What a budget is spread over: the trials of these cases, by this agent with this model."""

    cases: Sequence[Case]
    agent_id: str
    evalset_id: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A budget as it was asked for; each case has at least `least` trials."""

    asked: str
    allocate: str = EVEN
    least: int = 1

    @property
    def amount(self) -> float:
        """Trials or US dollars."""
        return budget_of(self.asked)[0]

    @property
    def is_money(self) -> bool:
        """Whether it is in US dollars."""
        return budget_of(self.asked)[1]

    @property
    def needs_earlier(self) -> bool:
        """Whether it takes earlier runs to know where it goes, or how many trials it is."""
        return self.is_money or self.allocate != EVEN

    def words(self, amount: float) -> str:
        """An amount as it is typed; dollars are rounded up, so that they are enough."""
        if not self.is_money:
            return f"{amount:.0f}"
        scale: int = 10 ** max(2, 2 - floor(log10(amount)))
        return f"{ceil(amount * scale - 1e-6) / scale:.10g}{USD}"

    def refused(self, why: str) -> UsageError:
        """The error for a budget that cannot be spread."""
        return UsageError(f"budget = {self.asked}: {why}", field="budget")


@dataclass(frozen=True, slots=True)
class Spread:
    """The trials of each case, and the earlier runs that said so, newest first."""

    n_each: tuple[int, ...]
    run_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The trials of a case in earlier runs: scored, passed, and the mean US dollars of one, None where not known."""

    scored: int = 0
    passed: int = 0
    cost: float | None = None


def with_budget(plan: RunPlan, budget: str, runs: StoredRuns) -> RunPlan:
    """The plan with the trials of each case that its `budget` gives.

    Raises UsageError for a budget that does not reach, or in US dollars where the cost of a trial is not known.
    """
    config = plan.config
    subject = Subject(plan.cases, config.agent.id, config.evalset_id, config.model)
    found = spread(Budget(budget, config.allocate, config.n), subject, runs)
    partly = plan.foresight.partly_asserted
    n_partly = sum(n for n, case in zip(found.n_each, plan.cases, strict=True) if case.id in partly)
    frozen = replace(config, n_partly_planned=n_partly, allocated_from=found.run_ids)
    return replace(plan, config=frozen, trials_of_cases=found.n_each)


def spread(budget: Budget, subject: Subject, runs: StoredRuns) -> Spread:
    """The trials of each case that a budget gives. Raises as `with_budget`."""
    cases, run_ids = (
        _earlier_of(subject, runs.store) if budget.needs_earlier else ((_Earlier(),) * len(subject.cases), ())
    )
    costs = _costs(budget, cases, run_ids) if budget.is_money else [1.0] * len(cases)
    _check_reach(budget, costs, run_ids)
    is_even = budget.allocate == EVEN
    weights = [1.0 if is_even else variance_of(case.passed, case.scored) for case in cases]
    n_each = allocated(weights, costs, budget.amount, least=budget.least, most=MOST_EACH)
    if sum(n_each) > MAX_TRIALS:
        raise budget.refused(f"{sum(n_each):,} trials are more than the {MAX_TRIALS:,} of one run")
    return Spread(n_each, run_ids)


def _earlier_of(subject: Subject, runs: RunStore) -> tuple[Sequence[_Earlier], tuple[int, ...]]:
    """The earlier trials of each case with the same content, and the runs that they are of."""
    digests = [case_version(case) for case in subject.cases]
    found: dict[str, list[CaseRow]] = {digest: [] for digest in digests}
    read: list[int] = []
    for run in runs.list(agent_id=subject.agent_id, evalset_id=subject.evalset_id, limit=MOST_EARLIER):
        if not _is_alike(run, subject):
            continue
        known = [each for each in runs.case_outcomes(run.id) if each.digest in found]
        for each in known:
            found[each.digest].append(each)
        read += [run.id] if known else []
    return [_earlier(found[digest]) for digest in digests], tuple(read)


def _is_alike(run: RunSummary, subject: Subject) -> bool:
    """Whether trials were played there, for themselves, with the same model."""
    is_played = run.n_done > 0 and run.config.source_run_id is None and not repeats_recorded(run.config)
    return is_played and run.config.model == subject.model


def _earlier(cases: Sequence[CaseRow]) -> _Earlier:
    priced = [case for case in cases if case.n_done and not case.is_cost_unknown and (case.cost or case.tokens_in)]
    n_priced = sum(case.n_done for case in priced)
    return _Earlier(
        sum(case.n_scored for case in cases),
        sum(case.n_passed for case in cases),
        sum(case.cost for case in priced) / n_priced if n_priced else None,
    )


def _costs(budget: Budget, cases: Sequence[_Earlier], run_ids: Sequence[int]) -> list[float]:
    """The US dollars of a trial of each case; where they are not known, or nothing, the mean of the others."""
    known = [case.cost for case in cases if case.cost is not None]
    mean = sum(known) / len(known) if known else 0.0
    if not mean:
        why = (
            f"the trials of run {run_ids[0]} cost nothing" if known else "no earlier run of these cases tells its costs"
        )
        raise budget.refused(f"{why}, so it is not known how many trials that is; say a number of trials, such as 200")
    return [case.cost or mean for case in cases]


def _check_reach(budget: Budget, costs: Sequence[float], run_ids: Sequence[int]) -> None:
    """Raise UsageError for a budget below the fewest trials of each case, or above the most."""
    n_cases, in_all = len(costs), sum(costs)
    cases = counted(n_cases, "case")
    if budget.least * in_all > budget.amount + ROUNDING:
        need = f"{cases} with {trials_each_words(budget.least, budget.least)} each need"
        by = f" by the costs of run {run_ids[0]}" if budget.is_money else ""
        least = budget.words(budget.least * in_all)
        raise budget.refused(f"{need} {least}{by}; say that or more, or choose fewer cases or trials of each")
    if budget.amount > MOST_EACH * in_all + ROUNDING:
        most = budget.words(MOST_EACH * in_all)
        raise budget.refused(f"{cases} with {MOST_EACH:,} trials each, the most, need {most}; say that or less")
