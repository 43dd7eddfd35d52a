"""Agents of smolagents: each session has a copy with a memory of its own, and each step is a log event.

The calls of a ToolCallingAgent are in its requests. A CodeAgent calls its tools from code: these calls are seen as they
are made, and doubles hold for them. (https://huggingface.co/docs/smolagents)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from evaldesk.agents.agent import is_from
from evaldesk.agents.framework_calls import CalledAgent, called_agent, session_object
from evaldesk.agents.tools.wire_doubles import WireDoubles
from evaldesk.llm.context import run_now
from evaldesk.llm.retry_events import PLAYED_TURN, CallAnswers
from evaldesk.model import AgentRef, Event, Session, ToolCall
from evaldesk.transcripts.plumbing import ENDING_TOOLS
from evaldesk.wire import plain_json

KIND = "smolagents"


def adapt(candidate: Any, ref: AgentRef) -> CalledAgent | None:
    """The agent around a MultiStepAgent; None for anything else."""
    if not (is_from(candidate, "smolagents") and hasattr(candidate, "python_executor") | hasattr(candidate, "memory")):
        return None

    def play(message: str, session: Session) -> Iterator[object]:
        events: list[Event] = []
        turn = PLAYED_TURN.get()
        answers = turn.call_answers if turn else None
        own = session_object(session, lambda: _copy(candidate, session))
        for name, tool in own.tools.items() if hasattr(own, "python_executor") else ():
            own.tools[name] = _ToldTool(tool, answers, events) if name not in ENDING_TOOLS else tool
        answer: object = None
        for step in own.run(message, stream=True, reset=False):
            yield from events
            events.clear()
            kind = type(step).__name__
            if kind == "ToolCall" and step.name not in _CODE_OR_END:
                yield Event("tool_call", call=_call(step))
            elif kind == "ToolOutput" and step.tool_call and step.tool_call.name not in _CODE_OR_END:
                yield Event("tool_result", call=_call(step.tool_call), result=plain_json(step.output))
            elif kind == "ActionStep":
                yield Event("log", author=KIND, text=_step_text(step))
            elif kind == "FinalAnswerStep":
                answer = step.output
        yield "" if answer is None else str(answer)

    return called_agent(
        ref,
        KIND,
        play,
        name=getattr(candidate, "name", None),
        instruction=getattr(candidate, "instructions", None),
        model=getattr(candidate.model, "model_id", None),
        tools=[tool for name, tool in candidate.tools.items() if name not in ENDING_TOOLS],
        tells_calls=True,
    )


def _copy(agent: Any, session: Session) -> Any:
    from smolagents.memory import AgentMemory

    own = copy.copy(agent)
    own.memory, own.state, own.tools = AgentMemory(agent.system_prompt), dict(session.state), dict(agent.tools)
    if hasattr(own, "create_python_executor"):
        own.python_executor = own.create_python_executor()
    return own


_CODE_OR_END = {*ENDING_TOOLS, "python_interpreter"}


def _call(step: Any) -> ToolCall:
    arguments = plain_json(step.arguments)
    return ToolCall(step.name, arguments if isinstance(arguments, dict) else {"value": arguments}, step.id)


def _step_text(step: Any) -> str:
    """`Step 2: roll_die`, and the error of the step, if it has one."""
    names = ", ".join(call.name for call in step.tool_calls or ())
    return f"Step {step.step_number}{f': {names}' if names else ''}{f': {step.error}' if step.error else ''}"


class _ToldTool:
    """A tool in the code of an agent, whose calls are told and may have doubles."""

    def __init__(self, tool: Any, answers: CallAnswers | None, events: list[Event]) -> None:
        self._tool: Any = tool._tool if isinstance(tool, _ToldTool) else tool
        self._answers, self._events = answers, events

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        values = {**dict(zip(self._tool.inputs, args, strict=False)), **options}
        arguments = {name: plain_json(value) for name, value in values.items() if name != "sanitize_inputs_outputs"}
        call = ToolCall(self._tool.name, arguments)
        self._events.append(Event("tool_call", call=call))
        outcome = run_now(self._answers.outcome(call)) if isinstance(self._answers, WireDoubles) else None
        if outcome is None:
            try:
                result = self._tool(*args, **options)
            except Exception as error:
                self._events.append(Event("tool_result", call=call, result=str(error), is_error=True))
                raise
            self._events.append(Event("tool_result", call=call, result=plain_json(result)))
            return result
        self._events.append(Event("tool_result", call=call, result=outcome.result, is_error=outcome.is_error))
        if outcome.is_error:
            raise RuntimeError(str(outcome.result))
        return outcome.result
