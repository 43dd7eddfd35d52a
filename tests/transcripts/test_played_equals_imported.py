"""What is played and what is imported is the same: the same row, message or event gives the same turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.islands import island_module, of_tools
from tests.transcripts.compared_turns import turns_of_case, turns_of_trial

from evaldesk.agents import agent_ref, load_agent
from evaldesk.agents.message_events import MessageEvents
from evaldesk.engine import play_trial
from evaldesk.formats.adk.results import read_invocation
from evaldesk.formats.files import read_file, write_file
from evaldesk.model import (
    AgentRef,
    Case,
    Event,
    Limits,
    ModelOptions,
    Session,
    TrialResult,
    TrialSpec,
    Turn,
    TurnRecord,
)
from evaldesk.model.transcript import artefact_text, reported_values
from evaldesk.reading.notes import Notes
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.adk import AdkEvents
from evaldesk.transcripts.messages.chat import read_chat
from evaldesk.transcripts.messages.turns import turns_of
from evaldesk.transcripts.recorded import RecordedRun

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("own_imports")]

BENCH = """
import json
from pathlib import Path

def process_instance(instance, metadata):
    return json.loads(Path(instance.row).read_text("utf-8"))
"""
SAMPLE = Path(__file__).parents[1] / "formats/exchange_samples/openhands.jsonl"


async def played_row(folder: Path, line: str, query: str) -> TrialResult:
    """The trial of a benchmark whose function returns the row."""
    (folder / "returns_a_row.py").write_text(BENCH)
    (folder / "row.json").write_text(line)
    ref = AgentRef("bench", "returns_a_row:process_instance", root=str(folder))
    case = Case("i", (Turn(query),), extra={"row": str(folder / "row.json")})
    return await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))


def told(result: TrialResult) -> Iterator[list[Event]]:
    """The events of each turn without their times, and without what only a workspace tells."""
    for turn in result.transcript.turns:
        events = (event for event in turn.events if event.author not in ("workspace", "artefact"))
        yield [replace(event, at_ms=0.0) for event in events]


def assert_same(played: TrialResult, imported: TrialResult) -> None:
    assert list(told(played)) == list(told(imported))
    for one, other in zip(played.transcript.turns, imported.transcript.turns, strict=True):
        assert (one.query, one.answer, one.intermediate) == (other.query, other.answer, other.intermediate)
        assert (one.tool_calls, one.usages) == (other.tool_calls, other.usages)
    assert played.usages == imported.usages
    assert (played.tokens, played.cost) == (imported.tokens, imported.cost)
    assert (played.status, played.stop_reason, played.error) == (imported.status, imported.stop_reason, imported.error)
    assert reported_values(played.transcript) == reported_values(imported.transcript)


@of_tools("openhands")
async def test_a_played_row_of_openhands_equals_the_imported_one(tmp_path: Path) -> None:
    data = SAMPLE.read_bytes()
    run = read_file(data, "output.jsonl").runs[0]

    for line, imported in zip(data.decode().splitlines(), run.results, strict=True):
        query = run.cases[imported.case_index].turns[0].query
        played = await played_row(tmp_path, line, query)

        assert_same(played, imported)
        text = artefact_text(played.transcript, "openhands")
        assert text is not None
        assert json.loads(text) == json.loads(line)


@of_tools("openhands")
def test_imported_rows_of_openhands_are_given_back_unchanged() -> None:
    data = SAMPLE.read_bytes()

    assert write_file(read_file(data, "output.jsonl").runs[0], "openhands") == data


ROWS: dict[str, dict[str, Any]] = {
    "nothing": {"instance_id": "i", "test_result": {}},
    "result_alone": {"instance_id": "i", "test_result": {"success": True, "n": 3}},
    "harness_as_user": {
        "instance_id": "i",
        "instruction": "Ask.",
        "test_result": {},
        "history": [
            {"action": "message", "source": "user", "args": {"content": "Ask."}},
            {"action": "message", "source": "agent", "args": {"content": "Is it big?"}},
            {"action": "message", "source": "user", "args": {"content": "No."}},
            {"action": "finish", "args": {"final_thought": "A pea."}},
        ],
    },
    "max_iterations": {
        "instance_id": "i",
        "test_result": {},
        "error": "RuntimeError: Agent reached maximum iteration",
        "metrics": {"accumulated_cost": 1.25},
    },
    "error": {"instance_id": "i", "test_result": {"success": False}, "error": "the sandbox is gone"},
    "bad_cost": {"instance_id": "i", "test_result": {}, "metrics": {"accumulated_cost": -1}},
    "parallel_calls": {
        "instance_id": "i",
        "test_result": {},
        "history": [
            {"id": 1, "action": "run", "args": {"command": "a"}},
            {"id": 2, "action": "read", "args": {"path": "b"}},
            {"id": 3, "observation": "read", "content": "2", "cause": 2},
            {"id": 4, "observation": "run", "content": "1", "cause": 1, "success": False},
        ],
    },
    "sdk": {
        "instance_id": "i",
        "test_result": {},
        "history": [
            {"kind": "MessageEvent", "source": "user", "llm_message": {"content": [{"type": "text", "text": "Go"}]}},
            {"kind": "ActionEvent", "tool_name": "think", "tool_call_id": "t", "action": {"thought": "Hm."}},
            {"kind": "ObservationEvent", "tool_call_id": "t", "observation": {"content": "logged"}},
            {"kind": "ActionEvent", "tool_name": "finish", "tool_call": {"arguments": '{"message": "Done."}'}},
        ],
    },
}


@of_tools("openhands")
@pytest.mark.parametrize("name", ROWS)
async def test_any_played_row_equals_the_imported_one(name: str, tmp_path: Path) -> None:
    line = json.dumps(ROWS[name])
    run = read_file(line.encode(), "output.jsonl").runs[0]
    [imported] = run.results

    played = await played_row(tmp_path, line, run.cases[0].turns[0].query)

    assert_same(played, imported)
    assert write_file(RecordedRun("r", "a", run.cases, (played,)), "openhands").decode() == line + "\n"


@of_tools("openhands")
def test_think_and_finish_are_tool_calls() -> None:
    turn = read_file(json.dumps(ROWS["sdk"]).encode(), "output.jsonl").runs[0].results[0].transcript.turns[0]

    assert [(call.name, call.args) for call in turn.tool_calls] == [
        ("think", {"thought": "Hm."}),
        ("finish", {"message": "Done."}),
    ]
    assert turn.answer == "Done."


CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Roll twice."},
    {
        "role": "assistant",
        "content": "I roll.",
        "reasoning_content": "Two dice.",
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "roll", "arguments": '{"sides": 6}'}},
            {"id": "b", "type": "function", "function": {"name": "roll", "arguments": "six"}},
        ],
    },
    {"role": "tool", "tool_call_id": "b", "content": "Error: no such die"},
    {"role": "tool", "tool_call_id": "a", "content": '{"value": 4}'},
    {"role": "assistant", "content": [{"type": "text", "text": "It is"}, {"type": "text", "text": "4."}]},
    {"role": "user", "content": "Thanks."},
    {"role": "assistant", "content": "Gladly."},
]


def test_messages_that_an_agent_leaves_equal_the_imported_ones() -> None:
    imported = turns_of(read_chat(JsonPosition(Document(None)), CHAT, Notes()))
    [case] = read_file(json.dumps(CHAT).encode(), "chat.json").evalset.cases  # type: ignore[union-attr] # it has one
    played = []
    for index, message in enumerate(CHAT):
        if message["role"] != "user":
            continue
        events: list[Event] = []
        told = MessageEvents(events.append)
        end = next((at for at in range(index + 1, len(CHAT)) if CHAT[at]["role"] == "user"), len(CHAT))
        told.skip(CHAT[: index + 1])
        for n_messages in range(index + 1, end + 1):
            told.catch_up(CHAT[:n_messages])
        played.append(TurnRecord(message["content"], tuple(events)))

    kept = [[event for event in turn.events if event.author not in ("system", "user")] for turn in imported]
    assert [list(turn.events) for turn in played] == kept
    assert turns_of_trial(played) == turns_of_case(case)


BLOCKS: list[dict[str, Any]] = [
    {"role": "user", "content": "Roll twice."},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Two dice.", "signature": "s"},
            {"type": "text", "text": "I roll."},
            {"type": "tool_use", "id": "a", "name": "roll", "input": {"sides": 6}},
            {"type": "tool_use", "id": "b", "name": "roll", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "b", "is_error": True, "content": "no such die"},
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": '{"value": 4}'}]},
        ],
    },
    {"role": "assistant", "content": "It is 4."},
    {"role": "user", "content": [{"type": "text", "text": "Thanks."}]},
    {"role": "assistant", "content": [{"type": "text", "text": "Gladly."}]},
]
PARTS: list[dict[str, Any]] = [
    {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": "Roll."}]},
    {
        "kind": "response",
        "parts": [{"part_kind": "tool-call", "tool_name": "roll", "args": {"sides": 6}, "tool_call_id": "a"}],
    },
    {
        "kind": "request",
        "parts": [{"part_kind": "tool-return", "tool_name": "roll", "content": 4, "tool_call_id": "a"}],
    },
    {"kind": "response", "parts": [{"part_kind": "text", "content": "It is 4."}]},
]
CONVERSATIONS = {
    "openai": CHAT,
    "anthropic": BLOCKS,
    "anthropic with a prompt": {"system": "Be brief.", "messages": BLOCKS},
    "pydantic-ai": PARTS,
}


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_replayed_messages_equal_the_imported_ones(name: str, tmp_path: Path) -> None:
    data = json.dumps(CONVERSATIONS[name])
    (tmp_path / "chat.json").write_text(data)
    [case] = read_file(data.encode(), "chat.json").evalset.cases  # type: ignore[union-attr] # it has one
    ref = agent_ref(f"replay:{tmp_path / 'chat.json'}")

    played = await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))

    assert turns_of_trial(played.transcript.turns) == turns_of_case(case)


def test_a_message_that_cannot_be_read_is_a_remark_and_loses_no_other() -> None:
    events: list[Event] = []

    MessageEvents(events.append).catch_up(
        [{"role": "critic", "content": "No."}, 7, {"role": "assistant", "content": "4"}]
    )

    assert [event.kind for event in events] == ["log", "log", "agent_message"]
    assert "unknown role 'critic'" in events[0].text


ADK: list[dict[str, Any]] = [
    {"author": "user", "invocationId": "e-1", "content": {"role": "user", "parts": [{"text": "Weather in Oslo?"}]}},
    {
        "author": "weather",
        "invocationId": "e-1",
        "content": {
            "role": "model",
            "parts": [
                {"text": "I look."},
                {"functionCall": {"id": "c1", "name": "look_up", "args": {"city": "Oslo"}}},
                {"functionCall": {"id": "c2", "name": "look_up", "args": {"city": "Bergen"}}},
            ],
        },
        "usageMetadata": {"promptTokenCount": 9, "candidatesTokenCount": 2, "thoughtsTokenCount": 1},
    },
    {
        "author": "weather",
        "invocationId": "e-1",
        "content": {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "c2", "name": "look_up", "response": {"result": "rain"}}},
                {"functionResponse": {"id": "c1", "name": "look_up", "response": {"error": "no such city"}}},
            ],
        },
    },
    {
        "author": "weather",
        "invocationId": "e-1",
        "content": {
            "role": "model",
            "parts": [{"text": "hm", "thought": True}, {"text": "It is sunny."}, {"text": "And dry."}],
        },
    },
]


def adk_turn(events: Iterable[Event]) -> TurnRecord:
    return TurnRecord("Weather in Oslo?", tuple(events))


def adk_of_server() -> TurnRecord:
    server = island_module("adk.server")
    agent = load_agent(agent_ref("adk:http://127.0.0.1:9/weather"))
    assert isinstance(agent, server.AdkServerAgent)
    reader, session = AdkEvents(), Session("s")
    lines = [json.dumps(event).encode() for event in ADK[1:]]
    return adk_turn(event for line in lines for event in agent.events_of(line, session, reader))


def adk_of_objects() -> TurnRecord:
    found = pytest.importorskip("google.adk.events.event").Event
    witness = island_module("adk.witness").Witness("s", ModelOptions(), model="m")
    events_of_adk = island_module("adk.translation").events_of_adk
    return adk_turn(event for raw in ADK[1:] for event in events_of_adk(found.model_validate(raw), witness))


def adk_of_results() -> TurnRecord:
    raw = {
        "user_content": ADK[0]["content"],
        "final_response": ADK[-1]["content"],
        "intermediate_data": {"invocation_events": [{k: e[k] for k in e if k != "invocationId"} for e in ADK[1:]]},
    }
    return read_invocation(JsonPosition(Document(raw)), raw)


@pytest.mark.parametrize("door", [adk_of_server, adk_of_objects, adk_of_results])
def test_an_event_of_adk_is_the_same_at_every_door(door: Callable[[], TurnRecord]) -> None:
    session = {"id": "s", "appName": "weather", "userId": "u", "state": {}, "events": ADK}
    evalset = read_file(json.dumps(session).encode(), "s.session.json").evalset
    assert evalset is not None
    [case] = evalset.cases
    [expected] = case.turns

    turn = door()

    assert turn.tool_calls == tuple(replace(call, extra={}) for call in expected.expected.tool_calls or ())
    assert turn.intermediate == expected.expected.intermediate
    assert turn.answer == "It is sunny.\nAnd dry."
    assert str(expected.expected.reference).endswith(turn.answer)
    results = [event for event in turn.events if event.kind == "tool_result"]
    assert [(event.call and event.call.id, event.result, event.is_error) for event in results] == [
        ("c2", "rain", False),
        ("c1", {"error": "no such city"}, True),
    ]
    assert [(usage.tokens_in, usage.tokens_out) for usage in turn.usages] == [(9, 3)]
    assert [event.text for event in turn.events if event.author == "thought"] == ["hm"]


async def test_messages_of_langchain_equal_the_imported_ones() -> None:
    messages = pytest.importorskip("langchain_core.messages")
    call = {"name": "roll", "args": {"sides": 6}, "id": "a", "type": "tool_call"}
    block = {"type": "tool_use", "id": "a", "name": "roll", "input": {"sides": 6}}
    said = [
        messages.AIMessage(content=[{"type": "text", "text": "I roll."}, block], tool_calls=[call], id="1"),
        messages.ToolMessage(content='{"value": 4}', tool_call_id="a", name="roll", id="2"),
        messages.AIMessage(content="It is 4.", id="3"),
    ]
    events: list[Event] = []

    async def send(event: Event) -> None:
        events.append(event)

    await island_module("langgraph.adapter").EventSender(send, {}, model="m").send_updates({"node": {"messages": said}})

    raw = messages.utils.convert_to_openai_messages([messages.HumanMessage("Roll."), *said])
    [imported] = turns_of(read_chat(JsonPosition(Document(None)), json.loads(json.dumps(raw)), Notes()))
    assert [replace(event, author="") for event in events] == [
        replace(event, author="") for event in imported.events[1:]
    ]
