"""The source of an agent of google-adk with a scripted model, put together by the tests."""

from __future__ import annotations

import sys
from typing import Any

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

TRANSFER = (
    SCRIPT
    + """
def boss(word, request):
    return said("", ("transfer_to_agent", {"agent_name": "clerk"}))

def clerk(word, request):
    return said("clerk here")

below = LlmAgent(name="clerk", model=Scripted(answer=clerk), description="Answers.", instruction="For {customer}.")
root_agent = LlmAgent(name="boss", model=Scripted(answer=boss), sub_agents=[below], instruction="{shop} {name?}")
"""
)

AGENT_TOOL = (
    SCRIPT
    + '''
def look(place: str) -> str:
    """Look."""
    return f"{place} is empty"

def inner(word, request):
    return said(word["result"]) if isinstance(word, dict) else said("", ("look", {"place": word}))

def outer(word, request):
    return said("nothing there") if isinstance(word, dict) else said("", ("scout", {"request": "cellar"}))

scout = LlmAgent(name="scout", model=Scripted(answer=inner), tools=[look], description="Looks around.")
root_agent = LlmAgent(name="lead", model=Scripted(answer=outer), tools=[AgentTool(scout)])
'''
)


def asked(_: Any) -> list[Any]:
    """The requests that the scripted model of the agent was given."""
    return list(sys.modules["some_agent.agent"].asked)


def shown(agent: Any) -> list[str]:
    """What the model was shown in its last call: texts, and the names of calls and results."""
    parts = [part for content in asked(agent)[-1].contents for part in content.parts]
    return [part.text or (part.function_call or part.function_response).name for part in parts]
