"""Tool calls, results and tokens of an agent that reports nothing, from the requests of its own client."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without

from evaldesk.model import Session, TurnRecord

pytestmark = pytest.mark.anyio

HEAD = """
import json
from openai import OpenAI

client = OpenAI(base_url="{address}", api_key="k")

def ask(messages, **options):
    return client.chat.completions.create(model="small", messages=messages, **options).choices[0].message

def result(call, text):
    return {"role": "tool", "tool_call_id": call.id, "content": text}
"""
LOOP = """
def root_agent(message):
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": message}]
    while True:
        answer = ask(messages)
        if not answer.tool_calls:
            return answer.content
        messages.append(answer.model_dump(exclude_none=True))
        messages += [result(call, "on its way") for call in answer.tool_calls]
"""
DIRECT = """
def root_agent(message):
    answer = ask([{"role": "user", "content": message}])
    return f"I called {answer.tool_calls[0].function.name}."
"""
TOLD = """
from evaldesk import Event, ToolCall

def root_agent(message):
    messages = [{"role": "user", "content": message}]
    answer = ask(messages)
    call = answer.tool_calls[0]
    own = ToolCall(call.function.name, json.loads(call.function.arguments), call.id)
    yield Event("tool_call", call=own)
    yield Event("tool_result", call=own, result="on its way")
    yield ask([*messages, answer.model_dump(exclude_none=True), result(call, "on its way")]).content
"""
STRUCTURED = """
def root_agent(message):
    choice = {"type": "function", "function": {"name": "Order"}}
    answer = ask([{"role": "user", "content": message}], tool_choice=choice)
    return answer.tool_calls[0].function.arguments
"""
NAMED_ANSWER = """
def root_agent(message):
    return json.loads(ask([{"role": "user", "content": message}]).tool_calls[0].function.arguments)["answer"]
"""
NESTED = """
def expert(question):
    messages = [{"role": "system", "content": "You are an expert."}, {"role": "user", "content": question}]
    answer = ask(messages)
    messages += [answer.model_dump(exclude_none=True), result(answer.tool_calls[0], "42")]
    return ask(messages).content

def root_agent(message):
    messages = [{"role": "system", "content": "You help."}, {"role": "user", "content": message}]
    answer = ask(messages)
    messages += [answer.model_dump(exclude_none=True), result(answer.tool_calls[0], expert("what?"))]
    return ask(messages).content
"""
GET_ORDER = ("c1", "get_order", '{"order": "A7"}')


@pytest.fixture
async def turn_of(endpoint: Endpoint, loaded: Any, played: Any) -> Any:
    skip_without("openai")

    async def play(source: str) -> TurnRecord:
        turn: TurnRecord = await played(
            loaded((HEAD + source).replace("{address}", endpoint.address)), Session("s"), "hi"
        )
        assert turn.error is None
        return turn

    return play


def story(turn: TurnRecord) -> list[Any]:
    """The tool calls, results and answers, in their order."""
    return [
        (event.call.name, event.call.args) if event.call and event.kind == "tool_call" else event.result or event.text
        for event in turn.events
        if event.kind in ("tool_call", "tool_result", "agent_message")
    ]


@pytest.mark.parametrize("source", [LOOP, TOLD], ids=["a loop that reports nothing", "one that reports each call"])
async def test_each_call_of_a_function_is_recorded_once_with_its_result(
    source: str, endpoint: Endpoint, turn_of: Any
) -> None:
    endpoint.says("", GET_ORDER).says("It comes.")

    turn = await turn_of(source)

    assert story(turn) == [("get_order", {"order": "A7"}), "on its way", "It comes."]
    assert len(turn.usages) == len(endpoint.asked) == 2


async def test_parallel_calls_and_a_second_round_keep_their_order(endpoint: Endpoint, turn_of: Any) -> None:
    endpoint.says("", GET_ORDER, ("c2", "get_user", "{}")).says("", ("c3", "get_order", '{"order": "B8"}')).says(
        "Done."
    )

    turn = await turn_of(LOOP)

    assert [call.name for call in turn.tool_calls] == ["get_order", "get_user", "get_order"]
    assert turn.tool_calls[2].args == {"order": "B8"}
    assert [event.call and event.call.id for event in turn.events if event.kind == "tool_result"] == ["c1", "c2", "c3"]
    assert turn.events[-1].text == "Done."


async def test_a_call_whose_result_is_never_sent_back_is_a_call(endpoint: Endpoint, turn_of: Any) -> None:
    endpoint.says("", GET_ORDER)

    turn = await turn_of(DIRECT)

    assert story(turn) == [("get_order", {"order": "A7"}), "I called get_order."]
    assert turn.captures == ("told", "gateway")


@pytest.mark.parametrize(
    ("source", "call"),
    [(STRUCTURED, ("c1", "Order", '{"id": 1}')), (NAMED_ANSWER, ("c1", "final_answer", '{"answer": "yes"}'))],
    ids=["the only function that the request allows", "an answer by its name"],
)
async def test_an_answer_in_the_shape_of_a_call_is_no_tool_call(
    source: str, call: tuple[str, str, str], endpoint: Endpoint, turn_of: Any
) -> None:
    endpoint.says("", call)

    turn = await turn_of(source)

    assert turn.tool_calls == ()
    assert turn.answer == str(json.loads(call[2]).get("answer", call[2]))


async def test_calls_of_an_agent_inside_of_a_tool_are_not_those_of_the_outer_one(
    endpoint: Endpoint, turn_of: Any
) -> None:
    endpoint.says("", ("c1", "ask_expert", "{}")).says("", ("c2", "search", "{}")).says("42").says("It is 42.")

    turn = await turn_of(NESTED)

    assert [call.name for call in turn.tool_calls] == ["ask_expert"]
    assert [event.within for event in turn.events if event.usage] == ["", "ask_expert", "ask_expert", ""]


SPANNED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
tracer = trace.get_tracer("x")

def root_agent(message):
    messages = [{"role": "user", "content": message}]
    with tracer.start_as_current_span("chat", attributes={
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "small",
        "gen_ai.usage.input_tokens": 11, "gen_ai.usage.output_tokens": 5,
    }):
        answer = ask(messages)
    with tracer.start_as_current_span("execute_tool get_order", attributes={
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "get_order", "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.arguments": '{"order": "A7"}',
    }):
        pass
    messages += [answer.model_dump(exclude_none=True), result(answer.tool_calls[0], "on its way")]
    return ask(messages).content
"""


async def test_cached_tokens_and_results_that_spans_leave_out_come_from_the_requests(
    endpoint: Endpoint, turn_of: Any
) -> None:
    skip_without("opentelemetry.sdk")
    endpoint.says("", GET_ORDER).says("It comes.")
    for answer in endpoint.answers:
        answer.body["usage"]["prompt_tokens_details"] = {"cached_tokens": 8}

    turn = await turn_of(SPANNED)

    assert story(turn) == [("get_order", {"order": "A7"}), "on its way", "It comes."]
    assert [(usage.tokens_in, usage.tokens_cached) for usage in turn.usages] == [(11, 8)] * 2


ENDED = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

trace.set_tracer_provider(TracerProvider())
tracer = trace.get_tracer("x")
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 11, "gen_ai.usage.output_tokens": 5}

def chat():
    with tracer.start_as_current_span("chat", attributes=CHAT):
        pass

def call(name):
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.result": "done"}
    with tracer.start_as_current_span("execute_tool " + name, attributes=attributes):
        pass

def root_agent(message):
    for name in message.split():
        chat() if name == "model" else call(name)
    return "done"
"""


@pytest.mark.parametrize(
    ("steps", "calls"),
    [
        ("model get_order model final_answer", ["get_order"]),
        ("model submit model", ["submit"]),
        ("get_order submit", ["get_order", "submit"]),
    ],
    ids=["the call by which an agent ends", "a tool of such a name", "spans without a model call"],
)
async def test_the_call_by_which_an_agent_ends_is_no_tool_call_in_spans_either(
    steps: str, calls: list[str], loaded: Any, played: Any
) -> None:
    skip_without("opentelemetry.sdk")

    turn: TurnRecord = await played(loaded(ENDED), Session("s"), steps)

    assert (turn.error, [call.name for call in turn.tool_calls], turn.answer) == (None, calls, "done")


USAGE_TOLD = """
from evaldesk import Event, ToolCall
from evaldesk.model import Usage

def root_agent(message):
    messages = [{"role": "user", "content": message}]
    for _ in range({n}):
        answer = ask(messages)
    {told}
    yield answer.content
"""
TOLD_USAGES = {
    "the tokens of each call, without cached ones": (1, 11, 5),
    "other tokens of the same call": (1, 9, 4),
    "one sum of several calls": (3, 33, 15),
}


@pytest.mark.parametrize(("n", "tokens_in", "tokens_out"), TOLD_USAGES.values(), ids=TOLD_USAGES)
async def test_tokens_that_an_agent_tells_do_not_replace_those_of_its_requests(
    n: int, tokens_in: int, tokens_out: int, endpoint: Endpoint, turn_of: Any
) -> None:
    told = f'yield Event("usage", usage=Usage("small", tokens_in={tokens_in}, tokens_out={tokens_out}))'
    for _ in range(n):
        endpoint.says("It comes.")
    for answer in endpoint.answers:
        answer.body["usage"]["prompt_tokens_details"] = {"cached_tokens": 8}

    turn = await turn_of(USAGE_TOLD.replace("{n}", str(n)).replace("{told}", told))

    assert [(usage.tokens_in, usage.tokens_out, usage.tokens_cached) for usage in turn.usages] == [(11, 5, 8)] * n


async def test_a_usage_of_a_model_that_no_request_was_seen_of_is_added(endpoint: Endpoint, turn_of: Any) -> None:
    endpoint.says("It comes.")
    told = 'yield Event("usage", usage=Usage("elsewhere", tokens_in=7, tokens_out=2, cost=0.1))'

    turn = await turn_of(USAGE_TOLD.replace("{n}", "1").replace("{told}", told))

    assert sorted((usage.model, usage.tokens_in) for usage in turn.usages) == [("elsewhere", 7), ("small", 11)]


async def test_the_cost_that_an_agent_tells_of_a_call_is_kept(endpoint: Endpoint, turn_of: Any) -> None:
    endpoint.says("It comes.")
    told = 'yield Event("usage", usage=Usage("small", tokens_in=11, tokens_out=5, cost=0.1))'

    turn = await turn_of(USAGE_TOLD.replace("{n}", "1").replace("{told}", told))

    assert [(usage.tokens_in, usage.cost) for usage in turn.usages] == [(11, 0.1)]


TOLD_RESULT = TOLD.replace('result="on its way")', "result=None)", 1).replace(
    "json.loads(call.function.arguments)", "{}"
)


async def test_arguments_and_results_that_an_agent_leaves_out_come_from_the_requests(
    endpoint: Endpoint, turn_of: Any
) -> None:
    endpoint.says("", GET_ORDER).says("It comes.")

    turn = await turn_of(TOLD_RESULT)

    assert story(turn) == [("get_order", {"order": "A7"}), "on its way", "It comes."]
