"""A desk that plays a scripted shop in this process, and counts what it hears."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.postgresql_server import ENGINES, place_of

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.plan import RunOptions, RunSubject
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import Executor, InlineExecutor
from evaldesk.engine.worker.player import adopt, disown
from evaldesk.errors import NotFoundError
from evaldesk.model import AgentRef, Case, Criterion, EvalSet, Event, Expected, SessionInit, Turn, Usage
from evaldesk.model.stored import RunSummary
from evaldesk.settings import Settings
from evaldesk.store import Store

SHOP = AgentRef("shop", "shop:agent", kind="python")


@dataclass
class Shop:
    """An agent that answers with the number of its turn, breaks its state in the turn `breaks_at`, from 1,
    and itself in the turn `raises_at`.

    `messages` are the messages that it was asked, `histories` the messages before each of them.
    """

    breaks_at: int = 0
    raises_at: int = 0
    messages: list[str] = field(default_factory=list)
    histories: list[list[str]] = field(default_factory=list)
    seeds: list[int | None] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)

    def __call__(self, message: str, state: dict[str, Any], session: Any) -> Iterator[Event | str]:
        number = len(session.turns) + 1
        self.messages.append(message)
        self.histories.append([turn.query for turn in session.turns])
        self.seeds.append(session.seed)
        self.states.append(dict(state))
        if number == self.raises_at:
            raise RuntimeError("the shop is closed")
        if number == self.breaks_at:
            state["lost"] = True
        state["n"] = number
        yield Event("usage", usage=Usage("openai/big", tokens_in=10, tokens_out=1, cost=0.25))
        yield "no" if state.get("lost") else "yes"


@dataclass
class Forks:
    """A desk with one scripted agent, and a trial of it that was played."""

    desk: Desk
    shop: Shop
    run_id: int = 0

    @property
    def store(self) -> Store:
        """The store of the desk."""
        return self.desk.store

    async def play(self, case: Case, **options: Any) -> RunSummary:
        """A finished run of that case."""
        subject = RunSubject(SHOP, EvalSet("set", cases=(case,)), "set", "/sets/shop.evalset.json")
        criteria = options.pop("criteria", (Criterion("response_exact", 1.0),))
        plan = self.desk.runs.plan_for(subject, RunOptions(criteria=criteria, **options))
        return await self.over(await self.desk.runs.start(plan))

    async def over(self, run_id: int) -> RunSummary:
        """The run at its end."""
        async for _ in self.desk.runs.watch(run_id):
            pass
        return await self.desk.runs.summary(run_id)


def talk(n: int, **values: Any) -> Case:
    """A case of so many turns; the last one must be answered with yes."""
    turns = [Turn(f"step {number}") for number in range(1, n)]
    last = Turn(f"step {n}", Expected(reference="yes"))
    return Case("talk", (*turns, last), initial_session=SessionInit(state={"start": 1, "old": "x"}), **values)


class _NoAgents:
    def get(self, agent_id: str) -> Any:
        if agent_id != "shop":
            raise NotFoundError.among("agent", agent_id, ["shop"])
        return SimpleNamespace(id="shop", ref=SHOP)

    def list(self) -> list[Any]:
        return [self.get("shop")]


@pytest.fixture(params=ENGINES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    folder = tmp_path / ".evaldesk"
    folder.mkdir()
    with Store.open(place_of(request, folder / "evaldesk.db")) as opened:
        yield opened


@pytest.fixture
async def forks(store: Store, tmp_path: Path) -> AsyncIterator[Forks]:
    shop = Shop()
    adopt(SHOP, shop.__call__)
    runs = RunDesk(
        Settings(workspace=tmp_path, roots=()),
        store,
        open_executor=lambda config: cast("Executor", InlineExecutor(config.concurrency)),
    )
    desk = cast("Desk", SimpleNamespace(store=store, runs=runs, agents=_NoAgents()))
    yield Forks(desk, shop)
    await runs.close()
    disown(SHOP)
