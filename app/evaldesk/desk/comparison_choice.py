"""Choosing the two runs of a comparison: those of the same eval set come first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.run_names import run_title
from evaldesk.report import passed_words
from evaldesk.store import RunStore, RunSummary

N_OFFERED = 100


@dataclass(frozen=True, slots=True)
class Offer:
    """A run to choose: its title, agent and count."""

    id: int
    words: str


@dataclass(frozen=True, slots=True)
class ComparisonChoice:
    """The form: the run that is chosen already, if one is, and what to put beside it; 0 is nothing yet."""

    offers: Sequence[Offer]
    a: int
    b: int
    problem: str = ""


def read_choice(runs: RunStore, chosen: Sequence[int], problem: str = "") -> ComparisonChoice:
    """What to compare the chosen run with: the run of the same eval set before it is proposed."""
    newest = runs.list(limit=N_OFFERED)
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
    passed = passed_words(run.n_passed, run.n_scored) if run.n_scored else "nothing scored"
    again = f", run {run.config.source_run_id} scored again" if run.config.source_run_id is not None else ""
    return Offer(run.id, f"{run_title(run)}: {run.config.agent.id}, {passed}{again}")
