"""The frameworks: their packages, and an agent of each with one tool, `roll_die`."""

from __future__ import annotations

from dataclasses import dataclass

TOOL = '''
def roll_die(sides: int) -> int:
    """Rolls a die.

    Args:
        sides: How many sides it has.
    """
    return sides
'''
ADK = (
    TOOL
    + """
from google.adk.agents import Agent
from google.adk.models.lite_llm import LiteLlm

root_agent = Agent(
    name="dice", model=LiteLlm(model="hosted_vllm/small", api_base="{address}/v1", api_key="k"), tools=[roll_die]
)
"""
)
OPENAI_AGENTS = (
    TOOL
    + """
from agents import Agent, OpenAIResponsesModel, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)
client = AsyncOpenAI(base_url="{address}/v1", api_key="k")
root_agent = Agent(name="dice", model=OpenAIResponsesModel("small", client), tools=[function_tool(roll_die)])
"""
)
LANGGRAPH = (
    TOOL
    + """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

root_agent = create_agent(ChatOpenAI(model="small", base_url="{address}/v1", api_key="k"), tools=[roll_die])
"""
)
PYDANTIC_AI = (
    TOOL
    + """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

model = OpenAIChatModel("small", provider=OpenAIProvider(base_url="{address}/v1", api_key="k"))
root_agent = Agent(model, tools=[roll_die])
"""
)
AGNO = (
    TOOL
    + """
from agno.agent import Agent
from agno.models.openai.like import OpenAILike

model = OpenAILike(id="small", base_url="{address}/v1", api_key="k")
root_agent = Agent(name="dice", model=model, tools=[roll_die], telemetry=False)
"""
)
AGENT_FRAMEWORK = (
    TOOL
    + """
from agent_framework import Agent, tool
from agent_framework.openai import OpenAIChatCompletionClient

client = OpenAIChatCompletionClient(model="small", base_url="{address}/v1", api_key="k")
root_agent = Agent(client=client, name="dice", tools=[tool(approval_mode="never_require")(roll_die)])
"""
)
SMOLAGENTS = (
    TOOL
    + """
from smolagents import OpenAIModel, {agent}, tool

model = OpenAIModel("small", api_base="{address}/v1", api_key="k")
root_agent = {agent}(tools=[tool(roll_die)], model=model, verbosity_level=0)
"""
)
CREWAI = (
    TOOL
    + """
from crewai import LLM, Agent
from crewai.tools import tool

llm = LLM(model="openai/gpt-4o", base_url="{address}/v1", api_key="k")
root_agent = Agent(
    role="dice", goal="Roll.", backstory="Rolls.", llm=llm, tools=[tool("roll_die")(roll_die)], verbose=False
)
"""
)
CLAUDE = """
from claude_agent_sdk import ClaudeAgentOptions, create_sdk_mcp_server, tool

@tool("roll_die", "Rolls a die.", {"sides": int})
async def roll_die(args):
    return {"content": [{"type": "text", "text": str(args["sides"])}]}

root_agent = ClaudeAgentOptions(
    model="small",
    mcp_servers={"dice": create_sdk_mcp_server("dice", tools=[roll_die])},
    allowed_tools=["mcp__dice__roll_die"],
    tools=[],
    env={"ANTHROPIC_BASE_URL": "{address}", "ANTHROPIC_API_KEY": "k", "CLAUDE_CONFIG_DIR": "{folder}"},
)
"""
AUTOGEN = (
    TOOL
    + """
from autogen_agentchat.agents import AssistantAgent
from autogen_ext.models.openai import OpenAIChatCompletionClient

INFO = dict.fromkeys(("vision", "json_output", "structured_output"), False) | {"function_calling": True, "family": "x"}
agents = {}

async def root_agent(message, session):
    client = OpenAIChatCompletionClient(model="small", base_url="{address}/v1", api_key="k", model_info=INFO)
    if session.id not in agents:
        agents[session.id] = AssistantAgent("dice", client, tools=[roll_die], reflect_on_tool_use=True)
    return (await agents[session.id].run(task=message)).messages[-1].content
"""
)
STRANDS = (
    TOOL
    + """
from strands import Agent, tool
from strands.models.openai import OpenAIModel

agents = {}

def root_agent(message, session):
    model = OpenAIModel(client_args={"base_url": "{address}/v1", "api_key": "k"}, model_id="small")
    if session.id not in agents:
        agents[session.id] = Agent(model=model, tools=[tool(roll_die)], callback_handler=None)
    return str(agents[session.id](message)).strip()
"""
)

DSPY = (
    TOOL
    + """
import dspy

histories = {}

def root_agent(message, session):
    lm = dspy.LM("openai/gpt-4o", api_base="{address}/v1", api_key="k", cache=False)
    with dspy.context(lm=lm, adapter=dspy.ChatAdapter(use_native_function_calling=True)):
        agent = dspy.ReActV2("question -> answer", tools=[roll_die])
        prediction = agent(question=message, history=histories.get(session.id) or dspy.History(messages=[]))
    histories[session.id] = prediction.history
    return prediction.answer
"""
)
LLAMA_INDEX = (
    TOOL
    + """
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.openai_like import OpenAILike

llm = OpenAILike(
    model="small", api_base="{address}/v1", api_key="k", is_chat_model=True, is_function_calling_model=True
)
agent = FunctionAgent(name="dice", tools=[roll_die], llm=llm, streaming=False)  # a stream tells no tokens
memories = {}

async def root_agent(message, session):
    memory = memories.setdefault(session.id, ChatMemoryBuffer.from_defaults(llm=llm))
    return str(await agent.run(message, memory=memory))
"""
)
HAYSTACK = (
    TOOL
    + """
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

messages = {}

def root_agent(message, session):
    generator = OpenAIChatGenerator(model="small", api_base_url="{address}/v1", api_key=Secret.from_token("k"))
    agent = Agent(chat_generator=generator, tools=[create_tool_from_function(roll_die)])
    before = messages.get(session.id, [])
    messages[session.id] = agent.run(messages=[*before, ChatMessage.from_user(message)])["messages"]
    return messages[session.id][-1].text
"""
)


@dataclass(frozen=True)
class Framework:
    """A framework: `package` names its version, `kind` is the kind of its agents, `tool` the name of the tool."""

    name: str
    package: str
    packages: tuple[str, ...]
    source: str
    kind: str
    tool: str = "roll_die"
    has_adapter: bool = False


FRAMEWORKS = (
    Framework("google-adk", "google-adk", ("google-adk", "litellm"), ADK, "adk", has_adapter=True),
    Framework("OpenAI Agents", "openai-agents", ("openai-agents",), OPENAI_AGENTS, "openai_agents", has_adapter=True),
    Framework(
        "LangGraph",
        "langgraph",
        ("langgraph", "langchain", "langchain-openai"),
        LANGGRAPH,
        "langgraph",
        has_adapter=True,
    ),
    Framework(
        "pydantic-ai", "pydantic-ai-slim", ("pydantic-ai-slim[openai]",), PYDANTIC_AI, "pydantic_ai", has_adapter=True
    ),
    Framework(
        "Agent Framework",
        "agent-framework-core",
        ("agent-framework-core", "agent-framework-openai"),
        AGENT_FRAMEWORK,
        "agent_framework",
    ),
    Framework("Agno", "agno", ("agno", "openai"), AGNO, "agno"),
    Framework(
        "Claude Agent SDK", "claude-agent-sdk", ("claude-agent-sdk",), CLAUDE, "claude_agent", "mcp__dice__roll_die"
    ),
    Framework("CrewAI", "crewai", ("crewai",), CREWAI, "crewai"),
    Framework(
        "smolagents",
        "smolagents",
        ("smolagents[openai]",),
        SMOLAGENTS.replace("{agent}", "ToolCallingAgent"),
        "smolagents",
    ),
    Framework(
        "smolagents, agents of code",
        "smolagents",
        ("smolagents[openai]",),
        SMOLAGENTS.replace("{agent}", "CodeAgent"),
        "smolagents",
    ),
    Framework(
        "AutoGen, in a function", "autogen-agentchat", ("autogen-agentchat", "autogen-ext[openai]"), AUTOGEN, "python"
    ),
    Framework("Strands, in a function", "strands-agents", ("strands-agents[openai]",), STRANDS, "python"),
    Framework("DSPy, in a function", "dspy", ("dspy",), DSPY, "python"),
    Framework(
        "LlamaIndex, in a function",
        "llama-index-core",
        ("llama-index-core", "llama-index-llms-openai-like"),
        LLAMA_INDEX,
        "python",
    ),
    Framework("Haystack, in a function", "haystack-ai", ("haystack-ai",), HAYSTACK, "python"),
)
