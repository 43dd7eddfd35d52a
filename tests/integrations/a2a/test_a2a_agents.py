"""Agents that speak A2A: their card, messages whole and streamed, tasks, in versions 0.3 and 1.0."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.real_environments import python_with

from evaldesk.agents import Agent, load_agent
from evaldesk.engine.worker.attempt import Attempt
from evaldesk.engine.worker.jobs import _kept_paused
from evaldesk.engine.worker.player import play_trial, play_turn
from evaldesk.errors import AgentError
from evaldesk.model import (
    AgentRef,
    Case,
    Decision,
    JsonObject,
    JsonValue,
    Session,
    TrialResult,
    TrialSpec,
    Turn,
    TurnRecord,
)
from evaldesk.model.evalset import DECISIONS
from evaldesk.pages.conversation import folded_parts
from evaldesk.wire import from_json, to_json

pytestmark = pytest.mark.anyio


@dataclass
class Server:
    """An A2A server: its card, the answers that it gives in order, and what it was asked."""

    address: str = ""
    card: dict[str, Any] = field(default_factory=dict)
    answers: list[Sequence[Mapping[str, Any]] | Mapping[str, Any]] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    card_path: str = "/.well-known/agent-card.json"

    def speaks(self, version: str, *, is_streaming: bool = False, **more: Any) -> Server:
        self.card = {"name": "dice", "description": "Rolls dice.", "capabilities": {"streaming": is_streaming}, **more}
        if version == "1.0":
            way = {"url": f"{self.address}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            self.card |= {"supportedInterfaces": [way]}
        else:
            self.card |= {"url": f"{self.address}/rpc", "protocolVersion": "0.3.0", "preferredTransport": "JSONRPC"}
        return self


@pytest.fixture
def server() -> Iterator[Server]:
    found = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_card = self.path == found.card_path and found.card
            self.send(200 if is_card else 404, "application/json", json.dumps(found.card).encode())

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            found.asked.append(body)
            found.headers.append({name.lower(): value for name, value in self.headers.items()})
            answer = found.answers.pop(0)

            def wrap(result: Mapping[str, Any]) -> dict[str, Any]:
                return {"jsonrpc": "2.0", "id": body["id"], **result}

            if isinstance(answer, Mapping):
                self.send(200, "application/json", json.dumps(wrap(answer)).encode())
                return
            lines = [f"data: {json.dumps(wrap({'result': result}))}\r\n\r\n" for result in answer]
            self.send(200, "text/event-stream", "".join(lines).encode())

        def send(self, status: int, kind: str, data: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            return

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    found.address = f"http://127.0.0.1:{http.server_address[1]}"
    yield found
    http.shutdown()
    http.server_close()


def agent_at(address: str, **options: Any) -> Agent:
    return load_agent(AgentRef("remote", address, kind="a2a", declared=json.dumps(options) if options else ""))


def said(turn: TurnRecord) -> list[tuple[str, Any]]:
    return [
        (event.kind, event.call.name if event.call else event.error.kind if event.error else event.text)
        for event in turn.events
        if event.kind != "user_message"
    ]


OLD = {
    "message": lambda text: {
        "kind": "message", "role": "agent", "messageId": f"m-{text}", "contextId": "ctx",
        "parts": [{"kind": "text", "text": text}],
    },
    "task": lambda state, **more: {"kind": "task", "id": "t1", "contextId": "ctx", "status": {"state": state}, **more},
    "status": lambda state, **more: {
        "kind": "status-update", "taskId": "t1", "contextId": "ctx", "status": {"state": state, **more}, "final": False,
    },
    "artifact": lambda text, **more: {
        "kind": "artifact-update", "taskId": "t1", "contextId": "ctx",
        "artifact": {"artifactId": "a", "parts": [{"kind": "text", "text": text}]}, **more,
    },
}  # fmt: skip


def renamed(raw: Any) -> Any:
    """The value of version 0.3 as version 1.0 writes it."""
    if isinstance(raw, list):
        return [renamed(each) for each in raw]
    if not isinstance(raw, dict):
        return raw
    found = {key: renamed(value) for key, value in raw.items() if key not in ("kind", "final")}
    if isinstance(found.get("state"), str):
        found["state"] = f"TASK_STATE_{found['state'].upper().replace('-', '_')}"
    if found.get("role") in ("agent", "user"):
        found["role"] = f"ROLE_{found['role'].upper()}"
    return found


def new_result(raw: dict[str, Any]) -> dict[str, Any]:
    names = {"status-update": "statusUpdate", "artifact-update": "artifactUpdate"}
    return {names.get(raw["kind"], raw["kind"]): renamed(raw)}


@pytest.fixture(params=["0.3", "1.0"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def result(version: str) -> Callable[..., dict[str, Any]]:
    def result(kind: str, *args: Any, **more: Any) -> dict[str, Any]:
        raw = OLD[kind](*args, **more)  # type: ignore[operator]
        return raw if version == "0.3" else new_result(raw)

    return result


async def test_a_message_reply_is_the_answer(server: Server, version: str, result: Any, played: Any) -> None:
    server.speaks(version).answers += [{"result": result("message", "A four.")}, {"result": result("message", "Even.")}]
    agent, session = agent_at(server.address), Session("s")

    first, second = await played(agent, session, "Roll."), await played(agent, session, "Is it even?")

    assert [said(first), said(second)] == [[("agent_message", "A four.")], [("agent_message", "Even.")]]
    asked = [each["params"]["message"] for each in server.asked]
    names = ("message/send", "user") if version == "0.3" else ("SendMessage", "ROLE_USER")
    assert (server.asked[0]["method"], asked[0]["role"]) == names
    assert asked[0]["parts"][0]["text"] == "Roll."
    assert ["contextId" in each for each in asked] == [False, True]
    assert asked[0]["messageId"] != asked[1]["messageId"]
    assert (server.headers[0].get("a2a-version") == "1.0") == (version == "1.0")
    assert first.captures == ("answers",)


async def test_a_stream_yields_its_messages_and_its_artifact_is_the_answer(
    server: Server, version: str, result: Any, played: Any
) -> None:
    looking = OLD["message"]("Looking.")  # type: ignore[operator]
    looking = looking if version == "0.3" else renamed(looking)
    server.speaks(version, is_streaming=True).answers.append(
        [
            result("task", "submitted"),
            result("status", "working", message=looking),
            result("artifact", "A "),
            result("artifact", "four.", append=True, lastChunk=True),
            result("status", "completed"),
        ]
    )

    turn = await played(agent_at(server.address), Session("s"), "Roll.")

    assert said(turn) == [("agent_message", "Looking."), ("agent_message", "A four.")]
    assert (turn.answer, turn.intermediate) == ("A four.", (("dice", "Looking."),))


async def test_a_task_is_polled_until_it_ends(server: Server, version: str, result: Any, played: Any) -> None:
    artifacts = [OLD["artifact"]("A four.")["artifact"]]  # type: ignore[operator]
    whole = OLD["task"]("completed", artifacts=artifacts)  # type: ignore[operator]
    server.speaks(version).answers += [
        {"result": result("task", "working")},
        {"result": whole if version == "0.3" else renamed(whole)},
    ]

    turn = await played(agent_at(server.address), Session("s"), "Roll.")

    assert turn.answer == "A four."
    assert server.asked[1]["method"] == ("tasks/get" if version == "0.3" else "GetTask")
    assert server.asked[1]["params"]["id"] == "t1"


async def test_a_task_that_needs_input_is_resumed(server: Server, version: str, result: Any, played: Any) -> None:
    question = OLD["message"]("How many sides?")  # type: ignore[operator]
    question = question if version == "0.3" else renamed(question)
    history = [question]
    done = OLD["task"]("completed", history=history)  # type: ignore[operator]
    server.speaks(version, is_streaming=True).answers += [
        [result("task", "submitted"), result("status", "input-required", message=question)],
        [done if version == "0.3" else new_result(done), result("message", "A four.")],
    ]
    agent, session = agent_at(server.address), Session("s")

    turns = [await played(agent, session, "Roll."), await played(agent, session, "6")]

    assert turns[0].answer == "How many sides?"
    assert [each["params"]["message"].get("taskId") for each in server.asked] == [None, "t1"]


def asked_for(server: Server) -> list[tuple[str, str | None, str | None]]:
    """The text, the task and the context of each message."""
    sent = [each["params"]["message"] for each in server.asked]
    return [(each["parts"][0]["text"], each.get("taskId"), each.get("contextId")) for each in sent]


@pytest.mark.parametrize(("answer", "text"), [("6", "6"), ({"sides": 6}, '{"sides": 6}')], ids=["text", "JSON"])
async def test_a_scripted_answer_resumes_the_task_in_the_same_turn(
    server: Server, version: str, result: Any, answer: JsonValue, text: str
) -> None:
    server.speaks(version, is_streaming=True).answers += [
        [result("task", "submitted"), result("status", "input-required")],
        [result("status", "working"), result("artifact", "A four."), result("status", "completed")],
        [result("message", "Bye.")],
    ]
    scripted: dict[str, JsonValue] = {"turn": 1, "tool": "input-required", "decision": "answer", "answer": answer}

    found = await scripted_trial(server, scripted, "Roll.", "Thanks.")

    assert [turn.answer for turn in found.transcript.turns] == ["A four.", "Bye."]
    assert asked_for(server) == [("Roll.", None, None), (text, "t1", "ctx"), ("Thanks.", None, "ctx")]
    kinds = [event.kind for event in found.transcript.turns[0].events if event.waiting]
    assert kinds == ["waiting", "decision"]


async def test_without_a_script_the_next_message_is_the_input(server: Server, result: Any, version: str) -> None:
    server.speaks(version, is_streaming=True).answers += [
        [result("task", "submitted"), result("status", "input-required")],
        [result("status", "working"), result("artifact", "A four."), result("status", "completed")],
    ]

    found = await scripted_trial(server, None, "Roll.", "6")

    assert (found.stop_reason, found.error) == ("answered", None)
    assert asked_for(server) == [("Roll.", None, None), ("6", "t1", "ctx")]
    (shown,) = [part for part in folded_parts(found.transcript.turns[0].events) if part.request]
    assert shown.asks_for == "asks for input, which the next message gives"


async def scripted_trial(server: Server, scripted: dict[str, JsonValue] | None, *messages: str) -> TrialResult:
    extra: JsonObject = {DECISIONS: [scripted]} if scripted else {}
    case = Case(id="c", turns=tuple(Turn(text) for text in messages), extra=extra)
    ref = AgentRef("remote", server.address, kind="a2a")
    return await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref))


@pytest.mark.parametrize("is_same", [True, False], ids=["the same process", "another process"])
async def test_an_authorized_task_goes_on_after_an_approval(
    server: Server, version: str, result: Any, played: Any, is_same: bool
) -> None:
    please = OLD["message"]("Sign in at the shop.")  # type: ignore[operator]
    please = please if version == "0.3" else renamed(please)
    done = OLD["task"]("completed", history=[please], artifacts=[OLD["artifact"]("Bought.")["artifact"]])  # type: ignore[operator]
    server.speaks(version, is_streaming=True).answers += [
        [result("task", "submitted"), result("status", "auth-required", message=please)],
        [done if version == "0.3" else new_result(done)],
    ]
    agent, session = agent_at(server.address), Session("s")
    waited = await played(agent, session, "Buy.")
    stored = from_json(to_json(replace(waited, paused=session.paused)), TurnRecord)
    later = Session("s", memory=session.memory if is_same else {})
    later.paused = stored.paused

    turn = await play_turn(
        agent if is_same else agent_at(server.address), later, "Buy.", attempt=Attempt(), open_record=stored,
        decided=((stored.open_requests[0], Decision("approve")),),
    )  # fmt: skip

    assert stored.open_requests[0].choices == ("approve", "deny")
    assert "Authenticate where the agent asks for it, then approve" in str(stored.open_requests[0].question)
    assert (turn.stop_reason, turn.answer) == ("answered", "Bought.")
    assert [event.text for event in turn.events if event.kind == "agent_message"] == ["Sign in at the shop.", "Bought."]
    assert asked_for(server) == [("Buy.", None, None), ("continue", "t1", "ctx")]


CANCELLED = "the task was cancelled: the server has it as canceled"
REFUSED = "the task was not cancelled: {address}/rpc refused: -32002: Task cannot be canceled"


@pytest.mark.parametrize("is_refused", [False, True], ids=["cancelled", "refused"])
@pytest.mark.parametrize("state", ["auth-required", "input-required"])
async def test_a_denial_cancels_the_task_and_the_conversation_continues(
    server: Server, version: str, result: Any, state: str, is_refused: bool
) -> None:
    bye = OLD["message"]("Nothing bought.")  # type: ignore[operator]
    ended = OLD["task"]("canceled")  # type: ignore[operator]
    ended["status"]["message"] = bye
    refusal = {"error": {"code": -32002, "message": "Task cannot be canceled"}}
    server.speaks(version, is_streaming=True).answers += [
        [result("task", "submitted"), result("status", state)],
        refusal if is_refused else {"result": ended if version == "0.3" else renamed(ended)},
        [result("message", "Yes?")],
    ]
    scripted: dict[str, JsonValue] = {"turn": 1, "tool": state, "decision": "deny", "reason": "Too much."}

    found = await scripted_trial(server, scripted, "Buy.", "Hello?")

    first, second = found.transcript.turns
    assert (found.status, found.stop_reason, first.error) == ("finished", "answered", None)
    assert (first.answer, second.answer) == ("" if is_refused else "Nothing bought.", "Yes?")
    assert [event.text for event in first.events if event.kind == "log"] == [
        REFUSED.format(address=server.address) if is_refused else CANCELLED
    ]
    assert [event.kind for event in first.events if event.waiting] == ["waiting", "decision"]
    cancelled = server.asked[1]
    assert cancelled["method"] == ("tasks/cancel" if version == "0.3" else "CancelTask")
    assert cancelled["params"] == {"id": "t1", "metadata": {"reason": "Too much."}}
    assert server.asked[2]["params"]["message"].get("taskId") is None


async def test_a_question_is_answered_in_its_task_after_the_process_of_the_agent_has_ended(
    server: Server, version: str, result: Any, played: Any
) -> None:
    server.speaks(version, is_streaming=True).answers += [
        [result("task", "submitted"), result("status", "input-required")],
        [result("status", "working"), result("artifact", "A four."), result("status", "completed")],
    ]
    session = Session("s")
    asked = await played(agent_at(server.address), session, "Roll.")
    stored = from_json(to_json(replace(asked, paused=_kept_paused(session, asked))), TurnRecord)
    later = Session("s", turns=[stored])

    turn = await played(agent_at(server.address), later, "6")

    assert asked_for(server) == [("Roll.", None, None), ("6", "t1", "ctx")]
    assert said(turn) == [("agent_message", "A four.")]
    assert _kept_paused(later, turn) is None


@pytest.mark.parametrize("state", ["failed", "rejected", "canceled", "auth-required"])
async def test_a_failed_task_is_an_error_with_its_state(
    server: Server, version: str, result: Any, played: Any, state: str
) -> None:
    server.speaks(version, is_streaming=True).answers.append([result("task", "submitted"), result("status", state)])

    turn = await played(agent_at(server.address), Session("s"), "Roll.")

    if state == "auth-required":
        assert (turn.stop_reason, turn.error) == ("awaiting_approval", None)
    else:
        assert turn.error
        assert turn.error.message == f"the task of the agent ended {state}"


async def test_calls_of_an_adk_agent_are_reported_once(server: Server, played: Any) -> None:
    def part(kind: str, **data: Any) -> dict[str, Any]:
        return {"kind": "data", "data": {"id": "c1", "name": "roll", **data}, "metadata": {"adk_type": kind}}

    called = {"role": "agent", "messageId": "m1", "parts": [part("function_call", args={"sides": 6})]}
    answered = {"role": "agent", "messageId": "m2", "parts": [part("function_response", response={"value": 4})]}
    usage = {"adk_usage_metadata": {"promptTokenCount": 7, "candidatesTokenCount": 2}}
    repeated = OLD["task"]("completed", history=[{**called, "messageId": "m9"}, answered])  # type: ignore[operator]
    server.speaks("0.3", is_streaming=True).answers.append(
        [
            {**OLD["status"]("working", message=called), "metadata": usage},  # type: ignore[operator]
            OLD["status"]("working", message=answered),  # type: ignore[operator]
            repeated,
        ]
    )

    agent = agent_at(server.address, model="gemini/gemini-2.5-flash")
    turn = await played(agent, Session("s"), "Roll.")

    assert said(turn) == [("tool_call", "roll"), ("usage", ""), ("tool_result", "roll")]
    assert agent.describe().model == turn.usages[0].model == "gemini/gemini-2.5-flash"
    assert turn.usages[0].cost
    assert turn.tool_calls[0].args == {"sides": 6}
    assert (turn.usages[0].tokens_in, turn.usages[0].tokens_out) == (7, 2)


async def test_thoughts_code_and_usage_of_an_adk_agent_equal_those_of_its_own_server(
    server: Server, played: Any
) -> None:
    def part(kind: str, **data: Any) -> dict[str, Any]:
        return {"kind": "data", "data": data, "metadata": {"adk_type": kind}}

    spent = {"promptTokenCount": 7, "candidatesTokenCount": 2, "thoughtsTokenCount": 5, "cachedContentTokenCount": 3}
    about = {"adk_event_id": "e1", "adk_usage_metadata": spent}  # beside each part that was made of the event
    thought = {"kind": "text", "text": "Hm.", "metadata": {"adk_thought": True}}
    call, gave = {"id": "c1", "name": "roll"}, {"id": "c1", "name": "roll", "response": {"error": "no die"}}
    parts = [thought, part("function_call", **call), part("function_response", **gave)]
    message = {"role": "agent", "messageId": "m1", "parts": parts, "metadata": about}
    code = part("executable_code", code="1 + 1", language="PYTHON")
    artifact = {"artifactId": "a", "parts": [code, thought, {"kind": "text", "text": "Two."}], "metadata": about}
    more = {**about, "adk_event_id": "e2"}  # a whole artifact has the tokens of its event, a piece some of them
    piece = {"artifactId": "b", "parts": [{"kind": "text", "text": "Th"}], "metadata": {**more, "adk_event_id": "e3"}}
    whole = {"artifactId": "b", "parts": [{"kind": "text", "text": "Three."}], "metadata": more}
    update = {"kind": "artifact-update", "taskId": "t1", "contextId": "c"}
    server.speaks("0.3", is_streaming=True).answers.append(
        [
            OLD["status"]("working", message=message),  # type: ignore[operator]
            {**update, "artifact": artifact, "lastChunk": True},
            {**update, "artifact": piece, "lastChunk": False},
            OLD["task"]("completed", artifacts=[artifact, whole]),  # type: ignore[operator]
        ]
    )

    turn = await played(agent_at(server.address), Session("s"), "Roll.")

    told = [(event.kind, event.text, event.is_error) for event in turn.events[1:] if event.kind != "usage"]
    calls = [("log", "Hm.", False), ("tool_call", "", False), ("tool_result", "", True)]
    said = [("agent_message", text, False) for text in ("Two.", "Three.")]
    assert told == [*calls, ("log", "runs code:\n1 + 1", False), *said]
    spent_twice = [(each.tokens_in, each.tokens_out, each.tokens_cached, each.tokens_reasoning) for each in turn.usages]
    assert spent_twice == [(7, 7, 3, 5)] * 2


def test_the_card_describes_the_agent(server: Server) -> None:
    server.speaks("1.0", skills=[{"id": "r", "name": "roll"}, {"id": "c", "name": "count"}])

    found = agent_at(server.address).describe()

    assert (found.name, found.description) == ("dice", "Rolls dice. Skills: roll, count.")


@pytest.mark.parametrize(
    "path", ["/.well-known/agent-card.json", "/.well-known/agent.json", "/a/.well-known/agent-card.json"]
)
def test_the_card_is_read_from_the_well_known_paths(server: Server, path: str) -> None:
    server.speaks("0.3").card_path = path

    assert agent_at(f"{server.address}/a").describe().name == "dice"
    assert agent_at(f"{server.address}{path}").describe().name == "dice"


@pytest.mark.parametrize(
    ("url", "words"),
    [("https://evil.example/rpc", "on another host"), ("http://127.0.0.1:1/rpc", "on another host")],
)
def test_a_card_with_an_address_on_another_host_is_refused(server: Server, url: str, words: str) -> None:
    server.speaks("0.3").card["url"] = url

    with pytest.raises(AgentError, match=words):
        agent_at(server.address).describe()


async def test_a_card_may_use_another_loopback_name(server: Server, result: Any, played: Any) -> None:
    server.speaks("0.3").card["url"] = server.address.replace("127.0.0.1", "0.0.0.0") + "/rpc"  # noqa: S104
    server.answers.append({"result": OLD["message"]("A four.")})  # type: ignore[operator]

    assert (await played(agent_at(server.address), Session("s"), "Roll.")).answer == "A four."


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"code": -32001, "message": "no such task"}}, "refused: -32001: no such task"),
        ({"result": []}, "gave no result"),
        ([], "without a message or a task"),
    ],
)
async def test_an_answer_without_a_result_is_an_error(server: Server, played: Any, answer: Any, words: str) -> None:
    server.speaks("0.3", is_streaming=True).answers.append(answer)

    turn = await played(agent_at(server.address), Session("s"), "Roll.")

    assert turn.error
    assert words in turn.error.message


def test_a_card_without_json_rpc_is_refused(server: Server) -> None:
    server.card = {"name": "a", "supportedInterfaces": [{"url": server.address, "protocolBinding": "GRPC"}]}

    with pytest.raises(AgentError, match="offers GRPC; Evaldesk speaks JSONRPC"):
        agent_at(server.address).describe()


async def test_headers_with_keys_are_sent_with_every_request(
    server: Server, result: Any, played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_KEY", "Bearer k")
    server.speaks("0.3").answers.append({"result": OLD["message"]("A four.")})  # type: ignore[operator]

    await played(agent_at(server.address, headers_env={"authorization": "A_KEY"}), Session("s"), "Roll.")

    assert server.headers[0]["authorization"] == "Bearer k"


REAL = """
import sys
import uvicorn
from a2a.helpers import new_text_message
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, Part, Role, Task, TaskState, TaskStatus
from starlette.applications import Starlette

port, version = int(sys.argv[1]), sys.argv[2]

class Dice(AgentExecutor):
    async def execute(self, context, queue):
        text = context.get_user_input()
        if text == "Hi.":
            await queue.enqueue_event(new_text_message("Hello.", role=Role.ROLE_AGENT, context_id=context.context_id))
            return
        if context.current_task is None:
            status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=status))
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        if text == "Roll.":
            await updater.requires_input(updater.new_agent_message([Part(text="How many sides?")]))
            return
        await updater.start_work(updater.new_agent_message([Part(text="Rolling.")]))
        await updater.add_artifact([Part(text="A ")], artifact_id="a")
        await updater.add_artifact([Part(text="four.")], artifact_id="a", append=True, last_chunk=True)
        await updater.complete()

    async def cancel(self, context, queue):
        raise NotImplementedError

card = AgentCard(
    name="dice", description="Rolls dice.", version="1",
    supported_interfaces=[
        AgentInterface(url=f"http://127.0.0.1:{port}/rpc", protocol_binding="JSONRPC", protocol_version=version)
    ],
    capabilities=AgentCapabilities(streaming=sys.argv[3] == "stream"),
    default_input_modes=["text"], default_output_modes=["text"],
)
handler = DefaultRequestHandler(agent_executor=Dice(), task_store=InMemoryTaskStore(), agent_card=card)
routes = create_agent_card_routes(card) + create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True)
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=port, log_level="warning")
"""


@pytest.mark.parametrize("way", ["stream", "send"])
async def test_the_server_of_the_sdk_is_played(tmp_path: Path, played: Any, version: str, way: str) -> None:
    python = python_with("a2a-sdk[http-server]==1.3.0", "uvicorn")
    (tmp_path / "dice.py").write_text(REAL)
    port = free_port()
    process = subprocess.Popen([python, str(tmp_path / "dice.py"), str(port), version, way])
    try:
        agent, session = agent_at(f"http://127.0.0.1:{port}"), Session("s")
        wait_for(port)

        turns = [await played(agent, session, text) for text in ("Hi.", "Roll.", "6")]
    finally:
        process.terminate()
        process.wait()

    assert [turn.error for turn in turns] == [None] * 3
    assert [turn.answer for turn in turns] == ["Hello.", "How many sides?", "A four."]
    assert [text for _, text in turns[2].intermediate] == ["Rolling."]


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    import socket
    import time

    ended = time.monotonic() + 300
    while time.monotonic() < ended:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the server did not start")
