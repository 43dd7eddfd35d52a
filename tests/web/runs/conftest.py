"""A desk whose runs are played in the test's own process by a scripted agent, behind the real application."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from httpx2 import Response
from tests.desk_client import DeskClient

from evaldesk.desk.desk import Desk
from evaldesk.desk.runs.runs import RunDesk
from evaldesk.engine import ChatPlayers, InlineExecutor
from evaldesk.engine.frames import cancelled
from evaldesk.model import AgentDescription, AgentRef, TrialResult, TrialSpec
from evaldesk.model.run import ExecutorConfig
from evaldesk.paths import OURS
from evaldesk.settings import Environment, Settings
from evaldesk.store import Store
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

PORT = 8420
TOKEN = "a-token-of-enough-letters"
AGENT = '''
"""Rolls a die where it is told to, and says what it was told."""

from evaldesk.model import Event, ToolCall


def answer(message, state):
    if message.startswith("raise"):
        raise ValueError("no such thing as <b>this</b>")
    if message.startswith("roll"):
        yield Event("tool_call", call=ToolCall("roll_die", {"sides": 6}))
        state["rolls"] = [*state.get("rolls", []), 4]
    yield message.removeprefix("wrongly ")


root_agent = answer
'''


def case(case_id: str, query: str, calls: list[dict[str, Any]] | None, reference: str | None) -> dict[str, Any]:
    """A case of one turn as ADK's new format says it."""
    turn: dict[str, Any] = {"user_content": {"role": "user", "parts": [{"text": query}]}}
    if reference is not None:
        turn["final_response"] = {"role": "model", "parts": [{"text": reference}]}
    if calls is not None:
        turn["intermediate_data"] = {"tool_uses": calls}
    return {
        "eval_id": case_id,
        "conversation": [turn],
        "session_input": {"app_name": "dice", "user_id": "u", "state": {}},
    }


CASES = [
    case("greets", "hello there", [], "hello there"),
    case("misses", "wrongly greet", [{"name": "roll_die", "args": {"sides": 20}}], "nothing of the kind"),
    case("breaks", "raise it", [], "never"),
    case("open", "anything", None, None),
]


class GatedExecutor(InlineExecutor):
    """Takes trials and plays none while its gate is shut."""

    def __init__(self, concurrency: int, gate: threading.Event) -> None:
        super().__init__(concurrency)
        self.gate = gate

    async def _play(self, spec: TrialSpec) -> TrialResult:
        while not self.gate.is_set() and not self.is_cancelled:
            await asyncio.sleep(0.001)
        return cancelled(spec) if self.is_cancelled else await super()._play(spec)


@dataclass
class Described:
    """A host that knows every agent without a worker."""

    async def describe(self, ref: AgentRef) -> AgentDescription:
        return AgentDescription(ref.id, "python", model="demo/dice", takes_instruction=True)

    async def unpriced(self, ref: AgentRef, models: Sequence[str]) -> tuple[str, ...]:
        return ()

    async def model_fault(self, ref: AgentRef, model: str) -> str:
        return ""

    async def warm(self, ref: AgentRef) -> None:
        return None

    async def close(self) -> None:
        return None


@dataclass
class RunPages:
    """A browser without a script, the desk behind it, and the ids of its agent and eval set."""

    client: DeskClient
    desk: Desk
    agent: str
    evalset: str

    def get(self, address: str, **headers: str) -> Response:
        return self.client.get(address, headers=headers)

    def post(self, address: str, **fields: Any) -> Response:
        return self.client.post(address, data=fields)

    def form(self, **changes: Any) -> dict[str, Any]:
        """The form of a new run as it is first shown, with `changes`."""
        filled = {
            "filled": "1",
            "agent": self.agent,
            "evalset": self.evalset,
            "cases": "all",
            "n": "2",
            "concurrency": "2",
            "timeout_s": "30",
            "pass_threshold": "1",
            "metric": ["tool_trajectory_avg_score", "response_match_score"],
            "tool_trajectory_avg_score.threshold": "1",
            "response_match_score.threshold": "0.8",
        }
        return {name: value for name, value in (filled | changes).items() if value is not None}

    def start(self, **changes: Any) -> str:
        """Start a run; gives its address."""
        answer = self.client.post("/runs", data=self.form(**changes))
        assert answer.status_code == 303, answer.text
        return str(answer.headers["location"])

    def until(self, address: str, text: str) -> Response:
        """The page at `address` once it says `text`."""
        for _ in range(2000):
            page = self.get(address)
            if text in page.text:
                return page
        raise AssertionError(f"{address} never said {text!r}: {page.text}")

    def finish(self, **changes: Any) -> str:
        """Start a run and wait for its end."""
        address = self.start(**changes)
        self.client.within(_has_ended, self.desk, int(address.rpartition("/")[2]))
        return address


async def _has_ended(desk: Desk, run_id: int) -> None:
    """Wait for the end of a run, as the stream of its page does, which renders the page several times meanwhile."""
    async for _tick in desk.runs.watch(run_id):
        pass


async def _end_played(desk: Desk) -> None:
    """End the runs that this desk plays; those that a test stored as running have no player, and no end."""
    for run_id, playing in list(desk.runs._playing.items()):
        await desk.runs.stop(run_id, cancel=True)
        if playing.task:
            await asyncio.wait({playing.task})


async def _has_gone_on(desk: Desk) -> None:
    """Wait until the desk has looked for runs that a dead one left: a test's own run is none, and has no player."""
    while desk._polling is None:
        await asyncio.sleep(0.001)


@contextmanager
def desks_in(workspace: Path) -> Iterator[Callable[..., RunPages]]:
    """Opens a desk; with a `gate` trials stand still until it is set; settings go by keyword."""
    clients: list[DeskClient] = []

    def open_pages(*, gate: threading.Event | None = None, **settings: Any) -> RunPages:
        folder = workspace / "agents" / "dice"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "agent.py").write_text(AGENT)
        sets = workspace / "evalsets"
        sets.mkdir(exist_ok=True)
        value = {"eval_set_id": "dice_set", "eval_cases": CASES}
        (sets / "dice_set.evalset.json").write_text(json.dumps(value))
        named = {
            "executors": {"other": ExecutorConfig("other")},
            "environments": {"other": Environment(OURS)},
            **settings,
        }
        found = Settings(workspace=workspace, roots=(folder.parent, sets), **named)
        found.state_folder.mkdir(exist_ok=True)
        desk = Desk(found, Store.open(found.database), cast("ChatPlayers", Described()))
        desk.runs = RunDesk(
            found,
            desk.store,
            open_executor=lambda config: (
                GatedExecutor(config.concurrency, gate) if gate else InlineExecutor(config.concurrency)
            ),
        )
        client = DeskClient(
            create_app(desk, guard_settings(TOKEN, PORT)),
            base_url=f"http://127.0.0.1:{PORT}",
            headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
            follow_redirects=False,
        )
        clients.append(client)
        client.__enter__()
        client.get("/static/mark.svg")  # the desk takes up the runs of a dead one after its first answer
        client.within(_has_gone_on, desk)
        return RunPages(client, desk, desk.agents.list()[0].id, desk.evalsets.list()[0].id)

    yield open_pages
    for client in clients:
        client.__exit__()


@pytest.fixture
def open_runs(tmp_path: Path, own_imports: None) -> Iterator[Callable[..., RunPages]]:
    """Opens desks on the folder of the test."""
    with desks_in(tmp_path) as open_pages:
        yield open_pages


@pytest.fixture
def pages(open_runs: Callable[..., RunPages]) -> RunPages:
    return open_runs(models=("openai/big",))


@pytest.fixture(scope="module")
def desk_of_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunPages]:
    """Takes half of the CPU time of a short test of a page, where each has its own."""
    with desks_in(tmp_path_factory.mktemp("desk")) as open_pages:
        yield open_pages(models=("openai/big",))


@pytest.fixture
def shared_pages(desk_of_module: RunPages, own_imports: None) -> Iterator[RunPages]:
    """The desk of all tests of a file that change nothing, or nothing but a run of their own.

    A run that goes on would import its agent in the next test.
    """
    yield desk_of_module
    desk_of_module.client.within(_end_played, desk_of_module.desk)
