"""Workflows of Osmosis whose agents are those of the OpenAI Agents SDK, with the real SDK."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.agents.installed import has_package, skip_without
from tests.agents.osmosis_example import forget_package, row, spec_at

from evaldesk.agents.model_bridge import stream_body
from evaldesk.engine import play_trial
from evaldesk.errors import AgentError
from evaldesk.model.transcript import reported_values

skip_without("agents")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore"),  # what the SDK warns of is not ours
    pytest.mark.skipif(has_package("osmosis_ai"), reason="osmosis-ai itself is installed: nothing stands in for it"),
]


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    forget_package()


WORKFLOW = '''
from typing import Any

from agents import ModelSettings, Runner, function_tool
from agents.models.interface import Model
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.integrations.agents.openai_agents import (
    OsmosisAgent,
    OsmosisMemorySession,
    OsmosisRolloutModel,
)
from osmosis_ai.rollout.types import AgentWorkflowConfig

@function_tool
async def multiply(a: float, b: float) -> float:
    """Multiply two numbers."""
    return a * b

class Config(AgentWorkflowConfig):
    name: str = "Multiplier"
    model: Model
    tools: Any

config = Config(model=OsmosisRolloutModel(), tools=[multiply])

class Multiplier(AgentWorkflow):
    async def run(self, ctx):
        agent = OsmosisAgent(
            name="multiply", model=ctx.config.model, tools=ctx.config.tools, model_settings=ModelSettings(max_tokens=64)
        )
        runner = Runner.run_streamed if STREAMED else Runner.run
        result = runner(agent, ctx.prompt, session=OsmosisMemorySession(NAMED), max_turns=4)
        if STREAMED:
            async for _ in result.stream_events():
                pass
        else:
            await result

class Judge(Grader):
    async def grade(self, ctx):
        [(name, sample)] = ctx.get_samples().items()
        reward = 1.0 if sample.messages[-1]["content"][0]["text"].endswith(ctx.label) else 0.0
        ctx.set_sample_reward(name, reward) if NAMED else ctx.set_reward(reward)
'''


@pytest.mark.parametrize(
    "shape", ["STREAMED, NAMED = False, None", "STREAMED, NAMED = False, 'multiply'", "STREAMED, NAMED = True, None"]
)
async def test_its_agents_ask_the_model_of_the_run_and_their_session_is_graded(
    endpoint: Any, loaded: Any, shape: str
) -> None:
    agent = loaded(f"{shape}\n{WORKFLOW}", "Multiplier")
    endpoint.says("", ("c1", "multiply", '{"a": 6, "b": 7}')).says("#### 42.0")

    result = await play_trial(agent, spec_at(endpoint.address, row("6 * 7?", "42.0", system_prompt="Multiply.")))

    assert result.status == "finished", result.error
    [turn] = result.transcript.turns
    kinds = [event.kind for event in turn.events]
    assert kinds == ["user_message", "usage", "tool_call", "tool_result", "usage", "agent_message", "log"]
    assert [(call.name, call.args) for call in turn.tool_calls] == [("multiply", {"a": 6, "b": 7})]
    assert turn.answer == "#### 42.0"
    assert reported_values(result.transcript) == {"reward": 1.0}
    assert [asked["messages"][0]["content"] for asked in endpoint.asked] == ["Multiply.", "Multiply."]


def test_its_model_outside_of_a_rollout_is_an_error(loaded: Any) -> None:
    source = "from osmosis_ai.rollout.integrations.agents.openai_agents import OsmosisLitellmModel\n"

    with pytest.raises(AgentError, match="in the `run` of the workflow"):
        loaded(f"{source}agent = OsmosisLitellmModel()\n", "agent")


def test_a_completion_without_calls_is_streamed_as_text() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}

    lines = stream_body({"id": "x", "object": "chat.completion", "choices": [choice]}).split(b"\n\n")

    assert b'"delta": {"role": "assistant", "content": "hello"}' in lines[0]
    assert b'"finish_reason": "stop"' in lines[1]
    assert lines[2:] == [b"data: [DONE]", b""]
