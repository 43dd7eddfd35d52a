"""Agents that Evaldesk plays and that export their spans to an inbox: no conversation of a user."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests import fake_docker
from tests.spans_of_agents import request, turn_spans
from tests.virtual_environments import make_environment

from evaldesk.agents.env_files import take_variables
from evaldesk.desk.inbox.joining import join_new
from evaldesk.desk.inbox.receiver import InboxReceiver, span_reader
from evaldesk.engine import ChatPlayers, LocalExecutor
from evaldesk.engine.launch import launcher_of
from evaldesk.model import AgentRef, Container, TrialResult, TrialSpec, TurnRecord, TurnSpec
from evaldesk.process_setup import RESOURCE_ATTRIBUTES, with_played
from evaldesk.store import Store
from evaldesk.workers_ahead import end_ahead, start_ahead

pytestmark = pytest.mark.anyio

Write = Callable[..., AgentRef]
Make = Callable[..., TrialSpec]
Play = Callable[..., Awaitable[dict[int, TrialResult]]]

MARK = "evaldesk.played=true"
OWN = "service.name=shop%20desk,service.version=1.4"
SPANS = json.dumps(request(turn_spans("Where is my order?", "On its way.", session="s1")))
EXPORT = f"""
import json, os, urllib.request
from urllib.parse import unquote

def export():
    \"\"\"Send spans with the resource that an SDK makes of the environment.\"\"\"
    items = filter(None, os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","))
    pairs = [item.split("=", 1) for item in items]
    attributes = [dict(key=key.strip(), value=dict(stringValue=unquote(value.strip()))) for key, value in pairs]
    body = json.loads({SPANS!r})
    body["resourceSpans"][0]["resource"]["attributes"] += attributes
    url = os.environ["SHOP_COLLECTOR"] + "/v1/traces"
    headers = {{"content-type": "application/json"}}
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers), timeout=20) as answer:
        answer.read()
"""
AGENT = EXPORT + "\ndef agent(message):\n    export()\n    return 'On its way.'\n"
COMMAND = EXPORT + (
    "import sys\nfor line in sys.stdin:\n    export()\n"
    "    print(json.dumps({'kind': 'message', 'text': 'On its way.'}))\n"
    "    print(json.dumps({'kind': 'done'}), flush=True)\n"
)
TELLING = """
import os
def agent(message):
    return os.environ["OTEL_RESOURCE_ATTRIBUTES"]
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / ".evaldesk" / "evaldesk.db") as opened:
        yield opened


@pytest.fixture(autouse=True)
def inbox(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InboxReceiver]:
    """The inbox that agents export to, whose own resource has attributes of the user."""
    opened = InboxReceiver(store, span_reader((), {}, tmp_path), host="127.0.0.1", port=0)
    monkeypatch.setenv("SHOP_COLLECTOR", f"http://127.0.0.1:{opened.port}")
    monkeypatch.setenv(RESOURCE_ATTRIBUTES, OWN)
    yield opened
    opened.close()


async def answer_of(ref: AgentRef, trial: Make, play: Play) -> str:
    executor = LocalExecutor(1, 1, launcher=launcher_of(ref))
    try:
        [result] = (await play(executor, [trial(ref)])).values()
    finally:
        await executor.close()
    assert result.status == "finished", result
    return result.transcript.turns[0].answer


def assert_played(store: Store) -> None:
    join_new(store, 0)
    assert store.inbox.list().items == []
    [conversation] = store.inbox.list(is_eval=True).items
    assert (conversation.service, conversation.release) == ("shop desk", "1.4")


@pytest.mark.parametrize("kind", ["python", "command"])
async def test_a_played_agent_that_exports_to_the_inbox_is_no_user(
    kind: str, write_agent: Write, trial: Make, play: Play, store: Store, tmp_path: Path
) -> None:
    ref = write_agent(AGENT)
    if kind == "command":
        (tmp_path / "agent_command.py").write_text(COMMAND)
        ref = AgentRef("clerk", f"{sys.executable} -S agent_command.py", str(tmp_path), kind="command")

    assert await answer_of(ref, trial, play) == "On its way."

    assert_played(store)


async def test_a_chat_of_the_desk_is_no_conversation_of_a_user(write_agent: Write, store: Store) -> None:
    host = ChatPlayers()

    try:
        record = [item async for item in host.play_turn(TurnSpec("s", write_agent(AGENT), "hello"))][-1]
    finally:
        await host.close()

    assert isinstance(record, TurnRecord)
    assert record.answer == "On its way."
    assert_played(store)


async def test_the_same_agent_outside_of_evaldesk_is_a_user(store: Store) -> None:
    namespace: dict[str, Callable[[str], str]] = {}
    exec(AGENT, namespace)  # noqa: S102 - the agent, as its own process would run it

    namespace["agent"]("hello")

    join_new(store, 0)
    assert len(store.inbox.list().items) == 1
    assert store.inbox.list(is_eval=True).items == []


async def test_a_worker_that_was_started_ahead_is_marked(write_agent: Write, trial: Make, play: Play) -> None:
    start_ahead("player")
    try:
        assert await answer_of(write_agent(TELLING), trial, play) == f"{OWN},{MARK}"
    finally:
        end_ahead()


async def test_attributes_of_an_env_file_stay_and_the_mark_as_well(
    write_agent: Write, trial: Make, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(RESOURCE_ATTRIBUTES)
    ref = write_agent(TELLING)
    Path(ref.folder, ".env").write_text(f"{RESOURCE_ATTRIBUTES}={OWN}\n")

    assert await answer_of(ref, trial, play) == f"{OWN},{MARK}"


def test_an_env_file_marks_no_process_that_plays_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaldesk.agents.env_files._from_files", set())
    environments = [{}, {RESOURCE_ATTRIBUTES: "a=1"}, {RESOURCE_ATTRIBUTES: f"a=1,{MARK}"}, {RESOURCE_ATTRIBUTES: MARK}]

    for environment in environments:
        take_variables({RESOURCE_ATTRIBUTES: "b=2"}, environment)
        monkeypatch.setattr("evaldesk.agents.env_files._from_files", set())

    assert [each[RESOURCE_ATTRIBUTES] for each in environments] == ["b=2", "a=1", f"a=1,{MARK}", f"b=2,{MARK}"]


@pytest.mark.parametrize(
    ("variables", "attributes"),
    [pytest.param((), MARK, id="own-alone"), pytest.param((RESOURCE_ATTRIBUTES,), f"{OWN},{MARK}", id="of-user")],
)
async def test_an_agent_in_a_container_is_marked(
    variables: tuple[str, ...],
    attributes: str,
    write_agent: Write,
    trial: Make,
    play: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_docker.need_namespaces()
    place = tmp_path / "docker"
    monkeypatch.setenv("PATH", f"{fake_docker.install(place)}{os.pathsep}{os.environ['PATH']}")
    make_environment(place / "images" / "shop_7")
    ref = replace(write_agent(TELLING), container=Container("shop:7", variables=variables))

    assert await answer_of(ref, trial, play) == attributes


@pytest.mark.parametrize(
    ("own", "marked"),
    [
        pytest.param("", MARK, id="none"),
        pytest.param(" ", MARK, id="blank"),
        pytest.param(",", MARK, id="comma"),
        pytest.param(OWN, f"{OWN},{MARK}", id="escaped"),
        pytest.param("a=1,", f"a=1,{MARK}", id="comma-at-end"),
        pytest.param("a=b=c%2Cd", f"a=b=c%2Cd,{MARK}", id="sign-and-comma-in-value"),
        pytest.param("no sign,%zz", f"no sign,%zz,{MARK}", id="unreadable"),
        pytest.param("evaldesk.played=1,a=2", "evaldesk.played=1,a=2", id="marked"),
        pytest.param(f"a=1, {MARK}", f"a=1, {MARK}", id="marked-with-space"),
        pytest.param("evaldesk.played.by=me", f"evaldesk.played.by=me,{MARK}", id="longer-name"),
        pytest.param("a=evaldesk.played=1", f"a=evaldesk.played=1,{MARK}", id="in-a-value"),
    ],
)
def test_the_mark_joins_attributes_of_the_user(own: str, marked: str) -> None:
    assert with_played(own) == marked
    assert with_played(marked) == marked


def test_an_sdk_reads_the_mark_beside_attributes_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    resources = pytest.importorskip("opentelemetry.sdk.resources")
    monkeypatch.setenv(RESOURCE_ATTRIBUTES, with_played(OWN))

    attributes = resources.Resource.create({}).attributes

    assert attributes["evaldesk.played"] == "true"
    assert attributes["service.name"] == unquote("shop%20desk")
