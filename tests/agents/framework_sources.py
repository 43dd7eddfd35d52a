"""The sources of agents whose frameworks ask an endpoint by clients of their own, with the real packages."""

from tests.agents.installed import skip_without

from evaldesk.model import ModelOptions

GRAPH = """
from typing import Annotated

from langchain_core.messages import AIMessage
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from openai import {client}
from typing_extensions import TypedDict

client = {client}(base_url="{address}", api_key="k", max_retries=1)

class State(TypedDict):
    messages: Annotated[list, add_messages]

{define} answer(state):
    found = {wait} client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])
    spent = {"input_tokens": 11, "output_tokens": 5, "total_tokens": 16}
    return {"messages": [AIMessage(found.choices[0].message.content, usage_metadata=spent)]}

graph = StateGraph(State)
graph.add_node("answer", answer)
graph.set_entry_point("answer")
graph.set_finish_point("answer")
root_agent = graph.compile()
"""
GOOGLE = """
from google.adk.agents import Agent
from google.adk.models.google_llm import Gemini
from google.genai import types

retries = types.HttpRetryOptions(attempts=2, initial_delay=0.001, max_delay=0.001)
root_agent = Agent(name="a", model=Gemini(model="gemini-2.0-flash", base_url="{base}", retry_options=retries))
"""
PACKAGES = {"adk": "google.adk", "openai": "agents", "pydantic": "pydantic_ai", "langgraph": "langgraph"}
# Each asks the endpoint by a client of its own that would try again once, or is given the run's address.
SOURCES = {
    "ours": 'from evaldesk import LlmAgent\n\nroot_agent = LlmAgent(name="a", model="small", api_base="{address}")\n',
    "adk, by LiteLLM": """
from google.adk.agents import Agent

root_agent = Agent(name="a", model="gemini-2.0-flash", instruction="Answer.")
""",
    "adk, own client": GOOGLE,
    "adk, own LiteLLM": """
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm

root_agent = Agent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="{address}"))
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
    "openai, own LiteLLM": """
from agents import Agent
from agents.extensions.models.litellm_model import LitellmModel

model = LitellmModel("hosted_vllm/small", base_url="{address}", api_key="k")
root_agent = Agent(name="a", model=model)
""",
    "pydantic, by address": """
from pydantic_ai import Agent

root_agent = Agent(name="a")
""",
    "pydantic, own name": """
from pydantic_ai import Agent

root_agent = Agent("openai-chat:small", name="a", defer_model_check=True)
""",
    "pydantic, own client": """
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

client = AsyncOpenAI(base_url="{address}", api_key="k", max_retries=1)
root_agent = Agent(OpenAIChatModel("small", provider=OpenAIProvider(openai_client=client)), name="a")
""",
    "langgraph, own client": GRAPH.replace("{client}", "AsyncOpenAI").replace("{define}", "async def"),
    "langgraph, own client that blocks": GRAPH.replace("{client}", "OpenAI").replace("{define}", "def"),
}


def source_of(name: str, address: str) -> str:
    """The source of the agent that is called so; skips the test where its package is not installed."""
    package = PACKAGES.get(name.split(",", maxsplit=1)[0])
    if package:
        skip_without(package)
    source = SOURCES[name].replace("{wait}", "await" if "async" in SOURCES[name] else "")
    return source.replace("{address}", address).replace("{base}", address.removesuffix("/v1"))


def model_of(name: str, address: str) -> tuple[str | None, ModelOptions]:
    """The model and its options of a run in which the agent asks the endpoint."""
    is_own = "own" in name or name == "ours"
    return (None, ModelOptions()) if is_own else ("small", ModelOptions(address))
