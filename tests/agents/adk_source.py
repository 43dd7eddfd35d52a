"""The source of an agent of google-adk with a scripted model, put together by the tests."""

from tests.agents.roller import DECIDED

SCRIPT = '''
import asyncio
from google.adk.agents import LlmAgent, SequentialAgent
from google.adk.apps.app import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

asked = []

def said(text="", *calls, tokens=(11, 5), partial=None):
    parts = [types.Part(text=text)] if text else []
    parts += [types.Part(function_call=types.FunctionCall(name=name, args=args)) for name, args in calls]
    spent = types.GenerateContentResponseUsageMetadata(prompt_token_count=tokens[0], candidates_token_count=tokens[1])
    content = types.Content(role="model", parts=parts)
    return LlmResponse(content=content, usage_metadata=None if partial else spent, partial=partial)

class Scripted(BaseLlm):
    """Answers what `answer` says to the last part of the request."""
    model: str = "scripted"
    answer: object = None

    async def generate_content_async(self, request, stream=False):
        asked.append(request)
        last = request.contents[-1].parts[-1]
        word = last.text if last.text is not None else last.function_response.response
        found = self.answer(word, request)
        if asyncio.iscoroutine(found):
            found = await found
        if stream and found.content.parts and found.content.parts[0].text:
            for piece in found.content.parts[0].text.split():
                yield said(piece, partial=True)
        yield found
'''

ROLLER = (
    SCRIPT
    + DECIDED
    + '''
async def answer(word, request):
    if isinstance(word, dict):
        return said(f"got {word.get('result', word)}")
    found = await decided(word)
    return said("", ("roll_die", {"sides": found})) if isinstance(found, int) else said(found)

def roll_die(sides: int, tool_context) -> int:
    """Roll a die."""
    tool_context.state["rolls"] = [*tool_context.state.get("rolls", []), sides]
    return sides

root_agent = LlmAgent(
    name="dice", model=Scripted(answer=answer), tools=[roll_die],
    instruction="Roll for {player?}.", description="Rolls.",
)
'''
)
