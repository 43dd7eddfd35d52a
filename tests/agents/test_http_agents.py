"""Agents behind an address: our own two routes, a chat endpoint, and ADK's api_server."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import agent_ref, load_agent
from evaldesk.agents.remote import checked_ref, remote_ref
from evaldesk.errors import AgentError, ModelError, UsageError
from evaldesk.model import ModelOptions, Session, ToolCall, TurnRecord

pytestmark = pytest.mark.anyio

DOCUMENT = Path(__file__).parents[2] / "docs" / "protocol.md"


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def documented() -> Iterator[str]:
    """The server of the documentation, as it stands there."""
    source = next(code for code in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL))
    names: dict[str, Any] = {"__name__": "documented"}
    exec(compile(source, "protocol.md", "exec"), names)  # noqa: S102 - our own documentation
    with serving(names["server"](0)) as address:
        yield address


class Answers:
    """A server that gives prepared answers (status, content type, body) and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str, bytes]] = []
        self.asked: list[tuple[str, Any, dict[str, str]]] = []

    def gives(self, *objects: object, status: int = 200, kind: str = "application/json", raw: bytes = b"") -> None:
        lines = [json.dumps(item).encode() for item in objects]
        if kind == "text/event-stream":
            lines = [b"data: " + line + b"\n" for line in lines]
        self.answers.append((status, kind, raw or b"\n".join(lines)))


@pytest.fixture
def answers() -> Iterator[tuple[str, Answers]]:
    kept = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: Any) -> None:
            kept.asked.append((self.path, body, {name.lower(): value for name, value in self.headers.items()}))
            status, kind, data = kept.answers.pop(0)
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address, kept


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


async def test_events_come_as_lines_and_the_whole_session_is_sent(answers: Any, play: Any) -> None:
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
        ({"raw": b"nonsense"}, "no JSON"),
        ({"raw": b"[]"}, "without a list of events"),
        ({"raw": b'{"events": [{"kind": "shout"}]}'}, "no event of kind 'shout'; there are: message"),
        ({"raw": b'{"events": ["hi"]}'}, "an event must be an object"),
        ({"raw": b'{"events": [], "state": 3}'}, "state must be an object"),
        ({"raw": b'{"events": [{"kind": "tool_call"}]}'}, "needs the name"),
        ({"raw": b'{"events": [{"kind": "usage", "tokens_in": "x"}]}'}, "tokens_in must be a number"),
    ],
)
async def test_what_a_server_does_wrong_is_said(answers: Any, play: Any, given: Any, said: str) -> None:
    address, server = answers
    server.gives(**given)

    with pytest.raises(AgentError, match=re.escape(said)):
        await play(load_agent(agent_ref(address)), Session("s"), "hi")


async def test_an_error_event_is_told(answers: Any, play: Any) -> None:
    address, server = answers
    server.gives({"events": [{"kind": "error", "message": "out of dice", "code": "no_dice"}]})

    [event] = await play(load_agent(agent_ref(address)), Session("s"), "hi")

    assert (event.error.kind, event.error.message) == ("no_dice", "out of dice")


async def test_a_server_that_is_not_there_is_named(play: Any) -> None:
    agent = load_agent(agent_ref("http://127.0.0.1:9"))

    with pytest.raises(AgentError, match=r"http://127.0.0.1:9: ConnectError"):
        await play(agent, Session("s"), "hi")
    with pytest.raises(AgentError, match=r"http://127.0.0.1:9: ConnectError"):
        agent.describe()


async def test_headers_come_from_variables(answers: Any, play: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address, server = answers
    declared = '{"headers_env": {"authorization": "AGENT_KEY"}}'
    agent = load_agent(checked_ref("http", address, "mine", declared))
    with pytest.raises(AgentError, match="the environment has no AGENT_KEY"):
        await play(agent, Session("s"), "hi")
    monkeypatch.setenv("AGENT_KEY", "Bearer k")
    server.gives({"events": []})

    await play(agent, Session("s"), "hi")

    assert server.asked[0][2]["authorization"] == "Bearer k"


async def test_a_chat_endpoint_is_sent_the_conversation(endpoint: Any, play: Any) -> None:
    agent = load_agent(
        checked_ref("http_chat", endpoint.address, "mine", '{"model": "bot", "instruction": "Be kind."}')
    )
    session = Session("s")
    endpoint.says("hello").says("bye")

    await play(agent, session, "hi")
    events = await play(agent, session, "ciao")

    assert [event.kind for event in events] == ["usage", "agent_message"]
    asked = endpoint.asked[-1]
    assert asked["model"] == "bot"
    assert [message["content"] for message in asked["messages"]] == ["Be kind.", "hi", "hello", "ciao"]
    assert agent.describe().model == "bot"


async def test_a_chat_endpoint_streams_and_takes_the_model_of_the_run(endpoint: Any, play: Any) -> None:
    agent = load_agent(agent_ref(f"chat:{endpoint.address}"))
    endpoint.streams("he", "llo")

    events = await play(agent, Session("s", model="large", is_streaming=True), "hi")

    assert [(event.text, event.is_partial) for event in events if event.kind == "agent_message"] == [
        ("he", True),
        ("llo", True),
        ("hello", False),
    ]
    assert endpoint.asked[0]["model"] == "large"


async def test_a_chat_endpoint_that_fails_or_wants_tools_is_said(endpoint: Any, play: Any) -> None:
    agent = load_agent(agent_ref(endpoint.address))
    session = Session("s", model_options=ModelOptions(n_retries=0))
    endpoint.fails(500).says("", ("c1", "roll", "{}"))

    with pytest.raises(ModelError):
        await play(agent, session, "hi")
    events = await play(agent, session, "hi")

    assert events[-1].error.kind == "wants_tools"


ADK_EVENTS = [
    {"author": "weather", "partial": True, "content": {"role": "model", "parts": [{"text": "It"}]}},
    {
        "author": "weather",
        "content": {"parts": [{"functionCall": {"id": "c1", "name": "look", "args": {"city": "Rome"}}}]},
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 1},
        "modelVersion": "gemini",
    },
    {
        "author": "weather",
        "content": {"parts": [{"functionResponse": {"id": "c1", "name": "look", "response": {"result": "sun"}}}]},
        "actions": {"stateDelta": {"city": "Rome", "temp:x": 1}},
    },
    {
        "author": "weather",
        "content": {"parts": [{"text": "hm", "thought": True}, {"text": "It is "}, {"text": "sunny"}]},
    },
]


async def test_an_adk_server_plays_turns_in_a_session_of_its_own(answers: Any, play: Any) -> None:
    address, server = answers
    server.gives({"id": "s-77", "appName": "weather"})
    server.gives(*ADK_EVENTS, kind="text/event-stream")
    server.gives(*ADK_EVENTS[-1:], kind="text/event-stream")
    agent = load_agent(agent_ref(f"adk:{address}/weather"))
    session = Session("s", state={"unit": "C"}, user_id="u/1", is_streaming=True)

    events = await play(agent, session, "Sun?")
    await play(agent, session, "and now?")

    assert [event.kind for event in events] == ["agent_message", "tool_call", "usage", "tool_result", "agent_message"]
    assert events[1].call == ToolCall("look", {"city": "Rome"}, "c1")
    assert (events[2].usage.tokens_in, events[2].usage.tokens_out) == (9, 3)
    assert (events[3].result, events[4].text) == ("sun", "It is sunny")
    assert session.state == {"unit": "C", "city": "Rome"}
    paths = [path for path, _, _ in server.asked]
    assert paths == ["/apps/weather/users/u%2F1/sessions", "/run_sse", "/run_sse"]
    assert server.asked[0][1] == {"state": {"unit": "C"}}
    assert server.asked[2][1] == {
        "appName": "weather",
        "userId": "u/1",
        "sessionId": "s-77",
        "newMessage": {"role": "user", "parts": [{"text": "and now?"}]},
        "streaming": True,
    }


async def test_an_adk_server_that_fails_is_said(answers: Any, play: Any) -> None:
    address, server = answers
    agent = load_agent(agent_ref(f"adk:{address}/weather"))
    server.gives(status=404, raw=b"no such app")
    with pytest.raises(AgentError, match="answered 404: 'no such app'"):
        await play(agent, Session("s"), "hi")

    server.gives({"id": "s"})
    server.gives({"error": "model is gone"}, kind="text/event-stream")
    [event] = await play(agent, Session("s"), "hi")

    assert event.error.message == "model is gone"


async def test_a_server_that_forgot_the_session_is_told_about(answers: Any, play: Any) -> None:
    address, server = answers
    server.gives({"id": "s"})
    server.gives(ADK_EVENTS[-1], kind="text/event-stream")

    events = await play(load_agent(agent_ref(f"adk:{address}/weather")), Session("s", turns=[TurnRecord("hi")]), "you?")

    assert "does not remember" in events[0].text


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("http://127.0.0.1:8000/v1", "http_chat"),
        ("http://127.0.0.1:8000/v1/", "http_chat"),
        ("https://example.org/agent", "http"),
        ("adk:http://127.0.0.1:8000/weather", "adk_server"),
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
def test_addresses_and_commands_that_cannot_be_are_refused(spec: str) -> None:
    with pytest.raises(UsageError):
        remote_ref(spec)


def test_an_adk_address_without_an_app_is_refused() -> None:
    with pytest.raises(AgentError, match="name of the app"):
        load_agent(agent_ref("adk:http://127.0.0.1:8000"))


def test_an_unknown_option_of_the_table_is_named() -> None:
    ref: Callable[[str], Any] = lambda kind: checked_ref(kind, "http://127.0.0.1:1/x", "mine", '{"modle": "x"}')  # noqa: E731

    for kind in ("http", "http_chat", "adk_server"):
        with pytest.raises(AgentError, match="modle"):
            load_agent(ref(kind))
