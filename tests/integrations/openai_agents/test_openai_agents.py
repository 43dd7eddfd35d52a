"""Agents of the OpenAI Agents SDK, with the real package and a scripted model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.installed import skip_without
from tests.agents.openai_agents_source import ROLLER, SCRIPT

from evaldesk.model import ModelOptions, Session
from evaldesk.model.agent_tree import agent_tree

skip_without("agents")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the package warns of is not ours


async def test_a_turn_with_a_tool(loaded: Any, play: Any) -> None:
    session = Session("s")

    events = await play(loaded(ROLLER), session, "Roll a d6")

    assert [event.kind for event in events if event.kind != "usage"] == ["tool_call", "tool_result", "agent_message"]
    assert (session.turns[0].answer, session.state) == ("got 6", {"rolls": [6]})
    assert [(usage.tokens_in, usage.cost) for usage in session.turns[0].usages] == [(11, None), (11, None)]


@pytest.mark.parametrize("is_fresh", [False, True], ids=["same worker", "fresh worker"])
async def test_the_second_turn_remembers_the_first(loaded: Any, play: Any, is_fresh: bool) -> None:
    agent = loaded(ROLLER)
    session = Session("s")
    await play(agent, session, "Roll a d6")

    if is_fresh:
        session = Session("s", state=session.state, turns=session.turns)
    await play(agent, session, "what was it")

    seen = "user Roll a d6, function_call, function_call_output, assistant got 6, user what was it"
    assert session.turns[1].answer == f"seen: {seen}"


async def test_text_is_streamed_in_a_chat(loaded: Any, play: Any) -> None:
    session = Session("s", is_streaming=True)

    events = await play(loaded(ROLLER), session, "hi")

    assert [event.text for event in events if event.is_partial] == ["hello ", "there"]
    assert session.turns[0].answer == "hello there"


async def test_a_handoff_is_a_call_and_the_other_agent_continues(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
clerk = Agent(name="clerk", model=Scripted(lambda word, items: said("clerk here")), handoff_description="Answers.")
root_agent = Agent(
    name="boss", model=Scripted(lambda word, items: called("transfer_to_clerk", {})), handoffs=[clerk]
)
"""
    )
    agent = loaded(source)
    session = Session("s")

    await play(agent, session, "hello")
    again = await play(agent, session, "again")

    first = session.turns[0]
    assert [call.name for call in first.tool_calls] == ["transfer_to_clerk"]
    assert [event.duration_ms for event in first.events if event.kind == "tool_result"] == [None]
    assert (first.answer, first.events[-1].author) == ("clerk here", "clerk")
    assert [event.author for event in again if event.kind == "agent_message"] == ["clerk"]
    tree = [(each.name, each.parent, each.n_entries) for each in agent_tree(session.turns, "app")]
    assert tree == [("boss", "", 1), ("clerk", "boss", 2)]
    assert [(below.name, below.description) for below in agent.describe().sub_agents] == [("clerk", "Answers.")]


async def test_a_handoff_of_another_name_has_a_result_as_well(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
from agents import handoff

clerk = Agent(name="clerk", model=Scripted(lambda word, items: said("clerk here")))
root_agent = Agent(
    name="boss",
    model=Scripted(lambda word, items: called("escalate", {})),
    handoffs=[handoff(clerk, tool_name_override="escalate")],
)
"""
    )

    events = await play(loaded(source), Session("s"), "hello")

    [given] = [event for event in events if event.kind == "tool_result"]
    assert (given.call.name, given.result) == ("escalate", "handed over to clerk")


@pytest.mark.parametrize("is_streaming", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("result", "answer"), [("'one tea'", "one tea"), ("{'tea': 1}", "{'tea': 1}")], ids=["text", "object"]
)
async def test_a_result_that_is_the_final_output_is_the_answer(
    loaded: Any, play: Any, result: str, answer: str, is_streaming: bool
) -> None:
    source = (
        SCRIPT
        + f"""
@function_tool
def order() -> dict:
    return {result}

root_agent = Agent(
    name="clerk",
    model=Scripted(lambda word, items: called("order", {{}})),
    tools=[order],
    tool_use_behavior="stop_on_first_tool",
)
"""
    )
    session = Session("s", is_streaming=is_streaming)

    events = await play(loaded(source), session, "tea")

    assert [event.kind for event in events if event.kind != "usage"] == ["tool_call", "tool_result", "agent_message"]
    assert (session.turns[0].answer, events[-1].author) == (answer, "clerk")


async def test_a_hosted_tool_call_is_reported_with_its_result(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
from openai.types.responses import ResponseFunctionWebSearch
from openai.types.responses.response_output_item import McpCall

search = ResponseFunctionWebSearch.model_validate(
    {"id": "ws1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "dice"}}
)
fetch = McpCall(
    id="m1", type="mcp_call", name="fetch", server_label="docs", arguments='{"page": 2}', output="two",
    status="completed",
)
root_agent = Agent(
    name="finder", model=Scripted(lambda word, items: [*said("I look."), search, fetch, *said("It is a six.")])
)
"""
    )
    session = Session("s")

    events = await play(loaded(source), session, "go")

    told = [(event.kind, event.text or (event.call and event.call.name)) for event in events if event.kind != "usage"]
    assert told == [
        ("agent_message", "I look."),
        ("tool_call", "web_search"),
        ("tool_result", "web_search"),
        ("tool_call", "fetch"),
        ("tool_result", "fetch"),
        ("agent_message", "It is a six."),
    ]
    turn = session.turns[0]
    assert [call.args for call in turn.tool_calls] == [{"type": "search", "query": "dice"}, {"page": 2}]
    results = [event.result for event in events if event.kind == "tool_result"]
    assert results == [{"status": "completed"}, {"status": "completed", "output": "two"}]


async def test_max_turns_is_a_stop_of_its_own(loaded: Any, play: Any) -> None:
    again = "lambda word, items: called('roll_die', {'sides': 1})"
    agent = loaded(ROLLER.replace("model=Scripted(answer)", f"model=Scripted({again})"))

    events = await play(agent, Session("s", model_options=ModelOptions(max_turns=2)), "go")

    assert events[-1].error.kind == "max_turns"


async def test_without_max_turns_an_agent_stops_where_the_sdk_stops_it(loaded: Any, play: Any) -> None:
    from agents.run import DEFAULT_MAX_TURNS

    again = "lambda word, items: called('roll_die', {'sides': 1})"
    agent = loaded(ROLLER.replace("model=Scripted(answer)", f"model=Scripted({again})"))

    events = await play(agent, Session("s"), "go")

    assert [event.kind for event in events].count("usage") == DEFAULT_MAX_TURNS
    assert events[-1].error.kind == "max_iterations"


async def test_another_model_at_an_endpoint(loaded: Any, play: Any, endpoint: Any) -> None:
    endpoint.says("", ("c1", "roll_die", '{"sides": 4}')).says("a four")
    options = ModelOptions(endpoint.address, temperature=0.5, extra={"top_k": 3})
    session = Session("s", model="small", model_options=options)

    await play(loaded(ROLLER), session, "Roll a d4")

    assert (session.turns[0].answer, session.state) == ("a four", {"rolls": [4]})
    assert {asked["temperature"] for asked in endpoint.asked} == {0.5}
    assert endpoint.asked[0]["top_k"] == 3
    assert {usage.model for usage in session.turns[0].usages} == {"small"}


async def test_each_agent_asks_for_its_own_model_at_an_endpoint(loaded: Any, play: Any, endpoint: Any) -> None:
    endpoint.says("", ("c1", "transfer_to_clerk", "{}")).says("clerk here")
    source = """
from agents import Agent

clerk = Agent(name="clerk", model="middle")
root_agent = Agent(name="desk", model="small", handoffs=[clerk])
"""
    session = Session("s", model_options=ModelOptions(endpoint.address))

    await play(loaded(source), session, "hi")

    assert session.turns[0].answer == "clerk here"
    assert [asked["model"] for asked in endpoint.asked] == ["small", "middle"]
    assert [usage.model for usage in session.turns[0].usages] == ["small", "middle"]


async def test_a_refused_key_is_fatal(loaded: Any, play: Any, endpoint: Any) -> None:
    from evaldesk.errors import ModelError

    endpoint.fails(401, "who are you")

    with pytest.raises(ModelError) as caught:
        await play(loaded(ROLLER), Session("s", model="small", model_options=ModelOptions(endpoint.address)), "hi")

    assert (caught.value.kind, caught.value.is_fatal) == ("authentication", True)


def test_the_description(loaded: Any) -> None:
    described = loaded(ROLLER).describe()

    assert (described.name, described.kind, described.instruction) == ("dice", "openai_agents", "Roll.")
    [tool] = described.tools
    assert (tool.name, tool.description) == ("roll_die", "Roll a die.")
    assert tool.parameters["required"] == ["sides"]


def test_a_key_set_in_the_sdk_by_code_is_not_missing(loaded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from agents.models import _openai_shared

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(_openai_shared, "_default_openai_key", None)
    agent = loaded('from agents import Agent\n\nroot_agent = Agent(name="clerk", model="gpt-5-mini")\n')

    assert agent.describe().missing == ("OPENAI_API_KEY",)
    monkeypatch.setattr(_openai_shared, "_default_openai_key", "a key")
    assert agent.describe().missing == ()


def test_agents_of_the_openai_sdk_that_hand_over_in_a_circle_get_their_instructions_in_a_copy() -> None:
    from agents import Agent

    from evaldesk.integrations.openai_agents.adapter import _with_instructions

    clerk: Any = Agent(name="clerk", instructions="serve")
    root: Any = Agent(name="root", instructions="own", handoffs=[clerk])
    clerk.handoffs = [root]

    found = _with_instructions(root, ModelOptions(instruction="new", instructions={"clerk": "help"}), {}, is_root=True)

    assert (found.instructions, found.handoffs[0].instructions) == ("new", "help")
    assert found.handoffs[0].handoffs[0] is found
    assert (root.instructions, clerk.instructions) == ("own", "serve")
