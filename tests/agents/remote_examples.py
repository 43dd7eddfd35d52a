"""The agent of the contract test behind an address or a command: it rolls, breaks and waits on request."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from evaldesk.agents import Agent, load_agent
from evaldesk.agents.discovery import remote_ref_of_kind
from evaldesk.agents.remote.protocol import read_events
from evaldesk.model import Change, Event, Session, TurnRecord
from evaldesk.wire import to_json

DICE = """
def turn(message, state):
    if message == "break":
        return [{"kind": "error", "message": "broken"}]
    usage = {"kind": "usage", "model": "small", "tokens_in": 11, "tokens_out": 5}
    if not message.startswith("Roll a d"):
        return [usage, {"kind": "message", "text": "hello"}]
    sides = int(message[8:])
    call = {"name": "roll_die", "args": {"sides": sides}, "id": "c1"}
    return [
        usage,
        {"kind": "tool_call", **call},
        {"kind": "state", "state": {**state, "rolls": [*state.get("rolls", []), sides]}},
        {"kind": "tool_result", **call, "result": sides},
        usage,
        {"kind": "message", "text": f"got {sides}"},
    ]
"""

COMMAND = (
    DICE
    + """
import json, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    if asked["message"] == "wait":
        time.sleep(3600)
    for event in [*turn(asked["message"], asked["session"]["state"]), {"kind": "done"}]:
        print(json.dumps(event), flush=True)
"""
)

QUERIES = ("hi", *(f"Roll a d{sides}" for sides in (6, 8, 10, 12)))
WAITING = threading.Event()  # set when a server was asked to wait

_names: dict[str, Any] = {}
exec(DICE, _names)  # noqa: S102 - the source above
turn: Callable[[str, dict[str, Any]], list[dict[str, Any]]] = _names["turn"]


@contextmanager
def remote_agent(kind: str, folder: Path) -> Iterator[Agent]:
    """The agent of that kind, with the server it needs."""
    if kind == "command":
        (folder / "dice.py").write_text(COMMAND)
        yield load_agent(remote_ref_of_kind(kind, f"{sys.executable} -S {folder / 'dice.py'}"))
        return
    if kind == "replay":
        (folder / "dice.json").write_bytes(to_json({"trials": [_trial(query) for query in QUERIES]}))
        yield load_agent(remote_ref_of_kind(kind, str(folder / "dice.json")))
        return
    released = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(_ROUTES[kind], released))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    path = {"adk_server": "/dice", "http_chat": "/v1"}.get(kind, "")
    yield load_agent(remote_ref_of_kind(kind, f"http://127.0.0.1:{server.server_address[1]}{path}"))
    released.set()
    server.shutdown()
    server.server_close()
    thread.join()


def _trial(query: str) -> dict[str, Any]:
    state: dict[str, Any] = {}
    session = Session("s")
    events = [told for event in turn(query, state) for told in read_events(event, session, "dice")]
    if session.state:
        events.insert(2, Event("state_delta", changes=(Change("rolls", after=session.state["rolls"]),)))
    return {"case_id": None, "trial_index": 0, "transcript": {"turns": [TurnRecord(query, tuple(events))]}}


def _handler(route: Callable[[str, Any], tuple[str, bytes]], released: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: Any) -> None:
            if '"wait"' in json.dumps(body) and self.path != "/apps/dice/users/user/sessions":
                WAITING.set()
                released.wait(300)
            kind, data = route(self.path, body)
            with suppress(ConnectionError):  # who asked has gone away
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


def _own(path: str, body: Any) -> tuple[str, bytes]:
    if path == "/agent":
        return "application/json", json.dumps({"name": "dice", "tools": [{"name": "roll_die"}]}).encode()
    events = turn(body["message"], body["session"]["state"])
    return "application/x-ndjson", b"\n".join(json.dumps(event).encode() for event in events)


def _chat(_: str, body: Any) -> tuple[str, bytes]:
    message = body["messages"][-1]["content"]
    last = turn(message, {})[-1]
    if last["kind"] == "error":
        return "application/json", b"{}"
    answer: dict[str, Any] = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "default",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": last["text"]}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16},
    }
    return "application/json", json.dumps(answer).encode()


def _adk(path: str, body: Any) -> tuple[str, bytes]:
    if path.endswith("/sessions"):
        return "application/json", b'{"id": "s1"}'
    told = [_adk_event(event) for event in turn(body["newMessage"]["parts"][0]["text"], {})]
    return "text/event-stream", b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in told)


def _adk_event(event: dict[str, Any]) -> dict[str, Any]:
    said: dict[str, Any] = {"author": "dice"}
    if event["kind"] == "state":
        return {**said, "actions": {"stateDelta": event["state"]}}
    if event["kind"] == "usage":
        spent = {"promptTokenCount": event["tokens_in"], "candidatesTokenCount": event["tokens_out"]}
        return {**said, "usageMetadata": spent, "modelVersion": event["model"]}
    if event["kind"] == "error":
        return {"error": event["message"]}
    part: dict[str, Any] = {"text": event.get("text")}
    if event["kind"] == "tool_call":
        part = {"functionCall": {"name": event["name"], "args": event["args"], "id": "c1"}}
    if event["kind"] == "tool_result":
        response = {"name": event["name"], "response": {"result": event["result"]}, "id": "c1"}
        part = {"functionResponse": response}
    return {**said, "content": {"role": "model", "parts": [part]}}


def _a2a(path: str, body: Any) -> tuple[str, bytes]:
    if path.endswith("agent-card.json"):
        card = {"name": "dice", "url": "/rpc", "capabilities": {"streaming": True}}
        return "application/json", json.dumps(card).encode()
    told = [_a2a_event(event) for event in turn(body["params"]["message"]["parts"][0]["text"], {})]
    told.append({"status": {"state": "failed" if {} in told else "completed"}})
    results = [{"kind": "status-update", "taskId": "t", "contextId": "c", **each} for each in told if each]
    data = [json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode() for result in results]
    return "text/event-stream", b"".join(b"data: " + each + b"\n\n" for each in data)


def _a2a_event(event: dict[str, Any]) -> dict[str, Any]:
    """As an agent of ADK tells it; nothing for a failure."""
    if event["kind"] in ("error", "state"):
        return {} if event["kind"] == "error" else {"status": {"state": "working"}}
    if event["kind"] == "usage":
        spent = {"promptTokenCount": event["tokens_in"], "candidatesTokenCount": event["tokens_out"]}
        return {"status": {"state": "working"}, "metadata": {"adk_usage_metadata": spent}}
    part: dict[str, Any] = {"kind": "text", "text": event.get("text")}
    if event["kind"] == "tool_call":
        data = {"name": event["name"], "args": event["args"], "id": "c1"}
        part = {"kind": "data", "data": data, "metadata": {"adk_type": "function_call"}}
    if event["kind"] == "tool_result":
        data = {"name": event["name"], "response": {"result": event["result"]}, "id": "c1"}
        part = {"kind": "data", "data": data, "metadata": {"adk_type": "function_response"}}
    return {"status": {"state": "working", "message": {"role": "agent", "parts": [part]}}}


_ROUTES: dict[str, Callable[[str, Any], tuple[str, bytes]]] = {
    "a2a": _a2a,
    "http": _own,
    "http_chat": _chat,
    "adk_server": _adk,
}
