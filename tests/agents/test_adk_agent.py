"""Agents of google-adk, with the real package and a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.agents.adk_source import ROLLER, SCRIPT

from evaldesk.agents import agent_ref, find_agents, load_agent
from evaldesk.model import ModelOptions, Session

pytest.importorskip("google.adk", reason="google-adk is not installed; `make adapters` installs it")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what google-adk warns of is not ours to mend


def _kinds(events: list[Any]) -> list[str]:
    return [event.kind for event in events if event.kind != "usage"]


async def test_a_turn_with_a_tool(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})

    events = await play(agent, session, "Roll a d6")

    assert _kinds(events) == ["tool_call", "tool_result", "agent_message"]
    assert session.turns[0].answer == "got 6"
    assert session.state == {"player": "Ann", "rolls": [6]}
    assert [(event.usage.model, event.usage.tokens_in, event.usage.cost) for event in events if event.usage] == [
        ("scripted", 11, None),
        ("scripted", 11, None),
    ]


async def test_the_second_turn_remembers_the_first(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})

    await play(agent, session, "Roll a d6")
    await play(agent, session, "hi")

    assert _shown(agent) == ["Roll a d6", "roll_die", "roll_die", "got 6", "hi"]


async def test_a_fresh_worker_tells_the_agent_what_was_said(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})
    await play(agent, session, "Roll a d6")

    again = Session("s", state=dict(session.state), turns=list(session.turns))
    await play(agent, again, "hi")

    assert _shown(agent) == ["Roll a d6", "roll_die", "roll_die", "got 6", "hi"]


async def test_a_state_that_a_person_changed_is_what_the_next_turn_starts_from(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"})
    await play(agent, session, "Roll a d6")

    session.state = {"player": "Bob", "rolls": []}
    await play(agent, session, "Roll a d8")

    assert session.state == {"player": "Bob", "rolls": [8]}
    assert _asked(agent)[-1].config.system_instruction.startswith("Roll for Bob.")


async def test_text_is_streamed_in_a_chat_and_kept_once(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    session = Session("s", state={"player": "Ann"}, is_streaming=True)

    events = await play(agent, session, "hi")

    assert [event.text for event in events if event.is_partial] == ["hello", "there"]
    assert session.turns[0].answer == "hello there"


async def test_prefixes_of_the_state(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
def note(tool_context) -> str:
    tool_context.state["app:theme"] = "dark"
    tool_context.state["user:name"] = "Ann"
    tool_context.state["temp:scratch"] = 1
    tool_context.state["plain"] = tool_context.state["user:from"]
    return "noted"

def answer(word, request):
    return said("done") if isinstance(word, dict) else said("", ("note", {}))

root_agent = LlmAgent(name="a", model=Scripted(answer=answer), tools=[note])
"""
    )
    agent = loaded(source)
    first, second = Session("1", state={"user:from": "Ulm"}), Session("2", state={"user:from": "Rome"})

    await play(agent, first, "go")
    await play(agent, second, "go")

    assert first.state == {"user:from": "Ulm", "app:theme": "dark", "user:name": "Ann", "plain": "Ulm"}
    assert second.state["plain"] == "Rome"


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


TRANSFER = (
    SCRIPT
    + """
def boss(word, request):
    return said("", ("transfer_to_agent", {"agent_name": "clerk"}))

def clerk(word, request):
    return said("clerk here")

below = LlmAgent(name="clerk", model=Scripted(answer=clerk), description="Answers.", instruction="For {customer}.")
root_agent = LlmAgent(name="boss", model=Scripted(answer=boss), sub_agents=[below], instruction="{shop} {name?}")
"""
)

AGENT_TOOL = (
    SCRIPT
    + '''
def look(place: str) -> str:
    """Look."""
    return f"{place} is empty"

def inner(word, request):
    return said(word["result"]) if isinstance(word, dict) else said("", ("look", {"place": word}))

def outer(word, request):
    return said("nothing there") if isinstance(word, dict) else said("", ("scout", {"request": "cellar"}))

scout = LlmAgent(name="scout", model=Scripted(answer=inner), tools=[look], description="Looks around.")
root_agent = LlmAgent(name="lead", model=Scripted(answer=outer), tools=[AgentTool(scout)])
'''
)


async def test_the_calls_inside_an_agent_tool_are_told_but_are_not_the_agents_own(loaded: Any, play: Any) -> None:
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


async def test_reset_data_is_called_before_each_conversation(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
sold = []

def reset_data():
    sold.clear()

def sell() -> int:
    sold.append(1)
    return len(sold)

def answer(word, request):
    return said(str(word["result"])) if isinstance(word, dict) else said("", ("sell", {}))

root_agent = LlmAgent(name="a", model=Scripted(answer=answer), tools=[sell])
"""
    )
    agent = loaded(source)
    first, second = Session("1"), Session("2")

    for session in (first, first, second):
        await play(agent, session, "go")

    assert [turn.answer for turn in (*first.turns, *second.turns)] == ["1", "2", "1"]


async def test_max_turns_is_a_stop_of_its_own(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
def again() -> str:
    return "more"

root_agent = LlmAgent(name="a", model=Scripted(answer=lambda word, request: said("hm", ("again", {}))), tools=[again])
"""
    )
    session = Session("s", model_options=ModelOptions(max_turns=2))

    events = await play(loaded(source), session, "go")

    assert events[-1].error.kind == "max_turns"
    assert (len(session.turns[0].tool_calls), session.turns[0].answer) == (2, "")


async def test_what_a_run_asks_of_the_model_reaches_it(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    options = ModelOptions(temperature=0.2, top_p=0.5, max_tokens=9)

    await play(agent, Session("s", state={"player": "Ann"}, model_options=options), "hi")

    config = _asked(agent)[-1].config
    assert (config.temperature, config.top_p, config.max_output_tokens) == (0.2, 0.5, 9)


async def test_another_model_takes_the_place_of_every_model_in_the_tree(loaded: Any, play: Any, endpoint: Any) -> None:
    agent = loaded(AGENT_TOOL)
    endpoint.says("", ("c1", "scout", '{"request": "attic"}')).says("", ("c2", "look", '{"place": "attic"}'))
    endpoint.says("empty").says("all empty")
    session = Session("s", model="hosted_vllm/small", model_options=ModelOptions(endpoint.address, max_tokens=50))

    events = await play(agent, session, "go")

    assert session.turns[0].answer == "all empty"
    assert [asked["max_completion_tokens"] for asked in endpoint.asked] == [50] * 4
    assert {event.usage.model for event in events if event.usage} == {"hosted_vllm/small"}
    await play(agent, own := Session("own"), "go")
    assert own.turns[0].answer == "nothing there"


async def test_a_litellm_model_of_the_agent_is_tried_again_and_counted(loaded: Any, play: Any, endpoint: Any) -> None:
    source = f'''
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm

root_agent = LlmAgent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="{endpoint.address}"))
'''
    endpoint.fails(429, retry_after="0").says("hello")
    session = Session("s")

    events = await play(loaded(source), session, "hi")

    assert session.turns[0].answer == "hello"
    assert [(event.usage.n_attempts, event.usage.tokens_in) for event in events if event.usage] == [(2, 11)]
    assert [event.text.partition(" until ")[0] for event in events if event.kind == "log"] == ["rate-limited"]


async def test_a_litellm_model_streams(loaded: Any, play: Any, endpoint: Any) -> None:
    source = f'''
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm

root_agent = LlmAgent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="{endpoint.address}"))
'''
    endpoint.streams("hel", "lo")
    session = Session("s", is_streaming=True)

    events = await play(loaded(source), session, "hi")

    assert [event.text for event in events if event.is_partial] == ["hel", "lo"]
    assert session.turns[0].answer == "hello"


async def test_a_key_that_is_refused_is_fatal(loaded: Any, play: Any, endpoint: Any) -> None:
    from evaldesk.errors import ModelError

    source = f'''
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm

root_agent = LlmAgent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="{endpoint.address}"))
'''
    endpoint.fails(401, "who are you")

    with pytest.raises(ModelError) as caught:
        await play(loaded(source), Session("s"), "hi")

    assert (caught.value.kind, caught.value.is_fatal) == ("authentication", True)


@pytest.fixture
def uncollected() -> None:
    """A client that google-genai left half built fails to close itself, in whatever loop runs when it is collected.

    That may be long after this test, so the class stays as it is made here.
    """
    from google.genai import _api_client

    vars(_api_client)["BaseApiClient"].__del__ = lambda client: None


@pytest.mark.usefixtures("uncollected")
async def test_a_gemini_without_a_key_names_the_variable(loaded: Any, play: Any, monkeypatch: Any) -> None:
    from evaldesk.errors import ModelError

    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    agent = loaded("from google.adk.agents import LlmAgent\nroot_agent = LlmAgent(name='a', model='gemini-2.5-flash')")

    with pytest.raises(ModelError, match="set GEMINI_API_KEY or GOOGLE_API_KEY") as caught:
        await play(agent, Session("s"), "hi")

    assert caught.value.is_fatal
    assert agent.describe().missing == ("GEMINI_API_KEY or GOOGLE_API_KEY",)


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
    folder.joinpath("root_agent.yaml").write_text(
        "agent_class: LlmAgent\nname: written\nmodel: gemini-2.5-flash\ninstruction: Be brief.\n"
    )

    [found] = find_agents([tmp_path])
    described = load_agent(found).describe()

    assert (described.name, described.instruction, described.model) == ("written", "Be brief.", "gemini-2.5-flash")


def _asked(agent: Any) -> list[Any]:
    import sys

    return list(sys.modules["some_agent.agent"].asked)


def _shown(agent: Any) -> list[str]:
    """What the model was shown in its last call: texts, and the names of calls and results."""
    parts = [part for content in _asked(agent)[-1].contents for part in content.parts]
    return [part.text or (part.function_call or part.function_response).name for part in parts]
