"""Failures as values: exceptions of code that is not ours, with the trace its author needs."""

from __future__ import annotations

import sys
import threading
import traceback

from evaldesk.errors import AgentError, BadNumberError, EvaldeskError, ModelError, NoDoubleError, UsageError
from evaldesk.llm.failures import ModelFailure, refusal
from evaldesk.model import Case, ErrorRecord
from evaldesk.model.decisions import scripted_decisions
from evaldesk.wire import MAX_TEXT, plain_text

MAX_TRACE = 20_000
MAX_MESSAGE = 2_000


def failure(error: BaseException, kind: str = "agent_raised") -> ErrorRecord:
    """The exception as a value; an error that knows its own kind keeps it."""
    if isinstance(error, ModelError | NoDoubleError):
        kind = error.kind
    elif isinstance(error, BadNumberError):
        kind = "bad_number"
    elif isinstance(error, AgentError) and kind == "agent_raised":
        kind = "bad_output"
    trace = str(getattr(error, "trace", "")) or trace_of(error)
    refusal = _refusal(error) if kind == "agent_raised" else None
    if refusal:
        return ErrorRecord(refusal.kind, refusal.sentence, shorten_middle(trace, MAX_TRACE))
    return ErrorRecord(kind, _message(error), shorten_middle(trace, MAX_TRACE))


def case_problem(case: Case) -> ErrorRecord | None:
    """Why a case cannot be played: a message that must be cut, which is another question, or unreadable decisions."""
    for number, turn in enumerate(case.turns, 1):
        if len(turn.query) > MAX_TEXT:
            sentence = f"the message of turn {number} has {len(turn.query):,} characters; at most {MAX_TEXT:,} are sent"
            return ErrorRecord("message_too_long", sentence)
    try:
        scripted_decisions(case)
    except UsageError as error:
        return ErrorRecord("bad_case", str(error))
    return None


def _refusal(error: BaseException) -> ModelFailure | None:
    try:
        return refusal(error)
    except Exception:  # it only says that it is a client's
        return None


def trace_of(error: BaseException) -> str:
    """The traceback of `error` without our own frames, unless there are no others; then that of no error of ours."""
    from evaldesk.agents.traces import user_trace

    try:
        trace = user_trace(error)
        if "  File " in trace:
            return trace
        return "" if isinstance(error, EvaldeskError) else "".join(traceback.format_exception(error))
    except Exception as broken:
        return f"{type(error).__name__}, whose trace cannot be shown: {type(broken).__name__}"


def place_of(thread: threading.Thread) -> str:
    """Where `thread` stands at this moment, in the user's own frames if it has any; empty when it has ended."""
    from evaldesk.agents.traces import user_frames

    # Private, but the only way to see where a blocked thread stands: decision 003.
    frame = sys._current_frames().get(thread.ident or 0)
    stack = traceback.extract_stack(frame) if frame else traceback.StackSummary()
    return shorten_middle("".join(traceback.format_list(user_frames(stack) or stack)), MAX_TRACE)


def shorten_middle(text: str, limit: int) -> str:
    """`text` of valid Unicode with its middle left out when it is longer than `limit` characters."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}\n… {len(text) - limit} characters left out …\n{text[-limit // 2 :]}"
    return plain_text(text)


def _message(error: BaseException) -> str:
    # The message of a group of a task group names no cause; Python 3.10 has the class from a package.
    while "BaseExceptionGroup" in {kind.__name__ for kind in type(error).__mro__}:
        error = error.exceptions[0]  # type: ignore[attr-defined]
    try:
        text = str(error)
    except Exception:
        text = "its message cannot be shown"
    name = type(error).__name__
    words = text if isinstance(error, ModelError | AgentError | BadNumberError) else f"{name}: {text}"
    hint = "; each trial has a loop of its own: use --isolation process" if "different event loop" in text else ""
    return shorten_middle(f"{words if text else name}{hint}", MAX_MESSAGE)
