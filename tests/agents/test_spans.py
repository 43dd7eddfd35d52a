"""Agents that tell nothing themselves: their OpenTelemetry and OpenInference spans become the events of the turn."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without

from evaldesk.agents.spans import TurnSpans
from evaldesk.formats.otel import read_traces
from evaldesk.model import Event, Session, ToolCall, TurnRecord
from evaldesk.transcripts.otel.spans import read_spans

pytestmark = pytest.mark.anyio
with_sdk = pytest.mark.usefixtures("sdk")

# Its spans are those that a framework writes: an agent around two model calls and a tool.
HEAD = """
import json
import time

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("a-framework")

def text(role, content):
    return {"role": role, "parts": [{"type": "text", "content": content}]}

def model(asked, answered, tokens_in, tokens_out):
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps(answered),
        "gen_ai.usage.input_tokens": tokens_in,
        "gen_ai.usage.output_tokens": tokens_out,
    }
    with tracer.start_as_current_span("chat small", attributes=attributes):
        pass

def tool(name, args, result, inner=None):
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": name,
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": json.dumps(args),
        "gen_ai.tool.call.result": json.dumps(result),
    }
    with tracer.start_as_current_span("execute_tool " + name, attributes=attributes):
        if inner:
            inner()

CALL = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c1", "name": "roll", "arguments": {"sides": 6}}]}
GIVEN = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": {"value": 4}}]}

def run(message, inner=None):
    with tracer.start_as_current_span("invoke", attributes={"gen_ai.operation.name": "invoke_agent"}):
        asked = [text("user", message)]
        model(asked, [CALL], 11, 5)
        tool("roll", {"sides": 6}, {"value": 4}, inner)
        model([*asked, CALL, GIVEN], [text("assistant", "A four.")], 20, 7)
    return "A four."
"""
PLAIN = HEAD + "\ndef root_agent(message):\n    return run(message)\n"
STORY = [
    ("usage", 16),
    ("tool_call", "roll"),
    ("tool_result", {"value": 4}),
    ("usage", 27),
    ("agent_message", "A four."),
]


def story(turn: TurnRecord) -> list[tuple[str, Any]]:
    """The events as short words: tokens, names of tools, results and texts."""

    def said(event: Event) -> Any:
        if event.usage:
            return event.usage.tokens_in + event.usage.tokens_out
        if event.kind == "tool_call" and event.call:
            return event.call.name
        return event.result if event.kind == "tool_result" else event.text

    return [(event.kind, said(event)) for event in turn.events if event.kind not in ("user_message", "state_delta")]


@pytest.fixture(autouse=True)
def sdk() -> None:
    skip_without("opentelemetry.sdk")


async def test_spans_become_model_calls_tokens_tool_calls_and_results(loaded: Any, played: Any) -> None:
    turn = await played(loaded(PLAIN), Session("s"), "Roll.")

    assert story(turn) == STORY
    assert turn.captures == ("told", "spans")
    assert turn.tool_calls[0].args == {"sides": 6}
    assert [event.at_ms for event in turn.events] == sorted(event.at_ms for event in turn.events)


async def test_a_played_turn_equals_an_import_of_its_spans(loaded: Any, played: Any) -> None:
    agent = loaded(
        PLAIN + "\n\ndef spans():\n    return [json.loads(span.to_json()) for span in exporter.get_finished_spans()]\n"
    )

    turn = await played(agent, Session("s"), "Roll.")

    spans = agent.code.__globals__["spans"]()
    imported = read_traces("otel", json.dumps(spans).encode(), "t.json").runs[0].results[0].transcript.turns
    assert len(imported) == 1
    assert story(turn) == story(imported[0])
    assert turn.tool_calls == imported[0].tool_calls
    assert [usage.model for usage in turn.usages] == [usage.model for usage in imported[0].usages]


async def test_messages_of_earlier_turns_in_a_request_are_not_repeated(loaded: Any, played: Any) -> None:
    source = (
        HEAD
        + """
def root_agent(message, session):
    asked = [text("user", "Roll."), CALL, GIVEN, text("assistant", "A four."), text("user", message)]
    with tracer.start_as_current_span("invoke", attributes={"gen_ai.operation.name": "invoke_agent"}):
        model(asked, [text("assistant", "It is even.")], 30, 3)
    return "It is even."
"""
    )

    turn = await played(loaded(source), Session("s"), "Is it even?")

    assert story(turn) == [("usage", 33), ("agent_message", "It is even.")]


async def test_events_reported_by_the_agent_are_not_repeated_from_spans(loaded: Any, played: Any) -> None:
    source = (
        HEAD
        + """
from evaldesk import Event, ToolCall, Usage

def root_agent(message):
    answer = run(message)
    call = ToolCall("roll", {"sides": 6})
    yield Event("usage", usage=Usage("small", tokens_in=11, tokens_out=5))
    yield Event("tool_call", call=call)
    yield Event("tool_result", call=call, result={"value": 4})
    yield answer
"""
    )

    turn = await played(loaded(source), Session("s"), "Roll.")

    assert sorted(map(str, story(turn))) == sorted(map(str, STORY))
    assert len(turn.tool_calls) == 1


async def test_calls_in_requests_and_spans_count_once(endpoint: Endpoint, loaded: Any, played: Any) -> None:
    skip_without("openai")
    endpoint.says("A four.").says("Unseen.")
    source = (
        HEAD
        + f"""
from openai import OpenAI

def root_agent(message):
    client = OpenAI(base_url="{endpoint.address}", api_key="k")
    for n in range(2):
        found = client.chat.completions.create(model="small", messages=[{{"role": "user", "content": "hi"}}])
        if n == 0:
            spent = found.usage.prompt_tokens, found.usage.completion_tokens
            model([text("user", message)], [text("assistant", "A four.")], *spent)
    return "A four."
"""
    )

    turn = await played(loaded(source), Session("s"), "Roll.")

    assert len(endpoint.asked) == 2 == len(turn.usages)
    assert turn.captures == ("told", "spans", "gateway")


async def test_tokens_inside_a_tool_count_and_its_calls_belong_to_the_tool(loaded: Any, played: Any) -> None:
    source = (
        HEAD
        + """
def root_agent(message):
    return run(message, lambda: model([text("user", "x")], [CALL], 100, 1))
"""
    )

    turn = await played(loaded(source), Session("s"), "Roll.")

    assert len(turn.tool_calls) == 1
    assert sorted(usage.tokens_in for usage in turn.usages) == [11, 20, 100]
    assert [event.within for event in turn.events if event.usage and event.usage.tokens_in == 100] == ["roll"]


async def test_spans_of_concurrent_turns_are_separate(loaded: Any, played: Any) -> None:
    import asyncio

    source = (
        HEAD
        + """
import asyncio, threading
from opentelemetry import context

async def root_agent(message):
    with tracer.start_as_current_span("invoke", attributes={"gen_ai.operation.name": "invoke_agent"}):
        await asyncio.sleep(0.05)
        here = context.get_current()
        def work():
            token = context.attach(here)
            model([text("user", message)], [text("assistant", message)], int(message), 0)
            context.detach(token)
        thread = threading.Thread(target=work)
        thread.start()
        while thread.is_alive():
            await asyncio.sleep(0.01)
    return message
"""
    )
    agent = loaded(source)

    turns = await asyncio.gather(*(played(agent, Session(f"s{n}"), str(n)) for n in range(1, 6)))

    assert [[usage.tokens_in for usage in turn.usages] for turn in turns] == [[n] for n in range(1, 6)]


@pytest.mark.parametrize(("session", "counted"), [("the same", [500]), ("another", [])])
@pytest.mark.parametrize("is_own_trace", [False, True])
async def test_background_work_of_a_turn_counts_in_its_own_session(
    session: str, counted: list[int], is_own_trace: bool, loaded: Any, played: Any
) -> None:
    source = f"""
import contextvars, threading
from opentelemetry import context

go, done = threading.Event(), threading.Event()

def late():
    go.wait()
    if {is_own_trace}:
        context.attach(context.Context())
    model([text("user", "x")], [text("assistant", "y")], 500, 0)
    done.set()

def root_agent(message):
    if message == "first":
        threading.Thread(target=contextvars.copy_context().run, args=(late,)).start()
    else:
        go.set()
        done.wait()
    return "ok"
"""
    agent, first = loaded(HEAD + source), Session("the same")
    await played(agent, first, "first")

    turn = await played(agent, first if session == "the same" else Session(session), "second")

    assert [usage.tokens_in for usage in turn.usages] == counted


async def test_a_framework_without_a_tracer_provider_gets_one(loaded: Any, played: Any) -> None:
    source = HEAD.replace("tracer = provider.get_tracer", "tracer = trace.get_tracer")
    agent = loaded(source + "\ndef root_agent(message):\n    return run(message)\n")

    turn = await played(agent, Session("s"), "Roll.")

    assert story(turn) == STORY


async def test_calls_in_spans_without_messages_are_counted(loaded: Any, played: Any) -> None:
    """Instruments leave out the messages unless they are told otherwise, and not each has a span of the agent."""
    agent = loaded(
        HEAD
        + """
def model(tokens_in):
    with tracer.start_as_current_span("chat small") as span:
        span.set_attribute("gen_ai.operation.name", "chat")
        span.set_attribute("gen_ai.request.model", "small")
        span.set_attribute("gen_ai.usage.input_tokens", tokens_in)
        span.set_attribute("gen_ai.usage.output_tokens", 1)

def root_agent(message):
    model(7)
    tool("roll", {"sides": 6}, {"value": 4})
    with tracer.start_as_current_span("invoke", attributes={"gen_ai.operation.name": "invoke_agent"}):
        model(9)
    return "A four."
"""
    )

    turn = await played(agent, Session("s"), "Roll.")

    assert story(turn) == [
        ("usage", 8),
        ("tool_call", "roll"),
        ("tool_result", {"value": 4}),
        ("usage", 10),
        ("agent_message", "A four."),
    ]
    assert turn.captures == ("told", "spans")


async def test_the_price_lookup_is_not_the_agents_time(
    loaded: Any, played: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def price(*_: object) -> float:
        time.sleep(2)
        return 0.5

    monkeypatch.setattr("evaldesk.llm.costs.price", price)

    turn = await played(loaded(PLAIN), Session("s"), "Roll.")

    assert [usage.cost for usage in turn.usages] == [0.5, 0.5]
    assert turn.duration_ms < 2_000


async def test_an_agent_without_opentelemetry_has_no_span_capture(loaded: Any, played: Any) -> None:
    turn = await played(loaded("def root_agent(message):\n    return message\n"), Session("s"), "hi")

    assert (turn.captures, story(turn)) == (("told",), [("agent_message", "hi")])


# Written by the packages themselves, against an endpoint that answered with a call and then with words.
SAMPLES = Path(__file__).with_name("span_samples")
REAL = {
    "strands-agents-1.62.json": [
        ("usage", 16), ("tool_call", "roll"), ("tool_result", "4"), ("usage", 16), ("agent_message", "A four."),
    ],
    "smolagents-1.26.json": [
        ("usage", 16), ("tool_call", "roll"), ("tool_result", 4),
        ("usage", 16), ("tool_call", "final_answer"), ("tool_result", "A four."),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_spans_of_real_packages_are_equal_when_played_and_imported(name: str) -> None:
    data = SAMPLES.joinpath(name).read_bytes()
    turn = TurnSpans(lambda: time.time() * 1000)
    for span in read_spans(data, name):
        turn.add(span)

    played = TurnRecord("Roll.", turn.events())

    [imported] = read_traces("otel", data, name).runs[0].results[0].transcript.turns
    assert story(played) == story(replace(imported, events=without_system(imported.events))) == REAL[name]
    assert played.tool_calls == imported.tool_calls
    assert played.tool_calls[0] == ToolCall("roll", {"sides": 6}, "c1")


def without_system(events: tuple[Event, ...]) -> tuple[Event, ...]:
    return tuple(event for event in events if event.author != "system")


TOOLS = {
    "AutoGen tells neither arguments nor result": ("execute_tool roll", {"gen_ai.operation.name": "execute_tool"}),
    "DSPy names the method and wraps the arguments": (
        "roll.__call__",
        {"openinference.span.kind": "TOOL", "input.value": '{"kwargs": {"sides": 6}}', "output.value": "4"},
    ),
    "LlamaIndex wraps the result": (
        "roll",
        {
            "openinference.span.kind": "TOOL",
            "tool.name": "roll",
            "input.value": '{"sides": 6}',
            "output.value": json.dumps({"tool_name": "roll", "raw_input": {}, "raw_output": 4, "is_error": False}),
        },
    ),
}


@with_sdk
@pytest.mark.parametrize("name", TOOLS)
async def test_tool_spans_of_each_framework_are_read(name: str, loaded: Any, played: Any, endpoint: Endpoint) -> None:
    span, attributes = TOOLS[name]
    source = f"""
{HEAD}
from openai import OpenAI

def root_agent(message):
    client = OpenAI(base_url="{endpoint.address}", api_key="k")
    asked = [{{"role": "user", "content": message}}]
    found = client.chat.completions.create(model="small", messages=asked).choices[0].message
    with tracer.start_as_current_span({span!r}, attributes={attributes!r}):
        pass
    answered = {{"role": "tool", "tool_call_id": "c1", "content": "4"}}
    asked = [*asked, found.model_dump(exclude_none=True), answered]
    return client.chat.completions.create(model="small", messages=asked).choices[0].message.content
"""
    endpoint.says("", ("c1", "roll", '{"sides": 6}')).says("A four.")

    turn = await played(loaded(source), Session("s"), "Roll.")

    assert (turn.error, turn.answer) == (None, "A four.")
    assert [(call.name, call.args) for call in turn.tool_calls] == [("roll", {"sides": 6})]
    results = [event for event in turn.events if event.kind == "tool_result" and event.call]
    assert [(str(event.result), event.call.args) for event in results if event.call] == [("4", {"sides": 6})]
    assert [(usage.tokens_in, usage.is_least) for usage in turn.usages] == [(11, False)] * 2


@with_sdk
async def test_a_model_call_without_usage_makes_the_tokens_a_lower_bound(loaded: Any, played: Any) -> None:
    source = (
        HEAD
        + """
def root_agent(message):
    asked = [text("user", message)]
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "small",
        "gen_ai.input.messages": json.dumps(asked),
        "gen_ai.output.messages": json.dumps([text("assistant", "A four.")]),
    }
    with tracer.start_as_current_span("chat small", attributes=attributes):
        return "A four."
"""
    )

    turn = await played(loaded(source), Session("s"), "Roll.")

    assert turn.answer == "A four."
    assert [(usage.is_least, usage.tokens_in) for usage in turn.usages] == [(True, 0)]
