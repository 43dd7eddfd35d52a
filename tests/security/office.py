"""The desk of a person on a database that a hostile colleague writes into, and the fixtures that open it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from tests.postgresql_server import place_of
from tests.security.colleague import Colleague, Tripwires, colleague_of, hostile_agent, laid_in

from evaldesk.desk.runs.runs import WAITING, RunDesk
from evaldesk.desk.store_copies import copy_store
from evaldesk.model import AgentRef
from evaldesk.model.run import RunConfig
from evaldesk.settings import DatabaseUrl

if TYPE_CHECKING:
    from tests.security.conftest import Fort

PENDING = {"status": "pending", "driver": WAITING, "started_by": "anna", "started_on": "nowhere"}


@dataclass
class Office:
    """The desk of a person, and a colleague who writes into its database."""

    fort: Fort
    colleague: Colleague
    wires: Tripwires

    @property
    def agent(self) -> AgentRef:
        """The agent of the person's own workspace."""
        return self.fort.desk.agents.list()[0].ref

    def look_around(self, seconds: int = 2) -> None:
        """What the desk does by itself, at its start and in so many seconds."""
        runs = self.fort.desk.runs

        async def look() -> None:
            await self.fort.desk._take_up_runs()
            for _ in range(seconds):
                await runs._handle_requests(takes_up=True)

        self.fort.client.within(look)
        self.fort.desk._recover_imports()

    def playing(self) -> list[int]:
        return sorted(self.fort.desk.runs._playing)

    def page(self, run_id: int) -> str:
        return unescape(self.fort.get(f"/runs/{run_id}").text)

    def hostile_run(self, **values: Any) -> int:
        """A waiting run of the colleague, whose agent is a command."""
        return self.own_run(lambda config: replace(config, agent=hostile_agent(self.wires)), **values)

    def own_run(self, change: Callable[[RunConfig], RunConfig] = lambda config: config, **values: Any) -> int:
        """A waiting run of the colleague that names the agent of this workspace, but for the change."""

        def as_own(config: RunConfig) -> RunConfig:
            return change(replace(config, agent=self.agent, model=None))

        return self.colleague.insert_like(self.fort.run, as_own, **PENDING | values)


OpenOffice: TypeAlias = Callable[[pytest.FixtureRequest], AbstractContextManager[Office]]


@pytest.fixture
def wires(tmp_path: Path) -> Iterator[Tripwires]:
    """Marks, files and addresses that no desk may touch."""
    with laid_in(tmp_path / "wires") as laid_wires:
        yield laid_wires


@pytest.fixture
def open_office(
    tmp_path: Path, wires: Tripwires, open_fort: Callable[..., Fort], monkeypatch: pytest.MonkeyPatch
) -> OpenOffice:
    """Opens a desk in a trusted folder, on a database of the engine of a request that others write into."""

    @contextmanager
    def opened(request: pytest.FixtureRequest) -> Iterator[Office]:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("PYTHONPATH", str(wires.folder))
        fort = open_fort() if request.param == "sqlite" else None
        place = place_of(request, fort.desk.settings.database_file if fort else tmp_path)
        if isinstance(place, DatabaseUrl):
            copy_of_fort(tmp_path / "workspace", place)
        fort = fort or open_fort(folder="shared", store=place)
        colleague = colleague_of(place)
        yield Office(fort, colleague, wires)
        colleague.engine.dispose()

    return opened


def copy_of_fort(home: Path, url: DatabaseUrl) -> None:
    """Copy the database of a fort that nobody opens: a desk that is open would write into it after a while."""
    from tests.security.conftest import fort_in

    left_fort = fort_in(home)
    left_fort.desk.store.close()
    copy_store(left_fort.desk.settings.database_file, url, lambda *_: None)


async def wait_for_end(runs: RunDesk, run_id: int) -> None:
    """Until the run has ended."""
    async for _ in runs.watch(run_id):
        pass
