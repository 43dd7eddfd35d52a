"""The progress of an experiment: the trials that are left, their cost and time, and whether it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.experiments.results import runs_of
from evaldesk.desk.experiments.variants import MOST_VARIANTS
from evaldesk.model.conclusion import counted
from evaldesk.model.experiment import Experiment
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.store.runs.run_store import is_playable
from evaldesk.wording.words import cost_words, duration_words


@dataclass(frozen=True, slots=True)
class ExperimentProgress:
    """The trials of an experiment that are played, and those that are left but of dropped variants.

    `status` is `running`, `stopping`, `stopped` or `finished`. `rest` are cost and time of the trials left, by those
    so far. `reason` says why they wait or why no more began. An experiment that rests `can_grow` by further variants.
    """

    n_done: int
    n_trials: int
    n_todo: int
    status: str
    rest: str
    reason: str
    budget: str
    can_resume: bool
    can_grow: bool

    @property
    def is_live(self) -> bool:
        """Whether a variant of it is played, or waits for its turn."""
        return self.status in ("running", "stopping")

    @property
    def words(self) -> str:
        """`45 of 192 trials done.`, and the rest where there is one."""
        if not self.n_todo:
            return ""
        sentence = f"{self.n_done:,} of {counted(self.n_trials, 'trial')} done"
        if self.status == "stopping":
            return f"{sentence}. It stops when its running trials have ended."
        return f"{sentence}; {self.n_todo:,} left{f', {self.rest}' if self.rest else ''}."


def read_progress(desk: Desk, experiment: Experiment) -> ExperimentProgress:
    """The progress of an experiment by its stored runs."""
    return progress_of(desk, experiment, runs_of(desk.store, experiment))


def progress_of(desk: Desk, experiment: Experiment, runs: Mapping[int, RunSummary]) -> ExperimentProgress:
    """The progress of an experiment by the runs that its variants have, by their indexes."""
    runs_to_resume = [run for index, run in runs.items() if index not in experiment.dropped and run.n_todo]
    statuses = {run.status for run in runs.values()}
    n_todo = sum(run.n_todo for run in runs_to_resume)
    status = "running" if statuses & {"running", "pending"} else "stopping" if "stopping" in statuses else ""
    status = status or ("stopped" if n_todo else "finished")
    are_playable = bool(runs) and all(is_playable(run.config) for run in runs.values())
    waits = (desk.runs.trouble(run.id) or desk.runs.pause(run.id) for run in runs.values())
    ended = (run.reason for run in runs_to_resume if run.status == "stopped")
    n_done = sum(run.n_done for run in runs.values())
    active_ms = max((run.active_ms for run in runs.values()), default=0.0)
    return ExperimentProgress(
        n_done=n_done,
        n_trials=sum(run.n_trials for run in runs.values()),
        n_todo=n_todo,
        status=status,
        rest=rest_words(runs_to_resume, active_ms, n_done),
        reason=next(filter(None, waits if statuses & LIVE else ended), ""),
        budget=experiment.plan.budget or "",
        can_resume=status == "stopped" and are_playable,
        can_grow=status in ("stopped", "finished") and are_playable and len(experiment.members) < MOST_VARIANTS,
    )


def rest_words(runs: Sequence[RunSummary], active_ms: float, n_done: int) -> str:
    """Cost and time of the trials that runs have left, as so far: `about $0.40, about 2 min`; empty for no run.

    A run without a trial so far tells no cost. The `n_done` trials of all variants took `active_ms` together.
    """
    if not runs:
        return ""
    if any(run.whole_cost is None for run in runs):
        cost = "cost not known"
    else:
        dollars = sum((run.whole_cost or 0.0) / run.n_done * run.n_todo for run in runs)
        cost = f"about {cost_words(dollars)}" if dollars else "$0"
    if not (n_done and active_ms):
        return cost
    return f"{cost}, about {duration_words(active_ms / n_done * sum(run.n_todo for run in runs))}"
