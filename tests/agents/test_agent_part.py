"""An agent inside the one that was named, which `AgentEvaluator` calls `agent_name`."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.adk_source import SCRIPT
from tests.agents.installed import skip_without

from evaldesk.errors import AgentError
from evaldesk.model import ModelOptions, Session

pytestmark = pytest.mark.anyio

TREE = (
    SCRIPT
    + """
def says(word):
    return lambda heard, request: said(f"{word} here")

porter = LlmAgent(name="porter", model=Scripted(answer=says("porter")))
clerk = LlmAgent(name="clerk", model=Scripted(answer=says("clerk")), sub_agents=[porter])
root_agent = LlmAgent(name="boss", model=Scripted(answer=says("boss")), sub_agents=[clerk])

class Loud(BasePlugin):
    async def before_run_callback(self, *, invocation_context):
        invocation_context.session.state["loud"] = invocation_context.agent.name

app = App(name="shop", root_agent=root_agent, plugins=[Loud(name="loud")])
"""
)
FUNCTIONS = "def root_agent(message):\n    return message\n\n\ndef shout(message):\n    return message.upper()\n"


@pytest.mark.filterwarnings("ignore")  # what google-adk warns of is not ours to mend
@pytest.mark.parametrize(("part", "root"), [("clerk", "clerk"), ("porter", "porter"), ("boss", "boss"), ("", "boss")])
async def test_a_sub_agent_is_played_in_place_of_its_root(loaded: Any, play: Any, part: str, root: str) -> None:
    skip_without("google.adk")
    agent = loaded(TREE, part=part)
    session = Session("s")

    events = await play(agent, session, "hello")

    assert agent.describe().name == root
    assert [(event.author, event.text) for event in events if event.kind == "agent_message"] == [(root, f"{root} here")]
    assert agent.app.plugins, "the App around the root agent keeps its plugins"


@pytest.mark.filterwarnings("ignore")
async def test_a_sub_agent_takes_another_model(loaded: Any, endpoint: Any, play: Any) -> None:
    skip_without("google.adk")
    agent = loaded(TREE, part="clerk")
    endpoint.says("from elsewhere")
    options = ModelOptions(endpoint.address)

    events = await play(agent, Session("s", model="hosted_vllm/small", model_options=options), "hello")

    assert [(event.author, event.text) for event in events if event.kind == "agent_message"] == [
        ("clerk", "from elsewhere")
    ]


@pytest.mark.filterwarnings("ignore")
def test_a_name_that_is_not_in_the_tree_is_answered_with_the_nearest(loaded: Any) -> None:
    skip_without("google.adk")

    with pytest.raises(AgentError, match="no agent in boss named 'clark'; did you mean 'clerk'"):
        loaded(TREE, part="clark")


async def test_another_function_of_the_module_is_played(loaded: Any, play: Any) -> None:
    session = Session("s")

    await play(loaded(FUNCTIONS, part="shout"), session, "hello")

    assert session.turns[0].answer == "HELLO"
    with pytest.raises(AgentError, match=r"some_agent\.agent:root_agent has no sub-agents, and .*'whisper'"):
        loaded(FUNCTIONS, part="whisper")
