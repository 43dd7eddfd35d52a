"""A desk whose agents are scripted, behind the real application and its guard."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from tests.desk_client import DeskClient

from evaldesk.desk import search
from evaldesk.desk.desk import Desk
from evaldesk.desk.search import SearchDesk
from evaldesk.engine import ChatPlayers
from evaldesk.errors import AgentError
from evaldesk.model import AgentDescription, AgentRef, Event, StopReason, ToolDescription, TurnRecord, TurnSpec
from evaldesk.settings import Settings
from evaldesk.store import Store
from evaldesk.store.database import Database
from evaldesk.web import server
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

PORT = 8420
TOKEN = "a-token-of-enough-letters"
STREAM = {"Accept": "text/html, text/event-stream", "HX-Request": "true"}
OPEN_METRICS = functools.cache(server._open_metrics)
PAGES = ("agents", "sessions", "bench", "turns", "finding")

DICE = AgentDescription(
    name="dice",
    kind="llm",
    description="Rolls dice.",
    instruction="Roll when asked. <b>Never</b> guess.",
    model="demo/dice",
    tools=(
        ToolDescription(
            "roll_die",
            "Roll a die.",
            {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]},
        ),
    ),
    is_demo=True,
    initial_state={"rolls": []},
)


@dataclass
class ScriptedHost:
    """Plays the same events for every message. With `waits` a turn stands still after them until it is stopped."""

    events: Sequence[Event] = ()
    state_after: dict[str, Any] | None = None
    raises: Exception | None = None
    waits: bool = False
    specs: list[TurnSpec] = field(default_factory=list)
    described: list[str] = field(default_factory=list)
    descriptions: dict[str, AgentDescription] = field(default_factory=dict)
    stops: dict[str, asyncio.Event] = field(default_factory=dict)

    async def describe(self, ref: AgentRef) -> AgentDescription:
        self.described.append(ref.id)
        if ref.id == "broken":
            raise AgentError("No module named 'pdf_tables'", trace="Traceback: <agent.py>, line 4")
        return self.descriptions.get(ref.id, DICE)

    async def model_fault(self, ref: AgentRef, model: str) -> str:
        return ""

    async def warm(self, ref: AgentRef) -> None:
        return None

    async def stop_turn(self, session_id: str) -> None:
        self.stops[session_id].set()

    async def close(self) -> None:
        return None

    async def play_turn(self, spec: TurnSpec) -> AsyncIterator[Event | TurnRecord]:
        self.specs.append(spec)
        stop = self.stops[spec.session_id] = asyncio.Event()
        for event in self.events:
            yield event
        if self.raises:
            raise self.raises
        if self.waits:
            await stop.wait()
        kept = tuple(event for event in self.events if not event.is_partial)
        reason: StopReason = "cancelled" if stop.is_set() else "answered"
        after = spec.state if self.state_after is None else self.state_after
        yield TurnRecord(spec.message, kept, spec.state, after, 1234.0, reason)


@dataclass
class ChatDesk:
    """A browser without a script, and the scripted host behind the desk."""

    client: DeskClient
    host: ScriptedHost
    desk: Desk

    def new_session(self, state: str = "{}") -> str:
        """The address of a new session."""
        answer = self.client.post("/sessions", data={"agent": "dice", "state": state})
        assert answer.status_code == 303
        return str(answer.headers["location"])

    def say(self, session: str, message: str = "Roll a die") -> str:
        """Send a message as a script does, and wait for the whole streamed answer."""
        answer = self.client.post(f"{session}/turns", data={"message": message}, headers=STREAM)
        assert answer.status_code == 200
        return str(answer.text)


@pytest.fixture(autouse=True)
def _writes_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail every test in which a page writes where it would hold up all others while another process writes."""
    writing = Database.writing

    def beside(self: Database) -> Any:
        assert asyncio._get_running_loop() is None, "the loop of the pages would wait for the lock of the database"
        return writing(self)

    monkeypatch.setattr(Database, "writing", beside)


@pytest.fixture(autouse=True, scope="module")
def _start_up_work_shared() -> Iterator[None]:
    """Let a desk open its metrics once in a process, and look for new texts when its interval has passed."""
    follow = SearchDesk.follow

    async def follow_later(self: SearchDesk, is_open: Callable[[], bool]) -> None:
        await asyncio.sleep(search.LOOK_EVERY_S)
        await follow(self, is_open)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(server, "_open_metrics", OPEN_METRICS)
        patch.setattr(SearchDesk, "follow", follow_later)
        yield


@pytest.fixture
def host() -> ScriptedHost:
    return ScriptedHost()


@pytest.fixture
def open_chat(tmp_path: Path, host: ScriptedHost, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ChatDesk]]:
    """Opens the desk on one workspace; calling it again closes the one before, as a restart does."""
    monkeypatch.setattr("evaldesk.web.server.ROUTES", tuple(f"evaldesk.web.routes.{name}:routes" for name in PAGES))
    root = tmp_path / "agents"
    for name in ("dice", "broken"):
        (root / name).mkdir(parents=True)
        (root / name / "agent.py").write_text("root_agent = None\n")
    stack = ExitStack()

    def open_desk(**settings: Any) -> ChatDesk:
        stack.close()
        found = Settings(workspace=tmp_path, roots=(root,), **settings)
        found.state_folder.mkdir(exist_ok=True)
        desk = Desk(found, Store.open(found.database), cast("ChatPlayers", host))
        client = DeskClient(
            create_app(desk, guard_settings(TOKEN, PORT)),
            base_url=f"http://127.0.0.1:{PORT}",
            headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
            follow_redirects=False,
        )
        return ChatDesk(stack.enter_context(client), host, desk)

    with stack:
        yield open_desk


@pytest.fixture
def chat(open_chat: Callable[..., ChatDesk]) -> ChatDesk:
    return open_chat()
