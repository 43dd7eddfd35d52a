"""One workspace, open."""

from __future__ import annotations

import asyncio
import contextlib

from evaldesk.desk.agents import AgentDesk
from evaldesk.desk.evalsets import EvalSetDesk
from evaldesk.desk.importing import ImportDesk
from evaldesk.desk.runs import RunDesk
from evaldesk.desk.sessions import SessionDesk
from evaldesk.desk.watching import WatchDesk
from evaldesk.engine import AgentHost
from evaldesk.errors import WorkspaceError
from evaldesk.settings import Settings
from evaldesk.store import Store


class Desk:
    """One workspace, open: its agents, chat sessions, eval sets and runs."""

    def __init__(self, settings: Settings, store: Store, host: AgentHost) -> None:
        self.settings = settings
        self.store = store
        self.host = host
        self.agents = AgentDesk(settings, host)
        self.sessions = SessionDesk(store, self.agents, host)
        self.watching = WatchDesk(self.sessions, self.agents, host, settings.user)
        self.evalsets = EvalSetDesk(settings, store)
        self.imports = ImportDesk(settings, store, self.evalsets)
        self.runs = RunDesk(settings, store, self.agents, self.evalsets)
        self._warming: asyncio.Task[None] | None = None
        self._attending: asyncio.Task[None] | None = None

    @classmethod
    def open(cls, settings: Settings) -> Desk:
        """A desk on the workspace's database, which is made or migrated when needed. Raises WorkspaceError."""
        return cls(settings, Store.open(settings.database), AgentHost())

    async def start(self) -> None:
        """Warm what the first visitor needs, and go on with the runs that a dead desk left behind."""
        await self.agents.start()
        await self.runs.start_up()
        self._warming = asyncio.create_task(self._warm_runs())
        self._attending = asyncio.create_task(self.runs.attend(takes_up=True))

    def attend(self) -> None:
        """Let other processes stop the runs that go on here; `start` does so, and takes up what was submitted."""
        self._attending = asyncio.create_task(self.runs.attend(takes_up=False))

    async def close(self) -> None:
        """Stop what runs here; finished trials are stored, the others stay planned."""
        for task in (self._warming, self._attending):
            if task:
                task.cancel()
        await self.runs.close()
        await self.watching.close()
        await self.sessions.close()
        await self.agents.close()
        await self.host.close()
        self.store.close()

    async def _warm_runs(self) -> None:
        """Workers for the first run, once the agents are ready to talk; then the rest of what was being deleted."""
        await self.agents.settled()
        found = [agent.description for agent in self.agents.list() if agent.description]
        self.runs.warm(has_models=any(each.model and not each.is_direct for each in found))
        with contextlib.suppress(WorkspaceError):  # the next start tries again
            await asyncio.to_thread(self.store.runs.finish_deleting)
