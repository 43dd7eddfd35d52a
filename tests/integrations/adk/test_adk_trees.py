"""Trees of agents of google-adk: transfer, agents used as tools, apps with plugins, and where they are found."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agents.adk_source import AGENT_TOOL, ROLLER, SCRIPT, TRANSFER
from tests.agents.installed import skip_without

from evaldesk.agents import agent_ref, find_agents, load_agent
from evaldesk.model import Session
from evaldesk.model.agent_tree import agent_tree

skip_without("google.adk")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what google-adk warns of is not ours to mend


async def test_transfer_to_a_sub_agent_keeps_authors(loaded: Any, play: Any) -> None:
    agent = loaded(TRANSFER)
    session = Session("s", state={"shop": "Books", "customer": "Ann"})

    events = await play(agent, session, "hello")
    await play(agent, session, "and again")

    calls = [(event.author, event.call.name) for event in events if event.kind == "tool_call"]
    assert calls == [("boss", "transfer_to_agent")]
    assert [(event.author, event.text) for event in events if event.kind == "agent_message"] == [
        ("clerk", "clerk here")
    ]
    assert session.turns[1].events[-1].author == "clerk"
    tree = [(each.name, each.parent, each.n_entries, each.n_calls) for each in agent_tree(session.turns, "app")]
    assert tree == [("boss", "", 1, 1), ("clerk", "boss", 2, 0)]


async def test_calls_inside_an_agent_tool_are_reported_apart_from_the_agents_own(loaded: Any, play: Any) -> None:
    agent = loaded(AGENT_TOOL)
    session = Session("s")

    events = await play(agent, session, "go")

    told = [(event.kind, event.author, event.within) for event in events if event.kind != "usage"]
    assert told == [
        ("tool_call", "lead", ""),
        ("tool_call", "scout", "scout"),
        ("tool_result", "scout", "scout"),
        ("agent_message", "scout", "scout"),
        ("tool_result", "lead", ""),
        ("agent_message", "lead", ""),
    ]
    turn = session.turns[0]
    assert ([call.name for call in turn.tool_calls], turn.answer) == (["scout"], "nothing there")
    assert len(turn.usages) == 4
    tree = [(each.name, each.parent, each.tool, each.n_model_calls) for each in agent_tree([turn], "app")]
    assert tree == [("lead", "", "", 2), ("scout", "lead", "scout", 2)]


async def test_agents_of_a_sequence_are_below_it(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
def agent(name):
    return LlmAgent(name=name, model=Scripted(answer=lambda word, request: said(name)))

root_agent = SequentialAgent(name="line", sub_agents=[agent("writer"), agent("critic")])
"""
    )
    session = Session("s")

    await play(loaded(source), session, "go")

    tree = [(each.name, each.parent, each.depth, each.n_entries) for each in agent_tree(session.turns, "app")]
    assert tree == [("line", "", 0, 0), ("writer", "line", 1, 1), ("critic", "line", 1, 1)]


async def test_plugins_and_callbacks_are_honoured(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
class Shout(BasePlugin):
    async def after_model_callback(self, *, callback_context, llm_response):
        return said(llm_response.content.parts[0].text.upper())

def greet(callback_context):
    callback_context.state["greeted"] = True

def answer(word, request):
    return said("quiet")

root_agent = LlmAgent(name="a", model=Scripted(answer=answer), before_agent_callback=greet)
app = App(name="loud", root_agent=root_agent, plugins=[Shout("shout")])
"""
    )
    session = Session("s")

    await play(loaded(source), session, "go")

    assert session.turns[0].answer == "QUIET"
    assert session.state == {"greeted": True}


def test_the_description_is_a_tree(loaded: Any) -> None:
    described = loaded(TRANSFER).describe()

    assert (described.name, described.kind, described.model) == ("boss", "adk", "scripted")
    assert [(agent.name, agent.kind, agent.description) for agent in described.sub_agents] == [
        ("clerk", "LlmAgent", "Answers.")
    ]
    assert described.initial_state == {"shop": "", "customer": ""}


def test_tools_are_described_with_their_schemas(loaded: Any) -> None:
    [tool] = loaded(ROLLER).describe().tools

    assert (tool.name, tool.description) == ("roll_die", "Roll a die.")
    assert tool.parameters["properties"]["sides"]["type"] == "integer"
    assert tool.parameters["required"] == ["sides"]


def test_an_agent_used_as_a_tool_is_in_the_tree(loaded: Any) -> None:
    described = loaded(AGENT_TOOL).describe()

    assert [(agent.name, agent.kind) for agent in described.sub_agents] == [("scout", "AgentTool")]
    assert [tool.name for tool in described.sub_agents[0].tools] == ["look"]


async def test_a_folder_that_re_exports_its_agent(tmp_path: Path, play: Any) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    folder.joinpath("core.py").write_text(ROLLER)
    folder.joinpath("__init__.py").write_text("from .core import root_agent\n")
    session = Session("s", state={"player": "Ann"})

    await play(load_agent(agent_ref(str(folder))), session, "hi")

    assert session.turns[0].answer == "hello there"


def test_a_folder_with_only_an_app(tmp_path: Path) -> None:
    folder = tmp_path / "only_app"
    folder.mkdir()
    source = ROLLER.replace("root_agent = LlmAgent(", "dice = LlmAgent(")
    folder.joinpath("agent.py").write_text(f"{source}\napp = App(name='only_app', root_agent=dice)\n")

    [found] = find_agents([tmp_path])

    assert (found.target, load_agent(found).describe().name) == ("only_app.agent:app", "dice")


def test_a_folder_with_only_yaml(tmp_path: Path) -> None:
    folder = tmp_path / "written"
    folder.mkdir()
    folder.joinpath("tools.py").write_text("def roll_die(sides: int) -> int:\n    return sides\n")
    folder.joinpath("clerk.yaml").write_text(
        "agent_class: LlmAgent\nname: clerk\nmodel: gemini-2.5-flash\ninstruction: Sell.\n"
    )
    folder.joinpath("root_agent.yaml").write_text(
        "agent_class: LlmAgent\nname: written\nmodel: gemini-2.5-flash\ninstruction: Be brief.\n"
        "tools:\n  - name: written.tools.roll_die\nsub_agents:\n  - config_path: clerk.yaml\n"
    )

    [found] = find_agents([tmp_path])
    described = load_agent(found).describe()

    assert (described.name, described.instruction, described.model) == ("written", "Be brief.", "gemini-2.5-flash")
    assert [tool.name for tool in described.tools] == ["roll_die"]
    assert [agent.name for agent in described.sub_agents] == ["clerk"]


async def test_an_agent_from_a_coroutine_factory_is_made_and_closed_for_each_turn(loaded: Any, play: Any) -> None:
    source = f"""{ROLLER}
from contextlib import AsyncExitStack

made, closed = [], []

async def get_agent_async():
    made.append(root_agent.clone())
    stack = AsyncExitStack()
    stack.callback(closed.append, len(made))
    return made[-1], stack
"""
    agent = loaded(source, "get_agent_async")
    session = Session("s", state={"player": "Ann"})

    described = agent.describe()
    for _ in range(2):
        await play(agent, session, "Roll a d6")

    module = sys.modules["some_agent.agent"]
    assert (described.name, [tool.name for tool in described.tools]) == ("dice", ["roll_die"])
    assert [turn.answer for turn in session.turns] == ["got 6", "got 6"]
    assert session.state["rolls"] == [6, 6]
    assert (len(module.made), module.closed) == (3, [1, 2, 3])
