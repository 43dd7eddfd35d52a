"""Sources of Osmosis agents, written the way their public example is: the same imports, the same calls.

And the trials they are played in.
"""

from __future__ import annotations

import sys
from typing import Any

from evaldesk.model import AgentRef, Case, Expected, Limits, ModelOptions, TrialSpec, Turn


def row(query: str, truth: str, **extra: Any) -> Case:
    """A case as a row of a data set."""
    return Case("row", (Turn(query, Expected(reference=truth)),), extra=extra)


def spec_at(address: str, case: Case, **options: Any) -> TrialSpec:
    """The third repeat of the fourth row, by a model at `address`."""
    given = ModelOptions(base_url=address, n_retries=0, **options)
    ref = AgentRef("osmosis", "server:agent_loop")
    return TrialSpec(1, 3, 2, case, ref, limits=Limits(30), model="small", model_options=given)


def forget_package() -> None:
    """Let the next agent import the stand-in anew, as a worker does."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "osmosis_ai"]:
        del sys.modules[name]


SERVER = '''
from __future__ import annotations

import os
from typing import Any

from osmosis_ai.rollout import RolloutAgentLoop, RolloutContext, RolloutRequest, RolloutResult, create_app
from osmosis_ai.rollout.core.exceptions import ToolArgumentError
from osmosis_ai.rollout.core.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
)
from osmosis_ai.rollout.tools import (
    create_tool_error_result,
    create_tool_result,
    execute_tool_calls,
    get_tool_call_info,
    serialize_tool_result,
)
from osmosis_ai import osmosis_reward

SEEN = []

@osmosis_reward
def compute_reward(solution_str: str, ground_truth: str, extra_info: dict = None) -> float:
    return 1.0 if solution_str.rpartition("#### ")[2] == ground_truth else 0.0

def number(description):
    return OpenAIFunctionPropertySchema(type="number", description=description)

ADD = OpenAIFunctionToolSchema(
    type="function",
    function=OpenAIFunctionSchema(
        name="add",
        description="Add two numbers",
        parameters=OpenAIFunctionParametersSchema(
            type="object", properties={"a": number("first"), "b": number("second")}, required=["a", "b"]
        ),
    ),
)

async def execute(tool_call: dict[str, Any]) -> dict[str, str]:
    try:
        call_id, name, arguments = get_tool_call_info(tool_call)
    except ToolArgumentError as error:
        return create_tool_error_result(error.tool_call_id or "unknown", str(error))
    if name != "add":
        return create_tool_error_result(call_id, f"Unknown function '{name}'")
    return create_tool_result(call_id, serialize_tool_result(arguments["a"] + arguments["b"]))

class Calculator(RolloutAgentLoop):
    """Adds numbers."""

    name = "calculator"

    def get_tools(self, request: RolloutRequest):
        return [ADD]

    async def run(self, ctx: RolloutContext) -> RolloutResult:
        SEEN.append(ctx.request)
        messages = list(ctx.request.messages)
        finish_reason = "stop"
        for turn in range(ctx.request.max_turns):
            ctx.log_event("pre_llm", turn=turn)
            result = await ctx.chat(messages, **ctx.request.completion_params)
            messages.append(result.message)
            if not result.has_tool_calls:
                finish_reason = result.finish_reason or "stop"
                break
            results = await execute_tool_calls(result.tool_calls, execute)
            ctx.record_tool_call(latency_ms=1.0)
            messages.extend(results)
        else:
            finish_reason = "max_turns"
        truth = ctx.request.metadata.get("ground_truth")
        said = messages[-1].get("content") or ""
        return ctx.complete(messages, finish_reason=finish_reason, reward=compute_reward(said, truth))

agent_loop = Calculator()
app = create_app(agent_loop, debug_dir=os.getenv("ROLLOUT_DEBUG_DIR"))
'''

NEWER = '''
import json
import urllib.request

from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.backend.local import LocalBackend
from osmosis_ai.rollout.context import AgentWorkflowContext, GraderContext, get_rollout_context
from osmosis_ai.rollout.grader import Grader
from osmosis_ai.rollout.server import create_rollout_server
from osmosis_ai.rollout.types import AgentWorkflowConfig, AgentWorkflowOutput, GraderConfig
import asyncio

class Config(AgentWorkflowConfig):
    name: str = "Multiplier"
    factor: int = 2

def ask(messages):
    around = get_rollout_context()
    request = urllib.request.Request(
        around.chat_completions_url + "/chat/completions",
        json.dumps({"model": "any", "messages": messages}).encode(),
        {"authorization": f"Bearer {around.api_key}", "content-type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["message"]

class Multiplier(AgentWorkflow):
    """Multiplies."""

    async def run(self, ctx: AgentWorkflowContext):
        import contextvars
        context = contextvars.copy_context()
        message = await asyncio.get_running_loop().run_in_executor(None, context.run, ask, ctx.prompt)
        return AgentWorkflowOutput(messages=[*ctx.prompt, message], metrics={"factor": float(ctx.config.factor)})

class Judge(Grader):
    async def grade(self, ctx: GraderContext):
        ctx.set_reward(1.0 if ctx.sample.messages[-1]["content"] == ctx.label else 0.25)

config = Config()
app = create_rollout_server(
    backend=LocalBackend(workflow=Multiplier, workflow_config=config, grader=Judge, grader_config=None)
)
'''

OLDER = """
from osmosis_ai.rollout.agent_workflow import AgentWorkflow
from osmosis_ai.rollout.context import get_rollout_context
from osmosis_ai.rollout.grader import Grader

class Agent:
    def __init__(self, messages):
        self.messages = messages

class Echo(AgentWorkflow):
    async def run(self, ctx):
        for name in ("first", "second"):
            agent = Agent(list(ctx.prompt))
            get_rollout_context().register_agent(name, agent)
            agent.messages.append({"role": "assistant", "content": f"{name} {ctx.prompt[-1]['content']}"})

class Judge(Grader):
    async def grade(self, ctx):
        for name, sample in ctx.get_samples().items():
            ctx.set_sample_reward(name, 1.0 if name == "first" else 0.5)
"""
