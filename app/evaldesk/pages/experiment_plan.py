"""The estimate of a run or an experiment in words and as JSON, before anything is spent."""

from __future__ import annotations

from typing import Any

from evaldesk.desk.experiments.estimates import ExperimentEstimate, Proposal, VariantEstimate
from evaldesk.desk.runs.estimate import Estimate, RunProposal, estimate_of_run
from evaldesk.desk.runs.plan import RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.model.conclusion import counted
from evaldesk.run_options import budget_of, budget_words
from evaldesk.statistics.history.power import Detectable
from evaldesk.wording.comparison import points_words
from evaldesk.wording.experiments import and_words
from evaldesk.wording.words import cost_words, duration_words


def plan_sentence(estimate: ExperimentEstimate) -> str:
    """`3 x 3 variants x 10 cases x 5 = 450 trials, about $2.29, 13 min`."""
    n_variants, n_all = len(estimate.variants), estimate.n_trials
    variants = f"{' x '.join(map(str, estimate.sizes))} variants" if n_variants > 1 else "1 variant"
    is_even = n_all == n_variants * estimate.n_cases * estimate.n
    is_fewer = n_all < n_variants * estimate.n_cases * estimate.n
    each = str(estimate.n) if is_even else f"{estimate.n} or {'fewer' if is_fewer else 'more'}"
    shape = f"{variants} x {counted(estimate.n_cases, 'case')} x {each} = {counted(n_all, 'trial')}"
    return ", ".join([shape, cost_of_plan(estimate), *([duration_words(estimate.ms)] if estimate.ms else [])])


def cost_of_plan(estimate: ExperimentEstimate) -> str:
    """`about $2.29`, or the variants whose cost is not known."""
    if estimate.cost is not None:
        return _about(estimate.cost)
    return "cost not known" + (
        f" of {and_words(estimate.unpriced)}" if len(estimate.unpriced) < len(estimate.variants) else ""
    )


def _about(cost: float) -> str:
    return f"about {cost_words(cost)}" if cost else "$0"


def detectable_sentence(estimate: ExperimentEstimate) -> str:
    """`Smallest difference that 10 x 5 can show, 4 times in 5: 33 points between two variants, …`."""
    shape = f"{estimate.n_cases:,} x {estimate.n}"
    if estimate.difference.either is None:
        return f"{shape} can show no difference between two variants 4 times in 5; add cases"
    parts = [f"{detectable_words(estimate.difference)} between two variants"]
    parts += [
        f"{points_words(each.difference.either)} between two levels of {each.name}"
        for each in estimate.factors
        if each.difference.either is not None
    ]
    return f"Smallest difference that {shape} can show, 4 times in 5: {', '.join(parts)}{gain_words(estimate)}"


def detectable_words(difference: Detectable) -> str:
    """`33 points`, or `none`."""
    return "none" if difference.either is None else points_words(difference.either)


def gain_words(estimate: ExperimentEstimate) -> str:
    """The reason why only a loss, or only a gain, can be shown; empty where both can."""
    difference = estimate.difference
    if difference.gain is None and difference.loss is not None:
        return ". Only a loss: these cases pass too often for a gain that this plan can show"
    if difference.loss is None and difference.gain is not None:
        return ". Only a gain: these cases pass too seldom for a loss that this plan can show"
    return ""


def basis_of_plan(estimate: ExperimentEstimate) -> str:
    """The trials that the pass rates are of."""
    n = estimate.n_history_trials
    if n:
        return f"By the pass rates of these cases in {counted(n, 'earlier trial')}"
    return f"These cases were never played: a pass rate of {100 * estimate.rates[0][0]:.0f} % is assumed"


def variant_cost_words(variant: VariantEstimate) -> str:
    """`$0.0112 a trial, by the tokens of run 61`."""
    if variant.run_id is None:
        return "cost not known: no earlier run of this agent and eval set"
    if variant.cost is None and variant.is_repriced:
        return "cost not known: no earlier run with this model, and no list price of it"
    if variant.cost is None:
        return f"cost not known: run {variant.run_id} does not tell it"
    if variant.is_repriced:
        return f"{cost_words(variant.cost)} a trial, by the tokens of run {variant.run_id} at its list price"
    return f"{cost_words(variant.cost)} a trial, as in run {variant.run_id}"


def proposal_sentence(proposal: Proposal, n_cases: int) -> str:
    """`To see 5 points: 140 cases x 3, about $9; with these 10 cases no number of trials is enough`."""
    points = points_words(proposal.difference)
    if proposal.n_cases is None:
        first = f"To see {points}: no number of cases is enough with {proposal.n} trials of each"
    else:
        cost = "" if proposal.cost is None else f", {_about(proposal.cost)}"
        first = f"To see {points}: {counted(proposal.n_cases, 'case')} x {proposal.n}{cost}"
    own = f"these {counted(n_cases, 'case')}"
    if proposal.n_own is None:
        return f"{first}; with {own} no number of trials is enough"
    return f"{first}; with {own} {counted(proposal.n_own, 'trial')} of each"


def estimate_lines(
    estimate: ExperimentEstimate, proposal: Proposal | None = None, *, is_short: bool = False
) -> list[str]:
    """The estimate of an experiment, one line each; a short one has none for each variant."""
    lines = [f"{plan_sentence(estimate)}.", f"{detectable_sentence(estimate)}.", f"{basis_of_plan(estimate)}."]
    if not is_short:
        lines += [f"  {each.name}: {variant_cost_words(each)}" for each in estimate.variants]
    return [*lines, f"{proposal_sentence(proposal, estimate.n_cases)}."] if proposal else lines


def budget_sentence(budget: str, n_begun: int = 0, cost: float = 0.0) -> str:
    """`Budget of all trials together: $20; spent so far: $12.30.`"""
    _, is_money = budget_of(budget)
    spent = cost_words(cost) if is_money else counted(n_begun, "trial")
    return f"Budget of all trials together: {budget_words(budget)}{f'; spent so far: {spent}' if n_begun else ''}."


def estimate_object(estimate: ExperimentEstimate, proposal: Proposal | None = None) -> dict[str, Any]:
    """The estimate of an experiment as a JSON object; rates and differences are from 0 to 1."""
    return {
        "n_variants": len(estimate.variants),
        "n_cases": estimate.n_cases,
        "n": estimate.n,
        "n_trials": estimate.n_trials,
        "cost": estimate.cost,
        "duration_ms": estimate.ms,
        "n_history_trials": estimate.n_history_trials,
        "smallest_difference": estimate.difference.either,
        "smallest_loss": estimate.difference.loss,
        "smallest_gain": estimate.difference.gain,
        "factors": [{"name": each.name, "smallest_difference": each.difference.either} for each in estimate.factors],
        "variants": [
            {
                "name": each.name,
                "n_trials": each.n_trials,
                "cost_per_trial": each.cost,
                "duration_ms_per_trial": each.ms,
                "run_id": each.run_id,
                "is_repriced": each.is_repriced,
            }
            for each in estimate.variants
        ],
        "see": proposal
        and {
            "difference": proposal.difference,
            "n_cases": proposal.n_cases,
            "n": proposal.n,
            "cost": proposal.cost,
            "n_with_these_cases": proposal.n_own,
        },
    }


def lines_of_plan(runs: StoredRuns, plan: RunPlan) -> list[str]:
    """The estimate of a checked run in lines."""
    return run_lines(estimate_of_run(runs, plan), *shape_of_plan(plan))


def object_of_plan(runs: StoredRuns, plan: RunPlan) -> dict[str, Any]:
    """The estimate of a checked run as a JSON object."""
    return run_object(estimate_of_run(runs, plan), *shape_of_plan(plan))


def shape_of_plan(plan: RunPlan) -> tuple[int, int]:
    """The cases of a run and the trials that each has in the mean, rounded down."""
    return len(plan.cases), plan.n_trials // max(1, len(plan.cases))


def run_lines(estimate: Estimate, n_cases: int, n: int, proposal: RunProposal | None = None) -> list[str]:
    """The estimate of one run, which is compared with an earlier one, one line each."""
    n_even = n_cases * n
    each = f"{n}" if n_even == estimate.n_trials else f"{n} or {'more' if n_even < estimate.n_trials else 'fewer'}"
    parts = [f"{counted(n_cases, 'case')} x {each} = {counted(estimate.n_trials, 'trial')}"]
    if estimate.last_run is None:
        parts.append("cost not known: no earlier run of this agent and eval set")
    else:
        cost = "cost not known" if estimate.cost is None else _about(estimate.cost)
        parts += [cost, *([duration_words(estimate.ms)] if estimate.ms else []), f"as in run {estimate.last_run}"]
    lines = [f"{', '.join(parts)}.", f"{estimate.visible}."]
    if not estimate.is_of_history and estimate.difference is not None:
        lines.append("These cases were never played: a typical spread is assumed.")
    if proposal is None:
        return lines
    points = points_words(proposal.difference)
    if proposal.n_cases is None:
        return [*lines, f"To see {points}: no number of cases is enough with {counted(proposal.n, 'trial')} of each."]
    cost = "" if proposal.cost is None else f", {_about(proposal.cost)}"
    return [*lines, f"To see {points} 4 times in 5: {counted(proposal.n_cases, 'case')} x {proposal.n}{cost}."]


def run_object(estimate: Estimate, n_cases: int, n: int, proposal: RunProposal | None = None) -> dict[str, Any]:
    """The estimate of one run as a JSON object, with the names of that of an experiment."""
    return {
        "n_variants": 1,
        "n_cases": n_cases,
        "n": n,
        "n_trials": estimate.n_trials,
        "cost": estimate.cost,
        "duration_ms": estimate.ms,
        "run_id": estimate.last_run,
        "smallest_difference": estimate.difference,
        "is_of_history": estimate.is_of_history,
        "see": proposal
        and {
            "difference": proposal.difference,
            "n_cases": proposal.n_cases,
            "n": proposal.n,
            "cost": proposal.cost,
        },
    }
