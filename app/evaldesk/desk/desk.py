"""One workspace, open."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import zlib
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

from sqlalchemy.exc import SQLAlchemyError

from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.evalsets.evalsets import EvalSetDesk
from evaldesk.desk.process_owner import starter
from evaldesk.desk.trust import Trust
from evaldesk.engine import ChatPlayers
from evaldesk.errors import BrokenRowError, EvaldeskError, WorkspaceError
from evaldesk.gate_options import GATES_BY_NAME, title_of
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.runs.run_store import DELETED_RUNS_KEPT

if TYPE_CHECKING:
    from evaldesk.desk.blame.blaming import BlameDesk
    from evaldesk.desk.chat.adk_sessions import AdkSessions
    from evaldesk.desk.chat.replays import ReplayDesk
    from evaldesk.desk.chat.sessions import SessionDesk
    from evaldesk.desk.chat.simulation import SimulationDesk
    from evaldesk.desk.evalsets.wordings import WordingDesk
    from evaldesk.desk.experiments.bench import PromptBench
    from evaldesk.desk.experiments.experiments import ExperimentDesk
    from evaldesk.desk.experiments.prompts import PromptDesk
    from evaldesk.desk.failures import FailureDesk
    from evaldesk.desk.forks.forks import ForkDesk
    from evaldesk.desk.imports.importing import ImportDesk
    from evaldesk.desk.inbox.drawing import DrawDesk
    from evaldesk.desk.inbox.inbox import InboxDesk
    from evaldesk.desk.inbox.live import LiveDesk
    from evaldesk.desk.inbox.pulling import PullDesk
    from evaldesk.desk.inbox.replay import InboxReplays
    from evaldesk.desk.labels import LabelDesk, Person
    from evaldesk.desk.model_proposals import ModelProposalDesk
    from evaldesk.desk.queues import QueueDesk
    from evaldesk.desk.runs.plan import RunOptions, RunPlan
    from evaldesk.desk.runs.runs import RunDesk
    from evaldesk.desk.runs.stored_runs import StoredRuns
    from evaldesk.desk.search import SearchDesk
    from evaldesk.store.presets import PresetStore
    from evaldesk.store.views import ViewStore

log = logging.getLogger("evaldesk.desk")
BACKUP_LOOK_S = 60.0


class Desk:
    """One workspace, open: its agents, chat sessions, eval sets and runs. Nothing can be stored while `is_read_only`.

    Modules that the first page does not need are imported on first use.
    """

    def __init__(self, settings: Settings, store: Store, host: ChatPlayers, trust: Trust | None = None) -> None:
        self.settings = settings
        self.trust = trust or Trust(settings)
        self.store = store
        self.is_read_only = store.is_read_only
        self.host = host
        self.agents = AgentDesk(settings, host, self.trust)
        self.evalsets = EvalSetDesk(settings, store, reads_git=lambda: self.trust.is_given)
        self._warming: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._recovering: asyncio.Task[None] | None = None
        self._indexing: asyncio.Task[None] | None = None
        self._backing_up: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, settings: Settings, trust: Trust | None = None) -> Desk:
        """A desk on the workspace's database, which is made or migrated when needed. Raises WorkspaceError."""
        trust = trust or Trust(settings)
        return cls(settings, trust.opened_store(), ChatPlayers(check=trust.check_agent), trust)

    @property
    def is_restricted(self) -> bool:
        """Whether something of the workspace waits for the answer of a person, and nothing of it runs."""
        return not self.trust.is_given and (self.trust.is_restricted or self.agents.has_untrusted)

    def now(self) -> datetime:
        """This moment in UTC, by the clock that dates the rows of the store."""
        return self.store.now()

    @cached_property
    def mark(self) -> str:
        """The mark by which a browser tells the workspace from another one at this address."""
        return f"{zlib.crc32(os.fsencode(self.settings.workspace)):08x}"

    @cached_property
    def sessions(self) -> SessionDesk:
        """The chat sessions, and the turns that are played in them."""
        from evaldesk.desk.chat.sessions import SessionDesk

        return SessionDesk(self.store, self.agents, self.host)

    @cached_property
    def adk_sessions(self) -> AdkSessions:
        """The chat sessions that `adk web` keeps in this workspace."""
        from evaldesk.desk.chat.adk_sessions import AdkSessions

        return AdkSessions(self.settings, self.agents)

    @cached_property
    def simulation(self) -> SimulationDesk:
        """The chats in which a simulated user talks to an agent."""
        from evaldesk.desk.chat.simulation import SimulationDesk

        return SimulationDesk(self.sessions, self.agents, self.host, self.settings.with_user_models(self.settings.user))

    @cached_property
    def replays(self) -> ReplayDesk:
        """The further plays of conversations that are added as cases."""
        from evaldesk.desk.chat.replays import ReplayDesk

        return ReplayDesk(self.store, self.agents, self.host)

    @cached_property
    def imports(self) -> ImportDesk:
        """The imports of files, and the uploads that wait for a person."""
        from evaldesk.desk.imports.importing import ImportDesk

        return ImportDesk(self.settings, self.store, self.evalsets)

    @cached_property
    def runs(self) -> RunDesk:
        """The runs, and the drivers that play them in this process."""
        from evaldesk.desk.runs.runs import RunDesk

        return RunDesk(self.settings, self.store, trust=self.trust)

    @cached_property
    def experiments(self) -> ExperimentDesk:
        """The experiments, whose variants are runs."""
        from evaldesk.desk.experiments.experiments import ExperimentDesk

        return ExperimentDesk(self.store, self.runs)

    @cached_property
    def forks(self) -> ForkDesk:
        """The forks of trials, which are runs."""
        from evaldesk.desk.forks.forks import ForkDesk

        return ForkDesk(self.store, self.runs, self.agents)

    @cached_property
    def blames(self) -> BlameDesk:
        """The searches for decisive turns, whose forks are runs."""
        from evaldesk.desk.blame.blaming import BlameDesk
        from evaldesk.desk.blame.planning import BlameSources

        return BlameDesk(BlameSources(self.store, self.runs, self.forks, self.failures))

    @cached_property
    def bench(self) -> PromptBench:
        """The prompt bench, whose drafts are experiments."""
        from evaldesk.desk.experiments.bench import PromptBench

        return PromptBench(self.store, self.experiments)

    @cached_property
    def prompts(self) -> PromptDesk:
        """The prompts that are kept as files of the workspace."""
        from evaldesk.desk.experiments.prompts import PromptDesk

        return PromptDesk(self.settings)

    def share_workers(self) -> None:
        """Share worker processes among consecutive runs, with the process that described the agent."""
        from evaldesk.desk.runs.kept_workers import SharedWorkers

        self.runs.shared_workers = SharedWorkers(self.host, self.settings.n_workers)

    async def plan_run(
        self, agent_id: str, evalset_id: str, options: RunOptions, baseline: int | None = None
    ) -> RunPlan:
        """The run of an agent and an eval set by their ids, compared with the run `baseline`.

        Raises UsageError naming the field at fault, NotFoundError for a baseline that is gone.
        """
        from evaldesk.desk.runs.gates.impossible import check_gates
        from evaldesk.desk.runs.model_checks import check_model_names, check_prices
        from evaldesk.desk.runs.plan import read_subject
        from evaldesk.desk.runs.stored_runs import compared_plans

        environment = options.value("environment")
        subject = await read_subject(self.agents, self.evalsets, agent_id, evalset_id, environment)
        plan = await asyncio.to_thread(self.runs.plan_for_page, subject, options)
        if subject.description:
            await check_model_names(self.host.model_fault, plan, subject.description)
        gates = options.gates
        if gates.asks_nothing:
            return plan
        if baseline is not None:
            compared_baseline = await asyncio.to_thread(self.stored_runs.baseline_of, baseline)
            (plan,) = compared_plans([plan], compared_baseline)
        check_gates(gates, [plan], title_of)
        if gates.max_cost is not None and subject.description:
            await check_prices(self.host.unpriced, plan, subject.description, title_of(GATES_BY_NAME["max_cost"]))
        return plan

    @property
    def me(self) -> str:
        """The name that is noted with runs and sessions which are started here."""
        return starter(self.settings).name

    @cached_property
    def person(self) -> Person:
        """The current reviewer's name."""
        from evaldesk.desk.labels import Person

        return Person(self.store, is_alone=not self.settings.store, name=self.settings.me)

    def broken_row_error(self, error: BaseException) -> BrokenRowError | None:
        """The sentence on the database row behind an unexpected error; None where every row is sound."""
        return self.store.broken_row_error(error)

    def media(self, digest: str) -> bytes | None:
        """The bytes of an image, a sound or a file that a run or a session holds; None where none does."""
        return self.store.media.content(digest)

    @cached_property
    def wordings(self) -> WordingDesk:
        """Other wordings of first messages that a model proposes."""
        from evaldesk.desk.evalsets.wordings import WordingDesk

        return WordingDesk(self.settings, self.host)

    @cached_property
    def model_proposals(self) -> ModelProposalDesk:
        """The kinds of failure that a model proposes."""
        from evaldesk.desk.model_proposals import ModelProposalDesk

        return ModelProposalDesk(self.settings, self.store, self.host)

    @cached_property
    def failures(self) -> FailureDesk:
        """The findings on trials, and the modes they belong to."""
        from evaldesk.desk.failures import FailureDesk

        return FailureDesk(self.store, self.person)

    @cached_property
    def labels(self) -> LabelDesk:
        """The labels of trials."""
        from evaldesk.desk.labels import LabelDesk

        return LabelDesk(self.store, self.person)

    @property
    def views(self) -> ViewStore:
        """Named views of the table of cases."""
        return self.store.views

    @property
    def presets(self) -> PresetStore:
        """The named forms of a run."""
        return self.store.presets

    @cached_property
    def queues(self) -> QueueDesk:
        """The review queues."""
        from evaldesk.desk.queues import QueueDesk

        return QueueDesk(self.store, self.person)

    @cached_property
    def inbox(self) -> InboxDesk:
        """The conversations of running agents."""
        from evaldesk.desk.inbox.inbox import InboxDesk

        return InboxDesk(self.settings, self.store, self.evalsets, self.person)

    @cached_property
    def inbox_replays(self) -> InboxReplays:
        """Runs of conversations of the inbox by agents of the workspace."""
        from evaldesk.desk.inbox.replay import InboxReplays

        return InboxReplays(self.settings, self.inbox, self.runs, self.imports, self.agents, self.host)

    @cached_property
    def draws(self) -> DrawDesk:
        """The draws of conversations to read."""
        from evaldesk.desk.inbox.drawing import DrawDesk

        return DrawDesk(self.store, self.inbox, self.person)

    @cached_property
    def live(self) -> LiveDesk:
        """The scores of the conversations of running agents."""
        from evaldesk.desk.inbox.live import LiveDesk

        return LiveDesk(self.settings, self.store)

    @cached_property
    def pulls(self) -> PullDesk:
        """The traces of hosted tools that come into the inbox."""
        from evaldesk.desk.inbox.pulling import PullDesk

        return PullDesk(self.settings, self.store)

    @cached_property
    def search(self) -> SearchDesk:
        """The search over the text of trials and over notes on them."""
        from evaldesk.desk.search import SearchDesk

        return SearchDesk(self.settings, self.store)

    @cached_property
    def stored_runs(self) -> StoredRuns:
        """The runs as they are stored, to be read."""
        from evaldesk.desk.runs.stored_runs import StoredRuns

        return StoredRuns(self.store.runs)

    async def start(self) -> None:
        """Look for agents, and have the first ready to talk."""
        await self.agents.start()

    async def go_on(self) -> None:
        """Take up the runs of a dead desk, and from now on submitted ones."""
        self.runs.hand_over = self._start_driver
        await self._take_up_runs()
        self._warming = asyncio.create_task(self._warm_runs())
        self._polling = asyncio.create_task(self.runs.poll_requests(takes_up=True))
        self._recovering = asyncio.create_task(asyncio.to_thread(self._recover_imports))
        if not (self.settings.store or self.store.is_read_only or self.is_restricted):
            self._backing_up = asyncio.create_task(self._back_up_hourly())

    async def _back_up_hourly(self) -> None:
        """Look each minute whether a backup of the database is due."""
        while True:
            await asyncio.sleep(BACKUP_LOOK_S)
            await asyncio.to_thread(self.back_up, datetime.now(UTC))

    def back_up(self, now: datetime) -> None:
        """Make a backup of the database where one is due; a failure is logged."""
        from evaldesk.store.backups import back_up

        try:
            back_up(self.settings.database_file, now)
        except (EvaldeskError, OSError, sqlite3.Error) as error:
            log.warning("the database cannot be backed up: %s", error)

    def _start_driver(self, run_id: int, digest: str) -> None:
        """Let a process of its own play a run that this one must not."""
        from evaldesk.desk.runs.handover import start_driver

        start_driver(self.settings, run_id, digest, os.environ)

    def _recover_imports(self) -> None:
        """End the imports of dead processes; their rows go with the rows of deleted runs."""
        try:
            if self.store.imports.list(1, is_unfinished=True):
                self.imports.recover()
        except (EvaldeskError, SQLAlchemyError) as error:
            log.warning("imports that were left behind cannot be ended: %s", error)

    async def give_trust(self) -> bool:
        """Trust the folders of the workspace, ask their agents and take up their runs; False where it is not kept."""
        is_kept = await asyncio.to_thread(self.trust.give)
        await self.agents.start()
        await self._take_up_runs()
        return is_kept

    async def _take_up_runs(self) -> None:
        try:
            await self.runs.start_up()
            await self._take_up_blames()
        except (EvaldeskError, SQLAlchemyError) as error:
            log.warning("runs that were left behind cannot be taken up: %s", error)

    async def _take_up_blames(self) -> None:
        """Go on with searches for decisive turns that a dead process left behind."""
        unfinished = [] if self.store.is_read_only else await asyncio.to_thread(self.store.blames.unfinished)
        if unfinished:
            await self.blames.start_up()

    def poll_requests(self) -> None:
        """Let other processes stop the runs of this one; `go_on` does so, and takes up submitted runs."""
        self._polling = asyncio.create_task(self.runs.poll_requests(takes_up=False))

    async def close(self) -> None:
        """Stop the runs of this process; finished trials are stored, the others stay planned."""
        for task in (self._warming, self._polling, self._recovering, self._indexing, self._backing_up):
            if task:
                task.cancel()
        if "imports" in self.__dict__:
            await asyncio.to_thread(self.imports.close)
        if "blames" in self.__dict__:
            await self.blames.close()
        await self.runs.close()
        for chats in ("replays", "simulation", "sessions"):
            if chats in self.__dict__:
                await getattr(self, chats).close()
        await self.agents.close()
        await (self.runs.shared_workers or self.host).close()
        self.store.close()

    async def _warm_runs(self) -> None:
        """Start workers for the first run, once the agents are ready to talk; then finish interrupted deletions."""
        from evaldesk.llm import needs_litellm

        await self.agents.wait_until_ready()
        descriptions = [agent.description for agent in self.agents.list() if agent.description]
        self.runs.warm(
            has_models=any(each.model and not each.is_direct and needs_litellm(each.model) for each in descriptions)
        )
        if self._recovering:
            await self._recovering
        with contextlib.suppress(WorkspaceError):  # the next start tries again
            await asyncio.to_thread(self.store.runs.remove_deleted, DELETED_RUNS_KEPT)
            await asyncio.to_thread(self.store.sessions.remove_deleted)
            await asyncio.to_thread(self.store.give_back)
            await asyncio.to_thread(self.store.runs.add_totals)
            await asyncio.to_thread(self.store.runs.add_facets)
        self._indexing = asyncio.create_task(self.search.follow(lambda: not (self.is_read_only or self.is_restricted)))
