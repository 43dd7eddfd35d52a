"""Every call of a model is counted, also one that an agent makes inside of a tool: the endpoint counts its requests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agents.endpoint import Answer, Endpoint, chunks
from tests.agents.installed import skip_without
from tests.islands import of_tools

from evaldesk.agents import load_agent
from evaldesk.agents.agent import AGENTS
from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, Limits, Session, TrialSpec, Turn, TurnRecord

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

OPENAI = """
from agents import Agent, OpenAIChatCompletionsModel
from openai import AsyncOpenAI

model = OpenAIChatCompletionsModel("small", AsyncOpenAI(base_url="{address}", api_key="k"))
expert = Agent(name="expert", model=model)
root_agent = Agent(name="a", model=model, tools=[expert.as_tool("ask", "Asks.")])
"""
PYDANTIC = """
from openai import AsyncOpenAI
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("small", provider=OpenAIProvider(openai_client=AsyncOpenAI(base_url="{address}", api_key="k")))
expert = Agent(model, name="expert")
root_agent = Agent(model, name="a")

@root_agent.tool
async def ask(context: RunContext, input: str) -> str:
    return (await expert.run(input, usage=context.usage)).output
"""
GRAPH = """
import json
from typing import Annotated

from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from openai import AsyncOpenAI
from typing_extensions import TypedDict

client = AsyncOpenAI(base_url="{address}", api_key="k")

class State(TypedDict):
    messages: Annotated[list, add_messages]

async def answer(state):
    found = await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])
    message = found.choices[0].message
    calls = [
        {"id": call.id, "name": call.function.name, "args": json.loads(call.function.arguments)}
        for call in message.tool_calls or ()
    ]
    used = found.usage
    spent = {"input_tokens": used.prompt_tokens, "output_tokens": used.completion_tokens, "total_tokens": 16}
    spent |= {"input_token_details": {"cache_read": 4}, "output_token_details": {"reasoning": 2}}
    return {"messages": [AIMessage(message.content or "", tool_calls=calls, usage_metadata=spent)]}

inner = StateGraph(State)
inner.add_node("answer", answer)
inner.set_entry_point("answer")
inner.set_finish_point("answer")
expert = inner.compile()

@tool
async def ask(input: str) -> str:
    "Asks."
    return (await expert.ainvoke({"messages": [("user", input)]}))["messages"][-1].content

outer = StateGraph(State)
outer.add_node("answer", answer)
outer.add_node("tools", ToolNode([ask]))
outer.set_entry_point("answer")
outer.add_conditional_edges("answer", tools_condition)
outer.add_edge("tools", "answer")
root_agent = outer.compile()
"""
ADK = """
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
from google.adk.tools.agent_tool import AgentTool

model = LiteLlm(model="hosted_vllm/small", api_base="{address}")
expert = Agent(name="ask", model=model)
root_agent = Agent(name="a", model=model, tools=[AgentTool(expert)])
"""
OURS = """
from evaldesk import LlmAgent
from openai import OpenAI

def ask(input: str) -> str:
    client = OpenAI(base_url="{address}", api_key="k")
    found = client.chat.completions.create(model="small", messages=[{"role": "user", "content": input}])
    return found.choices[0].message.content

root_agent = LlmAgent(name="a", model="small", api_base="{address}", tools=[ask])
"""
NESTED = {
    "OpenAI as_tool": ("agents", OPENAI, "input"),
    "pydantic-ai delegation": ("pydantic_ai", PYDANTIC, "input"),
    "a graph inside a tool": ("langgraph", GRAPH, "input"),
    "ADK AgentTool": ("google.adk", ADK, "request"),
    "a client inside a tool of ours": ("openai", OURS, "input"),
}


@pytest.mark.parametrize("name", NESTED)
async def test_the_calls_of_an_agent_inside_a_tool_are_counted(
    name: str, endpoint: Endpoint, loaded: Any, played: Any
) -> None:
    package, source, argument = NESTED[name]
    skip_without(package)
    endpoint.says("", ("c1", "ask", json.dumps({argument: "what?"}))).says("42").says("it is 42")
    endpoint.answers[1].body["usage"].update(prompt_tokens=7, completion_tokens=3, total_tokens=10)
    details = {"prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens_details": {"reasoning_tokens": 2}}
    for answer in endpoint.answers:
        answer.body["usage"].update(details)

    turn = await played(loaded(source.replace("{address}", endpoint.address)), Session("s"), "hi")

    assert (turn.answer, turn.error) == ("it is 42", None)
    assert counted(turn) == [(7, 3), (11, 5), (11, 5)]
    assert len(endpoint.asked) == 3
    inner = next(event for event in turn.events if event.usage and event.usage.tokens_in == 7)
    assert inner.within == "ask"
    assert {(usage.tokens_cached, usage.tokens_reasoning) for usage in turn.usages} == {(4, 2)}


def counted(turn: TurnRecord) -> list[tuple[int, int]]:
    return sorted((usage.tokens_in, usage.tokens_out) for usage in turn.usages)


CLIENT = """
from openai import AsyncOpenAI

async def root_agent(message):
    async with AsyncOpenAI(base_url="{address}", api_key="k") as client:
        question = [{"role": "user", "content": message}]
        found = await client.chat.completions.create(model="small", messages=question{more})
        {read}
"""
WHOLE = CLIENT.replace("{more}", "").replace("{read}", "return found.choices[0].message.content")
READ = 'return "".join([chunk.choices[0].delta.content or "" async for chunk in found if chunk.choices])'
STREAM = CLIENT.replace("{read}", READ)
ASKED = STREAM.replace("{more}", ', stream=True, stream_options={"include_usage": True}')
UNASKED = STREAM.replace("{more}", ", stream=True")
BROKEN_OFF = CLIENT.replace("{more}", ", stream=True").replace(
    "{read}", "async for chunk in found:\n            return chunk.choices[0].delta.content"
)
THREAD = """
import threading
from openai import OpenAI

def root_agent(message):
    said = []

    def ask():
        question = [{"role": "user", "content": message}]
        found = OpenAI(base_url="{address}", api_key="k").chat.completions.create(model="small", messages=question)
        said.append(found.choices[0].message.content)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return said[0]
"""


@pytest.mark.parametrize("source", [WHOLE, THREAD, ASKED], ids=["whole", "in a thread", "streamed"])
async def test_an_own_client_of_a_function_is_counted_without_usage_events(
    source: str, endpoint: Endpoint, loaded: Any, played: Any
) -> None:
    endpoint.streams("hel", "lo") if source is ASKED else endpoint.says("hello")

    turn = await played(loaded(source.replace("{address}", endpoint.address)), Session("s"), "hi")

    assert turn.answer == "hello"
    assert counted(turn) == [(11, 5)]
    assert [usage.model for usage in turn.usages] == ["small"]
    assert not any(usage.is_least for usage in turn.usages)


@pytest.mark.parametrize("source", [UNASKED, BROKEN_OFF], ids=["no usage", "broken off"])
async def test_unknown_tokens_of_a_call_make_the_usage_a_lower_bound(
    source: str, endpoint: Endpoint, loaded: Any, played: Any
) -> None:
    endpoint.answers.append(Answer(stream=chunks({"content": "hello"})[:-1]))

    turn = await played(loaded(source.replace("{address}", endpoint.address)), Session("s"), "hi")

    assert turn.answer == "hello"
    assert [(usage.is_least, usage.cost) for usage in turn.usages] == [(True, None)]


SILENT = """
import json, sys, time
for line in sys.stdin:
    for event in json.loads(json.loads(line)["message"]):
        if event == "sleep":
            time.sleep(600)
        if event == "exit":
            sys.exit(1)
        print(json.dumps(event))
    print(json.dumps({"kind": "done"}), flush=True)
"""
NOTHING = {"kind": "usage", "model": "small", "tokens_in": 0, "tokens_out": 0}
SOME = {"kind": "usage", "model": "small", "tokens_in": 11, "tokens_out": 5}


@pytest.mark.parametrize(
    ("turns", "options", "is_least"),
    [
        ([[], []], {}, True),
        ([[NOTHING], []], {}, False),
        ([[], [SOME]], {}, False),
        ([[]], {"tells_cost": True}, False),
        ([[]], {"model_gateway": True}, False),
        ([[SOME], ["exit"]], {}, True),
        ([[SOME], [SOME, {"kind": "error", "message": "no"}]], {}, False),
        ([[SOME, "sleep"]], {}, True),
        ([[{"kind": "usage", "model": "small"}]], {"tells_cost": True}, True),
    ],
    ids=["nothing", "told 0", "one turn", "promised", "gateway", "broken off", "its error", "timed out", "unknown"],
)
async def test_an_unobserved_command_without_usage_events_has_lower_bounds(
    turns: list[Any], options: dict[str, bool], is_least: bool, tmp_path: Path
) -> None:
    (tmp_path / "agent.py").write_text(SILENT)
    ref = AgentRef("c", f"{sys.executable} -S agent.py", str(tmp_path), kind="command", declared=json.dumps(options))
    case = Case("c", tuple(Turn(json.dumps(events)) for events in turns))
    limits = Limits(turn_timeout_s=0.2 if "sleep" in turns[0] else 60)

    result = await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref, limits=limits))

    assert result.is_least == is_least
    assert not (is_least and result.cost is not None)
    assert "sleep" in turns[0] or result.tokens == sum(event == SOME for events in turns for event in events) * 16


@of_tools("a2a", "openhands")
def test_each_kind_declares_uncounted_calls() -> None:
    gateway = json.dumps({"model_gateway": True})

    assert [kind.name for kind in AGENTS.builtin if not kind.sees_calls(AgentRef("a", "t"))] == [
        "a2a",
        "benchmark",
        "command",
        "http",
    ]
    assert AGENTS["command"].sees_calls(AgentRef("a", "t", declared=gateway))
