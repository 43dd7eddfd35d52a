"""Images, sounds and files of a message reach the model of each framework as the framework sends them."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.agents.endpoint import Endpoint
from tests.agents.installed import skip_without
from tests.agents.test_uncounted import ADK, OPENAI, OURS, PYDANTIC
from tests.islands import of_tools
from tests.media_samples import picture, report, sound

from evaldesk.agents import AGENTS
from evaldesk.model import AgentDescription, Session
from evaldesk.model.media import Media
from evaldesk.reading.strict_json import Document, JsonPosition
from evaldesk.transcripts.adk import AdkEvents

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the packages warn of is not ours

GRAPH = """
from typing import Annotated

from langchain_core.messages import AIMessage, convert_to_openai_messages
from langgraph.graph import StateGraph
from langgraph.graph.message import add_messages
from openai import AsyncOpenAI
from typing_extensions import TypedDict

client = AsyncOpenAI(base_url="{address}", api_key="k")

class State(TypedDict):
    messages: Annotated[list, add_messages]

async def answer(state):
    messages = convert_to_openai_messages(state["messages"])
    found = await client.chat.completions.create(model="small", messages=messages)
    return {"messages": [AIMessage(found.choices[0].message.content)]}

graph = StateGraph(State)
graph.add_node("answer", answer)
graph.set_entry_point("answer")
graph.set_finish_point("answer")
root_agent = graph.compile()
"""
FRAMEWORKS = {
    "adk": ("google.adk", ADK),
    "openai_agents": ("agents", OPENAI),
    "langgraph": ("langgraph", GRAPH),
    "pydantic_ai": ("pydantic_ai", PYDANTIC),
    "litellm": ("openai", OURS),
}


async def _asked(framework: str, loaded: Any, played: Any, endpoint: Endpoint, *media: Media) -> list[Any]:
    """The messages of the user that the model was sent in the second turn; the first one had the media."""
    package, source = FRAMEWORKS[framework]
    skip_without(package)
    agent = loaded(source.replace("{address}", endpoint.address))
    endpoint.says("a cat").says("black")
    session = Session("s", media=media)
    first = await played(agent, session, "What is it?")
    assert (first.answer, first.error) == ("a cat", None)

    session.media = ()
    second = await played(agent, session, "Which color?")

    assert (second.answer, second.error) == ("black", None)
    return [message["content"] for message in endpoint.asked[1]["messages"] if message["role"] == "user"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_an_image_is_sent_in_its_turn_and_remembered_in_the_next(
    framework: str, loaded: Any, played: Any, endpoint: Endpoint
) -> None:
    image = picture()

    first, second = await _asked(framework, loaded, played, endpoint, image)

    urls = [part["image_url"]["url"] for part in first if part["type"] == "image_url"]
    assert urls == [f"data:image/png;base64,{image.data}"]
    assert [part["text"] for part in first if part["type"] == "text"] == ["What is it?"]
    assert (second if isinstance(second, str) else second[0]["text"]) == "Which color?"


@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_a_new_worker_sends_the_image_of_an_earlier_turn(
    framework: str, loaded: Any, played: Any, endpoint: Endpoint
) -> None:
    package, source = FRAMEWORKS[framework]
    skip_without(package)
    image = picture()
    endpoint.says("a cat").says("black")
    session = Session("s", media=(image,))
    await played(loaded(source.replace("{address}", endpoint.address)), session, "What is it?")
    again = Session("s", turns=list(session.turns))

    await played(loaded(source.replace("{address}", endpoint.address)), again, "Which color?")

    assert f"data:image/png;base64,{image.data}" in json.dumps(endpoint.asked[1])


@pytest.mark.parametrize("framework", ["adk", "litellm", "pydantic_ai"])
async def test_a_file_is_sent(framework: str, loaded: Any, played: Any, endpoint: Endpoint) -> None:
    file = report()

    first, _ = await _asked(framework, loaded, played, endpoint, file)

    assert base64.b64encode(file.content()).decode() in json.dumps(first)


async def test_a_sound_is_sent(loaded: Any, played: Any, endpoint: Endpoint) -> None:
    first, _ = await _asked("litellm", loaded, played, endpoint, sound())

    assert {"type": "input_audio", "input_audio": {"data": sound().data, "format": "wav"}} in first


async def test_media_keep_their_position_in_the_message(loaded: Any, played: Any, endpoint: Endpoint) -> None:
    first, second = picture("one.png", at=len("First")), picture("two.png", at=len("First\nSecond"), seed=3)
    agent = loaded(OURS.replace("{address}", endpoint.address))
    endpoint.says("seen")

    await played(agent, Session("s", media=(second, first)), "First\nSecond")

    shown = [part.get("text") or part["image_url"]["url"][-20:] for part in endpoint.asked[0]["messages"][0]["content"]]
    assert shown == ["First", first.data[-20:], "Second", second.data[-20:]]


async def test_a_function_takes_the_media_it_names(loaded: Any, played: Any) -> None:
    agent = loaded(
        "def root_agent(message, media):\n    return f'{message} {media[0].name} {len(media[0].content())}'\n"
    )

    turn = await played(agent, Session("s", media=(picture(),)), "look:")

    assert turn.answer == f"look: cat.png {len(picture().content())}"
    assert AGENTS.takes(agent.describe()) == ("image", "audio", "video", "file")


async def test_a_function_says_which_kinds_it_takes(loaded: Any) -> None:
    source = "def root_agent(message, session):\n    return 'ok'\nroot_agent.takes = ['image', 'smell']\n"

    assert AGENTS.takes(loaded(source).describe()) == ("image",)
    assert AGENTS.takes(loaded("def root_agent(message):\n    return 'ok'\n").describe()) == ()


async def test_the_record_of_a_turn_has_digests_and_the_session_the_bytes(loaded: Any, played: Any) -> None:
    session = Session("s", media=(picture(),))

    turn = await played(loaded("def root_agent(message, media):\n    return 'ok'\n"), session, "look")

    assert turn.media == (picture().held(),)
    assert session.turns[0].media == (picture(),)


@of_tools("openhands")
def test_every_kind_of_agent_says_which_media_it_takes() -> None:
    text_only = {kind.name for kind in AGENTS.builtin if not AGENTS.takes(AgentDescription("a", kind.name))}

    called = {"agent_framework", "agno", "claude_agent", "crewai", "smolagents"}
    assert text_only - called == {"benchmark", "command", "http", "python"}


SAYS = """
from evaldesk import Event, Media

def root_agent(message):
    yield Event("agent_message", text="Here:", media=[Media("image/png", {data!r}, name="cat.png")])
"""


async def test_an_agent_answers_with_an_image(loaded: Any, played: Any) -> None:
    turn = await played(loaded(SAYS.format(data=picture().data)), Session("s"), "Draw a cat")

    assert turn.error is None
    assert turn.events[-1].media == (picture(),)


@pytest.mark.parametrize(
    "media", ['[Media("image/png", "?!")]', '["cat"]', '[Media("image/png", "")]', '[Media(1, "aGk=")]', "7"]
)
async def test_an_invalid_image_is_an_error_of_its_turn(loaded: Any, played: Any, media: str) -> None:
    source = f"from evaldesk import Event, Media\ndef root_agent(_):\n    yield Event('agent_message', media={media})\n"

    turn = await played(loaded(source), Session("s"), "Draw")

    assert turn.error is not None
    assert "media" in turn.error.message


async def test_an_object_of_the_protocol_may_have_media(loaded: Any, played: Any) -> None:
    item = {"mime_type": "image/png", "data": picture().data, "name": "cat.png"}
    source = f"def root_agent(message):\n    yield {{'kind': 'message', 'text': 'Here:', 'media': [{item!r}]}}\n"

    turn = await played(loaded(source), Session("s"), "Draw")

    assert turn.events[-1].media == (picture(),)


def test_an_image_of_an_adk_agent_is_read() -> None:
    part: Any = {"inlineData": {"mimeType": "image/png", "data": picture().data}}
    raw: Any = {"author": "painter", "content": {"parts": [part]}}

    (event,) = AdkEvents().read(JsonPosition(Document(raw)), raw)

    assert (event.text, [item.content() for item in event.media]) == ("", [picture().content()])
