"""Choosing the two runs of a comparison: those of the same eval set come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.model.stored import RunSummary
from evaldesk.wording.words import passed_words

N_OFFERED = 100


@dataclass(frozen=True, slots=True)
class Offer:
    """A run to choose: its title, agent and count."""

    id: int
    words: str


@dataclass(frozen=True, slots=True)
class ComparisonChoice:
    """The form: the run that is chosen already, if one is, and the other; 0 is nothing yet."""

    offers: Sequence[Offer]
    a: int
    b: int
    problem: str = ""


def read_choice(desk: Desk, chosen: Sequence[int], problem: str = "") -> ComparisonChoice:
    """The candidates for the comparison with the chosen run: the run of the same eval set before it is proposed."""
    newest = desk.store.runs.list(limit=N_OFFERED)
    b = next((run for run in newest if run.id in chosen), newest[0] if newest else None)
    if b is None:
        return ComparisonChoice((), 0, 0, problem)
    others = [run for run in newest if run.id != b.id]
    kin = [run for run in others if run.config.evalset_id == b.config.evalset_id]
    strangers = [run for run in others if run.config.evalset_id != b.config.evalset_id]
    a = next((run.id for run in others if run.id in chosen), None)
    a = a or next((run.id for run in kin if run.id < b.id), next((run.id for run in (*kin, *strangers)), 0))
    return ComparisonChoice([_offer(run) for run in (b, *kin, *strangers)], a, b.id, problem)


def _offer(run: RunSummary) -> Offer:
    passed = passed_words(run.counts.passed, run.counts.scored) if run.counts.scored else "no scored trials"
    again = f", re-score of run {run.config.source_run_id}" if run.config.source_run_id is not None else ""
    return Offer(run.id, f"{run_title(run)}: {run.config.agent.id}, {passed}{again}")
