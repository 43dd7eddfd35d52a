"""The models of agents of google-adk: asked as a run wants them, replaced, tried again, refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.agents.adk_source import AGENT_TOOL, ROLLER, asked
from tests.agents.installed import skip_without

from evaldesk.model import ModelOptions, Session

skip_without("google.adk")

pytestmark = [pytest.mark.anyio, pytest.mark.filterwarnings("ignore")]  # what google-adk warns of is not ours to mend

LITE = """
from google.adk.agents import LlmAgent
from google.adk.models.lite_llm import LiteLlm

root_agent = LlmAgent(name="a", model=LiteLlm(model="hosted_vllm/small", api_base="{address}"))
"""


async def test_model_options_of_a_run_reach_the_model(loaded: Any, play: Any) -> None:
    agent = loaded(ROLLER)
    options = ModelOptions(temperature=0.2, top_p=0.5, max_tokens=9)

    await play(agent, Session("s", state={"player": "Ann"}, model_options=options), "hi")

    config = asked(agent)[-1].config
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


async def test_a_litellm_model_streams(loaded: Any, play: Any, endpoint: Any) -> None:
    source = LITE.format(address=endpoint.address)
    endpoint.streams("hel", "lo")
    session = Session("s", is_streaming=True)

    events = await play(loaded(source), session, "hi")

    assert [event.text for event in events if event.is_partial] == ["hel", "lo"]
    assert session.turns[0].answer == "hello"


async def test_a_key_that_is_refused_is_fatal(loaded: Any, play: Any, endpoint: Any) -> None:
    from evaldesk.errors import ModelError

    source = LITE.format(address=endpoint.address)
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


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        ('"openai/one"', ("OPENAI_API_KEY",)),
        ('LiteLlm(model="openai/one")', ("OPENAI_API_KEY",)),
        ('"gemini-2.5-flash"', ("GEMINI_API_KEY or GOOGLE_API_KEY",)),
        ('LiteLlm(model="openai/one", api_key="given in the code")', ()),
        ('LiteLlm(model="openai/one", api_base="http://127.0.0.1:9/v1")', ()),
        ('LiteLlm(model="bedrock/one")', ()),
        ('LiteLlm(model="vertex_ai/one")', ()),
    ],
)
def test_missing_keys_are_named_unless_the_code_has_one(
    loaded: Any, model: str, missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    source = LITE.replace('LiteLlm(model="hosted_vllm/small", api_base="{address}")', model)

    assert loaded(source).describe().missing == missing


def test_agents_of_an_adk_tree_get_their_instructions_in_a_copy() -> None:
    from google.adk.agents import LlmAgent

    from evaldesk.integrations.adk.models import with_model

    planner = LlmAgent(name="planner", model="gemini-2.5-flash", instruction="plan")
    root = LlmAgent(name="root", model="gemini-2.5-flash", instruction="own", sub_agents=[planner])

    found = with_model(root, None, ModelOptions(instruction="new", instructions={"planner": "steps"}))

    assert (found.instruction, found.sub_agents[0].instruction) == ("new", "steps")
    assert (found.model, found.sub_agents[0].model) == ("gemini-2.5-flash", "gemini-2.5-flash")
    assert (root.instruction, planner.instruction) == ("own", "plan")
