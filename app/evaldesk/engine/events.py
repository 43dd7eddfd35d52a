"""Events as an agent yields them, checked and made plain JSON before anything else sees them."""

from __future__ import annotations

from typing import Any, get_args

from evaldesk.errors import AgentError
from evaldesk.model import ErrorRecord, Event, EventKind, Role, ToolCall, Usage
from evaldesk.wire import plain, plain_text

# The player itself says these: an agent that does too would have them twice.
_NOT_THE_AGENTS = ("user_message", "state_delta")
_AGENT_KINDS = tuple(kind for kind in get_args(EventKind) if kind not in _NOT_THE_AGENTS)


def checked_event(found: object, at_ms: float) -> Event:
    """`found` as a plain event stamped `at_ms`. Raises AgentError saying what is wrong with it."""
    if not isinstance(found, Event):
        raise AgentError(f"the agent yielded {_shown(found)}, not an Event")
    if found.kind not in _AGENT_KINDS:
        raise AgentError(f"the agent yielded an event of kind {_shown(found.kind)}; kinds: {', '.join(_AGENT_KINDS)}")
    needed = {"tool_call": found.call, "tool_result": found.call, "usage": found.usage, "error": found.error}
    if found.kind in needed and needed[found.kind] is None:
        raise AgentError(f"the agent yielded a {found.kind} event without what it is about")
    return Event(
        kind=found.kind,
        at_ms=at_ms,
        author=_text(found.author, "author"),
        within=_text(found.within, "within"),
        text=_text(found.text, "text"),
        call=_call(found.call) if found.call is not None else None,
        result=plain(found.result),
        is_error=found.is_error is True,
        is_partial=found.is_partial is True,
        duration_ms=_number(found.duration_ms, "duration_ms") if found.duration_ms is not None else None,
        usage=_usage(found.usage) if found.usage is not None else None,
        error=_error(found.error) if found.error is not None else None,
    )


def _call(found: object) -> ToolCall:
    if not isinstance(found, ToolCall):
        raise AgentError(f"the call of an event must be a ToolCall, got {_shown(found)}")
    args = plain(found.args)
    if not isinstance(args, dict):
        raise AgentError(f"the arguments of a tool call must be an object, got {_shown(found.args)}")
    call_id = None if found.id is None else _text(found.id, "call.id")
    extra = plain(found.extra)
    return ToolCall(_text(found.name, "call.name"), args, call_id, extra if isinstance(extra, dict) else {})


def _usage(found: object) -> Usage:
    if not isinstance(found, Usage):
        raise AgentError(f"the usage of an event must be a Usage, got {_shown(found)}")
    return Usage(
        model=_text(found.model, "usage.model"),
        role=found.role if found.role in get_args(Role) else "agent",
        tokens_in=int(_number(found.tokens_in, "usage.tokens_in")),
        tokens_out=int(_number(found.tokens_out, "usage.tokens_out")),
        cost=None if found.cost is None else _number(found.cost, "usage.cost"),
        n_attempts=int(_number(found.n_attempts, "usage.n_attempts")),
        duration_ms=_number(found.duration_ms, "usage.duration_ms"),
        is_replayed=found.is_replayed is True,
    )


def _error(found: object) -> ErrorRecord:
    if not isinstance(found, ErrorRecord):
        raise AgentError(f"the error of an event must be an ErrorRecord, got {_shown(found)}")
    return ErrorRecord(_text(found.kind, "kind"), _text(found.message, "message"), _text(found.trace, "trace"))


def _text(found: Any, name: str) -> str:
    if not isinstance(found, str):
        raise AgentError(f"the {name} of an event must be a string, got {_shown(found)}")
    return plain_text(found)


def _number(found: Any, name: str) -> float:
    number = plain(found)
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise AgentError(f"the {name} of an event must be a number, got {_shown(found)}")
    return number


def _shown(found: object) -> str:
    if found is None:
        return "None"
    text = str(plain(found))
    return f"{type(found).__name__} {text[:80]}{'…' if len(text) > 80 else ''}"
