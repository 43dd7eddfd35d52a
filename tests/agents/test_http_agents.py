"""Agents behind an address: our own two routes, and which address means what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agents.answering import Answers, answering, serving

from evaldesk.agents import agent_ref, load_agent
from evaldesk.agents.agent import AGENTS
from evaldesk.agents.discovery import remote_ref, remote_ref_of_kind
from evaldesk.engine import play_trial
from evaldesk.errors import AgentError, BadNumberError, UsageError
from evaldesk.model import AgentRef, Case, Session, TrialSpec, Turn, TurnRecord
from evaldesk.model.transcript import FATAL_KINDS

pytestmark = pytest.mark.anyio

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"


@pytest.fixture
def documented() -> Iterator[str]:
    """The server of the documentation, as it stands there."""
    source = next(code for code in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL))
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(source, "protocol.md", "exec"), names)  # noqa: S102 - our own documentation
    with serving(names["server"](0)) as address:
        yield address


@pytest.fixture(name="answers")
def answers_fixture() -> Iterator[tuple[str, Answers]]:
    with answering() as found:
        yield found


async def test_the_documented_server_plays_turns_and_keeps_the_state(documented: str, play: Any) -> None:
    agent = load_agent(agent_ref(documented))
    session = Session("s")

    described = agent.describe()
    first = await play(agent, session, "Roll a d6")
    await play(agent, session, "Roll a d8")

    assert (described.name, described.kind, [tool.name for tool in described.tools]) == ("dice", "http", ["roll_die"])
    assert [event.kind for event in first] == ["tool_call", "tool_result", "agent_message"]
    assert (first[1].result, first[1].duration_ms, first[2].text) == (6, 1.0, "got 6")
    assert session.state == {"rolls": [6, 8]}


async def test_events_are_read_by_line_and_the_session_is_sent(answers: Any, play: Any) -> None:
    address, server = answers
    server.gives(
        {"kind": "message", "text": "he", "is_partial": True},
        {"kind": "log", "text": "thinking"},
        {"kind": "usage", "model": "m", "tokens_in": 3, "tokens_out": 1, "cost": None},
        {"kind": "state", "state": {"k": 2}},
        {"kind": "message", "text": "hello", "author": "other"},
        kind="application/x-ndjson",
    )
    session = Session("s", state={"k": 1}, turns=[TurnRecord("before")], model="m", seed=3, is_streaming=True)

    events = await play(load_agent(agent_ref(f"json:{address}/")), session, "hi")

    assert [(event.kind, event.is_partial) for event in events] == [
        ("agent_message", True),
        ("log", False),
        ("usage", False),
        ("agent_message", False),
    ]
    assert events[-1].author == "other"
    assert session.state == {"k": 2}
    path, body, _ = server.asked[0]
    assert path == "/turn"
    assert (body["version"], body["message"], body["model"], body["seed"], body["is_streaming"]) == (
        1,
        "hi",
        "m",
        3,
        True,
    )
    assert body["session"]["state"] == {"k": 1}
    assert body["session"]["turns"] == [{"query": "before", "answer": "", "tool_calls": []}]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"raw": b"<html>", "status": 502}, "answered 502: '<html>'"),
        ({"raw": b"nonsense"}, "not JSON"),
        ({"raw": b"[]"}, "without a list of events"),
        ({"raw": b'{"events": [{"kind": "shout"}]}'}, "no event of kind 'shout'; there are: message"),
        ({"raw": b'{"events": ["hi"]}'}, "an event must be an object"),
        ({"raw": b'{"events": [], "state": 3}'}, "state must be an object"),
        ({"raw": b'{"events": [{"kind": "tool_call"}]}'}, "needs the name"),
        ({"raw": b'{"events": [{"kind": "usage", "tokens_in": "x"}]}'}, "tokens_in must be a number"),
    ],
)
async def test_invalid_answers_of_a_server_are_errors(answers: Any, play: Any, given: Any, said: str) -> None:
    address, server = answers
    server.gives(**given)

    with pytest.raises((AgentError, BadNumberError), match=re.escape(said)):
        await play(load_agent(agent_ref(address)), Session("s"), "hi")


async def test_an_error_event_is_an_error_of_the_turn(answers: Any, play: Any) -> None:
    address, server = answers
    server.gives({"events": [{"kind": "error", "message": "out of dice", "code": "no_dice"}]})

    [event] = await play(load_agent(agent_ref(address)), Session("s"), "hi")

    assert (event.error.kind, event.error.message) == ("no_dice", "out of dice")


@pytest.mark.parametrize("code", sorted(FATAL_KINDS))
async def test_no_error_code_of_a_server_ends_the_run(answers: Any, play: Any, code: str) -> None:
    address, server = answers
    server.gives({"events": [{"kind": "error", "message": "no more", "code": code}]})

    [event] = await play(load_agent(agent_ref(address)), Session("s"), "hi")

    assert (event.error.kind, event.error.message) == ("agent_error", f"{code}: no more")


async def test_an_unreachable_server_is_named(play: Any) -> None:
    agent = load_agent(agent_ref("http://127.0.0.1:9"))

    with pytest.raises(AgentError, match=r"http://127.0.0.1:9: ConnectError"):
        await play(agent, Session("s"), "hi")
    with pytest.raises(AgentError, match=r"http://127.0.0.1:9: ConnectError"):
        agent.describe()


async def test_a_server_gets_the_decisions_with_the_message_and_needs_no_memory(answers: Any) -> None:
    address, server = answers
    server.gives({"events": [{"kind": "waiting", "name": "refund", "args": {"order": 7}, "id": "c1"}]})
    server.gives({"events": [{"kind": "message", "text": "refunded"}]})
    agent = load_agent(agent_ref(address))
    case = Case("c", (Turn("refund 7"),), extra={"human_decisions": [{"decision": "answer", "answer": [1]}]})

    result = await play_trial(agent, TrialSpec(1, 0, 0, case, AgentRef("http", address)))

    assert [turn.answer for turn in result.transcript.turns] == ["refunded"]
    first, second = [body for _, body, _ in server.asked]
    assert (first["decisions"], second["message"]) == ([], "refund 7")
    about = {"id": "c1", "name": "refund", "args": {"order": 7}, "reason": ""}
    assert second["decisions"] == [{**about, "decision": "answer", "answer": [1]}]


@pytest.mark.parametrize("choices", [[], ["maybe"], [3]])
async def test_a_waiting_event_without_a_known_choice_is_refused(answers: Any, play: Any, choices: Any) -> None:
    address, server = answers
    server.gives({"events": [{"kind": "waiting", "name": "refund", "choices": choices}]})

    with pytest.raises(AgentError, match="choices must be a list of some of approve, deny, answer"):
        await play(load_agent(agent_ref(address)), Session("s"), "hi")


async def test_headers_come_from_variables(answers: Any, play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address, server = answers
    declared = '{"headers_env": {"authorization": "AGENT_KEY"}}'
    agent = load_agent(remote_ref_of_kind("http", address, "mine", declared))
    with pytest.raises(AgentError, match="the environment has no AGENT_KEY"):
        await play(agent, Session("s"), "hi")
    monkeypatch.setenv("AGENT_KEY", "Bearer k")
    server.gives({"events": []})

    await play(agent, Session("s"), "hi")

    assert server.asked[0][2]["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("http://127.0.0.1:8000/v1", "http_chat"),
        ("http://127.0.0.1:8000/v1/", "http_chat"),
        ("https://example.org/agent", "http"),
        ("command:python agent.py", "command"),
        ("server:agent_loop", None),
        ("adk:agent", None),
        ("./folder", None),
    ],
)
def test_a_spec_says_which_kind_of_agent_it_is(spec: str, kind: str | None) -> None:
    found = remote_ref(spec)

    assert (found.kind if found else None) == kind
    if found:
        assert re.fullmatch(r"[A-Za-z0-9_.-]+", found.id)


@pytest.mark.parametrize(
    "spec",
    [
        "http://",
        "http://me:secret@127.0.0.1/",
        "http://127.0.0.1/?key=1",
        "http://127.0.0.1:port/",
        "command: ",
        "replay:no",
    ],
)
def test_invalid_addresses_and_commands_are_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        remote_ref(spec)


@pytest.mark.parametrize("kind", [kind.name for kind in AGENTS.builtin if kind.target == "address"])
def test_an_unknown_option_of_the_table_is_named(kind: str) -> None:
    ref = remote_ref_of_kind(kind, "http://127.0.0.1:1/x", "mine", '{"modle": "x"}')

    with pytest.raises(AgentError, match="modle"):
        load_agent(ref)
