"""Conversations of the inbox played again by an agent of the workspace, beside a run of them as they were seen."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from evaldesk.desk.evalsets.masking import without_secrets
from evaldesk.desk.forks.plan import tools_of, with_recorded_doubles
from evaldesk.desk.inbox.inbox import CaseChoice, case_of
from evaldesk.desk.runs.plan import RunOptions, RunPlan, subject_of
from evaldesk.errors import ConflictError, UsageError
from evaldesk.formats.exchange import Imported
from evaldesk.model import EvalSet, TrialResult
from evaldesk.store.runs.imports import AlreadyImportedError, NewRun
from evaldesk.transcripts.recorded import RecordedRun
from evaldesk.wording.inbox import SEEN_ONCE

if TYPE_CHECKING:
    from evaldesk.desk.agents import AgentDesk
    from evaldesk.desk.imports.importing import ImportDesk
    from evaldesk.desk.inbox.inbox import InboxDesk
    from evaldesk.desk.runs.runs import RunDesk
    from evaldesk.engine import ChatPlayers
    from evaldesk.model import Case
    from evaldesk.model.conclusion import Verdict
    from evaldesk.settings import Settings

SET_ID = "inbox-replay"
"""The eval set of these runs, which has no file."""
USUAL_N = 3
NOTE = "Conversations of the inbox, played again."
"""The note of the run that plays."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A run of conversations by an agent of today, and the conversations as they were seen.

    `real_tools` are the tools of the conversations that would run for real, `doubled_tools` are answered by their
    recorded results. `left_out` are the ids of conversations without a message of a user.
    """

    run: RunPlan
    seen_run: RecordedRun
    ids: tuple[int, ...]
    left_out: tuple[int, ...] = ()
    real_tools: tuple[str, ...] = ()
    doubled_tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StartedReplay:
    """The number of the run of the conversations as seen, and that of the run that plays."""

    seen_run_id: int
    run_id: int


class InboxReplays:
    """Plays conversations of the inbox by agents of the workspace."""

    def __init__(
        self,
        settings: Settings,
        inbox: InboxDesk,
        runs: RunDesk,
        imports: ImportDesk,
        agents: AgentDesk,
        host: ChatPlayers,
    ) -> None:
        self._settings = settings
        self._inbox = inbox
        self._runs = runs
        self._imports = imports
        self._agents = agents
        self._host = host

    async def plan(
        self, ids: Sequence[int], agent_id: str, n: int = USUAL_N, *, runs_tools: bool = False
    ) -> ReplayPlan:
        """The plan of a replay; nothing is played. Raises UsageError naming the field, NotFoundError, AgentError.

        Without `runs_tools` a tool answers as it did in the conversation, and a call that was not recorded is refused.
        """
        found_agent = self._agents.get(agent_id)
        agent = found_agent.ref
        pairs, left_out = await asyncio.to_thread(self._read, ids)
        cases = [case for case, _ in pairs]
        if not runs_tools:
            cases = [with_recorded_doubles(case, result.transcript.turns) for case, result in pairs]
        cases = [*without_secrets(cases, self._settings.environment, Counter[str]())]
        tools = dict.fromkeys(tool for case, result in pairs for tool in tools_of(result.transcript.turns, case, 1))
        options = RunOptions(n=n, note=NOTE)
        criteria = options.criteria_for(cases)
        await asyncio.to_thread(self._runs.freeze, criteria, agent.root)  # before the agent's import
        description = found_agent.description or await self._host.describe(agent)
        evalset = EvalSet(SET_ID, cases=tuple(cases))
        subject = subject_of(agent, evalset, None, description, self._settings.workspace)
        run = await asyncio.to_thread(self._runs.plan_for_page, subject, options)
        results = tuple(replace(result, case_index=place) for place, (_, result) in enumerate(pairs))
        seen_run = RecordedRun(SET_ID, _agent_name(results), tuple(cases), results)
        names = tuple(tools)
        return ReplayPlan(
            run,
            seen_run,
            tuple(each for each in dict.fromkeys(ids) if each not in left_out),
            left_out,
            real_tools=names if runs_tools else (),
            doubled_tools=() if runs_tools else names,
        )

    def store_seen(self, conversation_id: int) -> int:
        """The run of one conversation as it was seen, whose trial can be forked; the same one is stored once.

        Raises UsageError for one without a message of a user, NotFoundError.
        """
        pairs, _ = self._read([conversation_id])
        cases = without_secrets([case for case, _ in pairs], self._settings.environment, Counter[str]())
        results = tuple(replace(result, case_index=0) for _, result in pairs)
        return self._store_seen(RecordedRun(SET_ID, _agent_name(results), tuple(cases), results))

    async def start(self, plan: ReplayPlan) -> StartedReplay:
        """Store the conversations as seen, once, and play the run in the background. Raises as RunDesk.start does."""
        seen_run_id = await asyncio.to_thread(self._store_seen, plan.seen_run)
        return StartedReplay(seen_run_id, await self._runs.start(plan.run))

    def _read(self, ids: Sequence[int]) -> tuple[list[tuple[Case, TrialResult]], tuple[int, ...]]:
        """The conversations as cases with their transcripts, and the ids of those without a message of a user."""
        pairs, left_out = [], []
        for proposal in self._inbox.proposals(ids):
            turns = proposal.result.transcript.turns
            if not turns or not any(turn.query for turn in turns):
                left_out.append(proposal.conversation.id)
                continue
            result = replace(proposal.result, run_id=0, trial_index=0, scores=(), verdict=_verdict(proposal.result))
            pairs.append((case_of(proposal, CaseChoice(proposal.conversation.id)), result))
        if not pairs:
            raise UsageError("none of these conversations has a message of a user to play", field="conversation")
        return pairs, tuple(left_out)

    def _store_seen(self, seen_run: RecordedRun) -> int:
        """The id of the run of the conversations as seen; the same ones are stored once."""

        def as_seen(run: NewRun) -> NewRun:
            config = replace(run.config, evalset_id=SET_ID, evalset_path="", evalset_version="", recorded=None)
            return replace(run, config=config, reason=SEEN_ONCE)

        try:
            start = self._imports.begin(Imported("", None, (seen_run,)), source="the inbox", name="", change=as_seen)
        except AlreadyImportedError as error:
            return error.run_ids[-1]
        run_ids = self._imports.finish(start).run_ids
        if not run_ids:
            raise ConflictError("the conversations were not stored")
        return run_ids[-1]


def _verdict(result: TrialResult) -> Verdict:
    return "errored" if result.status == "errored" else "unscored"


def _agent_name(results: Sequence[TrialResult]) -> str:
    """The name of the agents that answered; several are joined by commas."""
    names = dict.fromkeys(
        event.author
        for result in results
        for turn in result.transcript.turns
        for event in turn.events
        if event.kind == "agent_message" and event.author
    )
    return ", ".join([*names][:3]) or "production"
