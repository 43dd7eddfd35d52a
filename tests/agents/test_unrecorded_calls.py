"""Model requests of `requests`, `urllib`, urllib3 and aiohttp are counted and read, however their answer is read."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from tests.agents.endpoint import Answer, Endpoint, completion

from evaldesk.model import Session, TurnRecord

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

TOOL = """
TOOLS = [{"type": "function", "function": {"name": "get_order", "parameters": {"type": "object", "properties": {}}}}]

def question_of(messages, **more):
    return {"model": "small", "messages": messages, "tools": TOOLS, **more}

def with_result(messages, message):
    call = message["tool_calls"][0]
    return [*messages, message, {"role": "tool", "tool_call_id": call["id"], "content": "It is on its way."}]
"""
LOOP = """
def root_agent(message):
    messages = [{"role": "user", "content": message}]
    answer = ask(question_of(messages))
    return ask(question_of(with_result(messages, answer)))["content"]
"""
REQUESTS = (
    "import requests\n\ndef ask(question):\n    answer = requests.post('{address}/chat/completions', json=question)\n"
)
WAYS = {
    "requests": REQUESTS + "    return answer.json()['choices'][0]['message']\n",
    "a session of requests, in pieces": """
import json, requests
session = requests.Session()

def ask(question):
    with session.post("{address}/chat/completions", json=question, stream=True) as answer:
        return json.loads(b"".join(answer.iter_content(7)))["choices"][0]["message"]
""",
    "urllib": """
import gzip, json
from urllib.request import Request, urlopen

def ask(question):
    request = Request("{address}/chat/completions", json.dumps(question).encode(), {"content-type": "application/json"})
    with urlopen(request) as answer:
        data = answer.read()
        is_compressed = answer.headers.get("content-encoding") == "gzip"
    return json.loads(gzip.decompress(data) if is_compressed else data)["choices"][0]["message"]
""",
    "urllib3": """
import json, urllib3
pool = urllib3.PoolManager()

def ask(question):
    answer = pool.request("POST", "{address}/chat/completions", json=question, preload_content=False)
    return json.loads(b"".join(answer.read_chunked() if answer.chunked else answer))["choices"][0]["message"]
""",
    "http.client": """
import gzip, http.client, json
from urllib.parse import urlsplit

def ask(question):
    connection = http.client.HTTPConnection(urlsplit("{address}").netloc)
    connection.request("POST", "/v1/chat/completions", json.dumps(question), {"content-type": "application/json"})
    answer, buffer, data = connection.getresponse(), bytearray(11), b""
    while n := answer.readinto(buffer):
        data += buffer[:n]
    connection.close()
    data = gzip.decompress(data) if answer.getheader("content-encoding") else data
    return json.loads(data)["choices"][0]["message"]
""",
}
AIOHTTP = """
import aiohttp, json

async def ask(question):
    async with aiohttp.ClientSession() as session, session.post("{address}/chat/completions", json=question) as answer:
        {read}

async def root_agent(message):
    messages = [{"role": "user", "content": message}]
    answer = await ask(question_of(messages))
    return (await ask(question_of(with_result(messages, answer))))["content"]
"""
MESSAGE = "['choices'][0]['message']"
READS = {
    "json": f"return (await answer.json()){MESSAGE}",
    "lines": f"return json.loads(b''.join([line async for line in answer.content])){MESSAGE}",
    "chunks": f"return json.loads(b''.join([part async for part, _ in answer.content.iter_chunks()])){MESSAGE}",
    "pieces": f"return json.loads(b''.join([part async for part in answer.content.iter_chunked(5)])){MESSAGE}",
}
FUNCTIONS = {name: TOOL + way + LOOP for name, way in WAYS.items()} | {
    f"aiohttp, {name}": TOOL + AIOHTTP.replace("{read}", read) for name, read in READS.items()
}


def plain(answer: Answer) -> Answer:
    return answer


def with_length(answer: Answer) -> Answer:
    return Answer(raw=_raw(answer), headers={"content-length": str(len(_raw(answer)))})


def compressed(answer: Answer) -> Answer:
    return Answer(raw=gzip.compress(_raw(answer)), headers={"content-encoding": "gzip"})


def in_chunks(answer: Answer) -> Answer:
    data = _raw(answer)
    parts = [data[at : at + 50] for at in range(0, len(data), 50)]
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return Answer(raw=body + b"0\r\n\r\n", headers={"transfer-encoding": "chunked"})


def _raw(answer: Answer) -> bytes:
    return json.dumps(answer.body).encode()


FRAMES = {"to the end": plain, "with a length": with_length, "compressed": compressed, "in chunks": in_chunks}


def counted(turn: TurnRecord) -> list[tuple[int, int, bool]]:
    return [(usage.tokens_in, usage.tokens_out, usage.is_least) for usage in turn.usages]


# aiohttp reads no chunks of HTTP/1.0, as which the endpoint answers.
PAIRS = [
    pytest.param(source, frame, id=f"{name}, {kind}")
    for name, source in FUNCTIONS.items()
    for kind, frame in FRAMES.items()
    if not (frame is in_chunks and "aiohttp" in name)
]


@pytest.mark.parametrize(("source", "frame"), PAIRS)
async def test_calls_results_and_tokens_are_seen(
    source: str, frame: Any, endpoint: Endpoint, loaded: Any, played: Any
) -> None:
    answers = (completion("", ("c1", "get_order", '{"id": 7}')), completion("It comes."))
    endpoint.answers += [frame(Answer(answer)) for answer in answers]

    turn = await played(loaded(source.replace("{address}", endpoint.address)), Session("s"), "hi")

    assert (turn.answer, turn.error) == ("It comes.", None)
    assert len(endpoint.asked) == 2
    assert counted(turn) == [(11, 5, False)] * 2
    steps = [(each.kind, each.call.name, each.call.args, each.result) for each in turn.events if each.call]
    assert steps == [
        ("tool_call", "get_order", {"id": 7}, None),
        ("tool_result", "get_order", {"id": 7}, "It is on its way."),
    ]


STREAM_OF_REQUESTS = """
import json, requests

def root_agent(message):
    question = {"model": "small", "messages": [{"role": "user", "content": message}], "stream": True}
    answer = requests.post("{address}/chat/completions", json=question, stream=True)
    texts = []
    for line in answer.iter_lines():
        if line == b"data: [DONE]":
            break
        if line:
            texts += [each["delta"].get("content") or "" for each in json.loads(line[6:])["choices"]]
    answer.close()
    return "".join(texts)
"""
STREAM_OF_AIOHTTP = """
import aiohttp, json

async def root_agent(message):
    question = {"model": "small", "messages": [{"role": "user", "content": message}], "stream": True}
    texts = []
    async with aiohttp.ClientSession() as session, session.post("{address}/chat/completions", json=question) as answer:
        async for line in answer.content:
            if line.strip() == b"data: [DONE]":
                break
            if line.strip():
                texts += [each["delta"].get("content") or "" for each in json.loads(line[6:])["choices"]]
    return "".join(texts)
"""
STREAMS = {"requests": STREAM_OF_REQUESTS, "aiohttp": STREAM_OF_AIOHTTP}
BREAK = {"requests": ("if line:", "if line:\n            return 'hel'\n        if line:")}
BREAK["aiohttp"] = ("if line.strip():", "if line.strip():\n                return 'hel'\n            if line.strip():")


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_that_is_left_at_its_end_mark_is_counted(
    name: str, endpoint: Endpoint, loaded: Any, played: Any
) -> None:
    endpoint.streams("hel", "lo")

    turn = await played(loaded(STREAMS[name].replace("{address}", endpoint.address)), Session("s"), "hi")

    assert (turn.answer, counted(turn)) == ("hello", [(11, 5, False)])


@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_that_is_not_read_to_its_end_makes_the_usage_a_lower_bound(
    name: str, endpoint: Endpoint, loaded: Any, played: Any
) -> None:
    endpoint.streams(*["word "] * 20_000)
    source = STREAMS[name].replace(*BREAK[name])

    turn = await played(loaded(source.replace("{address}", endpoint.address)), Session("s"), "hi")

    assert turn.answer == "hel"
    assert [usage.is_least for usage in turn.usages] == [True]


@pytest.mark.parametrize("name", ["requests", "aiohttp, json"])
async def test_a_refused_request_is_a_failed_call(name: str, endpoint: Endpoint, loaded: Any, played: Any) -> None:
    endpoint.fails(500, "broken")

    turn = await played(loaded(FUNCTIONS[name].replace("{address}", endpoint.address)), Session("s"), "hi")

    assert turn.error is not None
    assert not any(usage.tokens_in for usage in turn.usages)


async def test_other_requests_are_left_alone(endpoint: Endpoint, loaded: Any, played: Any) -> None:
    endpoint.gives(b'{"temperature": 21}')
    source = "import requests\n\ndef root_agent(message):\n    return requests.post('{base}/weather', json={}).text\n"

    turn = await played(loaded(source.replace("{base}", endpoint.address)), Session("s"), "hi")

    assert (turn.answer, turn.usages) == ('{"temperature": 21}', ())
