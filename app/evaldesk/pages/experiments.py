"""The list of experiments: one line for each, pages by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.model.experiment import Experiment
from evaldesk.model.run import LIVE
from evaldesk.model.stored import RunSummary
from evaldesk.pages.runs.table import LETTERS
from evaldesk.wording.words import trials_each

PAGE_SIZE = 20
MOST_VARIANTS = 6
"""Variants that a line shows."""


@dataclass(frozen=True, slots=True)
class ListedVariant:
    """A variant in a line: its letter on the page of the experiment; `run` is None where it was deleted."""

    letter: str
    name: str
    run: RunSummary | None


@dataclass(frozen=True, slots=True)
class ExperimentLine:
    """One experiment in a list, with its first variants."""

    experiment: Experiment
    variants: Sequence[ListedVariant]

    @property
    def runs(self) -> Sequence[RunSummary]:
        """The runs of the shown variants that are there."""
        return [each.run for each in self.variants if each.run]

    @property
    def n_more(self) -> int:
        """The number of variants that are not shown."""
        return len(self.experiment.plan.variants) - len(self.variants)

    @property
    def is_live(self) -> bool:
        """Whether a shown variant is played."""
        return any(run.status in LIVE for run in self.runs)

    @property
    def shape(self) -> str:
        """`4 × 5`: cases by trials of the first variant; empty without a run."""
        return next((f"{run.n_cases:,} × {trials_each(run.n_least, run.n_most)}" for run in self.runs), "")


@dataclass(frozen=True, slots=True)
class ExperimentListing:
    """A page of the list; an address is empty where its page does not exist."""

    lines: Sequence[ExperimentLine]
    newest_href: str
    older_href: str


def read_experiments(desk: Desk, before: int | None) -> ExperimentListing:
    """A page of experiments, newest first; `before` ends the page before it."""
    experiments = desk.store.experiments.list(before=before, limit=PAGE_SIZE + 1)
    page_experiments = experiments[:PAGE_SIZE]
    members = [each.members[:MOST_VARIANTS] for each in page_experiments]
    run_ids = [each.run_id for of_one in members for each in of_one if each.run_id is not None]
    runs = {each.id: each for each in desk.store.runs.summaries(run_ids)}
    return ExperimentListing(
        lines=[
            ExperimentLine(
                experiment,
                [
                    ListedVariant(letter, variant.name, runs.get(member.run_id or 0))
                    for letter, variant, member in zip(LETTERS, experiment.plan.variants, of_one, strict=False)
                ],
            )
            for experiment, of_one in zip(page_experiments, members, strict=True)
        ],
        newest_href="/experiments" if before is not None else "",
        older_href=f"/experiments?before={page_experiments[-1].id}" if len(experiments) > PAGE_SIZE else "",
    )
