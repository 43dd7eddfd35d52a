"""Instructions of a run in place of the agent's own: each kind that takes one, agents of a tree, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.installed import skip_without

from evaldesk.agents import adapt_object
from evaldesk.desk.runs.model_checks import check_instructions
from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import AgentDescription, AgentRef, ModelOptions, Session

pytestmark = pytest.mark.anyio

REF = AgentRef("prompted", "prompted:agent")


async def answer(agent: object, instruction: str | None, **options: Any) -> str:
    """The answer of an agent in a run with this instruction."""
    session = Session("s", model_options=ModelOptions(instruction=instruction, **options))
    adapted: Any = adapt_object(agent, REF)
    events = [event async for event in adapted.reply(session, "hi")]
    return "".join(event.text for event in events if event.kind == "agent_message" and not event.is_partial)


def with_parameter(message: str, instruction: str = "own") -> str:
    return f"{instruction}: {message}"


def make_agent(instruction: str = "own") -> Callable[[str], str]:
    return lambda message: f"{instruction}: {message}"


@pytest.mark.parametrize("agent", [with_parameter, make_agent], ids=["function", "factory"])
async def test_a_function_gets_the_instruction_of_the_run_by_its_parameter(agent: object) -> None:
    assert await answer(agent, "new") == "new: hi"
    assert await answer(agent, None) == "own: hi"
    assert adapt_object(agent, REF).describe().takes_instruction


def test_a_function_without_the_parameter_takes_none() -> None:
    found = adapt_object(lambda message: message, REF).describe()

    assert not found.takes_instruction
    with pytest.raises(UsageError, match=r"takes no instruction; give its function a parameter: def make_agent"):
        check_instructions(ModelOptions(instruction="new"), found)


TREE = AgentDescription(
    "root",
    "adk",
    takes_instruction=True,
    sub_agents=(AgentDescription("planner", "LlmAgent", takes_instruction=True), AgentDescription("loop", "LoopAgent")),
)


def test_an_instruction_of_an_agent_of_the_tree_is_checked_by_its_name() -> None:
    check_instructions(ModelOptions(instructions={"planner": "new", "root": "other"}), TREE)

    with pytest.raises((UsageError, NotFoundError), match="did you mean 'planner'"):
        check_instructions(ModelOptions(instructions={"planer": "new"}), TREE)
    with pytest.raises(UsageError, match="agent 'loop'"):
        check_instructions(ModelOptions(instructions={"loop": "new"}), TREE)


def test_an_instruction_without_a_text_is_refused() -> None:
    with pytest.raises(UsageError, match="instruction is empty"):
        ModelOptions(instruction="  ")
    for text in ("", 3):
        with pytest.raises(UsageError, match=r"instructions\.planner must be a text"):
            check_instructions(ModelOptions(instructions={"planner": text}), TREE)


async def test_an_agent_of_pydantic_ai_is_asked_with_the_instruction_of_the_run() -> None:
    skip_without("pydantic_ai")
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    def reply(messages: list[Any], _: Any) -> ModelResponse:
        return ModelResponse([TextPart(str(messages[-1].instructions))])

    agent = Agent(FunctionModel(reply), instructions="own")

    assert await answer(agent, "new") == "new"
    assert await answer(agent, None) == "own"
    assert adapt_object(agent, REF).describe().takes_instruction


async def test_a_graph_reads_the_instruction_of_the_run_where_it_declares_it() -> None:
    skip_without("langgraph")
    from langchain_core.messages import AIMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.graph import END, START, MessagesState, StateGraph
    from typing_extensions import TypedDict

    class Context(TypedDict, total=False):
        instruction: str

    def say(state: Any, config: RunnableConfig) -> Any:
        return {"messages": [AIMessage(config["configurable"].get("instruction", "own"))]}

    def compiled(**schema: Any) -> Any:
        graph = StateGraph(MessagesState, **schema)
        graph.add_node("say", say)
        graph.add_edge(START, "say")
        graph.add_edge("say", END)
        return graph.compile()

    agent = compiled(context_schema=Context)

    assert await answer(agent, "new") == "new"
    assert adapt_object(agent, REF).describe().takes_instruction
    assert not adapt_object(compiled(), REF).describe().takes_instruction


def test_options_of_a_run_win_over_those_of_an_agent_and_keep_the_other_instructions() -> None:
    own = ModelOptions(instruction="own", instructions={"a": "1", "b": "2"})

    found = own | ModelOptions(instruction="new", instructions={"b": "3"})

    assert (found.instruction, found.instructions) == ("new", {"a": "1", "b": "3"})
