"""`langgraph.json`: its graphs are found under their names, with their dependencies and their environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.agents.installed import skip_without

from evaldesk.agents import agent_ref, find_agents, load_agent
from evaldesk.agents.env_files import env_variables
from evaldesk.errors import UsageError
from evaldesk.model import AgentRef, Session

pytestmark = pytest.mark.anyio

GRAPH = """
import os

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph

from {words} import greeting


def answer(state):
    return {{"messages": [AIMessage(f"{{greeting}} {{os.environ['SHOP']}}")]}}


def built():
    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile()


graph = built()


def make_graph(config: "RunnableConfig"):
    return built()
"""
Write = Callable[..., Path]


@pytest.fixture
def project(tmp_path: Path, own_imports: None) -> Write:
    """Writes a project with a graph at a path, the module of its words, and `langgraph.json`."""

    def write(graph: str, words: str, table: dict[str, Any], **files: str) -> Path:
        home = tmp_path / "shop"
        contents = {
            graph: GRAPH.format(words=words.rpartition("/")[2].removesuffix(".py")),
            words: "greeting = 'Welcome to'\n",
            "langgraph.json": json.dumps(table),
            **files,
        }
        for name, text in contents.items():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text)
        return home

    return write


LAYOUTS = {
    "beside the file": ("graph.py", "wordings.py", {"dependencies": ["."], "graphs": {"clerk": "./graph.py:graph"}}),
    "in a dependency": (
        "agents/clerk/graph.py",
        "libs/words/wordings.py",
        {
            "dependencies": [".", "./libs/words", "langchain_openai"],
            "graphs": {"clerk": "./agents/clerk/graph.py:graph"},
        },
    ),
    "with a description": (
        "graph.py",
        "wordings.py",
        {"dependencies": ["."], "graphs": {"clerk": {"path": "./graph.py:graph", "description": "Serves"}}},
    ),
    "by the name of its module": (
        "clerks/graph.py",
        "wordings.py",
        {"dependencies": ["."], "graphs": {"clerk": "clerks.graph:graph"}},
    ),
    "in a file that no module can name": (
        "my-agents/graph.py",
        "wordings.py",
        {"dependencies": ["."], "graphs": {"clerk": "./my-agents/graph.py:graph"}},
    ),
    "made by a function": (
        "graph.py",
        "wordings.py",
        {"dependencies": ["."], "graphs": {"clerk": "./graph.py:make_graph"}},
    ),
}


@pytest.mark.parametrize(("graph", "words", "table"), LAYOUTS.values(), ids=LAYOUTS.keys())
async def test_a_graph_is_found_and_played(
    project: Write, play: Any, monkeypatch: pytest.MonkeyPatch, graph: str, words: str, table: dict[str, Any]
) -> None:
    skip_without("langgraph")
    monkeypatch.setenv("SHOP", "taken away after the test")
    monkeypatch.delenv("SHOP")
    home = project(graph, words, {**table, "env": ".env.local"}, **{".env.local": "SHOP=Ann\n", ".env": "SHOP=Bob\n"})

    [ref] = find_agents([home])
    events = await play(load_agent(ref), Session("s"), "hello")

    assert ref.id == "clerk"
    assert [event.text for event in events if event.kind == "agent_message"] == ["Welcome to Ann"]


async def test_a_project_of_a_source_folder_is_imported_as_it_is_installed(
    project: Write, play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("langgraph")
    monkeypatch.setenv("SHOP", "Ann")
    home = project(
        "src/clerk/graph.py",
        "src/clerk/wordings.py",
        {"dependencies": ["."], "graphs": {"clerk": "./src/clerk/graph.py:graph"}},
        **{"pyproject.toml": "[project]\nname = 'clerk'\n", "src/clerk/__init__.py": ""},
    )
    (home / "src/clerk/graph.py").write_text(GRAPH.format(words="clerk.wordings"))

    [ref] = find_agents([home])
    events = await play(load_agent(ref), Session("s"), "hello")

    assert (ref.target, ref.root) == ("clerk.graph:graph", str(home / "src"))
    assert events[-1].text == "Welcome to Ann"


TWO = {"graphs": {"clerk": "./graph.py:graph", "boss": "./graph.py:make_graph", "web": "./graph.ts:graph"}}


def test_an_agent_is_named_by_the_file_and_its_name(project: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    home = project("graph.py", "wordings.py", TWO)
    monkeypatch.chdir(home.parent)

    named = agent_ref("shop/langgraph.json:boss")

    assert (named.id, named.target, named.root) == ("boss", "graph:make_graph", str(home))
    assert [ref.id for ref in find_agents([home])] == ["clerk", "boss"]
    assert [ref.id for ref in find_agents([home.parent])] == ["clerk", "boss"]


@pytest.mark.parametrize("spec", ["shop", "shop/langgraph.json", "shop/langgraph.json:none"])
def test_a_file_with_several_graphs_asks_for_one_of_them(
    project: Write, monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    monkeypatch.chdir(project("graph.py", "wordings.py", TWO).parent)

    with pytest.raises(UsageError, match=r"name one of its agents: langgraph\.json:clerk, langgraph\.json:boss"):
        agent_ref(spec)


def test_the_only_graph_of_a_folder_is_its_agent(project: Write) -> None:
    home = project("graph.py", "wordings.py", {"graphs": {"clerk": "./graph.py:graph"}})

    assert agent_ref(str(home)) == agent_ref(str(home / "langgraph.json")) == find_agents([home])[0]


def test_a_graph_in_an_agent_file_is_one_agent(project: Write) -> None:
    home = project("agent.py", "wordings.py", {"graphs": {"clerk": "./agent.py:graph"}})
    (home / "agent.py").write_text("root_agent = graph = None\n")

    assert [ref.id for ref in find_agents([home])] == ["clerk"]


UNUSUAL_PATH = json.dumps({"graphs": {"a": "./a\0b.py:graph"}, "dependencies": ["./c\0d", "./" + "e" * 5000]})


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '{"graphs": 3}', '{"graphs": {"a": "graph"}}', '{"graphs": {"a": 1}}', UNUSUAL_PATH],
    ids=["no JSON", "a list", "a number", "no file", "no path", "paths that no system has"],
)
def test_a_file_that_names_no_graph_names_no_agent(project: Write, text: str) -> None:
    home = project("graph.py", "wordings.py", {}, **{"langgraph.json": text})

    assert find_agents([home]) == []


ENVIRONMENTS = {
    "a file": (".env.local", {"SHOP": "Ann"}),
    "variables": ({"SHOP": "Eve", "LIMIT": 3}, {"SHOP": "Eve", "LIMIT": "3"}),
    "nothing": (None, {"SHOP": "Bob"}),
    "a file that is missing": ("gone.env", {"SHOP": "Bob"}),
    "a path that no system has": ("a\0b", {"SHOP": "Bob"}),
    "a path that is too long": ("a" * 5000, {"SHOP": "Bob"}),
}


@pytest.mark.parametrize(("env", "wanted"), ENVIRONMENTS.values(), ids=ENVIRONMENTS.keys())
def test_the_environment_is_that_of_the_project(project: Write, env: Any, wanted: dict[str, str]) -> None:
    files = {".env.local": "SHOP=Ann\n", ".env": "SHOP=Bob\n"}
    home = project("agents/graph.py", "wordings.py", {"graphs": {}, "env": env}, **files)

    assert env_variables(str(home / "agents"), {}) == wanted


def test_dependencies_count_as_files_of_the_agent(project: Write) -> None:
    from evaldesk.engine.driver.code_files import imported_files

    home = project(*LAYOUTS["in a dependency"])
    [ref] = find_agents([home])
    own = AgentRef("x", "y:z", folder=ref.folder, root=ref.root)

    assert str(home / "libs/words/wordings.py") in imported_files(own)
