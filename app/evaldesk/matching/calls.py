"""Tool calls as the pair (name, arguments) that matching works on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from evaldesk.errors import UsageError
from evaldesk.model import JsonObject, JsonValue, ToolCall

AnyCall: TypeAlias = ToolCall | Mapping[str, JsonValue]
PlainCall: TypeAlias = tuple[str, JsonObject]


def plain_calls(calls: Sequence[AnyCall], side: str) -> tuple[PlainCall, ...]:
    """The calls of one side; absent arguments are `{}`. Raises UsageError naming the `side` of a bad call."""
    return tuple([_plain_call(call, side) for call in calls])


def _plain_call(call: AnyCall, side: str) -> PlainCall:
    if isinstance(call, ToolCall):
        return call.name, call.args or {}
    name = call.get("name") if isinstance(call, dict | Mapping) else None
    if not isinstance(name, str):
        raise UsageError(f'{side} calls must be {{"name": ..., "args": {{...}}}}, got {call!r:.80}')
    args = call.get("args")
    if args is not None and not isinstance(args, dict | Mapping):
        raise UsageError(f"{side} call of {name}: args must be an object, got {args!r:.80}")
    return name, args or {}
