"""The table of docs/agents.md on what is played of each framework: every cell is played here with the real package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.agents import (
    adk_source,
    langgraph_source,
    openai_agents_source,
    pydantic_ai_source,
    test_dependencies,
    test_media,
)
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without
from tests.agents.osmosis_example import SERVER, forget_package
from tests.agents.test_awaiting_approval import ADK, GRAPH, OPENAI, PYDANTIC
from tests.agents.test_resumed_approvals import decided
from tests.agents.test_uncounted import NESTED
from tests.islands import of_tools
from tests.media_samples import picture

from evaldesk.model import Decision, ModelOptions, Session, TurnRecord
from evaldesk.model.media import Media

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

ASKING = """
def root_agent(message, state, decisions):
    call = {"name": "roll_die", "args": {"sides": 6}, "id": "c1"}
    if not decisions:
        yield {"kind": "tool_call", **call}
        yield {"kind": "waiting", **call}
        return
    yield {"kind": "tool_result", **call, "result": 6}
    yield "got 6"
"""
CLIENT = """
from openai import OpenAI

def ask(question):
    client = OpenAI(base_url="{address}", api_key="k")
    found = client.chat.completions.create(model="small", messages=[{{"role": "user", "content": question}}])
    return found.choices[0].message.content

def root_agent(message):
    return ask(ask(ask(message)))
"""
DOC = Path(__file__).resolve().parents[2] / "docs" / "agents.md"
PACKAGES = {
    "google-adk": "google.adk",
    "OpenAI Agents": "agents",
    "LangGraph": "langgraph",
    "pydantic-ai": "pydantic_ai",
    "Python": "",
    "Osmosis": "",
}
FRAMEWORKS = ("google-adk", "OpenAI Agents", "LangGraph", "pydantic-ai")
NONE = "–"
"""A shape that the framework does not have."""
ROLLERS = {
    "google-adk": adk_source.ROLLER,
    "OpenAI Agents": openai_agents_source.ROLLER,
    "LangGraph": langgraph_source.ROLLER,
    "pydantic-ai": pydantic_ai_source.ROLLER,
    "Python": """
def root_agent(message, state, decisions):
    call = {"name": "roll_die", "args": {"sides": 6}, "id": "c1"}
    yield {"kind": "tool_call", **call}
    state["rolls"] = [*state.get("rolls", []), 6]
    yield {"kind": "tool_result", **call, "result": 6}
    yield "got "
    yield "6"
""",
}
WAITING = {"google-adk": ADK, "OpenAI Agents": OPENAI, "LangGraph": GRAPH, "pydantic-ai": PYDANTIC, "Python": ASKING}
INSIDE = {
    "Python": "a client inside a tool",
    "google-adk": "ADK AgentTool",
    "OpenAI Agents": "OpenAI as_tool",
    "LangGraph": "a graph inside a tool",
    "pydantic-ai": "pydantic-ai delegation",
}
LOOKING = dict(zip(FRAMEWORKS, ("adk", "openai_agents", "langgraph", "pydantic_ai"), strict=True))
CONTEXTS = {
    "OpenAI Agents": test_dependencies.SOURCES["agents"],
    "pydantic-ai": test_dependencies.SOURCES["pydantic_ai"],
}


async def _tool(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    if framework == "Osmosis":
        turn = await _osmosis(loaded, played, endpoint)
        assert (turn.answer, [call.name for call in turn.tool_calls]) == ("#### 42", ["add"])
        assert [event.result for event in turn.events if event.kind == "tool_result"] == ["42"]
        return "call, result and answer"
    turn = await played(loaded(ROLLERS[framework]), Session("s"), "Roll a d6")
    assert (turn.answer, [(call.name, call.args) for call in turn.tool_calls]) == (
        "got 6",
        [("roll_die", {"sides": 6})],
    )
    return "call, result and answer"


async def _state(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    session = Session("s", state={"rolls": [1]})
    turn = await played(loaded(ROLLERS[framework]), session, "Roll a d6")
    assert (turn.error, session.state["rolls"]) == (None, [1, 6])
    return "before and after"


async def _stream(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    if framework == "Osmosis":
        turn = await _osmosis(loaded, played, endpoint, is_streaming=True)
        assert (turn.answer, [call.name for call in turn.tool_calls]) == ("#### 42", ["add"])
        return "the same events"
    turn = await played(loaded(ROLLERS[framework]), Session("s", is_streaming=True), "Roll a d6")
    assert ((turn.answer or "").strip(), [call.name for call in turn.tool_calls]) == ("got 6", ["roll_die"])
    return "the same events"


async def _waits(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    turn = await played(loaded(WAITING[framework]), Session("s"), "Roll a d6")
    assert (turn.stop_reason, turn.error) == ("awaiting_approval", None)
    return "`awaiting_approval`"


async def _resumed(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    turn = await decided(loaded, WAITING[framework], Decision("approve"))
    assert (turn.error, turn.stop_reason, turn.answer) == (None, "answered", "got 6")
    assert [event.kind for event in turn.events].count("tool_result") == 1
    return "result and answer"


async def _inside(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    if framework == "Python":
        endpoint.says("a").says("b").says("it is 42")
        turn = await played(loaded(CLIENT.format(address=endpoint.address)), Session("s"), "hi")
        assert (turn.answer, len(turn.usages), len(endpoint.asked)) == ("it is 42", 3, 3)
        return "its calls are counted"
    _, source, argument = NESTED[INSIDE[framework]]
    endpoint.says("", ("c1", "ask", json.dumps({argument: "what?"}))).says("42").says("it is 42")
    turn = await played(loaded(source.replace("{address}", endpoint.address)), Session("s"), "hi")
    assert (turn.answer, len(turn.usages), len(endpoint.asked)) == ("it is 42", 3, 3)
    return "its calls are counted"


async def _image(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    image = picture()
    if framework == "Osmosis":
        await _osmosis(loaded, played, endpoint, media=(image,))
    elif framework == "Python":
        source = "def root_agent(message, media):\n    return media[0].data\n"
        turn = await played(loaded(source), Session("s", media=(image,)), "What is it?")
        assert turn.answer == image.data
        return "its bytes arrive"
    else:
        endpoint.says("a cat")
        source = test_media.FRAMEWORKS[LOOKING[framework]][1].replace("{address}", endpoint.address)
        turn = await played(loaded(source), Session("s", media=(image,)), "What is it?")
        assert (turn.answer, turn.error) == ("a cat", None)
    (said,) = (each["content"] for each in endpoint.asked[0]["messages"] if each["role"] == "user")
    urls = [part["image_url"]["url"] for part in said if part["type"] == "image_url"]
    assert urls == [f"data:image/png;base64,{image.data}"]
    return "its bytes arrive"


async def _osmosis(
    loaded: Any, played: Any, endpoint: Endpoint, *, is_streaming: bool = False, media: tuple[Media, ...] = ()
) -> TurnRecord:
    forget_package()
    endpoint.says("", ("c1", "add", '{"a": 25, "b": 17}')).says("#### 42")
    options = ModelOptions(endpoint.address)
    session = Session("s", model="small", model_options=options, is_streaming=is_streaming, media=media)
    turn: TurnRecord = await played(loaded(SERVER, "agent_loop"), session, "25 + 17?")
    assert (turn.error, len(turn.usages)) == (None, 2)
    return turn


async def _context(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    source = CONTEXTS[framework] + test_dependencies.FUNCTIONS.format(async_="")
    session = Session("s", state={"orders": ["tea"]})
    turn = await played(loaded(source), session, "cake")
    assert (turn.error, turn.answer, session.state["orders"]) == (None, "done 2", ["tea", "cake"])
    return "made and read back"


async def _made(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> str:
    source = f"{ROLLERS[framework]}\nmade = root_agent\ndef root_agent():\n    return made\n"
    turn = await played(loaded(source), Session("s"), "Roll a d6")
    assert (turn.answer, [call.name for call in turn.tool_calls]) == ("got 6", ["roll_die"])
    return "one for each session"


EVERY = tuple(PACKAGES)
NOT_OSMOSIS = (*FRAMEWORKS, "Python")
SHAPES = {
    "a tool": (_tool, "call, result and answer", EVERY),
    "state that a tool changes": (_state, "before and after", NOT_OSMOSIS),
    "a context that is a dataclass": (_context, "made and read back", tuple(CONTEXTS)),
    "a message with an image": (_image, "its bytes arrive", EVERY),
    "a streamed answer": (_stream, "the same events", EVERY),
    "a tool that needs an approval": (_waits, "`awaiting_approval`", NOT_OSMOSIS),
    "a resumed approval": (_resumed, "result and answer", NOT_OSMOSIS),
    "an agent inside a tool": (_inside, "its calls are counted", NOT_OSMOSIS),
    "an agent that a function makes": (_made, "one for each session", NOT_OSMOSIS),
}
CELLS = [
    pytest.param(shape, framework, marks=of_tools("osmosis") if framework == "Osmosis" else ())
    for shape, (*_, frameworks) in SHAPES.items()
    for framework in frameworks
]


@pytest.mark.parametrize(("shape", "framework"), CELLS)
async def test_a_cell_of_the_table_is_played(
    shape: str, framework: str, loaded: Any, played: Any, endpoint: Endpoint
) -> None:
    if PACKAGES[framework]:
        skip_without(PACKAGES[framework])
    play, words, _ = SHAPES[shape]

    assert await play(framework, loaded, played, endpoint) == words


def test_the_table_of_the_document_has_these_cells() -> None:
    _, _, section = DOC.read_text("utf-8").partition("## Shapes of agents\n")
    found = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]

    rows = []
    for shape, (_, words, frameworks) in SHAPES.items():
        cells = [words if framework in frameworks else NONE for framework in PACKAGES]
        rows.append(f"| {shape} | {' | '.join(cells)} |")

    assert found == [f"| | {' | '.join(PACKAGES)} |", *rows]
