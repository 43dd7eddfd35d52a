"""Doubles and denials at the model requests of agents without an adapter, for each API and way of the wire."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Answer, Endpoint, chunks, completion
from tests.agents.installed import skip_without
from tests.agents.test_child_processes import ONCE
from tests.agents.test_unrecorded_calls import AIOHTTP, FRAMES, READS, TOOL, WAYS, in_chunks
from tests.agents.test_wire_calls import HEAD, LOOP, TOLD, story

from evaldesk.agents import load_agent
from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, JsonValue, Limits, TrialResult, TrialSpec, Turn
from evaldesk.model.evalset import DECISIONS
from evaldesk.model.options import Recording
from evaldesk.transcripts.answered_calls import without_calls

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

ORDER = ("c1", "get_order", '{"order": "A7"}')
USER = ("c2", "get_user", "{}")
DOUBLED: JsonValue = {"tools": {"get_order": [{"result": "lost"}]}}

# What the agent's client holds at the end of a turn, beside what is recorded.
TRACKED = LOOP.replace(
    "            return answer.content", "            seen.append(messages)\n            return answer.content"
)
SEEN = "seen = []\n" + TRACKED
STREAMED = """
def root_agent(message):
    messages = [{"role": "user", "content": message}]
    while True:
        calls, text = {}, ""
        for chunk in client.chat.completions.create(model="small", messages=messages, stream=True):
            for choice in chunk.choices:
                text += choice.delta.content or ""
                for part in choice.delta.tool_calls or ():
                    call = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
                    call["name"] += part.function.name or ""
                    call["arguments"] += part.function.arguments or ""
        if not calls:
            return text
        tool_calls = [
            {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
            for c in calls.values()
        ]
        messages.append({"role": "assistant", "content": text, "tool_calls": tool_calls})
        messages += [{"role": "tool", "tool_call_id": c["id"], "content": "on its way"} for c in tool_calls]
"""
ASYNC = """
from openai import AsyncOpenAI

async def root_agent(message):
    own = AsyncOpenAI(base_url=str(client.base_url), api_key="k")
    messages = [{"role": "user", "content": message}]
    while True:
        answer = (await own.chat.completions.create(model="small", messages=messages)).choices[0].message
        if not answer.tool_calls:
            return answer.content
        messages.append(answer.model_dump(exclude_none=True))
        messages += [result(call, "on its way") for call in answer.tool_calls]
"""


def trial_spec(ref: AgentRef, *queries: str, **extra: Any) -> TrialSpec:
    case = Case("c", tuple(map(Turn, queries or ("Where is A7?",))), extra=extra)
    return TrialSpec(1, 0, 0, case, ref, limits=Limits(60))


@pytest.fixture
def play(endpoint: Endpoint, loaded: Any) -> Callable[..., Any]:
    skip_without("openai")

    async def play(source: str, *queries: str, doubles: JsonValue = DOUBLED, **extra: Any) -> TrialResult:
        agent = loaded((HEAD + source).replace("{address}", endpoint.address))
        if doubles is not None:
            extra["tool_doubles"] = doubles
        return await play_trial(agent, trial_spec(AgentRef("a", "some_agent.agent:root_agent"), *queries, **extra))

    return play


def roles(request: dict[str, Any]) -> list[str]:
    return [message["role"] for message in request["messages"]]


def notes(result: TrialResult, author: str) -> list[str]:
    return [event.text for turn in result.transcript.turns for event in turn.events if event.author == author]


@pytest.mark.parametrize("source", [SEEN, ASYNC, STREAMED], ids=["a client that blocks", "on a loop", "streamed"])
async def test_the_model_reads_the_double_and_the_client_never_sees_the_call(
    source: str, endpoint: Endpoint, play: Any
) -> None:
    if source == STREAMED:
        parts = {"index": 0, "id": "c1", "type": "function", "function": {"name": "get_order", "arguments": ""}}
        more = {"index": 0, "function": {"arguments": ORDER[2]}}
        stream = chunks({"role": "assistant", "tool_calls": [parts]}, {"tool_calls": [more]})
        endpoint.answers.append(Answer(stream=stream))
        endpoint.streams("It is", " lost.")
    else:
        endpoint.says("", ORDER).says("It is lost.")

    result = await play(source)

    assert result.error is None
    [turn] = result.transcript.turns
    assert story(turn) == [("get_order", {"order": "A7"}), "lost", "It is lost."]
    assert notes(result, "double") == ["get_order was answered by a double of the case (answer 1)"]
    assert len(turn.usages) == len(endpoint.asked) == 2
    assert endpoint.asked[1]["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "lost"}
    if source == SEEN:
        assert [each["role"] for each in sys.modules["some_agent.agent"].seen[0]] == ["system", "user"]


async def test_a_call_beside_a_doubled_one_goes_to_the_client_alone(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ORDER, USER).says("Done.")

    result = await play(LOOP)

    [turn] = result.transcript.turns
    assert result.error is None
    assert [call.name for call in turn.tool_calls] == ["get_order", "get_user"]
    results = {event.call.name: event.result for event in turn.events if event.kind == "tool_result" and event.call}
    assert results == {"get_order": "lost", "get_user": "on its way"}
    assistant, first, second = endpoint.asked[1]["messages"][-3:]
    assert {call["id"] for call in assistant["tool_calls"]} == {first["tool_call_id"], second["tool_call_id"]}


MEMORY = """
messages = []

def root_agent(message):
    messages.append({"role": "user", "content": message})
    while True:
        answer = ask(messages)
        messages.append(answer.model_dump(exclude_none=True))
        if not answer.tool_calls:
            return answer.content
        messages.extend(result(call, "on its way") for call in answer.tool_calls)
"""


async def test_later_requests_hold_the_calls_that_the_client_never_saw(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ORDER).says("", USER).says("It is lost.").says("Bye.")

    result = await play(MEMORY, "Where is A7?", "Thanks.")

    assert result.error is None
    called, answered = ["assistant", "tool"], ["assistant"]
    assert roles(endpoint.asked[3]) == ["user", *called, *called, *answered, "user"]
    assert [len(turn.tool_calls) for turn in result.transcript.turns] == [2, 0]


FORGETFUL = """
def root_agent(message):
    return ask([{"role": "user", "content": "same"}]).content
"""


async def test_an_agent_that_begins_anew_is_asked_anew(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ORDER).says("Lost.").says("", ORDER).says("Lost again.")

    result = await play(FORGETFUL, "one", "two")

    assert [roles(request) for request in endpoint.asked] == [["user"], ["user", "assistant", "tool"]] * 2
    assert [len(turn.tool_calls) for turn in result.transcript.turns] == [1, 1]


@pytest.mark.parametrize(
    ("doubles", "words"),
    [
        ({"tools": {"get_order": [{"args": {"order": "B8"}, "result": 1}]}}, "no double for get_order"),
        ({"tools": {"get_order": [{"result": 1}]}}, "100 calls"),
    ],
    ids=["a call that fits no answer", "a model that never ends"],
)
async def test_a_call_without_a_double_ends_the_trial_at_once(
    doubles: JsonValue, words: str, endpoint: Endpoint, play: Any
) -> None:
    for _ in range(101):
        endpoint.says("", ORDER)

    result = await play(LOOP, doubles=doubles)

    assert (result.status, result.error and result.error.kind) == ("errored", "no_double")
    assert words in str(result.error)


async def test_an_answer_in_the_shape_of_a_call_has_no_double(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ("c1", "final_answer", '{"answer": "yes"}'))
    source = "\ndef root_agent(message):\n    return ask([{'role': 'user', 'content': message}]).tool_calls[0].id\n"

    result = await play(source, doubles={"unmatched": "refuse"})

    assert result.error is None
    assert (result.transcript.turns[0].answer, len(endpoint.asked)) == ("c1", 1)


async def test_a_demanded_function_is_demanded_once(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", USER).says("Done.")
    choice = "ask(messages, tool_choice={'type': 'function', 'function': {'name': 'get_order'}})"

    result = await play(LOOP.replace("ask(messages)", choice), doubles={"tools": {"get_user": [{"result": "Ann"}]}})

    assert result.error is None
    assert [request["tool_choice"] for request in endpoint.asked] == [
        {"type": "function", "function": {"name": "get_order"}},
        "auto",
    ]


async def test_a_call_that_fails_and_is_sent_again_uses_its_double_once(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ORDER).fails(500).says("Lost.")

    result = await play(LOOP, doubles={"tools": {"get_order": [{"result": "lost", "times": 1}]}})

    assert result.error is None
    assert story(result.transcript.turns[0]) == [("get_order", {"order": "A7"}), "lost", "Lost."]


async def test_calls_that_the_agent_tells_and_the_double_answers_are_one(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", USER).says("", ORDER).says("Lost.")

    result = await play(TOLD)

    assert result.error is None
    assert [call.name for call in result.transcript.turns[0].tool_calls] == ["get_user", "get_order"]


WAIT_FOR_CALLS = """
def root_agent(message):
    messages = [{"role": "user", "content": message}]
    while (answer := ask(question_of(messages))).get("tool_calls"):
        messages = with_result(messages, answer)
    return answer["content"]
"""
AIOHTTP_WAITS = AIOHTTP.partition("async def root_agent")[0] + WAIT_FOR_CALLS.replace(
    "def root", "async def root"
).replace("ask(", "await ask(")
CLIENTS = {name: TOOL + way + WAIT_FOR_CALLS for name, way in WAYS.items()} | {
    f"aiohttp, {name}": TOOL + AIOHTTP_WAITS.replace("{read}", read) for name, read in READS.items()
}
OF_CLIENTS = [
    pytest.param(source, frame, id=f"{name}, {kind}")
    for name, source in CLIENTS.items()
    for kind, frame in FRAMES.items()
    if not (frame is in_chunks and "aiohttp" in name)
]


@pytest.mark.parametrize(("source", "frame"), OF_CLIENTS)
async def test_clients_of_other_libraries_read_the_answer_after_the_double(
    source: str, frame: Any, endpoint: Endpoint, play: Any
) -> None:
    answers = (completion("", ORDER), completion("", USER), completion("It is lost."))
    endpoint.answers += [frame(Answer(answer)) for answer in answers]

    result = await play(source)

    assert result.error is None
    [turn] = result.transcript.turns
    steps = [(each.kind, each.call.name, each.result) for each in turn.events if each.call]
    assert steps == [
        ("tool_call", "get_order", None),
        ("tool_result", "get_order", "lost"),
        ("tool_call", "get_user", None),
        ("tool_result", "get_user", "It is on its way."),
    ]
    assert turn.answer == "It is lost."
    assert [(each.tokens_in, each.tokens_out, each.is_least) for each in turn.usages] == [(11, 5, False)] * 3
    assert [roles(request)[-1] for request in endpoint.asked] == ["user", "tool", "tool"]
    assert [len(request["messages"]) for request in endpoint.asked] == [1, 3, 5]


@pytest.mark.parametrize("name", ["requests", "urllib", "http.client", "aiohttp, json"])
async def test_a_refused_request_reaches_a_client_of_another_library(name: str, endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ORDER)
    endpoint.answers.append(Answer({"choices": [{"message": {"content": "no more"}}]}, status=429))

    result = await play(CLIENTS[name])

    assert len(endpoint.asked) == 2
    if name == "urllib":
        assert "HTTP Error 429" in str(result.error)
    else:
        assert (result.error, result.transcript.turns[0].answer) == (None, "no more")


async def test_a_connection_that_fails_is_the_same_failure_with_doubles(play: Any) -> None:
    result = await play(CLIENTS["urllib"].replace("{address}", "http://127.0.0.1:9/v1"))

    assert "URLError" in str(result.error)


TELLS = """
from evaldesk import Event, ToolCall

def root_agent(message):
    yield Event("tool_call", call=ToolCall("get_order", {}))
    yield "It comes."
"""


async def test_a_call_past_its_double_is_an_error_and_no_evidence(play: Any) -> None:
    result = await play(TELLS)

    assert (result.status, result.error and result.error.kind) == ("errored", "no_double")
    assert "get_order was called past its double" in str(result.error)


DENY = [{"tool": "get_order", "decision": "deny", "reason": "Not today."}]


async def test_a_call_that_the_case_denies_is_refused_to_the_model(endpoint: Endpoint, play: Any) -> None:
    endpoint.says("", ORDER).says("I may not.")

    result = await play(LOOP, doubles=None, **{DECISIONS: DENY})

    [turn] = result.transcript.turns
    assert story(turn) == [("get_order", {"order": "A7"}), "Error: Not today.", "I may not."]
    assert notes(result, "case") == ["get_order was refused to the model, as the case decides; the agent asked nobody"]


@pytest.mark.parametrize(
    ("source", "decisions"),
    [
        (LOOP.replace("(message)", "(message, decisions)"), DENY),
        (LOOP, [{"tool": "get_order", "decision": "approve"}]),
    ],
    ids=["an agent that waits for a person", "an approval"],
)
async def test_no_other_decision_is_made_at_the_model(
    source: str, decisions: Any, endpoint: Endpoint, play: Any
) -> None:
    endpoint.says("", ORDER).says("It comes.")

    result = await play(source, doubles=None, **{DECISIONS: decisions})

    assert story(result.transcript.turns[0]) == [("get_order", {"order": "A7"}), "on its way", "It comes."]


async def test_a_recorded_trial_with_doubles_is_replayed(endpoint: Endpoint, loaded: Any, tmp_path: Path) -> None:
    skip_without("openai")
    endpoint.says("", ORDER).says("It is lost.")
    agent = loaded((HEAD + LOOP).replace("{address}", endpoint.address))
    spec = trial_spec(AgentRef("a", "some_agent.agent:root_agent"), tool_doubles=DOUBLED)

    results = [
        await play_trial(agent, TrialSpec(**{**_fields(spec), "recording": Recording(mode, str(tmp_path / "r"))}))
        for mode in ("record", "replay")
    ]

    assert [result.error for result in results] == [None, None]
    first, again = [story(result.transcript.turns[0]) for result in results]
    assert first == again == [("get_order", {"order": "A7"}), "lost", "It is lost."]
    assert len(endpoint.asked) == 2


def _fields(spec: TrialSpec) -> dict[str, Any]:
    return {name: getattr(spec, name) for name in spec.__dataclass_fields__}


RUN = """
import subprocess, sys

def root_agent(message):
    return subprocess.run([sys.executable, "-S", {script!r}, message], capture_output=True, text=True).stdout
"""
COMMAND = """
import json, sys
sys.argv = ["x", ""]
exec({source!r})
for line in sys.stdin:
    print(json.dumps({{"kind": "message", "text": solve(json.loads(line)["message"])}}))
    print(json.dumps({{"kind": "done"}}), flush=True)
"""


@pytest.mark.parametrize("is_command", [False, True], ids=["a process of a function", "a command with a gateway"])
async def test_doubles_hold_at_the_gateway(
    is_command: bool, endpoint: Endpoint, loaded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint.says("", ORDER, USER).says("", ("c3", *ORDER[1:])).says("It is lost.")
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.address)
    script = tmp_path / "script.py"
    script.write_text(COMMAND.format(source=ONCE.rpartition("print(")[0]) if is_command else ONCE)
    ref = AgentRef("a", "some_agent.agent:root_agent")
    if is_command:
        options = json.dumps({"model_gateway": True})
        ref = AgentRef("cmd", f"{sys.executable} -S script.py", str(tmp_path), kind="command", declared=options)
    agent = load_agent(ref) if is_command else loaded(RUN.format(script=str(script)))

    result = await play_trial(agent, trial_spec(ref, tool_doubles=DOUBLED))

    assert result.error is None
    [turn] = result.transcript.turns
    assert [call.name for call in turn.tool_calls] == ["get_order", "get_user", "get_order"]
    results = [(event.call.name, event.result) for event in turn.events if event.kind == "tool_result" and event.call]
    assert sorted(results) == [("get_order", "lost"), ("get_order", "lost"), ("get_user", "on its way")]
    assert (turn.answer, len(turn.usages), len(notes(result, "double"))) == ("It is lost.", 3, 2)


def _sse(*values: Any) -> bytes:
    return b"".join(b"event: %s\ndata: %s\n\n" % (v.get("type", "x").encode(), json.dumps(v).encode()) for v in values)


CHAT = {"choices": [{"message": {"tool_calls": [{"id": "a"}, {"id": "b"}]}}]}
CHAT_STREAM = _sse(
    {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "a"}]}}]},
    {"choices": [{"delta": {"tool_calls": [{"index": 1, "id": "b"}]}}]},
)
RESPONSE = {
    "output": [{"type": "reasoning"}, {"type": "function_call", "id": "a"}, {"type": "function_call", "id": "b"}]
}
RESPONSE_STREAM = _sse(
    {"type": "response.output_item.added", "output_index": 1, "item": RESPONSE["output"][1]},
    {"type": "response.output_item.added", "output_index": 2, "item": RESPONSE["output"][2]},
    {"type": "response.completed", "response": RESPONSE},
)
BLOCKS = [{"type": "text"}, {"type": "tool_use", "id": "a"}, {"type": "tool_use", "id": "b"}]
ANTHROPIC_STREAM = _sse(
    *({"type": "content_block_start", "index": at, "content_block": block} for at, block in enumerate(BLOCKS)),
    {"type": "content_block_stop", "index": 2},
)
PARTS = [{"functionCall": {"name": "a"}, "thoughtSignature": "s"}, {"functionCall": {"name": "b"}}]
GEMINI = {"candidates": [{"content": {"parts": PARTS}}]}


@pytest.mark.parametrize(
    ("api", "answer", "wanted"),
    [
        ("chat", json.dumps(CHAT).encode(), {"choices": [{"message": {"tool_calls": [{"id": "b"}]}}]}),
        (
            "chat",
            CHAT_STREAM,
            [{"choices": [{"delta": {}}]}, {"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "b"}]}}]}],
        ),
        ("responses", json.dumps(RESPONSE).encode(), {"output": [RESPONSE["output"][0], RESPONSE["output"][2]]}),
        (
            "responses",
            RESPONSE_STREAM,
            [
                {"type": "response.output_item.added", "output_index": 1, "item": RESPONSE["output"][2]},
                {"type": "response.completed", "response": {"output": [RESPONSE["output"][0], RESPONSE["output"][2]]}},
            ],
        ),
        ("messages", json.dumps({"content": BLOCKS}).encode(), {"content": [BLOCKS[0], BLOCKS[2]]}),
        (
            "messages",
            ANTHROPIC_STREAM,
            [
                {"type": "content_block_start", "index": 0, "content_block": BLOCKS[0]},
                {"type": "content_block_start", "index": 1, "content_block": BLOCKS[2]},
                {"type": "content_block_stop", "index": 1},
            ],
        ),
        (
            "generate",
            json.dumps(GEMINI).encode(),
            {"candidates": [{"content": {"parts": [{"functionCall": {"name": "b"}, "thoughtSignature": "s"}]}}]},
        ),
    ],
    ids=["chat", "chat stream", "responses", "responses stream", "messages", "messages stream", "generate"],
)
def test_the_first_of_two_calls_leaves_an_answer_of_each_api(api: Any, answer: bytes, wanted: Any) -> None:
    text = without_calls(api, answer, {0}).decode()

    is_stream = answer.startswith(b"event")
    left = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: ")]
    assert (left if is_stream else json.loads(text)) == wanted


GOOGLE = """
from google import genai
from google.genai import types

client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url="{address}"))
TOOLS = [types.Tool(function_declarations=[types.FunctionDeclaration(name="get_order")])]
config = types.GenerateContentConfig(
    tools=TOOLS, automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
)

async def root_agent(message):
    if message == "on a loop":
        return (await client.aio.models.generate_content(model="small", contents=message, config=config)).text
    if message == "streamed":
        chunks = client.models.generate_content_stream(model="small", contents=message, config=config)
        return "".join(chunk.text or "" for chunk in chunks)
    return client.models.generate_content(model="small", contents=message, config=config).text
"""


@pytest.mark.filterwarnings("ignore")  # what Google's client warns of is not ours
@pytest.mark.parametrize("message", ["blocking", "on a loop", "streamed"])
async def test_the_client_of_google_never_sees_the_call(message: str, endpoint: Endpoint, loaded: Any) -> None:
    skip_without("google.genai")
    call = {"functionCall": {"name": "get_order", "args": {"order": "A7"}}}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 5}
    for part in (call, {"text": "It is lost."}):
        body = {"candidates": [{"content": {"role": "model", "parts": [part]}}], "usageMetadata": usage}
        stream = Answer(raw=f"data: {json.dumps(body)}\n\n".encode(), headers={"content-type": "text/event-stream"})
        endpoint.answers.append(stream if message == "streamed" else Answer(body))
    agent = loaded(GOOGLE.replace("{address}", endpoint.address.removesuffix("/v1")))
    ref = AgentRef("a", "some_agent.agent:root_agent")

    result = await play_trial(agent, trial_spec(ref, message, tool_doubles=DOUBLED))

    assert result.error is None
    [turn] = result.transcript.turns
    assert story(turn) == [("get_order", {"order": "A7"}), {"result": "lost"}, "It is lost."]
    response = {"functionResponse": {"name": "get_order", "response": {"result": "lost"}}}
    assert endpoint.asked[1]["contents"][-1] == {"role": "user", "parts": [response]}


BY_LITELLM = """
import litellm

async def root_agent(message):
    options = {"model": "hosted_vllm/small", "api_base": "{address}", "api_key": "k", "num_retries": 0}
    messages = [{"role": "user", "content": message}]
    answer = await litellm.acompletion(messages=messages, **options)
    messages += [answer.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "And now?"}]
    return litellm.completion(messages=messages, **options).choices[0].message.content
"""


@pytest.mark.filterwarnings("ignore")  # what LiteLLM warns of is not ours
async def test_a_function_that_asks_by_litellm_has_doubles(endpoint: Endpoint, loaded: Any) -> None:
    endpoint.says("", ORDER).says("It is lost.").says("Still lost.")
    agent = loaded(BY_LITELLM.replace("{address}", endpoint.address))

    result = await play_trial(agent, trial_spec(AgentRef("a", "some_agent.agent:root_agent"), tool_doubles=DOUBLED))

    assert result.error is None
    assert story(result.transcript.turns[0]) == [("get_order", {"order": "A7"}), "lost", "Still lost."]
    assert roles(endpoint.asked[2]) == ["user", "assistant", "tool", "assistant", "user"]
