"""States of graphs as people write them: what a node sees here in each turn is what it sees under LangGraph alone."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from evaldesk.agents import load_agent
from evaldesk.engine import play_trial
from evaldesk.model import AgentRef, Case, Limits, SessionInit, TrialResult, TrialSpec, Turn

pytest.importorskip("langgraph", reason="langgraph is not installed")
pytestmark = pytest.mark.anyio

GRAPH = """
    import operator
    from dataclasses import dataclass, field
    from typing import Annotated, TypedDict
    import typing_extensions
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.memory import MemorySaver
    from langgraph.graph import END, START, StateGraph
    from langgraph.graph.message import add_messages
    from pydantic import BaseModel

    {state}

    def look(state, name, default=None):
        found = state.get(name, default) if isinstance(state, dict) else getattr(state, name, default)
        return default if found is None else found

    def node(state):
        counts = f"n {{look(state, 'n', 0)}} of {{len(look(state, 'messages'))}}"
        said = "seen " + ",".join(look(state, "seen", [])) + " " + counts
        return {update}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    graph = builder.compile({saver})
"""
FIELDS = "messages: Annotated[list, add_messages]; seen: Annotated[list, operator.add]; n: int"
STATES = {
    "typed": f"class State(typing_extensions.TypedDict): {FIELDS}",
    "typed of the standard library": f"class State(TypedDict): {FIELDS}",
    "dataclass": """@dataclass
    class State:
        messages: Annotated[list, add_messages] = field(default_factory=list)
        seen: Annotated[list, operator.add] = field(default_factory=list)
        n: int = 0""",
    "pydantic": """class State(BaseModel):
        messages: Annotated[list, add_messages] = []
        seen: Annotated[list, operator.add] = []
        n: int = 0""",
}
UPDATES = {
    "messages": '{"messages": [AIMessage(said)], "seen": ["a"], "n": look(state, "n", 0) + 1}',
    "one message": '{"messages": AIMessage(said), "seen": ["a"], "n": look(state, "n", 0) + 1}',
    "dicts": '{"messages": [{"role": "assistant", "content": said}], "seen": ["a"], "n": look(state, "n", 0) + 1}',
    "pairs": '{"messages": [("ai", said)], "seen": ["a"], "n": look(state, "n", 0) + 1}',
}
SAVERS = {"kept by us": "", "kept by its checkpointer": "checkpointer=MemorySaver()"}
QUERIES = ("one", "two", "three")


def source_of(state: str, update: str, saver: str) -> str:
    return textwrap.dedent(GRAPH).format(
        state=textwrap.dedent("    " + STATES[state]), update=UPDATES[update], saver=SAVERS[saver]
    )


def natively(source: str, *own: str) -> list[tuple[str, Any]]:
    """The last message and the `own` keys of the state after each turn, by LangGraph alone."""
    names: dict[str, Any] = {"__name__": "shapes"}
    exec(compile(source, "shapes.py", "exec", dont_inherit=True), names)  # noqa: S102 - the source above
    graph, config = names["graph"], {"configurable": {"thread_id": "t"}}
    state: dict[str, Any] = {}
    found = []
    for query in QUERIES:
        asked = [{"role": "user", "content": query}]
        given = (
            {"messages": asked} if graph.checkpointer else {**state, "messages": [*state.get("messages", ()), *asked]}
        )
        state = dict(graph.invoke(given, config))
        found.append((state["messages"][-1].content, {name: state[name] for name in own}))
    return found


async def here(source: str, folder: Path, state: dict[str, Any] | None = None) -> TrialResult:
    (folder / "shapes.py").write_text(source)
    ref = AgentRef("shapes", "shapes:graph", root=str(folder), folder=str(folder))
    case = Case("c", tuple(map(Turn, QUERIES)), initial_session=SessionInit(state=state or {}))
    return await play_trial(load_agent(ref), TrialSpec(1, 0, 0, case, ref, limits=Limits(60)))


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("state", STATES)
async def test_nodes_get_the_same_state_as_under_langgraph_alone(
    state: str, update: str, saver: str, tmp_path: Path
) -> None:
    source = source_of(state, update, saver)

    played = await here(source, tmp_path)

    turns = [(turn.answer, dict(turn.state_after or {})) for turn in played.transcript.turns]
    assert played.error is None
    assert turns == natively(source, "seen", "n")
    assert turns[2] == ("seen a,a n 2 of 5", {"seen": ["a", "a", "a"], "n": 3})


@pytest.mark.parametrize("saver", SAVERS)
async def test_a_case_begins_with_its_own_state(saver: str, tmp_path: Path) -> None:
    played = await here(source_of("typed", "messages", saver), tmp_path, {"seen": ["before"], "n": 7, "other": 1})

    assert played.transcript.turns[0].answer == "seen before n 7 of 1"
    assert played.transcript.turns[2].answer == "seen before,a,a n 9 of 5"
    assert dict(played.transcript.turns[2].state_after or {}) == {
        "seen": ["before", "a", "a", "a"],
        "n": 10,
        "other": 1,
    }


OBJECTS = """
    from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage
    from langgraph.checkpoint.memory import MemorySaver
    from langgraph.graph import END, START, MessagesState, StateGraph
    from pydantic import BaseModel

    class Plan(BaseModel):
        steps: list[str]

    class State(MessagesState):
        plan: Plan

    def begin(state):
        plan = state.get("plan") or Plan(steps=[])
        first = [] if plan.steps else [SystemMessage("be brief")]
        return {{"plan": Plan(steps=[*plan.steps, "step"]), "messages": [*first, HumanMessage("noted", name="clerk")]}}

    def answer(state):
        said = ",".join(f"{{message.type}} {{message.content}}" for message in state["messages"])
        return {{"messages": [AIMessage(f"{{len(state['plan'].steps)}}: {{said}}"[:90])]}}

    def trim(state):
        return {{"messages": [RemoveMessage(id=message.id) for message in state["messages"][:-2]]}}

    builder = StateGraph(State)
    for name, node in (("begin", begin), ("answer", answer), ("trim", trim)):
        builder.add_node(name, node)
    builder.add_edge(START, "begin")
    builder.add_edge("begin", "answer")
    builder.add_edge("answer", "trim")
    builder.add_edge("trim", END)
    graph = builder.compile({saver})
"""


@pytest.mark.parametrize("saver", SAVERS.values(), ids=SAVERS)
async def test_state_objects_and_node_messages_persist_to_the_next_turn(saver: str, tmp_path: Path) -> None:
    source = textwrap.dedent(OBJECTS).format(saver=saver)

    played = await here(source, tmp_path)

    assert played.error is None
    answers = [turn.answer for turn in played.transcript.turns]
    assert answers == [answer for answer, _ in natively(source)]
    assert answers[0] == "1: human one,system be brief,human noted"
    assert dict(played.transcript.turns[2].state_after or {}) == {"plan": {"steps": ["step"] * 3}}
