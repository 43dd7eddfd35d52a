"""A model that no provider can answer for is found without a call; what the user's code registered may be called."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.agents.installed import skip_without

from evaldesk.agents import Agent, agent_ref
from evaldesk.engine.frames import Describe, Described, frame_from_worker
from evaldesk.engine.worker.jobs import DescribeJob
from evaldesk.engine.worker.player import fault_of
from evaldesk.llm import client, model_fault

pytestmark = pytest.mark.anyio

WAY = "name it as PROVIDER/MODEL, such as openai/gpt-4o-mini"
FAULTS = {
    "nosuch/x": f"no provider is named 'nosuch'; {WAY}",
    "antropic/claude": "no provider is named 'antropic'; did you mean 'anthropic'?",
    "gptx": f"it names no provider; {WAY}",
    "gpt-99-nano": f"it names no provider; {WAY}",
    "/x": f"no provider is named ''; {WAY}",
    "demo/nonsense": "no scripted model 'nonsense'; there are: demo/dice, demo/trips, demo/scripted, demo/user, "
    "demo/judge",
    "demo/dice?sides=6": "no option 'sides' of the scripted model; there are: mistakes, delay_ms",
    "demo/dice?mistakes=few": "mistakes of the scripted model must be a number, got 'few'",
}


@pytest.mark.parametrize(("model", "fault"), FAULTS.items(), ids=FAULTS)
def test_a_model_that_no_provider_answers_for_is_named_with_a_way_out(model: str, fault: str) -> None:
    assert model_fault(model) == fault


def test_a_long_name_is_cut() -> None:
    assert len(model_fault(f"{'long' * 2_500}/x")) < 300


@pytest.mark.parametrize(
    "model", ["openai/gpt-99", "anthropic/new", "gpt-4o-mini", "demo/scripted?mistakes=0.5", "hosted_vllm/mine"]
)
def test_a_known_provider_is_told_by_its_name_alone(monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.setattr(client, "open_litellm", lambda: pytest.fail("LiteLLM is not needed"))

    assert model_fault(model) == ""


def test_any_name_may_be_asked_at_the_address_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://127.0.0.1:9/v1")

    assert model_fault("mine") == ""


def test_a_provider_of_the_users_code_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    litellm = client.open_litellm()
    monkeypatch.setattr(litellm, "provider_list", [*litellm.provider_list, "house"])

    assert model_fault("house/small") == ""


AGENTS = {
    "litellm": ("", "from evaldesk import LlmAgent\nroot_agent = LlmAgent('a', 'demo/dice')\n"),
    "a function": (
        "",
        "from evaldesk import LlmAgent\ndef make_agent():\n    return LlmAgent('a', 'demo/dice')\n",
    ),
    "adk": (
        "google.adk",
        "from google.adk.agents import Agent\nroot_agent = Agent(name='a', model='gemini-2.0-flash')\n",
    ),
    "openai": ("agents", "from agents import Agent\nroot_agent = Agent(name='a', model='gpt-4o')\n"),
    "pydantic-ai": ("pydantic_ai", "from pydantic_ai import Agent\nroot_agent = Agent(name='a')\n"),
}


@pytest.mark.parametrize(("package", "source"), AGENTS.values(), ids=AGENTS)
@pytest.mark.filterwarnings("ignore")  # of a framework
def test_an_agent_tells_a_model_that_it_cannot_call(
    loaded: Callable[..., Agent], monkeypatch: pytest.MonkeyPatch, package: str, source: str
) -> None:
    if package:
        skip_without(package)
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-tests")

    agent = loaded(source, "make_agent" if "make_agent" in source else "root_agent")

    assert "nosuch" in fault_of(agent, "nosuch/x")
    assert fault_of(agent, "openai/gpt-4o-mini") == ""


def test_a_provider_in_the_options_of_the_agent_takes_any_name(loaded: Callable[..., Agent]) -> None:
    agent = loaded(
        "from evaldesk import LlmAgent\nroot_agent = LlmAgent('a', 'mine', extra={'custom_llm_provider': 'openai'})\n"
    )

    assert fault_of(agent, "nosuch/x") == ""


def test_an_agent_that_calls_its_models_itself_does_not_know(loaded: Callable[..., Agent]) -> None:
    assert fault_of(loaded("def root_agent(message):\n    return message\n"), "nosuch/x") == ""


async def test_a_worker_tells_the_fault_beside_the_description() -> None:
    asked = Describe(1, agent_ref("samples/hello_world"), named_model="nosuch/x")

    answer: Any = frame_from_worker(await DescribeJob(asked).run())

    assert isinstance(answer, Described)
    assert answer.model_fault == FAULTS["nosuch/x"]
