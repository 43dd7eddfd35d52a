"""Agents of different shapes are talked to, their sessions added through the form and run five times at once.

The first run is green unless the agent itself varies. All doors are the product's own: chat, form, replays and run.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.agents.installed import has_package, skip_without
from tests.desk_client import DeskClient
from tests.web.conftest import STREAM
from tests.web.evalsets.conftest import PORT, TOKEN, fields_of
from tests.web.evalsets.recorded_agents import RECORDED_AGENTS, RecordedAgent

from evaldesk.desk.desk import Desk
from evaldesk.desk.workspace import open_settings
from evaldesk.model import Case
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

pytestmark = pytest.mark.long
N_TRIALS = 5
PATIENCE_S = 300.0


@dataclass
class Recorder:
    """A visitor of the desk, and the cases that it added."""

    client: DeskClient
    desk: Desk

    def record(self, agent: RecordedAgent) -> str:
        """Talk to the agent; gives the address of the form of the session."""
        started = self.client.post("/sessions", data={"agent": agent.name, "state": ""})
        assert started.status_code == 303, started.text[-500:]
        address = str(started.headers["location"])
        for message in agent.messages:
            self.client.post(f"{address}/turns", data={"message": message}, headers=STREAM)
        session = self.desk.sessions.get(address.rpartition("/")[2])
        assert [(turn.stop_reason, turn.error) for turn in session.turns] == [("answered", None)] * len(agent.messages)
        return f"{address}/case"

    def replayed_fields(self, form: str) -> dict[str, str]:
        """The fields of the form after its replays, which a button or the page itself starts."""
        fields = fields_of(self.client.get(form).text)
        self.client.post(f"{form}/repeats?start=play", data=fields)
        self.client.within(self._replays)
        return fields_of(self.client.post(form, data={**fields, "op": "look"}).text)

    def run(self, form: str, fields: dict[str, str]) -> tuple[Case, list[str], list[str]]:
        """The case that "Add and run 5 times" saves, the verdicts of its run, and the reasons of failed scores."""
        answer = self.client.post(form, data={**fields, "then": "run"})
        assert answer.status_code == 303, answer.text[-500:]
        run_id = int(re.findall(r"/runs/(\d+)", str(answer.headers["location"]))[0])
        self.client.within(self._end_of_run, run_id)
        runs = self.desk.store.runs
        (row,) = runs.case_rows(run_id, limit=1)
        trials = runs.trials(run_id, [(0, at) for at in range(len(row.verdicts))])
        reasons = [score.reason for each in trials.values() for score in each.scores if score.passed is False]
        return runs.case(run_id, 0), [each.verdict for each in trials.values()], reasons

    async def _replays(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self.desk.replays._tasks)

    async def _end_of_run(self, run_id: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await asyncio.to_thread(self.desk.store.runs.summary, run_id)).status != "finished":
                await asyncio.sleep(0.05)


class ChatServer(BaseHTTPRequestHandler):
    """An endpoint in OpenAI's shape with tools of its own: its answers have an id, and streams end with a blank."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = f"Order {uuid.uuid4().hex[:8]}9 sent."
        usage = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
        if asked.get("stream"):
            deltas = [*({"content": f"{word} "} for word in text.split()), {}]
            choices = [{"index": 0, "delta": each, "finish_reason": None if each else "stop"} for each in deltas]
            chunks = [{"id": "x", "object": "chat.completion.chunk", "choices": [each]} for each in choices]
            parts = [f"data: {json.dumps(each)}\n\n" for each in [*chunks, {"choices": [], "usage": usage}]]
            self._answer("text/event-stream", "".join([*parts, "data: [DONE]\n\n"]))
            return
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        self._answer("application/json", json.dumps({"id": "x", "choices": [choice], "usage": usage}))

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", f"{len(body)}")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def chat_server() -> Iterator[str]:
    """The address of a chat server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), ChatServer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        server.shutdown()
        thread.join(60)


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory, chat_server: str) -> Iterator[Recorder]:
    """A started desk with all agents."""
    folder = tmp_path_factory.mktemp("agents")
    tables = []
    for agent in RECORDED_AGENTS:
        place = folder / (f"{agent.name}.py" if agent.table else f"{agent.name}/agent.py")
        place.parent.mkdir(exist_ok=True)
        place.write_text(agent.source)
        if agent.table:
            command = json.dumps(shlex.join([sys.executable, "-S", str(place)]))
            tables.append(f"[agents.{agent.name}]\n{agent.table.format(command=command, url=chat_server)}\n")
    (folder / "evaldesk.toml").write_text("\n".join(tables))
    desk = Desk.open(open_settings((str(folder),), workspace=str(folder)))
    client = DeskClient(
        create_app(desk, guard_settings(TOKEN, PORT)),
        base_url=f"http://127.0.0.1:{PORT}",
        headers={"Cookie": f"evaldesk-{PORT}={TOKEN}"},
        follow_redirects=False,
    )
    with client:
        yield Recorder(client, desk)


@pytest.mark.parametrize("agent", RECORDED_AGENTS, ids=lambda agent: agent.name)
def test_the_first_run_of_an_added_session_is_green(recorder: Recorder, agent: RecordedAgent) -> None:
    if agent.package:
        skip_without(agent.package)
    form = recorder.record(agent)

    fields = recorder.replayed_fields(form)
    case, verdicts, reasons = recorder.run(form, fields)

    assert {value for name, value in fields.items() if re.fullmatch(r"repeat-\d+-key", name)} >= {*agent.changing}
    asserted = [case.final_state, *((turn.expected.reference, turn.expected.tool_calls) for turn in case.turns)]
    assert any(asserted), "a case that asserts nothing is green in vain"
    if agent.varies:
        assert "failed" in verdicts
        assert any("calls" in reason or "call" in reason for reason in reasons)
    else:
        assert verdicts == ["passed"] * N_TRIALS, reasons


def test_at_least_twenty_sessions_are_recorded() -> None:
    steady = [agent for agent in RECORDED_AGENTS if not agent.varies]

    assert len(steady) >= 20
    assert len([agent for agent in steady if has_package(agent.package or "pytest")]) >= 10
