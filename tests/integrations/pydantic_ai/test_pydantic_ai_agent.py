"""Agents of pydantic-ai, with the real package and a scripted model."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.endpoint import Answer
from tests.agents.installed import skip_without
from tests.agents.pydantic_ai_source import ROLLER, SCRIPT

from evaldesk.errors import ModelError
from evaldesk.model import ModelOptions, Session

skip_without("pydantic_ai")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what the package warns of is not ours


async def test_a_turn_with_a_tool(loaded: Any, play: Any) -> None:
    session = Session("s")

    events = await play(loaded(ROLLER), session, "Roll a d6")

    assert [event.kind for event in events if event.kind != "usage"] == ["tool_call", "tool_result", "agent_message"]
    assert (session.turns[0].answer, session.state) == ("got 6", {"rolls": [6]})
    usages = [(usage.model, usage.tokens_in, usage.cost) for usage in session.turns[0].usages]
    assert usages == [("scripted", 11, None)] * 2


@pytest.mark.parametrize("is_fresh", [False, True], ids=["same worker", "fresh worker"])
async def test_the_second_turn_remembers_the_first(loaded: Any, play: Any, is_fresh: bool) -> None:
    agent = loaded(ROLLER)
    session = Session("s")
    await play(agent, session, "Roll a d6")

    if is_fresh:
        session = Session("s", state=session.state, turns=session.turns)
    await play(agent, session, "what was it")

    assert session.turns[1].answer == "seen: user-prompt, tool-call, tool-return, text, user-prompt"


async def test_text_is_streamed_in_a_chat(loaded: Any, play: Any) -> None:
    session = Session("s", is_streaming=True)

    events = await play(loaded(ROLLER), session, "hi")

    assert [event.text for event in events if event.is_partial] == ["hello ", "there "]
    assert session.turns[0].answer == "hello there "


async def test_a_model_retry_is_an_error_result_for_the_model(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
def answer(word, messages):
    return called("look", {}) if word == "go" else said("I give up")

root_agent = Agent(scripted(answer))

@root_agent.tool_plain
def look() -> str:
    raise ModelRetry("look elsewhere")
"""
    )
    events = await play(loaded(source), Session("s"), "go")

    [given] = [event for event in events if event.kind == "tool_result"]
    assert given.is_error
    assert "look elsewhere" in given.result


async def test_a_structured_output_is_the_answer_as_json(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
from pydantic import BaseModel

class City(BaseModel):
    name: str

root_agent = Agent(scripted(lambda word, messages: called("final_result", {"name": "Ulm"})), output_type=City)
"""
    )
    session = Session("s")

    await play(loaded(source), session, "where")

    assert (session.turns[0].answer, session.turns[0].tool_calls) == ('{"name": "Ulm"}', ())


@pytest.mark.parametrize(
    ("said", "output", "answer"),
    [
        ("called('city', {'name': 'Ulm'})", "ToolOutput(City, name='city')", '{"name": "Ulm"}'),
        ("""said('{"name":"Ulm"}')""", "PromptedOutput(City)", '{"name":"Ulm"}'),
    ],
    ids=["tool of another name", "JSON of a prompt"],
)
async def test_an_output_is_one_message_and_no_call(
    loaded: Any, play: Any, said: str, output: str, answer: str
) -> None:
    source = (
        SCRIPT
        + f"""
from pydantic import BaseModel
from pydantic_ai import PromptedOutput, ToolOutput

class City(BaseModel):
    name: str

root_agent = Agent(scripted(lambda word, messages: {said}), output_type={output})
"""
    )
    session = Session("s")

    events = await play(loaded(source), session, "where")
    await play(loaded(source), session, "and again")

    assert [(event.kind, event.text) for event in events if event.kind != "usage"] == [("agent_message", answer)]
    assert session.turns[1].answer == answer


async def test_max_turns_is_a_stop_of_its_own(loaded: Any, play: Any) -> None:
    again = "lambda word, messages: called('roll_die', {'sides': 1})"
    agent = loaded(ROLLER.replace("scripted(answer),", f"scripted({again}),"))

    events = await play(agent, Session("s", model_options=ModelOptions(max_turns=2)), "go")

    assert events[-1].error.kind == "max_turns"


RESPONSES = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url="ADDRESS", api_key="none")
root_agent = Agent(OpenAIResponsesModel("gpt-5-mini", provider=provider), name="dice")

@root_agent.tool_plain
def roll_die(sides: int) -> int:
    return sides
"""


def response(*output: dict[str, Any], **more: Any) -> Answer:
    """An answer of the Responses API."""
    details = {"input_tokens_details": {"cached_tokens": 8}, "output_tokens_details": {"reasoning_tokens": 4}}
    usage = {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29, **details}
    about = {"id": "r1", "object": "response", "created_at": 1, "model": "gpt-5-mini", "status": "completed"}
    return Answer({**about, "output": output, "usage": usage, "tools": [], **more})


THOUGHT = {"id": "rs1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "I roll."}]}
ROLL = {"id": "fc1", "type": "function_call", "call_id": "c1", "name": "roll_die", "arguments": '{"sides": 6}'}
SEARCH = {"id": "ws1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "dice"}}


def words(text: str) -> dict[str, Any]:
    """A message of the Responses API."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"id": "m1", "type": "message", "role": "assistant", "status": "completed", "content": content}


async def test_a_model_of_the_responses_api_reports_thoughts_calls_tokens_and_the_limit(
    loaded: Any, play: Any, endpoint: Any
) -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    endpoint.answers += [response(THOUGHT, ROLL), response(words("A six."), **cut)]
    session = Session("s")

    events = await play(loaded(RESPONSES.replace("ADDRESS", endpoint.address)), session, "go")

    told = [(event.kind, event.text) for event in events if event.kind != "usage"]
    assert told == [("log", "I roll."), ("tool_call", ""), ("tool_result", ""), ("agent_message", "A six.")]
    usages = [
        (each.tokens_in, each.tokens_cached, each.tokens_reasoning, each.is_cut) for each in session.turns[0].usages
    ]
    assert usages == [(20, 8, 4, False), (20, 8, 4, True)]
    assert "reasoning" in str(endpoint.asked[1]["input"])


async def test_a_builtin_tool_of_the_provider_is_reported_at_its_call(loaded: Any, play: Any, endpoint: Any) -> None:
    endpoint.answers += [response(words("I look."), SEARCH, words("It is a six.")), response(words("Yes."))]
    agent, session = loaded(RESPONSES.replace("ADDRESS", endpoint.address)), Session("s")

    events = await play(agent, session, "go")
    await play(agent, Session("s", turns=session.turns), "sure?")

    told = [(event.kind, event.text or (event.call and event.call.name)) for event in events if event.kind != "usage"]
    said = [("agent_message", "I look."), ("tool_call", "web_search"), ("tool_result", "web_search")]
    assert told == [*said, ("agent_message", "It is a six.")]
    assert session.turns[0].tool_calls[0].args == {"type": "search", "query": "dice"}
    assert "web_search" in str(endpoint.asked[1]["input"])


async def test_another_model_at_an_endpoint(loaded: Any, play: Any, endpoint: Any) -> None:
    endpoint.says("", ("c1", "roll_die", '{"sides": 4}')).says("a four")
    options = ModelOptions(endpoint.address, temperature=0.5, extra={"top_k": 3})
    session = Session("s", model="small", model_options=options)

    await play(loaded(ROLLER), session, "Roll a d4")

    assert (session.turns[0].answer, session.state) == ("a four", {"rolls": [4]})
    assert {(asked["temperature"], asked["top_k"]) for asked in endpoint.asked} == {(0.5, 3)}


NAMED = 'from pydantic_ai import Agent\nroot_agent = Agent("{}", defer_model_check=True)\n'


@pytest.mark.parametrize(
    ("source", "model"),
    [
        (NAMED.format("openai-responses:gpt-5-mini"), None),
        (NAMED.format("openai-chat:other"), "openai-responses:gpt-5-mini"),
        (NAMED.format("openai:other"), "openai-responses/gpt-5-mini"),
        (RESPONSES, None),
        (RESPONSES, "gpt-5-mini"),
    ],
    ids=["the agent's name", "with a colon", "with a slash", "the agent's object", "another model of it"],
)
async def test_an_endpoint_of_the_run_uses_the_responses_api(
    loaded: Any, play: Any, endpoint: Any, source: str, model: str | None
) -> None:
    endpoint.answers += [response(words("A six."))]
    session = Session("s", model=model, model_options=ModelOptions(endpoint.address))

    await play(loaded(source.replace("ADDRESS", "http://127.0.0.1:9")), session, "go")

    assert session.turns[0].answer == "A six."
    assert endpoint.asked[0]["model"] == "gpt-5-mini"
    assert "input" in endpoint.asked[0]


@pytest.mark.parametrize("model", [None, "openai-chat:small"])
async def test_the_name_of_the_chat_api_is_no_part_of_the_models(
    loaded: Any, play: Any, endpoint: Any, model: str | None
) -> None:
    endpoint.says("a four")
    session = Session("s", model=model, model_options=ModelOptions(endpoint.address))

    await play(loaded(NAMED.format("openai-chat:small")), session, "go")

    assert (session.turns[0].answer, endpoint.asked[0]["model"]) == ("a four", "small")


async def test_a_refused_key_is_fatal(loaded: Any, play: Any, endpoint: Any) -> None:
    endpoint.fails(401, "who are you")

    with pytest.raises(ModelError) as caught:
        await play(loaded(ROLLER), Session("s", model="small", model_options=ModelOptions(endpoint.address)), "hi")

    assert (caught.value.kind, caught.value.is_fatal) == ("authentication", True)


def test_the_description(loaded: Any) -> None:
    described = loaded(ROLLER).describe()

    assert (described.name, described.kind, described.model) == ("dice", "pydantic_ai", "scripted")
    assert described.instruction == "Roll."
    [tool] = described.tools
    assert (tool.name, tool.description, tool.parameters["required"]) == ("roll_die", "Roll a die.", ["sides"])


@pytest.mark.parametrize(("model", "n_opened"), [("openai:gpt-4o", 0), ("openai:gpt-99", 1)])
def test_litellm_is_imported_only_for_its_own_prices(
    model: str, n_opened: int, loaded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    skip_without("litellm")
    opened: list[bool] = []
    monkeypatch.setattr("evaldesk.integrations.pydantic_ai.adapter.open_litellm", lambda: opened.append(True))
    agent = loaded(f"from pydantic_ai import Agent\nroot_agent = Agent({model!r}, defer_model_check=True)\n")

    agent.warm(Session("s"))

    assert len(opened) == n_opened


async def test_the_answer_is_the_output_of_validators_and_output_functions(loaded: Any, play: Any) -> None:
    source = (
        SCRIPT
        + """
from pydantic_ai import TextOutput

def shout(text: str) -> str:
    return text.upper()

root_agent = Agent(FunctionModel(lambda messages, info: said("done")), output_type=TextOutput(shout))

@root_agent.output_validator
def check(output: str) -> str:
    return output + "!"
"""
    )
    session = Session("s")

    events = await play(loaded(source), session, "go")

    assert [event.text for event in events if event.kind == "agent_message"] == ["done", "DONE!"]
    assert session.turns[0].answer == "DONE!"
