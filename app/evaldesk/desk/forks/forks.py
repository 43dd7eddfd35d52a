"""Forks of trials: planned, played in the background, and found again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from evaldesk.desk.forks.plan import ForkPlan, plan_fork
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentRef
from evaldesk.model.fork import Fork, ForkPoint
from evaldesk.model.stored import RunSummary
from evaldesk.store import Store
from evaldesk.store.runs.run_store import is_imported

if TYPE_CHECKING:
    from evaldesk.desk.agents import AgentDesk
    from evaldesk.desk.runs.runs import RunDesk


class ForkDesk:
    """The forks of a workspace. Each is a run of one case that begins after pinned turns of a trial."""

    def __init__(self, store: Store, runs: RunDesk, agents: AgentDesk) -> None:
        self._store = store
        self._runs = runs
        self._agents = agents

    async def plan(self, fork: Fork) -> ForkPlan:
        """The plan of a fork; nothing is played. Raises UsageError naming the field, NotFoundError."""
        parent = await self._runs.summary(fork.point.run_id)
        own = await asyncio.to_thread(self._runs.own_part, parent)
        agent = self._agent(fork, parent, own.agent)
        return await asyncio.to_thread(plan_fork, self._store, fork, parent, own, agent)

    async def start(self, fork: Fork, note: str = "") -> int:
        """Plan a fork and play it in the background; gives its run. Raises as `plan`, and TrustError."""
        run = (await self.plan(fork)).run
        return await self._runs.start(replace(run, config=replace(run.config, note=note)))

    def point(
        self, run: RunSummary, case_id: str, trial_index: int | None, turn: int, call: int | None = None
    ) -> ForkPoint:
        """The point in a trial, or in the first one that failed, else in the first. Raises NotFoundError."""
        case_ids = self._store.runs.case_ids(run.id)
        case_index = next((index for index, each in case_ids.items() if each == case_id), None)
        if case_index is None:
            raise NotFoundError.among(f"case in run {run.id}", case_id, case_ids.values())
        if trial_index is None:
            (strip,) = self._store.runs.strips(run.id, [case_index])
            trial_index = max(strip.find("f"), 0)
        return ForkPoint(run.id, case_index, trial_index, turn, call)

    def of_trial(self, run_id: int, case_index: int, trial_index: int) -> Sequence[RunSummary]:
        """The forks of a trial, oldest first."""
        return self._store.forks.of_trial(run_id, case_index, trial_index)

    def _agent(self, fork: Fork, parent: RunSummary, own: AgentRef) -> AgentRef:
        """The agent that plays a fork. Raises UsageError for an imported trial without one."""
        name = next((edit.name for edit in reversed(fork.edits) if edit.kind == "agent"), "")
        if name:
            return self._agents.get(name).ref
        if not is_imported(parent.config):
            return own
        same = [agent.ref for agent in self._agents.list() if agent.id == parent.config.agent.id]
        if not same:
            raise UsageError(
                f"run {parent.id} was imported, and no agent here is named {parent.config.agent.id!r}; "
                "name the agent that plays on",
                field="agent",
            )
        return same[0]


class RunsAndAgents(Protocol):
    """The part of a desk that plays forks."""

    @property
    def runs(self) -> RunDesk:
        """The runs."""

    @property
    def agents(self) -> AgentDesk:
        """The agents of the workspace."""


async def play_fork(store: Store, desk: RunsAndAgents, fork: Fork) -> int:
    """Store a fork of a trial and play it in the background of the desk; gives the id of its run.

    Raises UsageError naming the field at fault, NotFoundError for a trial that is not there, and TrustError.
    """
    return await ForkDesk(store, desk.runs, desk.agents).start(fork)
