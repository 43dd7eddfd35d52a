"""The trials, cost, duration and detectable differences of an experiment, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.desk.runs.fresh_trials import repeats_recorded
from evaldesk.desk.runs.gates.forecasts import MOST_PREVIEWED
from evaldesk.desk.runs.histories import keys_of
from evaldesk.desk.runs.stored_runs import StoredRuns, open_stored_runs
from evaldesk.llm.price_list import listed_prices
from evaldesk.model import AgentRef, Case
from evaldesk.model.experiment import ExperimentPlan, Factor, Variant
from evaldesk.model.stored import RunSummary
from evaldesk.statistics.history.posterior import posterior_of
from evaldesk.statistics.history.power import (
    UNKNOWN_RATES,
    Detectable,
    Rates,
    cases_for_difference,
    detectable,
    rates_of,
    trials_for_difference,
)
from evaldesk.store.evalsets.names import identity_of

if TYPE_CHECKING:
    from evaldesk.desk.runs.plan import RunPlan
    from evaldesk.settings import Settings

LATEST_RUNS = 50
"""Runs of an agent and an eval set among which those of the same model are looked for."""
COST_DIGITS = 12
"""Digits of a mean of dollars: below them it depends on the order of its trials."""
FEWEST_SHOWN = 3
"""Trials of a case in a proposal, where fewer are planned: one trial says nothing about chance."""


@dataclass(frozen=True, slots=True)
class PlannedVariant:
    """A variant before its start: the agent, the eval set, its model and instruction, None for those of the agent."""

    name: str
    agent_id: str
    evalset_id: str
    model: str | None
    n_trials: int
    instruction: str | None = None


@dataclass(frozen=True, slots=True)
class VariantEstimate:
    """A trial of a variant as in an earlier run: dollars and milliseconds, None where they are not known.

    `is_repriced`: that run had another model, and its tokens have the list price of this one.
    """

    name: str
    n_trials: int
    run_id: int | None = None
    cost: float | None = None
    ms: float | None = None
    is_repriced: bool = False


@dataclass(frozen=True, slots=True)
class FactorEstimate:
    """The detectable difference between two levels of a factor, over all levels of the others."""

    name: str
    n_levels: int
    difference: Detectable


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan that shows a difference 4 times in 5: cases with the trials of each, None where no number is enough.

    `n_own` are the trials of each of the planned cases that show it. `cost` is that of the first.
    """

    difference: float
    n_cases: int | None
    n: int
    n_own: int | None
    cost: float | None


@dataclass(frozen=True, slots=True)
class ExperimentEstimate:
    """The estimate of an experiment of variants x `n_cases` x `n` trials.

    `difference` is the smallest one between two variants that is found 4 times in 5, adjusted for all comparisons with
    the baseline. `n_history_trials` are the earlier trials of these cases that pass rates are of; without any, a
    typical rate is assumed. `concurrency` are the trials at once, of all variants together.
    """

    variants: tuple[VariantEstimate, ...]
    factors: tuple[FactorEstimate, ...]
    sizes: tuple[int, ...]
    n_cases: int
    n: int
    concurrency: int
    difference: Detectable
    n_history_trials: int
    rates: Rates

    @property
    def n_trials(self) -> int:
        """The trials of all variants."""
        return sum(each.n_trials for each in self.variants)

    @property
    def cost(self) -> float | None:
        """Dollars of all trials; None where the cost of one variant is not known."""
        if self.unpriced:
            return None
        return sum(each.cost * each.n_trials for each in self.variants if each.cost is not None)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The variants whose cost is not known."""
        return tuple(each.name for each in self.variants if each.cost is None)

    @property
    def ms(self) -> float | None:
        """The duration with so many trials at once; None where no earlier run tells it."""
        times = [each.ms * each.n_trials for each in self.variants if each.ms is not None]
        if len(times) < len(self.variants) or not times:
            return None
        return sum(times) / max(1, min(self.concurrency, self.n_trials))

    @property
    def n_comparisons(self) -> int:
        """The comparisons with the baseline."""
        return max(1, len(self.variants) - 1)

    def at(self, n_cases: int, n: int) -> Detectable:
        """The detectable difference with other numbers of cases and trials."""
        return detectable(n_cases, n, self.rates, self.n_comparisons)

    def proposal(self, difference: float) -> Proposal:
        """The plan that shows a difference, as many trials of each case as planned and at least `FEWEST_SHOWN`."""
        n = max(FEWEST_SHOWN, self.n)
        n_cases = cases_for_difference(difference, n, self.rates, self.n_comparisons)
        cost = None
        if n_cases is not None and not self.unpriced:
            cost = n_cases * n * sum(each.cost for each in self.variants if each.cost is not None)
        n_own = trials_for_difference(difference, self.n_cases, self.rates, self.n_comparisons)
        return Proposal(difference, n_cases, n, n_own, cost)


@contextmanager
def earlier_runs(settings: Settings) -> Iterator[StoredRuns | None]:
    """The stored runs of a workspace; None where it has no database yet. Raises WorkspaceError, TrustError."""
    if isinstance(settings.database, Path) and not settings.database.exists():
        yield None
        return
    with open_stored_runs(settings) as runs:
        yield runs


def planned_variant(
    variant: Variant, agent: AgentRef, path: Path, home: Path, *, model: str | None, n_trials: int
) -> PlannedVariant:
    """A variant of an agent and the eval set in a file, in the workspace `home`."""
    instruction = variant.options.get("instruction")
    text = None if instruction is None else str(instruction)
    return PlannedVariant(variant.name, agent.id, identity_of(path, home), model, n_trials, text)


def planned_variants(plan: ExperimentPlan, run_plans: Sequence[RunPlan]) -> list[PlannedVariant]:
    """The variants of a checked experiment."""
    return [
        PlannedVariant(
            variant.name,
            each.config.agent.id,
            each.config.evalset_id,
            each.config.model,
            each.n_trials,
            each.config.model_options.instruction,
        )
        for variant, each in zip(plan.variants, run_plans, strict=True)
    ]


def estimate_of_plan(runs: StoredRuns, plan: ExperimentPlan, run_plans: Sequence[RunPlan]) -> ExperimentEstimate:
    """The estimate of a checked experiment."""
    return experiment_estimate(
        runs,
        planned_variants(plan, run_plans),
        run_plans[plan.baseline].cases,
        n=min(each.config.n for each in run_plans),
        concurrency=plan.concurrency,
        factors=plan.factors,
        baseline=plan.baseline,
    )


def estimate_of_addition(
    runs: StoredRuns, earlier: ExperimentPlan, variants: Sequence[Variant], run_plans: Sequence[RunPlan]
) -> ExperimentEstimate:
    """The estimate of further variants of an experiment, whose difference is adjusted for all of its comparisons."""
    estimate = estimate_of_plan(runs, replace(earlier, variants=tuple(variants), factors=(), baseline=0), run_plans)
    return among_variants(estimate, len(earlier.variants))


def among_variants(estimate: ExperimentEstimate, n_earlier: int) -> ExperimentEstimate:
    """The estimate of variants that are compared beside `n_earlier` others of the same experiment."""
    n_comparisons = n_earlier + len(estimate.variants) - 1
    return replace(estimate, difference=detectable(estimate.n_cases, estimate.n, estimate.rates, n_comparisons))


def experiment_estimate(
    runs: StoredRuns | None,
    variants: Sequence[PlannedVariant],
    cases: Sequence[Case],
    *,
    n: int,
    concurrency: int,
    factors: Sequence[Factor] = (),
    baseline: int = 0,
) -> ExperimentEstimate:
    """The estimate by earlier `runs` of the same agents and eval set; None in a workspace without any.

    `n` are the fewest trials of a case that a variant has.
    """
    first = variants[baseline]
    rates, n_history_trials = _earlier_rates(runs, first, cases)
    n_comparisons = max(1, len(variants) - 1)
    n_effects = count_effects(factors)
    by_model = {replace(each, name="", n_trials=0): each for each in variants}
    estimates = {key: _variant_estimate(runs, each) for key, each in by_model.items()}
    return ExperimentEstimate(
        variants=tuple(
            replace(estimates[replace(each, name="", n_trials=0)], name=each.name, n_trials=each.n_trials)
            for each in variants
        ),
        factors=tuple(
            FactorEstimate(
                factor.name,
                len(factor.levels),
                detectable(len(cases), n * len(variants) // len(factor.levels), rates, n_effects),
            )
            for factor in factors
        ),
        sizes=tuple(len(factor.levels) for factor in factors) or (len(variants),),
        n_cases=len(cases),
        n=n,
        concurrency=concurrency,
        difference=detectable(len(cases), n, rates, n_comparisons),
        n_history_trials=n_history_trials,
        rates=rates,
    )


def count_effects(factors: Sequence[Factor]) -> int:
    """The number of main effects and interactions of a full grid, which are adjusted together."""
    sizes = [len(factor.levels) for factor in factors]
    n_main = sum(size * (size - 1) // 2 for size in sizes)
    return n_main + sum((one - 1) * (other - 1) for one, other in combinations(sizes, 2))


def _earlier_rates(runs: StoredRuns | None, variant: PlannedVariant, cases: Sequence[Case]) -> tuple[Rates, int]:
    """The rates of the cases as the agent played them last, and the number of the scored trials behind them.

    Above `MOST_PREVIEWED` cases the mean rate of that run is the one of each.
    """
    run = None
    if runs and cases:
        run = _newest_of_model(runs, variant) or runs.find_last_run(variant.agent_id, variant.evalset_id)
    if runs is None or run is None:
        return UNKNOWN_RATES, 0
    if len(cases) > MOST_PREVIEWED:
        n_scored = run.counts.passed + run.counts.failed
        return (((run.counts.passed + 0.5) / (n_scored + 1), 1.0),), n_scored
    history = runs.history(run, keys_of("", cases))
    return (rates_of(posterior_of(history.trials)), history.n_scored) if history.n_scored else (UNKNOWN_RATES, 0)


def _variant_estimate(runs: StoredRuns | None, variant: PlannedVariant) -> VariantEstimate:
    run = _newest_of_model(runs, variant) if runs else None
    if run:
        cost = None if run.is_cost_unknown else round(run.cost / run.n_done, COST_DIGITS)
        return VariantEstimate(variant.name, variant.n_trials, run.id, cost, run.mean_ms)
    last = runs.find_last_run(variant.agent_id, variant.evalset_id) if runs else None
    if last is None:
        return VariantEstimate(variant.name, variant.n_trials)
    return VariantEstimate(
        variant.name, variant.n_trials, last.id, _repriced(last, variant.model), last.mean_ms, is_repriced=True
    )


def _newest_of_model(runs: StoredRuns, variant: PlannedVariant) -> RunSummary | None:
    """The newest played run of the same model, of the same instruction where there is one."""
    runs_of_set = runs.store.list(agent_id=variant.agent_id, evalset_id=variant.evalset_id, limit=LATEST_RUNS)
    alike = [
        run
        for run in runs_of_set
        if run.n_done
        and run.config.source_run_id is None
        and not repeats_recorded(run.config)
        and run.config.model == variant.model
    ]
    same = (run for run in alike if run.config.model_options.instruction == variant.instruction)
    return next(same, alike[0] if alike else None)


def _repriced(run: RunSummary, model: str | None) -> float | None:
    """The tokens of a trial of the run at the list price of the model; None where either is not known."""
    if model is None:
        return None
    if model.startswith(DEMO_PREFIX):
        return 0.0
    if not (run.tokens_in or run.tokens_out):
        return None
    prices = listed_prices(f"gemini/{model}" if model.startswith("gemini-") else model)
    return None if prices is None else (run.tokens_in * prices[0] + run.tokens_out * prices[1]) / run.n_done
