"""A key that the agent tells everybody reaches no database, log, page, export or terminal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from evaldesk.store import Store

if TYPE_CHECKING:
    from tests.torture.conftest import ServedFolder, Server

pytestmark = pytest.mark.server

CANARY = 'canary "in a" coal/mine'
OWN_CANARY = "canary-that-only-the-worker-knows"
SHAPE = "sk-canary-0123456789abcdefghij"

TELLING_AGENT = """
import os

from evaldesk.model import Event, ToolCall

os.environ["DOTENV_API_KEY"] = "canary-that-only-" + "the-worker-knows"  # as load_dotenv does
KEY = " ".join((os.environ["CANARY_API_KEY"], os.environ["DOTENV_API_KEY"], "sk-canary-" + "0123456789abcdefghij"))


async def root_agent(message, state):
    print("printed", KEY)
    os.write(2, ("written " + os.environ["CANARY_API_KEY"]).encode())
    state[KEY] = [KEY]
    call = ToolCall("look_up", {KEY: KEY})
    yield Event("tool_call", call=call)
    yield Event("tool_result", call=call, result={"value": [KEY]})
    if message == "raise":
        raise ValueError(KEY)
    if message == "exit":
        os._exit(3)
    yield KEY


root_agent.__doc__ = "Says " + KEY
"""


def test_a_key_that_an_agent_tells_everybody_is_nowhere(place: ServedFolder) -> None:
    place.write_agent(TELLING_AGENT, "telling")
    place.write_cases(["say", "raise", "exit"])
    server = place.start(CANARY_API_KEY=CANARY)

    run_id = server.start_run()
    server.say_when_done(run_id)
    session = talk(server)
    pages = [
        "/agents",
        "/runs",
        f"/runs/{run_id}",
        f"/runs/{run_id}/configuration",
        f"/runs/new?like={run_id}",
        *(f"/runs/{run_id}/cases/{index}/trials/0" for index in range(3)),
        session,
        f"{session}/case",
    ]
    texts = {path: server.get(path) for path in pages}
    server.end()
    evaluated = place.run("eval", "telling", str(place.evalset), CANARY_API_KEY=CANARY)
    (place.workspace / "telling" / "agent.py").write_text(TELLING_AGENT + "\nraise RuntimeError(KEY)\n")
    broken = place.run("eval", "telling", str(place.evalset), CANARY_API_KEY=CANARY)

    assert {path: answer.status_code for path, answer in texts.items() if answer.status_code != 200} == {}
    assert "[CANARY_API_KEY] [DOTENV_API_KEY] [secret]" in texts[f"/runs/{run_id}/cases/0/trials/0"].text
    said = {path: answer.text for path, answer in texts.items()}
    said |= {"log": server.log(), "eval": evaluated.stdout + evaluated.stderr, "broken": broken.stdout + broken.stderr}
    said |= stored_values(place)
    assert (evaluated.returncode, broken.returncode) == (1, 3)
    assert "[CANARY_API_KEY]" in said["broken"]
    assert [where for where, text in said.items() if holds_canary(text)] == []


def talk(server: Server) -> str:
    """A session in which the agent answered and raised; gives its address."""
    answer = server.post("/sessions", agent="telling", state="{}")
    assert answer.status_code == 303, answer.text
    address = str(answer.headers["location"])
    for message in ("say", "raise"):
        with server.stream_answer(f"{address}/turns", message=message) as turn:
            assert not holds_canary(turn.read().decode())
    return address


def stored_values(place: ServedFolder) -> dict[str, str]:
    """Every value in the database, unpacked, and the bytes of its files."""
    found = {path.name: path.read_bytes().decode("latin-1") for path in (place.workspace / ".evaldesk").iterdir()}
    with closing(sqlite3.connect(place.database)) as connection:
        trials = connection.execute("SELECT run_id, case_index, trial_index FROM trial").fetchall()
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            found[table] = repr(connection.execute(f"SELECT * FROM {table}").fetchall())  # noqa: S608 - our own names
    with Store.open(place.database, must_exist=True) as store:
        found |= {f"trial {trial}": repr(store.runs.trial(*trial)) for trial in trials}
        found |= {f"session {each.id}": repr(store.sessions.get(each.id)) for each in store.sessions.list()}
    return found


def holds_canary(text: str) -> bool:
    return any(mark in text for mark in ("coal/mine", OWN_CANARY, SHAPE))
