"""When an actual call is taken for an expected one: the same tool, and arguments under a mode with some tolerance."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.matching.json_equality import covers, json_equal, json_key, objects_equal
from evaldesk.matching.tolerance import Tolerance
from evaldesk.model import JsonObject, JsonValue, ToolCall

AnyCall: TypeAlias = ToolCall | Mapping[str, JsonValue]
PlainCall: TypeAlias = tuple[str, JsonObject]


def plain_calls(calls: Sequence[AnyCall], side: str) -> tuple[PlainCall, ...]:
    """The calls of one side; absent arguments are `{}`. Raises UsageError naming the `side` of a bad call."""
    return tuple(
        [(call.name, call.args or {}) if type(call) is ToolCall else _plain_call(call, side) for call in calls]
    )


def _plain_call(call: object, side: str) -> PlainCall:
    if type(call) is dict or isinstance(call, Mapping):
        name, args = call.get("name"), call.get("args")
    else:
        name, args = getattr(call, "name", None), getattr(call, "args", None)
    if not isinstance(name, str):
        raise UsageError(f'{side} calls must be {{"name": ..., "args": {{...}}}}, got {call!r:.80}')
    if args and not isinstance(args, dict | Mapping):
        raise UsageError(f"{side} call of {name}: args must be an object, got {args!r:.80}")
    return name, args or {}


ArgsMode: TypeAlias = Literal["exact", "ignore", "superset", "subset"] | Sequence[str]

ARGS_MODES = ("exact", "ignore", "superset", "subset")

_ABSENT = object()


@dataclass(frozen=True)
class CallRule:
    """The comparison of arguments: a mode for all tools, others for single tools, and the tolerances.

    Modes: `exact`; `ignore`; `superset` at least the expected keys, at every depth; `subset` at most those; or a list
    of the top-level keys to compare. Raises NotFoundError for an unknown mode.
    """

    args: ArgsMode = "exact"
    by_tool: Mapping[str, ArgsMode] = field(default_factory=dict)
    tolerance: Tolerance = field(default_factory=Tolerance)

    def __post_init__(self) -> None:
        _check_mode(self.args, "args")
        for mode in self.by_tool.values():
            _check_mode(mode, "args_by_tool")

    @property
    def is_plain(self) -> bool:
        """Whether only equal calls are taken for each other."""
        return self.args == "exact" and not self.by_tool and not self._has_tolerance

    @cached_property
    def is_equivalence(self) -> bool:
        """Whether calls fall into classes within which each is taken for each, so that counting is enough."""
        return not self._has_tolerance and not any(
            mode in ("superset", "subset") for mode in (self.args, *self.by_tool.values())
        )

    @cached_property
    def _has_tolerance(self) -> bool:
        return bool(self.tolerance)

    def key(self, call: PlainCall) -> Hashable:
        """The class of a call, for a rule that is an equivalence."""
        name, args = call
        mode = self.by_tool.get(name, self.args) if self.by_tool else self.args
        if mode == "exact":
            return name, json_key(args)
        if mode == "ignore":
            return name
        return name, tuple([json_key(args[key]) if key in args else _ABSENT for key in mode])

    def accepts(self, wish: PlainCall, call: PlainCall) -> bool:
        """Whether `call` is taken for `wish`. Raises MetricError where a pattern takes too long."""
        if wish[0] != call[0]:
            return False
        if objects_equal(wish[1], call[1]):
            return True
        mode = self.by_tool.get(wish[0], self.args)
        if mode in ("exact", "ignore") and self.is_equivalence:
            return mode == "ignore"
        if not self._has_tolerance:
            return _args_match(wish[1], call[1], mode)
        tolerated = self._reasons(wish, call)
        return _args_match(_without(wish[1], tolerated), _without(call[1], tolerated), mode)

    def because(self, wish: PlainCall, call: PlainCall) -> tuple[str, ...]:
        """Why `call` is taken for `wish` although their arguments differ, a clause for each; empty when it is not."""
        if not self.accepts(wish, call) or objects_equal(wish[1], call[1]):
            return ()
        mode = self.by_tool.get(wish[0], self.args)
        if mode == "ignore":
            return ("arguments are ignored",)
        reasons = self._reasons(wish, call)
        sentences = [f"{key} {reason}" for key, reason in reasons.items() if isinstance(mode, str) or key in mode]
        if objects_equal(_without(wish[1], reasons), _without(call[1], reasons)):
            return tuple(sentences)
        if isinstance(mode, str):
            return (*sentences, "more arguments are allowed" if mode == "superset" else "fewer arguments are allowed")
        return (*sentences, f"only {', '.join(mode) or 'the tool'} {'are' if len(mode) > 1 else 'is'} compared")

    def _reasons(self, wish: PlainCall, call: PlainCall) -> dict[str, str]:
        reasons = {}
        for key, expected in wish[1].items():
            if key in call[1] and not json_equal(expected, call[1][key]):
                reason = self.tolerance.reason(wish[0], key, expected, call[1][key])
                if reason:
                    reasons[key] = reason
        return reasons


def _check_mode(mode: object, option: str) -> None:
    if isinstance(mode, str):
        if mode not in ARGS_MODES:
            error = NotFoundError.among("argument mode", mode, ARGS_MODES)
            error.field = option
            raise error
    elif not isinstance(mode, Collection) or not all(isinstance(key, str) for key in mode):
        modes = ", ".join(ARGS_MODES)
        raise UsageError(f"{option} must be one of {modes}, or a list of keys, got {mode!r:.80}", field=option)


def _without(args: JsonObject, keys: Mapping[str, str]) -> dict[str, JsonValue]:
    return {key: value for key, value in args.items() if key not in keys}


def _args_match(expected: JsonObject, actual: JsonObject, mode: ArgsMode) -> bool:
    if mode == "exact":
        return objects_equal(expected, actual)
    if mode == "superset":
        return covers(actual, expected)
    if mode == "subset":
        return covers(expected, actual)
    return all((key in expected) == (key in actual) and json_equal(expected.get(key), actual.get(key)) for key in mode)
