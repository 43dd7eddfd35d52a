"""Agents that `evaldesk.toml` declares."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.islands import of_tools

from evaldesk.agents import declared_refs, find_agents, load_agent, merge_refs, named_ref
from evaldesk.agents.own.litellm import LlmAgent
from evaldesk.agents.own.tables import LlmTable
from evaldesk.codec import msgspec
from evaldesk.desk.named_agents import named_agent
from evaldesk.desk.workspace import open_settings
from evaldesk.errors import AgentError, UsageError
from evaldesk.model import AgentRef, Session
from evaldesk.settings import read_settings

pytestmark = pytest.mark.anyio

TOOLS = '''
def roll_die(sides: int, state: dict) -> int:
    """Roll a die."""
    state["rolls"] = [sides]
    return sides
'''


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "shop_of_dice"
    folder.mkdir()
    folder.joinpath("tools.py").write_text(TOOLS)
    folder.joinpath("agent.py").write_text("def root_agent(message): return 'hello'\n")
    return tmp_path


def _refs(workspace: Path, text: str) -> list[AgentRef]:
    workspace.joinpath("evaldesk.toml").write_text(text)
    settings = read_settings(workspace, (workspace,), environment={})
    return declared_refs(settings.agents, workspace)


async def test_an_agent_made_of_its_table_alone(workspace: Path, play: Any) -> None:
    [ref] = _refs(
        workspace,
        """
        [agents.dice]
        model = "demo/dice?mistakes=0"
        instruction = "Roll for {player}."
        tools = ["shop_of_dice.tools:roll_die"]
        temperature = 0.0
        initial_state = {player = "Ann"}
        """,
    )
    agent = load_agent(ref)
    session = Session("s", state=dict(agent.describe().initial_state))

    await play(agent, session, "Roll a d6")

    assert (ref.id, ref.kind, ref.folder) == ("dice", "litellm", str(workspace / "shop_of_dice"))
    assert session.state["rolls"] == [6]


def test_an_agent_by_its_target(workspace: Path) -> None:
    by_folder, by_module = _refs(
        workspace,
        '[agents.one]\ntarget = "shop_of_dice"\n[agents.two]\ntarget = "shop_of_dice.agent:root_agent"\n',
    )

    assert (by_folder.id, by_folder.target) == ("one", "shop_of_dice.agent:root_agent")
    assert (by_module.id, by_module.root) == ("two", str(workspace))


@of_tools("a2a", "adk")
def test_agents_that_are_not_imported(workspace: Path) -> None:
    chat, server, prefixed, command = _refs(
        workspace,
        """
        [agents.chat]
        url = "http://127.0.0.1:9/v1"
        model = "small"
        [agents.server]
        kind = "adk"
        url = "http://127.0.0.1:9/weather"
        [agents.prefixed]
        url = "a2a:http://127.0.0.1:9"
        [agents.command]
        command = "node agent.js"
        """,
    )

    assert [(ref.id, ref.kind) for ref in (chat, server, prefixed, command)] == [
        ("chat", "http_chat"),
        ("server", "adk_server"),
        ("prefixed", "a2a"),
        ("command", "command"),
    ]
    assert chat.declared == '{"model":"small"}'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("agents = 3", "agents is a table"),
        ("[agents]\nfolders = ['nowhere']", "nowhere is not a folder"),
        ("[agents]\nx = 3", r"declare the agent under \[agents.x\]"),
        ("[agents.x]\n", "say target, url, command or model"),
        ("[agents.'a/b']\nmodel = 'demo/dice'", "a name has letters"),
        ("[agents.x]\ntarget = 'nowhere'", "is neither a folder, nor module:attr"),
        ("[agents.x]\ntarget = 'a:b'\nmodel = 'm'", "nothing else may be said"),
        ("[agents.x]\nmodel = 'm'\ninstructions = 'typo'", "unknown field `instructions`"),
        ("[agents.x]\nmodel = 'm'\ntools = 'a:b'", "Expected `array`"),
        ("[agents.x]\nkind = 'ftp'\nurl = 'http://127.0.0.1:9'", "kind is one of"),
        ("[agents.x]\nurl = 'ftp:http://127.0.0.1:9'", "kind is one of"),
        ("[agents.x]\nurl = 'rm -rf here'", "url is an address such as http://127.0.0.1:8000, not 'rm -rf here'"),
        ("[agents.x]\nurl = 'http://127.0.0.1:9'\ncommand = 'node a.js'", "say a url or a command, as a string"),
        ("[agents.x]\ncommand = ['node', 'a.js']", "say a url or a command, as a string"),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(workspace: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        _refs(workspace, text)

    assert "evaldesk.toml" in str(caught.value)


def test_a_misspelled_name_gets_a_suggestion(workspace: Path) -> None:
    with pytest.raises(UsageError, match=r"'bokshop' is neither .*; did you mean bookshop\?"):
        named_ref("bokshop", {"bookshop": {"model": "demo/dice"}}, workspace)


def test_a_missing_tool_is_named(workspace: Path) -> None:
    [ref] = _refs(workspace, "[agents.x]\nmodel = 'demo/dice'\ntools = ['shop_of_dice.tools:fold']\n")

    with pytest.raises(AgentError, match=r"x: tool module 'shop_of_dice\.tools' has no attribute 'fold'"):
        load_agent(ref)


def test_a_declared_agent_replaces_the_same_agent_on_disk(workspace: Path) -> None:
    declared = _refs(workspace, "[agents.mine]\ntarget = 'shop_of_dice'\n")

    assert [ref.id for ref in merge_refs(find_agents([workspace]), declared)] == ["mine"]


def test_an_agent_on_disk_is_renamed_for_a_declared_one_of_its_name(workspace: Path) -> None:
    declared = _refs(workspace, "[agents.shop_of_dice]\nmodel = 'demo/dice'\n")

    assert [ref.id for ref in merge_refs(find_agents([workspace]), declared)] == ["shop_of_dice", "shop_of_dice-2"]


def test_folders_that_the_file_names_are_searched(tmp_path: Path, workspace: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.joinpath("evaldesk.toml").write_text("[agents]\nfolders = ['..']\n")

    settings = open_settings((), workspace=str(home))

    assert workspace in settings.roots
    assert not settings.is_demo


def test_a_command_may_name_a_declared_agent(workspace: Path) -> None:
    [ref] = _refs(workspace, "[agents.x]\nmodel = 'demo/dice'\n")

    assert named_agent("x", str(workspace)) == ref


def test_a_module_of_the_same_name_from_another_root_is_replaced(tmp_path: Path, workspace: Path) -> None:
    text = "[agents.x]\nmodel = 'demo/dice'\ntools = ['shop_of_dice.tools:roll_die']\n"
    load_agent(_refs(workspace, text)[0])
    other = tmp_path / "elsewhere"
    (other / "shop_of_dice").mkdir(parents=True)
    (other / "shop_of_dice" / "tools.py").write_text("def roll_die(coins: int) -> int: return coins\n")

    described: Any = load_agent(_refs(other, text)[0]).describe()

    assert list(described.tools[0].parameters["properties"]) == ["coins"]


def test_the_table_of_an_agent_of_our_own_has_its_fields_and_their_defaults() -> None:
    own = {each.name: each for each in dataclasses.fields(LlmAgent) if each.init and each.name != "name"}
    table = {each.name: each for each in msgspec.structs.fields(LlmTable)}

    assert list(own) == list(table)
    given = {name for name, each in table.items() if each.default is not msgspec.NODEFAULT}
    assert {name: own[name].default for name in given} == {name: table[name].default for name in given}
