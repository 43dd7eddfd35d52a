"""The source of an agent of the OpenAI Agents SDK with a scripted model."""

from tests.agents.roller import DECIDED

SCRIPT = """
import asyncio, json
from agents import Agent, Model, ModelResponse, RunContextWrapper, Usage, function_tool
from openai.types.responses import (
    Response, ResponseCompletedEvent, ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText,
    ResponseTextDeltaEvent, ResponseUsage,
)
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails

def said(text):
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])]

n_calls = 0

def called(name, args):
    global n_calls
    n_calls += 1
    call_id = f"c{n_calls}"
    return [ResponseFunctionToolCall(type="function_call", call_id=call_id, name=name, arguments=json.dumps(args))]

class Scripted(Model):
    model = "scripted"

    def __init__(self, answer):
        self._answer = answer

    async def _output(self, input):
        last = input[-1] if isinstance(input, list) else {"role": "user", "content": input}
        found = self._answer(last.get("content") or {"result": last.get("output")}, input)
        return await found if asyncio.iscoroutine(found) else found

    async def get_response(self, system_instructions, input, *args, **kwargs):
        output = await self._output(input)
        return ModelResponse(output=output, usage=Usage(requests=1, input_tokens=11, output_tokens=5), response_id=None)

    async def stream_response(self, system_instructions, input, *args, **kwargs):
        output = await self._output(input)
        if output[0].type == "message":
            words = output[0].content[0].text.split(" ")
            for index, word in enumerate(words):
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta", delta=word + (" " if index + 1 < len(words) else ""),
                    content_index=0, item_id="m", output_index=0, sequence_number=index, logprobs=[],
                )
        usage = ResponseUsage(
            input_tokens=11, output_tokens=5, total_tokens=16,
            input_tokens_details=InputTokensDetails(cached_tokens=0, cache_write_tokens=0),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        )
        response = Response(
            id="r", created_at=0, model="scripted", object="response", output=output, tool_choice="auto", tools=[],
            parallel_tool_calls=True, usage=usage,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=99)
"""

ROLLER = (
    SCRIPT
    + DECIDED
    + '''
def shown(item):
    return f"{item['role']} {item['content']}" if isinstance(item.get("content"), str) else item.get("type", "")

async def answer(word, items):
    if isinstance(word, dict):
        return said(f"got {word['result']}")
    if word == "what was it":
        texts = [
            "assistant " + item["content"][0]["text"] if item.get("type") == "message" else shown(item)
            for item in items
        ]
        return said("seen: " + ", ".join(texts))
    found = await decided(word)
    return called("roll_die", {"sides": found}) if isinstance(found, int) else said(found)

@function_tool
def roll_die(context: RunContextWrapper[dict], sides: int) -> int:
    """Roll a die."""
    context.context["rolls"] = [*context.context.get("rolls", []), sides]
    return sides

root_agent = Agent(name="dice", model=Scripted(answer), tools=[roll_die], instructions="Roll.")
'''
)
