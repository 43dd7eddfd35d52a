"""Agents behind an address or a command say what they like, within bounds: what is beyond errs by name."""

from __future__ import annotations

import gzip
import json
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agents.answering import Answers, answering
from tests.islands import of_tools

from evaldesk.agents import agent_ref, load_agent
from evaldesk.agents.discovery import remote_ref_of_kind
from evaldesk.agents.remote.protocol import read_events
from evaldesk.errors import AgentError, BadNumberError, FormatError
from evaldesk.model import Event, Session
from evaldesk.unpacking import MAX_ANSWER, Unpacker
from evaldesk.wire import LineCutter

DEEP = "[" * 10_000 + "]" * 10_000
BAD_JSON = {
    "deep": (f'{{"kind": "message", "text": {DEEP}}}', "nested 10001 levels deep; at most 64 are read"),
    "NaN": ('{"kind": "usage", "cost": NaN}', "cost: NaN is not a JSON number"),
    "infinity": ('{"kind": "usage", "cost": -Infinity}', "cost: -Infinity is not a JSON number"),
    "1e400": ('{"kind": "usage", "cost": 1e400}', 'cost: "1e400" is too large for a number'),
    "half": ('{"kind": "message", "text": "\\ud800"}', "text: half a character"),
    "twice": ('{"kind": "message", "text": "a", "text": "b"}', 'text: the key "text" is there twice'),
    "digits": ('{"kind": "usage", "tokens_in": ' + "9" * 5_000 + "}", "tokens_in: an integer of 5000 digits"),
}
COMMAND = "import sys; sys.stdin.readline(); sys.stdout.write(open({!r}).read()); sys.stdout.flush(); sys.stdin.read()"


@pytest.fixture(name="answers")
def answers_fixture() -> Iterator[tuple[str, Answers]]:
    with answering() as found:
        yield found


@pytest.mark.anyio
@pytest.mark.parametrize(("line", "said"), BAD_JSON.values(), ids=BAD_JSON)
@pytest.mark.parametrize("door", ["whole", "lines", pytest.param("adk", marks=of_tools("adk")), "command"])
async def test_ambiguous_json_is_a_named_error(
    answers: Any, play: Any, tmp_path: Path, door: str, line: str, said: str
) -> None:
    address, server = answers
    if door == "whole":
        server.gives(raw=line.encode())
        ref = agent_ref(address)
    elif door == "lines":
        server.gives(raw=line.encode(), kind="application/x-ndjson")
        ref = agent_ref(address)
    elif door == "adk":
        server.gives({"id": "s"})
        server.gives(raw=b"data: " + line.encode(), kind="text/event-stream")
        ref = agent_ref(f"adk:{address}/weather")
    else:
        (tmp_path / "line").write_text(f"{line}\n")
        ref = remote_ref_of_kind("command", f"{sys.executable} -c {_quoted(COMMAND.format(str(tmp_path / 'line')))}")
    session = Session("s")

    try:
        with pytest.raises(AgentError, match=re.escape(said)):
            await play(load_agent(ref), session, "hi")
    finally:
        for kept in session.memory.values():
            if hasattr(kept, "close"):
                kept.close()


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["application/json", "application/x-ndjson"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_decompressed_answer_beyond_the_limit_is_refused(
    answers: Any, play: Any, kind: str, encoding: str
) -> None:
    address, server = answers
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    server.gives(raw=pack(b" " * (MAX_ANSWER + 1)), kind=kind, headers={"content-encoding": encoding})

    with pytest.raises(AgentError, match="unpacks to more than 32 MiB, which is refused"):
        await play(load_agent(agent_ref(address)), Session("s"), "hi")


@pytest.mark.anyio
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "x" * 500])
async def test_an_unrequested_content_encoding_is_refused(answers: Any, play: Any, encoding: str) -> None:
    address, server = answers
    server.gives({"events": []}, headers={"content-encoding": encoding})

    with pytest.raises(AgentError, match="only gzip and deflate can be read"):
        await play(load_agent(agent_ref(address)), Session("s"), "hi")

    assert server.asked[0][2]["accept-encoding"] == "identity"


@pytest.mark.anyio
async def test_a_compressed_answer_is_read(answers: Any, play: Any) -> None:
    address, server = answers
    body = json.dumps({"events": [{"kind": "message", "text": "hello\u0000"}]}).encode()
    server.gives(raw=gzip.compress(body), headers={"content-encoding": "gzip"})

    [event] = await play(load_agent(agent_ref(address)), Session("s"), "hi")

    assert event.text == "hello\0"


def test_a_description_is_bounded_as_well(answers: Any) -> None:
    address, server = answers
    headers = {"content-encoding": "gzip"}
    server.gives(raw=gzip.compress(b" " * (MAX_ANSWER + 1)), headers=headers)
    server.gives(raw=DEEP.encode())

    with pytest.raises(AgentError, match="unpacks to more than 32 MiB"):
        load_agent(agent_ref(address)).describe()
    with pytest.raises(AgentError, match="nested 10000 levels deep"):
        load_agent(agent_ref(address)).describe()


def test_texts_and_tools_of_a_description_are_limited(answers: Any) -> None:
    address, server = answers
    long = {"name": "n" * 1_000_000, "description": "d" * 1_000_000, "tools": [{"name": "t" * 1_000}]}
    server.gives(long)
    server.gives({"name": "many", "tools": [{"name": str(number)} for number in range(1_001)]})

    described = load_agent(agent_ref(address)).describe()
    with pytest.raises(AgentError, match="tools: 1,001 are more than the 1,000 that an agent may have"):
        load_agent(agent_ref(address)).describe()

    assert max(len(described.name), len(described.tools[0].name)) <= 201
    assert len(described.description) == 100_001


@pytest.mark.anyio
@pytest.mark.parametrize("status", [301, 307])
async def test_a_redirect_of_an_agent_is_not_followed(answers: Any, play: Any, status: int) -> None:
    address, server = answers
    for _ in range(2):
        server.gives(status=status, raw=b"-", headers={"location": f"{address}/elsewhere?key=hidden"})
    agent = load_agent(agent_ref(address))

    with pytest.raises(AgentError, match=f"a redirect to {address}. Redirects are not followed: keys would be sent"):
        await play(agent, Session("s"), "hi")
    with pytest.raises(AgentError, match=r"/agent answered 30\d, a redirect"):
        agent.describe()

    assert len(server.asked) == 2


packed = st.sampled_from([("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes), (None, bytes)])


@given(packed, st.binary(max_size=3_000), st.lists(st.integers(1, 500), max_size=20), st.integers(1, 4_000))
def test_a_compressed_body_is_read_exactly_or_refused(way: Any, body: bytes, sizes: list[int], limit: int) -> None:
    encoding, pack = way
    data = pack(body)
    unpacker, found = Unpacker(encoding, limit), b""
    try:
        for size in [*sizes, len(data)]:
            found += unpacker.feed(data[:size])
            data = data[size:]
    except FormatError:
        assert len(body) > limit
    else:
        assert found == body
    assert len(found) <= limit


@given(st.sampled_from(["gzip", "deflate"]), st.binary(max_size=500))
def test_an_uncompressed_body_with_an_encoding_stays_within_the_limit(encoding: str, data: bytes) -> None:
    with suppress(FormatError):
        assert len(Unpacker(encoding, 100).feed(data)) <= 100


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(1, 7))
def test_lines_do_not_depend_on_the_chunks(lines: list[bytes], size: int) -> None:
    data = b"\n".join(lines)
    cutter = LineCutter()

    found = [line for start in range(0, len(data), size) for line in cutter.feed(data[start : start + size])]

    assert [*found, *cutter.last_lines()] == [line for line in lines if line.strip()]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=5), values, max_size=4),
    max_leaves=8,
)
KEYS = (
    "text",
    "name",
    "args",
    "id",
    "result",
    "cost",
    "tokens_in",
    "code",
    "message",
    "state",
    "duration_ms",
    "author",
)


@given(
    st.sampled_from(["message", "log", "tool_call", "tool_result", "usage", "error", "state"]),
    st.dictionaries(st.sampled_from(KEYS), json_values),
)
def test_any_json_is_an_event_or_a_named_error(kind: str, fields: dict[str, Any]) -> None:
    with suppress(AgentError, BadNumberError):
        assert all(isinstance(event, Event) for event in read_events({"kind": kind, **fields}, Session("s"), "a"))


def _quoted(text: str) -> str:
    return json.dumps(text)
