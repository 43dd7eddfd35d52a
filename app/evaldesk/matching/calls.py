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
    return tuple([(call.name, call.args or {}) if type(call) is ToolCall else _plain(call, side) for call in calls])


def _plain(call: object, side: str) -> PlainCall:
    if type(call) is dict or isinstance(call, Mapping):
        name, args = call.get("name"), call.get("args")
    else:
        name, args = getattr(call, "name", None), getattr(call, "args", None)
    if not isinstance(name, str):
        raise UsageError(f'{side} calls must be {{"name": ..., "args": {{...}}}}, got {call!r:.80}')
    if args and not isinstance(args, dict | Mapping):
        raise UsageError(f"{side} call of {name}: args must be an object, got {args!r:.80}")
    return name, args or {}
