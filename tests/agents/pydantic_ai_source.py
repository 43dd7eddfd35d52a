"""The source of an agent of pydantic-ai with a scripted model."""

from tests.agents.roller import DECIDED

SCRIPT = """
import asyncio
from pydantic_ai import Agent, ModelRetry, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

n_calls = 0

def said(text):
    return ModelResponse(parts=[TextPart(text)], usage=RequestUsage(input_tokens=11, output_tokens=5))

def called(name, args):
    global n_calls
    n_calls += 1
    call = ToolCallPart(name, args, f"c{n_calls}")
    return ModelResponse(parts=[call], usage=RequestUsage(input_tokens=11, output_tokens=5))

def scripted(answer):
    async def respond(messages, info):
        last = messages[-1].parts[-1]
        word = last.content if last.part_kind == "user-prompt" else {"result": last.content}
        found = answer(word, messages)
        return await found if asyncio.iscoroutine(found) else found

    async def stream(messages, info):
        found = await respond(messages, info)
        for part in found.parts:
            if part.part_kind == "text":
                for word in part.content.split(" "):
                    yield word + " "
            else:
                args = part.args_as_json_str()
                yield {0: DeltaToolCall(name=part.tool_name, json_args=args, tool_call_id=part.tool_call_id)}

    return FunctionModel(respond, stream_function=stream, model_name="scripted")
"""

ROLLER = (
    SCRIPT
    + DECIDED
    + '''
async def answer(word, messages):
    if isinstance(word, dict):
        return said(f"got {word['result']}")
    if word == "what was it":
        return said("seen: " + ", ".join(part.part_kind for message in messages for part in message.parts))
    found = await decided(word)
    return called("roll_die", {"sides": found}) if isinstance(found, int) else said(found)

root_agent = Agent(scripted(answer), name="dice", instructions="Roll.", deps_type=dict)

@root_agent.tool
def roll_die(context: RunContext[dict], sides: int) -> int:
    """Roll a die."""
    context.deps["rolls"] = [*context.deps.get("rolls", []), sides]
    return sides
'''
)
