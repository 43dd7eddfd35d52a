"""Agents of each framework that ask an instant endpoint once a turn, and the bare loop of each without Evaldesk.

As a program, `python -m bench.framework_agents FOLDER NAME N` prints the milliseconds of processor of one bare turn;
with `adapter` behind it, those of the same turn by our adapter, in a process whose clients are watched as a player's.
With N of 0 it plays one turn only: what a process of the framework's own spends before it has answered once.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

N_WARM = 20
PACKAGES: Mapping[str, str] = {
    "plain": "openai",
    "adk": "google.adk",
    "openai_agents": "agents",
    "langgraph": "langgraph",
    "pydantic_ai": "pydantic_ai",
}
_CLIENT = 'from openai import AsyncOpenAI\nclient = AsyncOpenAI(base_url="ADDRESS", api_key="k")\n'
_ASK = 'await client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])'
SOURCES: Mapping[str, str] = {
    "plain": f"""{_CLIENT}
async def root_agent(message):
    return ({_ASK}).choices[0].message.content
""",
    "adk": """
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm
root_agent = Agent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="ADDRESS"))
""",
    "openai_agents": f"""{_CLIENT}
from agents import Agent, OpenAIChatCompletionsModel, set_tracing_disabled
set_tracing_disabled(True)
root_agent = Agent(name="a", model=OpenAIChatCompletionsModel("small", client))
""",
    "langgraph": f"""{_CLIENT}
from langchain_core.messages import AIMessage
from langgraph.graph import MessagesState, StateGraph

async def answer(state):
    found = {_ASK}
    return {{"messages": [AIMessage(found.choices[0].message.content)]}}

graph = StateGraph(MessagesState)
graph.add_node("answer", answer)
graph.set_entry_point("answer")
graph.set_finish_point("answer")
root_agent = graph.compile()
""",
    "pydantic_ai": f"""{_CLIENT}
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
root_agent = Agent(OpenAIChatModel("small", provider=OpenAIProvider(openai_client=client)))
""",
}


def write_agents(folder: Path, address: str) -> None:
    """A module `of_NAME` for each, with an agent that asks the endpoint at that address."""
    for name, source in SOURCES.items():
        (folder / f"of_{name}.py").write_text(source.replace("ADDRESS", address))


def installed() -> list[str]:
    """The frameworks that are here."""
    return [name for name, package in PACKAGES.items() if find_spec(package.partition(".")[0]) and find_spec(package)]


async def _adk(agent: Any) -> Callable[[], Awaitable[object]]:
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    runner = InMemoryRunner(agent=agent, app_name="a")

    async def turn() -> None:
        session = await runner.session_service.create_session(app_name="a", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text="hi")])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            pass

    return turn


async def _turn_of(name: str, agent: Any) -> Callable[[], Awaitable[object]]:
    """One turn as the framework itself plays it."""
    if name == "adk":
        return await _adk(agent)
    if name == "openai_agents":
        from agents import Runner

        return lambda: Runner.run(agent, "hi")
    if name == "langgraph":
        return lambda: agent.ainvoke({"messages": [("user", "hi")]})
    if name == "pydantic_ai":
        return lambda: agent.run("hi")
    return lambda: agent("hi")


async def _adapted(name: str, folder: str) -> Callable[[], Awaitable[object]]:
    """One turn as the adapter plays it for a player."""
    from evaldesk.agents.loading import load_agent
    from evaldesk.agents.shared_loop import EventStream
    from evaldesk.llm.http_calls import watch_requests
    from evaldesk.llm.third_party_clients import wrap_clients
    from evaldesk.model import AgentRef, Session

    agent = load_agent(AgentRef(name, f"of_{name}:root_agent", root=folder))

    async def turn() -> None:
        watch_requests()
        wrap_clients()
        events = agent.reply(Session("s"), "hi")
        if isinstance(events, EventStream):
            await events.consume(lambda _: False)
            return
        async for _ in events:
            pass

    return turn


async def _turn_ms(folder: str, name: str, n: int, by_adapter: bool) -> float:
    own = await _turn_of(name, importlib.import_module(f"of_{name}").root_agent)
    turn = await _adapted(name, folder) if by_adapter else own
    for _ in range(N_WARM if n else 1):
        await turn()
    if n:
        gc.collect()  # of what was imported: as long as 40 turns, and in some measurements only
    before = time.process_time()
    for _ in range(n):
        await turn()
    return 1000 * (time.process_time() - before) / max(n, 1)


if __name__ == "__main__":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
    sys.path.insert(0, sys.argv[1])
    print(asyncio.run(_turn_ms(sys.argv[1], sys.argv[2], int(sys.argv[3]), "adapter" in sys.argv[4:])))
