"""Bytes by chance at each entry that is no form: frames, agents, models, states, settings, the trash.

Forms are in test_fuzz.py.

Formats of files: formats/test_exchange_contract.py, formats/test_format_properties.py, formats/test_criteria_files.py.
Replies of judges: metrics/test_judge_bounds.py.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import msgspec
import pytest
from tests.islands import island_module

from evaldesk.agents.remote import model_gateway
from evaldesk.agents.remote.forwarding import open_gateway
from evaldesk.agents.remote.http_protocol import HttpAgent, parse_answer
from evaldesk.agents.remote.protocol import description_of, read_events
from evaldesk.agents.replay import read_recording
from evaldesk.desk.chat.sessions import parse_state
from evaldesk.desk.evalsets.cases import CaseDesk
from evaldesk.desk.imports.uploads import Label, Uploads
from evaldesk.desk.runs.file import read_run_file
from evaldesk.desk.runs.file_places import read_secrets
from evaldesk.desk.trust import Trust
from evaldesk.engine.frames import (
    Beat,
    Described,
    Ended,
    Failed,
    Forks,
    FromWorker,
    Happened,
    NextMessage,
    Ready,
    Spoke,
    TurnEnded,
    frame_from_worker,
    grade_spec,
    grader_result,
    player_result,
)
from evaldesk.engine.worker.attempt import Pause
from evaldesk.errors import AgentError, BadNumberError, EvaldeskError, FormatError, ModelError, UsageError
from evaldesk.llm import ModelCall, ModelReply
from evaldesk.llm.apis import api_of
from evaldesk.llm.direct import StreamedReply, whole_reply
from evaldesk.llm.recording import CURRENT_RECORDER, Recorder
from evaldesk.llm.refusals import BrokenAnswerError, EndpointError
from evaldesk.model import (
    AgentDescription,
    AgentRef,
    Case,
    Change,
    ErrorRecord,
    EvalSet,
    Event,
    ModelOptions,
    Score,
    Session,
    ToolCall,
    ToolDescription,
    Transcript,
    TrialResult,
    TrialSpec,
    Turn,
    TurnRecord,
    Usage,
)
from evaldesk.model.options import Recording
from evaldesk.model.transcript import MAX_NUMBER, check_event, check_turn
from evaldesk.model.user_reply import UserReply
from evaldesk.settings import CONFIG_NAME, read_settings
from evaldesk.store.evalsets.files import EvalSetFiles
from evaldesk.store.evalsets.trash import put_in_trash, trash_remains
from evaldesk.transcripts.adk import AdkEvents
from evaldesk.wire import checked_event, to_json

N_ROUNDS = 400
CALL = ModelCall("openai/small", [{"role": "user", "content": "hi"}])
PIECES = (
    *(b"{", b"}", b"[", b"]", b'"', b"\\", b",", b":", b"\n", b"=", b"\x00", b"\xff", b"\xed\xa0\x80", b"\\ud800"),
    *(b"null", b"true", b"NaN", b"1e999", b"-1", b"9" * 5_000, b"[" * 2_000, b'{"a":' * 2_000, b'"a":1,"a":2'),
    *(b"-9223372036854775809", b"0.0000001", "\u202eé\U0001f469".encode(), b"inf", b"1979-05-27", b"'''"),
)
TOML = b"""
models = ["demo/dice"]
judges = ["demo/judge"]
recording = "off"
[model]
base_url = "http://127.0.0.1:1/v1"
temperature = 0.5
price_in = 1
price_out = 2
[limits]
turn_timeout_s = 30
[user]
max_turns = 4
[metrics]
mine = "metrics:mine"
[agents]
folders = ["agents"]
[agents.one]
url = "http://127.0.0.1:2"
"""
RUN_FILE = b"""
[experiment]
rollout = "dice"
entrypoint = "main.py"
dataset = "data.jsonl"
model_path = "openai/small"
[evaluation]
limit = 3
[env]
A = "1"
[secrets]
required = ["KEY"]
"""
WHOLE = {
    "choices": [
        {
            "message": {
                "content": [{"type": "text", "text": "hi"}],
                "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
            },
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 3, "completion_tokens": 4},
}
DELTA = {"choices": [{"delta": {"content": "hi", "tool_calls": [{"index": 0, "function": {"arguments": "{"}}]}}]}
EVENT = {
    "kind": "tool_call",
    "name": "roll",
    "args": {"sides": 6},
    "id": "1",
    "cost": 0.1,
    "tokens_in": 3,
    "duration_ms": 2,
    "state": {"a": 1},
}
CALL_OF_TOOL = ToolCall("roll", {"sides": 6}, "c")
TURN = TurnRecord(
    "hi",
    (
        Event("tool_call", 1.0, "dice", call=CALL_OF_TOOL),
        Event("tool_result", 2.0, "dice", call=CALL_OF_TOOL, result={"n": 4}, duration_ms=1.0),
        Event("state_delta", 3.0, changes=(Change("rolls", [], [4]),)),
        Event("usage", 3.5, usage=Usage("m", "agent", 3, 4, cost=0.1)),
        Event("agent_message", 4.0, "dice", "You rolled 4."),
        Event("error", 5.0, error=ErrorRecord("agent", "boom", "Traceback")),
    ),
    {"rolls": []},
    {"rolls": [4]},
    6.0,
)
RESULT = TrialResult(
    1, 0, 0, "finished", "passed", transcript=Transcript((TURN,)), usages=(Usage("m", "agent", 3, 4, cost=0.1),)
)
SPEC = TrialSpec(1, 0, 0, Case("c", (Turn("hi"),)), AgentRef("a", "a:a"))
FRAMES = (
    Ready(7),
    Beat(((1, 2.5),), (Pause("rate-limited", 2.0),)),
    Happened(1, (Event("agent_message", text="hi", at_ms=2.0),)),
    TurnEnded(1, TURN),
    Ended(1, RESULT),
    Ended(2, TrialResult(1, 0, 0, "finished", "passed", scores=(Score("exact", 0.5, reason="near"),))),
    Described(1, AgentDescription("a", "python", "d", "i", "m", (ToolDescription("roll", "d", {"type": "object"}),))),
    Failed(1, ErrorRecord("import", "no module", "Traceback")),
    Forks(1, "it has more than one thread"),
    NextMessage(1, (TURN,), {"rolls": [4]}, "agent:user", 9.5),
    Spoke(1, UserReply("and then?", events=(Event("usage", usage=Usage("m", "user", 3, 4)),))),
)


def read_frame(data: bytes, _: Path) -> None:
    """As the driver takes it: what is not the error of its own trial or turn can be stored."""
    found = frame_from_worker(data)
    if isinstance(found, Ended):
        for result in (player_result(SPEC, found.result), grader_result(grade_spec(SPEC, RESULT), found.result)):
            if result.error is None or result.error.kind not in {"bad_number", "wrong_trial"}:
                assert 0 <= result.duration_ms <= MAX_NUMBER
                assert 0 <= result.tokens <= MAX_NUMBER
            to_json(result)
    elif isinstance(found, TurnEnded):
        check_turn(found.record)
    elif isinstance(found, Happened):
        for event in found.events:
            check_event(event)
    to_json(found)


def read_event(data: bytes, _: Path) -> None:
    to_json([*read_events(parse_answer(data, "an agent"), Session("s"), "a")])


def read_whole_turn(data: bytes, _: Path) -> None:
    to_json(HttpAgent(AgentRef("a", "http://127.0.0.1:1"))._events_of_answer(data, Session("s")))


def read_description(data: bytes, _: Path) -> None:
    to_json(description_of(parse_answer(data, "an agent"), "a", "http"))


def read_adk_event(data: bytes, _: Path) -> None:
    agent = island_module("adk.server").AdkServerAgent(
        AgentRef("a", "http://127.0.0.1:1/a"), "http://127.0.0.1:1", "a", {}
    )
    for event in agent.events_of(data, Session("s"), AdkEvents()):
        check_event(event)
        to_json(event)


def read_process_instance(data: bytes, _: Path) -> None:
    to_json(island_module("openhands.benchmark").read_line(data))


def read_replayed(data: bytes, folder: Path) -> None:
    path = folder / "recording.json"
    path.write_bytes(data)
    for trial in read_recording(path):
        to_json(trial.transcript)


def read_cassette(data: bytes, folder: Path) -> None:
    """A recorded answer of a model, which came with a repository."""
    recorder = Recorder(Recording(mode="replay", folder=str(folder)), 0)
    key = recorder.key("model", {})
    path = recorder._path(key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    recorder.recorded_reply(key, "the call")


def read_trash_origin(data: bytes, folder: Path) -> None:
    """Where a file in the trash came from, which came with a repository."""
    sets, trash = folder / "evalsets", folder / "trash"
    sets.mkdir(exist_ok=True)
    path = sets / "a.evalset.json"
    path.write_text('{"eval_set_id": "a", "eval_cases": []}', "utf-8")
    shutil.rmtree(trash, ignore_errors=True)  # those before were read in their turn
    token = put_in_trash(path, trash)
    (trash / token / "origin.json").write_bytes(data.replace(b"HERE", bytes(path)))
    files = EvalSetFiles((sets,), sets, trash, home=sets)
    trash_remains(trash)
    files.restore(token)


def read_trash_cases(data: bytes, folder: Path) -> None:
    """Deleted cases in the trash, which came with a repository."""
    trash, token = folder / "trash", "0" * 16
    trash.mkdir(exist_ok=True)
    (folder / "a.evalset.json").write_text('{"eval_set_id": "a", "eval_cases": []}', "utf-8")
    files = EvalSetFiles((folder,), folder, trash, home=folder)
    (set_id,) = [file.id for file in files.list()]
    (trash / f"{token}.cases.json").write_bytes(data.replace(b"HERE", set_id.encode()))
    cases = CaseDesk(files, lambda _: EvalSet("s"), trash)
    list(cases.deleted.files())
    cases.list_deleted_ids(set_id, token)
    cases.restore(set_id, token)


def read_waiting_upload(data: bytes, folder: Path) -> None:
    uploads = Uploads(folder / "uploads")
    token = "0" * 24
    (folder / "uploads").mkdir(exist_ok=True)
    (folder / "uploads" / f"{token}.upload").write_bytes(data)
    uploads.list()
    uploads.read(token)


def read_reply(data: bytes, _: Path) -> None:
    to_json(whole_reply(CALL, data))


def read_stream(data: bytes, _: Path) -> None:
    pieces = StreamedReply()
    for line in data.split(b"\n"):
        pieces.take(line)
    to_json(pieces.reply(CALL))


def read_gateway_call(data: bytes, folder: Path) -> None:
    """A call of a command agent through the gateway, and what the provider answered: each is told, or left out."""
    path, request, answer = [*data.split(b"\n", 2), b"", b""][:3]
    place = path.decode("utf-8", "replace")
    try:
        body = json.loads(request)
    except (ValueError, RecursionError):
        return
    if not isinstance(body, dict):
        return
    told: list[Event] = []
    call = model_gateway.Call("openai", "POST", place, {}, request, body, api_of(place))
    gateway = model_gateway.ModelGateway({})
    token = CURRENT_RECORDER.set(Recorder(Recording(mode="record", folder=str(folder)), 0))
    with gateway.listening(Session("s"), told.append), gateway.call() as turn:
        CURRENT_RECORDER.reset(token)
        assert turn
        assert isinstance(call.model, str)
        assert call.hides_usage in (True, False)
        gateway.recording_of(turn, call)
        gateway.report(turn, call, model_gateway.Answer(200, "application/json", answer, b""))
    for event in told:
        to_json(checked_event(event, 1.0))


def read_state(data: bytes, _: Path) -> None:
    to_json(parse_state(data.decode("utf-8", "replace")))


def read_toml(data: bytes, folder: Path) -> None:
    (folder / CONFIG_NAME).write_bytes(data)
    (folder / "agents").mkdir(exist_ok=True)
    settings = read_settings(folder, (folder,), environment={})
    Trust(settings, {"HOME": str(folder)}).question()


def read_environment(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "surrogateescape").replace("\x00", "")
    names = ("EVALDESK_MODELS", "EVALDESK_JUDGES", "EVALDESK_TRUST", "XDG_STATE_HOME")
    environment = dict.fromkeys(names, text) | {"EVALDESK_RECORDING": text if text.isalpha() else "off"}
    assert not Trust(read_settings(folder / "none", (), environment=environment), environment).is_given


def read_submitted(data: bytes, folder: Path) -> None:
    (folder / "run.toml").write_bytes(data)
    read_run_file(folder / "run.toml")


def read_secrets_file(data: bytes, _: Path) -> None:
    read_secrets(data.decode("utf-8", "replace"))


def read_answer(data: bytes, folder: Path) -> None:
    """An answer about trust that is no answer is none."""
    environment = {"XDG_STATE_HOME": str(folder / "state")}
    (folder / "agent.py").write_text("root_agent = None\n")
    settings = read_settings(folder, (folder,), environment={})
    place = folder / "state" / "evaldesk" / "trusted"
    if not place.exists():
        Trust(settings, environment).give()
    for path in place.glob("*.json"):
        path.write_bytes(data)
    Trust(settings, environment)


SLOW = (read_toml, read_answer, read_environment, read_submitted, read_trash_origin, read_trash_cases)
"""They write files."""
NO_FRAME = (ValueError, msgspec.MsgspecError, RecursionError)
AGENT = (AgentError, BadNumberError)
DESCRIPTION = {
    "name": "a",
    "description": "d",
    "instruction": "i",
    "model": "m",
    "tools": [{"name": "roll", "description": "d", "parameters": {"type": "object"}}],
    "initial_state": {"a": 1},
    "tells_cost": True,
}
ADK_EVENTS = (
    {
        "author": "a",
        "content": {"parts": [{"text": "hi"}, {"functionCall": {"name": "roll", "args": {"n": 6}, "id": "c"}}]},
        "actions": {"stateDelta": {"a": 1}},
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 4},
    },
    {"content": {"parts": [{"functionResponse": {"name": "roll", "response": {"n": 4}, "id": "c"}}]}, "timestamp": 1.5},
    {"error": "boom"},
)
MESSAGES = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "roll", "arguments": '{"n": 6}'}}]},
    {"role": "tool", "tool_call_id": "c", "content": "4"},
    {"role": "assistant", "content": [{"type": "text", "text": "You rolled 4."}]},
]
REPLY = ModelReply(text="hi", tool_calls=(), usage=Usage("m", "agent", 3, 4))
SAID = [{"user_content": {"parts": [{"text": "Roll. " * 50}]}}]
DELETED = {"evalset": "HERE", "cases": [{"index": 0, "case": {"eval_id": "a", "conversation": SAID}}]}
ASKED = {"model": "small", "stream": True, "messages": MESSAGES[:3], "stream_options": {}}
OF_RESPONSES = {
    "model": "small",
    "output": [{"type": "function_call", "call_id": "c", "name": "roll", "arguments": '{"n": 6}'}],
    "usage": {"input_tokens": 11, "output_tokens": 5, "input_tokens_details": {"cached_tokens": 1}},
}
TOOL_RESULT = {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "4"}]}
OF_ANTHROPIC = {
    "content": [{"type": "text", "text": "hi"}, {"type": "tool_use", "id": "c", "name": "roll", "input": {"n": 6}}],
    "usage": {"input_tokens": 8, "cache_read_input_tokens": 3, "output_tokens": 5},
}
OF_GEMINI = {
    "candidates": [{"content": {"parts": [{"functionCall": {"name": "roll", "args": {"n": 6}}}]}}],
    "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 3, "thoughtsTokenCount": 2},
}
OF_TOOL = {"role": "user", "parts": [{"functionResponse": {"name": "roll", "response": {"n": 4}}}]}
EXCHANGES = tuple(
    b"\n".join((path, to_json(request), answer))
    for path, request, answer in (
        (b"/chat/completions", ASKED, to_json(WHOLE)),
        (b"/chat/completions", ASKED, b"data: " + to_json(DELTA) + b"\n\ndata: [DONE]\n\n"),
        (
            b"/responses",
            {"input": [{"type": "function_call_output", "call_id": "c", "output": "4"}]},
            to_json(OF_RESPONSES),
        ),
        (b"/v1/messages", {"messages": [{"role": "user", "content": [TOOL_RESULT]}]}, to_json(OF_ANTHROPIC)),
        (b"/v1beta/models/small:generateContent", {"contents": [OF_TOOL]}, to_json(OF_GEMINI)),
    )
)
MODEL = (BrokenAnswerError, EndpointError, BadNumberError)
ENTRIES: Mapping[str, tuple[Callable[[bytes, Path], None], tuple[bytes, ...], tuple[type[Exception], ...]]] = {
    "a frame of a worker": (read_frame, tuple(map(to_json, FRAMES)), (*NO_FRAME, BadNumberError)),
    "a turn of a remote agent": (read_whole_turn, (to_json({"events": [EVENT], "state": {"a": 1}}),), AGENT),
    "a description of a remote agent": (read_description, (to_json(DESCRIPTION),), AGENT),
    "an event of an ADK server": (read_adk_event, tuple(map(to_json, ADK_EVENTS)), AGENT),
    "a line of a benchmark": (read_process_instance, (b'{"report": {"a": 1}}',), AGENT),
    "a recording to replay": (read_replayed, (to_json(Transcript((TURN,))), to_json(MESSAGES)), AGENT),
    "a recorded answer": (read_cassette, (to_json(REPLY),), (ModelError,)),
    "where a deleted file came from": (read_trash_origin, (b'{"path": "HERE"}',), (EvaldeskError,)),
    "deleted cases": (read_trash_cases, (to_json(DELETED),), (EvaldeskError,)),
    "an upload that waits": (read_waiting_upload, (to_json(Label("a.json", "x")) + b"\n{}",), (EvaldeskError,)),
    "a remote agent, a command": (read_event, (to_json(EVENT),), (AgentError, BadNumberError)),
    "an answer of a model": (read_reply, (to_json(WHOLE),), MODEL),
    "a stream of a model": (read_stream, (b"data: " + to_json(DELTA) + b"\ndata: [DONE]\n",), MODEL),
    "a call through the gateway": (read_gateway_call, EXCHANGES, ()),
    "a session state": (read_state, (b'{"a": {"b": [1, "x", null]}}',), (FormatError,)),
    "evaldesk.toml": (read_toml, (TOML,), (UsageError,)),
    "the environment": (read_environment, (b"openai/a, demo/b", b"record"), (UsageError,)),
    "a run file": (read_submitted, (RUN_FILE,), (UsageError,)),
    "a file of secrets": (read_secrets_file, (b"A=1\nexport B='2'\n",), (UsageError,)),
    "an answer about trust": (read_answer, (json.dumps({"folder": "/", "inode": 1, "owner": 0}).encode(),), ()),
}


def mutated(chance: random.Random, data: bytes) -> bytes:
    for _ in range(chance.randrange(1, 5)):
        at, width = chance.randrange(len(data) + 1), chance.randrange(6)
        piece = chance.choice((chance.choice(PIECES), chance.randbytes(chance.randrange(8)), data[at : at + 30]))
        data = data[:at] + piece + data[at + width :]
    return data


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_entry_breaks_on_bytes_by_chance(entry: str, tmp_path: Path) -> None:
    read, samples, allowed = ENTRIES[entry]
    chance = random.Random(entry)
    n_rounds = N_ROUNDS // 5 if read in SLOW else N_ROUNDS
    broken: list[Any] = []
    n_read = 0

    for sample in samples:
        read(sample, tmp_path)
        for _ in range(n_rounds):
            data = mutated(chance, sample)
            try:
                read(data, tmp_path)
                n_read += 1
            except allowed:
                continue
            except Exception as error:
                broken.append((type(error).__name__, str(error)[:200], data[:300]))

    assert broken[:3] == []
    assert n_read


def test_every_frame_of_a_worker_is_among_the_samples() -> None:
    assert {type(frame) for frame in FRAMES} == set(get_args(FromWorker))


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[model_gateway.ModelGateway]:
    """A gateway with a turn under way whose models answer nothing, as nobody is at their address."""
    with socket.socket() as closed:  # bound, so that nobody else is there, and never listening
        closed.bind(("127.0.0.1", 0))
        gateway = open_gateway({"OPENAI_BASE_URL": f"http://127.0.0.1:{closed.getsockname()[1]}"})
        session = Session("s", model_options=ModelOptions(n_retries=0))
        with gateway.listening(session, lambda event: None):
            yield gateway
        gateway.close()


def test_no_request_by_chance_breaks_the_gateway(
    gateway: model_gateway.ModelGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is answered or cut off, without an exception in the gateway, which answers the next one."""
    broken: list[BaseException | None] = []
    monkeypatch.setattr(ThreadingHTTPServer, "handle_error", lambda *_: broken.append(sys.exception()))
    address = urlsplit(gateway.variables()["OPENAI_BASE_URL"])
    assert address.hostname
    assert address.port
    body = to_json(ASKED)
    head = f"POST {address.path}/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer k\r\n"
    whole = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    chance = random.Random("gateway")

    def answer(data: bytes) -> bytes:
        with socket.create_connection((address.hostname, address.port)) as connection, connection.makefile("rb") as end:
            with suppress(OSError):  # cut off before all was said
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                return end.read()
            return b""

    for _ in range(N_ROUNDS // 5):
        answer(mutated(chance, whole))

    assert broken == []
    assert answer(whole).startswith(b"HTTP/1.1 502 ")
