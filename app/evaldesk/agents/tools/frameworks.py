"""Tool calls made by a framework: doubles, the time limit, pauses for a person, and errors.

The turn sets the context variables; the wrapper around each tool, made once, reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from evaldesk.agents.dependencies import hint_of
from evaldesk.agents.shared_loop import SendEvent
from evaldesk.agents.tools.doubles import double_of
from evaldesk.agents.tools.time_limit import TOOL_LIMIT, ToolFailedError, call_in_time
from evaldesk.errors import AgentError, NoDoubleError
from evaldesk.llm.failures import model_error
from evaldesk.model import ErrorRecord, Event, JsonObject, JsonValue, Session, ToolCall, Waiting
from evaldesk.model.transcript import AWAITING

_log = logging.getLogger("evaldesk.agents")


@dataclass(slots=True)
class ToolCalls:
    """The calls of one turn; `failure` is stored, because frameworks pass the exceptions of a tool to the model.

    `calls_by_question` has the calls that wait for a person, by the id of the question.
    """

    send: SendEvent
    failure: NoDoubleError | None = None
    calls_by_question: dict[str, ToolCall] = field(default_factory=dict)

    def check(self) -> None:
        """Raise the stored failure, if any: it ends the trial."""
        if self.failure:
            raise self.failure


CURRENT_CALLS: ContextVar[ToolCalls | None] = ContextVar("current_tool_calls", default=None)


def begin_tool_calls(session: Session, send: SendEvent) -> ToolCalls:
    """Set up the tool calls of a new turn, with its time limit."""
    TOOL_LIMIT.set(session.limits.tool_timeout_s)
    calls = ToolCalls(send)
    CURRENT_CALLS.set(calls)
    return calls


def waiting_events(requests: Iterable[Waiting]) -> list[Event]:
    """The `requests` events, and the error event that ends the paused turn."""
    items = list(requests)
    tool_names = ", ".join(dict.fromkeys(each.tool for each in items)) or "the agent"
    ending = ErrorRecord(AWAITING, f"waiting for a decision of a person: {tool_names}")
    return [*(Event("waiting", waiting=each) for each in items), Event("error", error=ending)]


def call_limit_event(session: Session, why: object) -> Event:
    """The event that ends a turn at its limit of model calls: the limit of the run, else of the framework."""
    kind = "max_turns" if session.model_options.max_turns else "max_iterations"
    return Event("error", error=ErrorRecord(kind, f"the agent never answered: {why}"))


@contextmanager
def translate_errors(calls: ToolCalls, model: str, *, but: type[Exception], deps: Any = None) -> Iterator[None]:
    """Raise a provider's refusal as ModelError, and a missing dependency object as AgentError; others pass through.

    A stored failure of a tool comes first. Errors of the type `but` pass through.
    """
    try:
        yield
    except but:
        raise
    except Exception as error:
        calls.check()
        translated_error = model_error(error, model) or hint_of(error, deps)
        if translated_error:
            raise translated_error from error
        raise


MEMORY = "waits"


def pause(session: Session, value: object, snapshot: Callable[[], JsonValue]) -> None:
    """Store the `value` that resumes the turn in memory, and its JSON `snapshot` for another process.

    A value without a JSON form is stored in memory only. (decision 162)
    """
    session.memory[MEMORY] = (len(session.turns), session.state, value)
    try:
        session.paused = snapshot()
    except Exception as error:
        session.paused = None
        _log.info("a turn that waits cannot be stored: %s", error)


def take_paused_turn(session: Session) -> Any:
    """Remove and return the value that `pause` stored for the turn after `session.turns`; None in another process.

    The session gets the state object of the paused turn back, because its tools hold that object.
    """
    memory_entry: Any = session.memory.pop(MEMORY, None)
    if memory_entry is None or memory_entry[0] != len(session.turns):
        return None
    if memory_entry[1] is not session.state:
        now = dict(session.state)
        memory_entry[1].clear()
        memory_entry[1].update(now)
        session.state = memory_entry[1]
    return memory_entry[2]


def lost_turn_error() -> AgentError:
    """The error of a turn that cannot be resumed: its process has ended, and there is no snapshot."""
    return AgentError(
        "the process in which this turn waited has ended, and the agent's framework cannot store such a turn; "
        "send the message again"
    )


async def tool_result(
    name: str, args: JsonObject, state: dict[str, JsonValue], call: Callable[[], Awaitable[Any]]
) -> Any:
    """The result of the call. Raises ToolFailedError with the text for the model, and NoDoubleError."""
    calls = CURRENT_CALLS.get()
    try:
        outcome = await double_of(name, args, state)
    except NoDoubleError as error:
        if calls:
            calls.failure = error
        raise
    if outcome is None:
        return await call_in_time(name, call)
    if calls:
        await calls.send(Event("log", author=outcome.source, text=outcome.note))
    if outcome.is_error:
        raise ToolFailedError(str(outcome.result))
    return outcome.result
