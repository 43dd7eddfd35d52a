"""Failures that pass are tried again as often as a run asks for, whichever framework's client asks the model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.endpoint import Endpoint, served
from tests.agents.installed import skip_without

from evaldesk.errors import ModelError
from evaldesk.model import ModelOptions, Session

pytestmark = pytest.mark.anyio

OURS = 'from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(name="a", model="small", api_base="{address}")\n'
PACKAGES = {"adk": "google.adk", "openai": "agents", "pydantic": "pydantic_ai", "langgraph": "langgraph"}
# Each asks the endpoint by a client of its own, or is given the run's address (`base_url`).
SOURCES = {
    "ours": OURS,
    "adk, by LiteLLM": """
from google.adk.agents import Agent

root_agent = Agent(name="a", model="gemini-2.0-flash", instruction="Answer.")
""",
    "openai, by address": """
from agents import Agent

root_agent = Agent(name="a", instructions="Answer.")
""",
    "openai, own client": """
from agents import Agent, OpenAIChatCompletionsModel
from openai import AsyncOpenAI

client = AsyncOpenAI(base_url="{address}", api_key="k", max_retries=1)
root_agent = Agent(name="a", model=OpenAIChatCompletionsModel("small", client))
""",
    "pydantic, by address": """
from pydantic_ai import Agent

root_agent = Agent(name="a")
""",
    "pydantic, own client": """
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

client = AsyncOpenAI(base_url="{address}", api_key="k", max_retries=1)
root_agent = Agent(OpenAIChatModel("small", provider=OpenAIProvider(openai_client=client)), name="a")
""",
}


@pytest.fixture
def session(request: pytest.FixtureRequest, endpoint: Endpoint) -> Any:
    """A session that asks for so many retries of the agent that is called so."""

    def session(name: str, n_retries: int | None) -> Session:
        if "own" in name or name == "ours":
            return Session("s", model_options=ModelOptions(n_retries=n_retries))
        return Session("s", model="small", model_options=ModelOptions(endpoint.address, n_retries=n_retries))

    return session


@pytest.mark.parametrize("name", SOURCES)
async def test_no_retries_means_one_request(
    name: str, endpoint: Endpoint, loaded: Any, play: Any, session: Any
) -> None:
    _needs(name)
    agent = loaded(SOURCES[name].replace("{address}", endpoint.address))
    for _ in range(4):
        endpoint.fails(429, "slow down", retry_after_ms="1")

    with pytest.raises(ModelError) as caught:
        await play(agent, session(name, 0), "hi")

    assert (caught.value.kind, len(endpoint.asked)) == ("rate_limit", 1)


@pytest.mark.parametrize("name", SOURCES)
async def test_as_many_retries_as_were_asked_for_are_made(
    name: str, endpoint: Endpoint, loaded: Any, play: Any, session: Any
) -> None:
    _needs(name)
    agent = loaded(SOURCES[name].replace("{address}", endpoint.address))
    for _ in range(2):
        endpoint.fails(429, "slow down", retry_after_ms="1")
    endpoint.says("hello")

    events = await play(agent, session(name, 2), "hi")

    assert [event.text for event in events if event.kind == "agent_message"] == ["hello"]
    assert len(endpoint.asked) == 3


@pytest.mark.parametrize("name", [name for name in SOURCES if "own client" in name])
async def test_a_client_has_its_own_number_where_a_run_asks_for_none(
    name: str, endpoint: Endpoint, loaded: Any, play: Any, session: Any
) -> None:
    _needs(name)
    agent = loaded(SOURCES[name].replace("{address}", endpoint.address))
    for _ in range(4):
        endpoint.fails(429, "slow down", retry_after_ms="1")

    for n_retries in (0, None):
        with pytest.raises(ModelError):
            await play(agent, session(name, n_retries), "hi")

    assert len(endpoint.asked) == 1 + 2


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")  # Google's own
async def test_googles_own_client_heeds_the_run_and_not_the_agent(
    loaded: Any, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _needs("adk")
    monkeypatch.setenv("GOOGLE_API_KEY", "a-key-for-the-tests")
    source = """
from google.adk.agents import Agent
from google.adk.models.google_llm import Gemini
from google.genai import types

retries = types.HttpRetryOptions(attempts=3, initial_delay=0.001, max_delay=0.001)
root_agent = Agent(name="a", model=Gemini(model="gemini-2.0-flash", base_url="{address}", retry_options=retries))
"""
    with served() as endpoint:
        for _ in range(4):
            endpoint.fails(429, "slow down")
        agent = loaded(source.replace("{address}", endpoint.address.removesuffix("/v1")))

        with pytest.raises(ModelError):
            await play(agent, Session("s", model_options=ModelOptions(n_retries=0)), "hi")

    assert len(endpoint.asked) == 1


@pytest.mark.filterwarnings("ignore")
async def test_a_graph_that_names_its_retries_is_told_how_many(loaded: Any, play: Any) -> None:
    _needs("langgraph")
    source = """
from typing import Annotated

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

class State(TypedDict):
    messages: Annotated[list, add_messages]

def answer(state, config: RunnableConfig):
    return {"messages": [AIMessage(str(config["configurable"].get("max_retries")))]}

graph = StateGraph(State)
graph.add_node("answer", answer)
graph.set_entry_point("answer")
graph.set_finish_point("answer")
root_agent = graph.compile()
"""

    events = await play(loaded(source), Session("s", model_options=ModelOptions(n_retries=0)), "hi")

    assert [event.text for event in events if event.kind == "agent_message"] == ["0"]


def _needs(name: str) -> None:
    package = PACKAGES.get(name.split(",", maxsplit=1)[0])
    if package:
        skip_without(package)
