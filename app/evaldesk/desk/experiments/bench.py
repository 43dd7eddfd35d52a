"""The prompt bench: instructions of an agent edited as a draft, run against the original, and the drafts so far."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from evaldesk.desk.experiments.estimates import ExperimentEstimate, PlannedVariant, experiment_estimate
from evaldesk.desk.experiments.experiments import ExperimentDesk
from evaldesk.desk.experiments.prompts import check_text
from evaldesk.desk.experiments.results import results
from evaldesk.desk.experiments.variants import check_variants, usual_name, variant_options
from evaldesk.desk.runs.plan import RunOptions, RunPlan
from evaldesk.desk.runs.stored_runs import StoredRuns
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentDescription, Case
from evaldesk.model.draft import INSTRUCTION, option_name
from evaldesk.model.evalset import count_trials
from evaldesk.model.experiment import Experiment, ExperimentPlan, Variant, VariantDifference
from evaldesk.model.run import LIVE
from evaldesk.model.stored import Draft, RunSummary
from evaldesk.statistics.experiment import adjusted_together
from evaldesk.store import Store

ORIGINAL = "original"
MOST_TRIED = 20
"""Drafts of an agent that the bench shows, newest first; they are adjusted together."""
VISIBLE = 0.1
"""The difference of pass rates that a run of a draft should find."""
MOST_PLANNED = 10
PlanRun = Callable[[RunOptions], Awaitable[RunPlan]]


@dataclass(frozen=True, slots=True)
class Instruction:
    """The instruction of an agent that can be replaced: the name of its option, and the text of the agent's files.

    The text is empty where code makes it when a turn begins, or where the agent does not tell it.
    """

    option: str
    agent: str
    text: str
    is_made: bool


@dataclass(frozen=True, slots=True)
class TriedDraft:
    """A draft that was run against the original, with both runs as they are stored now.

    A run is None where it was deleted. `difference` is adjusted for all drafts that are shown together.
    """

    experiment_id: int
    name: str
    draft: Draft
    created_at: datetime
    original: RunSummary | None
    run: RunSummary | None
    difference: VariantDifference

    @property
    def is_live(self) -> bool:
        """Whether a trial of one of both is still to come."""
        return any(run is not None and run.status in LIVE for run in (self.original, self.run))


class PromptBench:
    """Drafts of instructions as experiments of two variants: the agent as it is, and the agent with the draft."""

    def __init__(self, store: Store, experiments: ExperimentDesk) -> None:
        self._store = store
        self._experiments = experiments

    async def start(self, name: str, draft: Draft, options: RunOptions, plan_run: PlanRun) -> int:
        """Play a draft against the original, in turn and with one seed; gives the id of the experiment.

        `plan_run` plans a run of the agent on the eval set. Raises UsageError for a draft that changes nothing, and as
        the plan of a run.
        """
        check_changed(draft)
        variants = (Variant(ORIGINAL, {}), Variant(name.strip(), dict(draft)))
        run_plans: list[RunPlan] = []
        for variant in variants:
            own_options = variant_options(options.but(seed=run_plans[0].config.seed) if run_plans else options, variant)
            run_plans.append(await plan_run(own_options))
        plan = ExperimentPlan(
            usual_name(f"{variants[1].name} against the original"),
            variants,
            seed=run_plans[0].config.seed,
            concurrency=run_plans[0].config.concurrency or 1,
            n_looks=run_plans[0].config.n,
        )
        check_variants(plan, run_plans)
        return await self._experiments.start(plan, run_plans)

    def draft_of(self, experiment_id: int) -> tuple[str, Draft]:
        """The name and the draft that an experiment played against the original.

        Raises NotFoundError, also for an experiment of other variants.
        """
        variant = _drafted(self._store.experiments.get(experiment_id))
        if variant is None:
            raise NotFoundError(f"experiment {experiment_id} did not play one draft against the original")
        return variant.name, _texts(variant)

    def tried(self, agent_id: str) -> Sequence[TriedDraft]:
        """The drafts of an agent, newest first. It reads the trials, so it may take a while."""
        experiments = self._store.experiments.list(agent_id=agent_id, limit=5 * MOST_TRIED)
        drafted = [(each, variant) for each in experiments if (variant := _drafted(each))][:MOST_TRIED]
        loaded = [(results(self._store, each.id), variant) for each, variant in drafted]
        differences = adjusted_together(
            [
                (
                    variant.name,
                    difference.comparison if (difference := each.analysis.difference_of(variant.name)) else None,
                )
                for each, variant in loaded
            ]
        )
        return [
            TriedDraft(
                each.experiment.id,
                variant.name,
                _texts(variant),
                each.experiment.created_at,
                each.run_of(ORIGINAL),
                each.run_of(variant.name),
                difference,
            )
            for (each, variant), difference in zip(loaded, differences, strict=True)
        ]


def draft_estimate(
    runs: StoredRuns, agent_id: str, evalset_id: str, cases: Sequence[Case], *, n: int | None, concurrency: int
) -> ExperimentEstimate:
    """The estimate of a run of a draft against the original.

    Without `n` it has the fewest trials of a case that find VISIBLE 4 times in 5, MOST_PLANNED at most. A case with a
    number of its own has that. Raises ValueError for a number that cannot be.
    """

    def with_trials(n_each: int) -> ExperimentEstimate:
        variants = [
            PlannedVariant(name, agent_id, evalset_id, None, count_trials(cases, n_each))
            for name in (ORIGINAL, INSTRUCTION)
        ]
        return experiment_estimate(runs, variants, cases, n=n_each, concurrency=concurrency)

    first = with_trials(n or 1)
    return first if n else with_trials(planned_trials(first))


def planned_trials(estimate: ExperimentEstimate) -> int:
    """The fewest trials of a case that find VISIBLE 4 times in 5, MOST_PLANNED at most."""
    for n in range(1, MOST_PLANNED):
        difference = estimate.at(estimate.n_cases, n).either
        if difference is not None and difference <= VISIBLE:
            return n
    return MOST_PLANNED


def instructions_of(agent: AgentDescription) -> Sequence[Instruction]:
    """The instructions of an agent and its tree that can be replaced; of agents with one name the first."""
    by_option: dict[str, Instruction] = {}
    for each, is_root in _tree(agent):
        option = option_name(each.name, is_root=is_root)
        if each.takes_instruction and option not in by_option:
            text = "" if each.makes_instruction else each.instruction
            by_option[option] = Instruction(option, each.name, text, each.makes_instruction)
    return tuple(by_option.values())


def read_draft(instructions: Sequence[Instruction], texts: Mapping[str, str]) -> Draft:
    """The instructions that differ from the agent's own, by their options; other line ends are no difference.

    Raises UsageError for an impossible text, and for one of an instruction that the agent does not have.
    """
    draft = {}
    unknown = set(texts) - {each.option for each in instructions}
    if unknown:
        raise UsageError(
            f"The agent does not take {min(unknown)!r} now; look at the Agents page, then reload this one.",
            field="instruction",
        )
    for each in instructions:
        text = with_line_feeds(texts.get(each.option, each.text))
        if text != with_line_feeds(each.text):
            check_text(text, each.agent if len(instructions) > 1 else "")
            draft[each.option] = text
    return draft


def check_changed(draft: Draft) -> None:
    """Raise UsageError for a draft that is the original."""
    if not draft:
        raise UsageError("The draft is the original; change the instruction first.", field="instruction")


def with_line_feeds(text: str) -> str:
    """The text with the line ends of a file; a browser sends others."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _tree(agent: AgentDescription, *, is_root: bool = True) -> Iterator[tuple[AgentDescription, bool]]:
    yield agent, is_root
    for each in agent.sub_agents:
        yield from _tree(each, is_root=False)


def _drafted(experiment: Experiment) -> Variant | None:
    """The one variant that has instructions of its own and nothing else, beside one without options."""
    variants = experiment.plan.variants
    if len(variants) != 2 or experiment.plan.baseline != 0 or variants[0].options:
        return None
    names = [name.partition("@")[0] for name in variants[1].options]
    return variants[1] if names and set(names) == {INSTRUCTION} else None


def _texts(variant: Variant) -> Draft:
    return {name: str(text) for name, text in variant.options.items()}
