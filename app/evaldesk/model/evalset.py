"""Eval sets, cases and turns: the user's side, and the expectations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    JsonValue: TypeAlias = bool | int | float | str | list["JsonValue"] | dict[str, "JsonValue"] | None
else:
    # The wire codec resolves annotations at run time and has no use for the recursion.
    JsonValue = Any


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool by the agent, or one that is expected of it."""

    name: str
    args: JsonObject = field(default_factory=dict)
    id: str | None = None
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Expected:
    """The expectation of a turn. `tool_calls=None` is "not asserted", `()` is "no tool may be called"."""

    tool_calls: tuple[ToolCall, ...] | None = None
    intermediate: tuple[tuple[str, str], ...] = ()
    reference: str | None = None
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user message and the expectation until the agent answers."""

    query: str
    expected: Expected = field(default_factory=Expected)
    rubrics: tuple[JsonObject, ...] = ()
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionInit:
    """The session a case starts from."""

    app_name: str = ""
    user_id: str = ""
    state: JsonObject = field(default_factory=dict)
    extra: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Case:
    """A conversation with expectations, or a `scenario` from which a simulated user makes one.

    Exactly one of `turns` and `scenario` is used; a case with a scenario has no turns.
    """

    id: str
    turns: tuple[Turn, ...] = ()
    scenario: JsonObject | None = None
    initial_session: SessionInit | None = None
    final_state: JsonObject | None = None
    rubrics: tuple[JsonObject, ...] = ()
    tags: tuple[str, ...] = ()
    extra: JsonObject = field(default_factory=dict)

    @property
    def initial_state(self) -> JsonObject:
        """The state the session starts from; empty when the case names none."""
        return self.initial_session.state if self.initial_session else {}


@dataclass(frozen=True, slots=True)
class EvalSet:
    """A named list of cases, as one file holds it."""

    id: str
    name: str | None = None
    description: str | None = None
    cases: tuple[Case, ...] = ()
    extra: JsonObject = field(default_factory=dict)

    def case(self, case_id: str) -> Case | None:
        """The case with that id, or None."""
        return next((case for case in self.cases if case.id == case_id), None)


JsonObject: TypeAlias = Mapping[str, JsonValue]


def plain_number(value: object) -> object:
    """The bool, int or float that a scalar of numpy, torch or the like stands for; any other value as it is.

    Nothing is imported: such a scalar is a `Real`, or has the shape `()` and an `item()`.
    """
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    item = getattr(value, "item", None)
    if getattr(value, "shape", None) != () or not callable(item):
        return value
    found = item()
    return found if isinstance(found, bool | int | float) else value
