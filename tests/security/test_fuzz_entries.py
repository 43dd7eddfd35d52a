"""Bytes by chance at each entry that is no form: frames, agents, models, states, settings; forms are in test_fuzz.py.

Formats of files: formats/test_exchange_contract.py, formats/test_format_properties.py, formats/test_criteria_files.py.
Replies of judges: metrics/test_judge_bounds.py.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from evaldesk.agents.remote.http_protocol import parsed
from evaldesk.agents.remote.protocol import event_of
from evaldesk.desk.chat.sessions import parse_state
from evaldesk.desk.runs.file import read_run_file
from evaldesk.desk.runs.file_places import read_secrets
from evaldesk.desk.trust import Trust
from evaldesk.engine.frames import Ended, Happened, Ready, TurnEnded, frame_from_worker
from evaldesk.errors import AgentError, BadNumberError, FormatError, UsageError
from evaldesk.llm import ModelCall
from evaldesk.llm.direct import Pieces, whole_reply
from evaldesk.llm.refusals import BrokenAnswerError, EndpointError
from evaldesk.model import Event, Session, TrialResult, TurnRecord
from evaldesk.settings import CONFIG_NAME, read_settings
from evaldesk.wire import to_json

N_ROUNDS = 1_500
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
FRAMES = (
    Ready(7),
    Happened(1, (Event("agent_message", text="hi", at_ms=2.0),)),
    TurnEnded(1, TurnRecord("hi", (Event("agent_message", text="hi"),))),
    Ended(1, TrialResult(1, 0, 0, "finished", "passed")),
)


def read_frame(data: bytes, _: Path) -> None:
    found = frame_from_worker(data)
    to_json(found)


def read_event(data: bytes, _: Path) -> None:
    found = event_of(parsed(data, "an agent"), Session("s"), "a")
    if found:
        to_json(found)


def read_reply(data: bytes, _: Path) -> None:
    to_json(whole_reply(CALL, data))


def read_stream(data: bytes, _: Path) -> None:
    pieces = Pieces()
    for line in data.split(b"\n"):
        pieces.take(line)
    to_json(pieces.reply(CALL))


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


NO_FRAME = (ValueError, msgspec.MsgspecError, RecursionError)
MODEL = (BrokenAnswerError, EndpointError, BadNumberError)
ENTRIES: Mapping[str, tuple[Callable[[bytes, Path], None], tuple[bytes, ...], tuple[type[Exception], ...]]] = {
    "a frame of a worker": (
        read_frame,
        tuple(map(to_json, FRAMES)),
        (ValueError, msgspec.MsgspecError, RecursionError),
    ),
    "a remote agent, a command": (read_event, (to_json(EVENT),), (AgentError, BadNumberError)),
    "an answer of a model": (read_reply, (to_json(WHOLE),), MODEL),
    "a stream of a model": (read_stream, (b"data: " + to_json(DELTA) + b"\ndata: [DONE]\n",), MODEL),
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
    n_rounds = N_ROUNDS if read not in (read_toml, read_answer, read_environment, read_submitted) else N_ROUNDS // 5
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
