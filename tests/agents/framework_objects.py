"""Objects of the shape of frameworks that `make newest` plays for real; `asked` has the sessions that they get."""

from __future__ import annotations

import sys
from typing import Any

from tests.agents.roller import DECIDED

_HEAD = (
    DECIDED
    + """
import sys
from types import ModuleType, SimpleNamespace

asked = []

async def answer(message):
    found = await decided(message)
    return f"got {found}" if isinstance(found, int) else found

def package(name, **content):
    module = sys.modules[name] = ModuleType(name)
    vars(module).update(content)
    return module
"""
)
AGNO = (
    _HEAD
    + """
class InMemoryDb: ...

package("agno")
package("agno.db")
package("agno.db.in_memory", InMemoryDb=InMemoryDb)

class Agent:
    name, instructions, model, tools, db, add_history_to_context = "dice", "Roll.", None, None, None, False

    def deep_copy(self):
        return type(self)()

    async def arun(self, message, session_id, user_id, session_state):
        asked.append((session_id, type(self.db).__name__, self.add_history_to_context, dict(session_state)))
        text = await answer(message)
        rolls = [int(text.removeprefix("got "))] if text.startswith("got ") else []
        state = {**session_state, **({"rolls": rolls} if rolls else {}), "current_session_id": session_id}
        return SimpleNamespace(content=text, session_state=state, get_content_as_string=lambda: text)

Agent.__module__ = "agno.agent"
root_agent = Agent()
"""
)
AGENT_FRAMEWORK = (
    _HEAD
    + """
package("agent_framework")

class Agent:
    name, client, default_options = "dice", None, {"instructions": "Roll."}

    def create_session(self):
        return SimpleNamespace(messages=[])

    async def run(self, message, session):
        session.messages.append(message)
        asked.append([*session.messages])
        return await answer(message)

Agent.__module__ = "agent_framework"
root_agent = Agent()
"""
)
CREWAI = (
    _HEAD
    + """
package("crewai")

class Agent:
    role, goal, llm, tools = "dice", "Roll.", None, ()

    def copy(self):
        return type(self)()

    async def kickoff_async(self, messages):
        asked.append([each["content"] for each in messages])
        return SimpleNamespace(raw=await answer(messages[-1]["content"]))

class Crew(Agent):
    name, agents, tasks = "crew", (Agent(),), ()

    async def kickoff_async(self, inputs):
        asked.append(inputs)
        return SimpleNamespace(raw=await answer(inputs["message"]))

Agent.__module__ = Crew.__module__ = "crewai.agent"
root_agent = Agent()
"""
)
CLAUDE = (
    _HEAD
    + """
from dataclasses import dataclass

@dataclass
class ResultMessage:
    session_id: str
    result: str
    is_error: bool = False
    subtype: str = "success"

@dataclass
class ClaudeAgentOptions:
    model: str = ""
    system_prompt: str = "Roll."
    resume: str | None = None

async def query(prompt, options):
    asked.append(options.resume)
    yield SimpleNamespace()
    if prompt == "fail":
        yield ResultMessage("own", "", True, "error_max_turns")
    else:
        yield ResultMessage("own", await answer(prompt))

package("claude_agent_sdk", query=query)
ClaudeAgentOptions.__module__ = "claude_agent_sdk.types"
root_agent = ClaudeAgentOptions()
"""
)
SMOLAGENTS = (
    _HEAD
    + """
class AgentMemory:
    def __init__(self, prompt):
        self.steps = []

package("smolagents")
package("smolagents.memory", AgentMemory=AgentMemory)

class ToolCall(SimpleNamespace): ...
class ToolOutput(SimpleNamespace): ...
class ActionStep(SimpleNamespace): ...
class FinalAnswerStep(SimpleNamespace): ...

class Tool:
    name, inputs = "roll_die", {"sides": {}}

    def __call__(self, sides, sanitize_inputs_outputs=False):
        if sides == 0:
            raise ValueError("no sides")
        return sides

class Agent:
    name, instructions, model, system_prompt = "dice", "Roll.", SimpleNamespace(model_id=""), "You roll."

    def __init__(self):
        self.memory, self.state, self.tools = AgentMemory(""), {}, {"roll_die": Tool(), "final_answer": Tool()}

    def run(self, message, stream, reset):
        assert stream and not reset
        self.memory.steps.append(message)
        asked.append([*self.memory.steps])
        if message == "by call":
            call = ToolCall(name="roll_die", arguments={"sides": 6}, id="c1")
            yield call
            yield ToolOutput(tool_call=call, output=6)
            yield ActionStep(step_number=1, tool_calls=[call], error=None)
            yield FinalAnswerStep(output="got 6")
            return
        if message.startswith("by code"):
            try:
                text = f"got {self.tools['roll_die'](int(message.split()[-1]), sanitize_inputs_outputs=True)}"
            except Exception as error:
                text = f"failed: {error}"
            yield ActionStep(step_number=1, tool_calls=[ToolCall(name="python_interpreter")], error=None)
            yield FinalAnswerStep(output=text)
            return
        text = asyncio.run(answer(message))
        yield ActionStep(step_number=1, tool_calls=None, error=None)
        yield FinalAnswerStep(output=text)

class CodeAgent(Agent):
    python_executor = None

    def create_python_executor(self):
        return object()

Agent.__module__ = CodeAgent.__module__ = "smolagents.agents"
root_agent = Agent()
"""
)
SOURCES = {
    "agent_framework": AGENT_FRAMEWORK,
    "agno": AGNO,
    "claude_agent": CLAUDE,
    "crewai": CREWAI,
    "smolagents": SMOLAGENTS,
}


def sessions_of() -> list[Any]:
    """The sessions that the objects of the loaded agent got."""
    sessions: list[Any] = sys.modules["some_agent.agent"].asked
    return sessions
