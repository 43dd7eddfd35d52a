"""The agents of the trees that acted in a run: their failures, cost and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.stored_runs import run_title
from evaldesk.model.agent_tree import AgentTotals
from evaldesk.model.stored import RunSummary


@dataclass(frozen=True, slots=True)
class RunAgents:
    """Each agent over all trials of a run that have several agents."""

    summary: RunSummary
    title: str
    agents: Sequence[AgentTotals]


def read_agents(desk: Desk, run_id: int) -> RunAgents:
    """The agents of a run in the order of their tree. Raises NotFoundError."""
    summary = desk.store.runs.summary(run_id)
    return RunAgents(summary, run_title(summary), desk.store.runs.agent_totals(run_id))
