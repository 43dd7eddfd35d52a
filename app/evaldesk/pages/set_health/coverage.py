"""The tools of an agent by the cases that expect them: untested tools, arguments and values, and states. Pure.

(reference/sets.md 4)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from evaldesk.matching.case_facts import VALUE_CHARACTERS, noted_values
from evaldesk.model import AgentDescription, JsonObject, ToolCall
from evaldesk.model.case_facts import CaseFacts
from evaldesk.model.json_text import short_json
from evaldesk.pages.set_health.finding import Finding
from evaldesk.wire import from_json

Calls: TypeAlias = list[tuple[str, dict[str, list[str]]]]
"""The `calls` of the facts of a case."""
MAX_ENUM = 100
"""Values of an enum that are told apart."""
TEMPORARY = ("temp:", "_")
"""Beginnings of the keys of states that frameworks keep for themselves."""


@dataclass(frozen=True, slots=True)
class PassingTrial:
    """A passing trial of a case: its tool calls, and the state keys that it changed."""

    case_id: str
    calls: tuple[ToolCall, ...] = ()
    changed_keys: frozenset[str] = frozenset()


@dataclass(slots=True)
class ArgumentCoverage:
    """An argument of a tool. Of an enum `values` are all, as JSON, and `used_values` the requested ones."""

    name: str
    values: tuple[str, ...] = ()
    is_expected: bool = False
    is_seen: bool = False
    used_values: set[str] = field(default_factory=set)

    @property
    def state(self) -> str:
        """`expected` in a case, `seen` in a passing trial only, or `never`."""
        return "expected" if self.is_expected else "seen" if self.is_seen else "never"

    @property
    def unused_values(self) -> tuple[str, ...]:
        """The values of its enum that nobody asked for; of an argument that was never sent it says enough itself."""
        if self.state == "never":
            return ()
        return tuple(value for value in self.values if value not in self.used_values)


@dataclass(slots=True)
class ToolCoverage:
    """A tool of the agent or of an agent below it; the places count the cases of the set from 0."""

    name: str
    arguments: dict[str, ArgumentCoverage]
    expected: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)
    forbidden: set[int] = field(default_factory=set)

    @property
    def is_tested(self) -> bool:
        """Whether a case expects it, or a passing trial called it."""
        return bool(self.expected or self.seen)

    def mark(self, place: int) -> str:
        """The mark in the column of a case: `asks`, `seen`, `forbids` or `never`."""
        if place in self.expected:
            return "asks"
        return "seen" if place in self.seen else "forbids" if place in self.forbidden else "never"


def tool_coverage(
    description: AgentDescription, ids: Sequence[str], facts: Sequence[CaseFacts], trials: Iterable[PassingTrial]
) -> tuple[ToolCoverage, ...]:
    """The tools of the agent and of the agents below it, by the cases that expect them."""
    tools: dict[str, ToolCoverage] = {}
    _add_tools(tools, description)
    for place, each in enumerate(facts if tools else ()):
        for name, args in from_json(each.calls, Calls) if each.calls else ():
            if tool := tools.get(name):
                tool.expected.add(place)
                _use(tool, args, is_expected=True)
        if each.calls == "[]":
            for tool in tools.values():
                tool.forbidden.add(place)
    places = {case_id: place for place, case_id in enumerate(ids)}
    for trial in trials:
        for call in trial.calls:
            tool = tools.get(call.name)
            if tool is not None and trial.case_id in places:
                tool.seen.add(places[trial.case_id])
                _use(tool, {name: noted_values(value) for name, value in call.args.items()}, is_expected=False)
    return tuple(tools.values())


def _add_tools(tools: dict[str, ToolCoverage], description: AgentDescription) -> None:
    for tool in description.tools:
        if tool.name not in tools:
            tools[tool.name] = ToolCoverage(tool.name, _arguments(tool.parameters))
    for below in description.sub_agents:
        _add_tools(tools, below)


def _arguments(parameters: JsonObject) -> dict[str, ArgumentCoverage]:
    properties = parameters.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    return {str(name): ArgumentCoverage(str(name), _enum_values(schema)) for name, schema in properties.items()}


def _enum_values(schema: object) -> tuple[str, ...]:
    if not isinstance(schema, Mapping):
        return ()
    values = schema.get("enum")
    if isinstance(values, list):
        return tuple(short_json(value, VALUE_CHARACTERS) for value in values[:MAX_ENUM] if value is not None)
    options = schema.get("anyOf")
    enums = [_enum_values(option) for option in options] if isinstance(options, list) else []
    return next(filter(None, enums), ())


def _use(tool: ToolCoverage, args: Mapping[str, Sequence[str]], *, is_expected: bool) -> None:
    for name, values in args.items():
        if argument := tool.arguments.get(name):
            argument.is_expected |= is_expected
            argument.is_seen = True
            if argument.values:
                argument.used_values.update(values)


def tool_findings(tools: Sequence[ToolCoverage], ids: Sequence[str]) -> Iterator[Finding]:
    """The findings about tools, arguments and values."""
    untested_tools = [tool for tool in tools if not tool.is_tested]
    forbidding = {place for tool in untested_tools for place in tool.forbidden}
    detail = f"{len(forbidding):,} cases say that no tool may be called" if forbidding else ""
    yield Finding("untested_tools", tuple(tool.name for tool in untested_tools), detail=detail)
    seen_tools = [tool for tool in tools if tool.seen and not tool.expected]
    places = sorted({place for tool in seen_tools for place in tool.seen})
    yield Finding("expected_nowhere", tuple(tool.name for tool in seen_tools), tuple(ids[place] for place in places))
    arguments = [(tool, argument) for tool in tools if tool.is_tested for argument in tool.arguments.values()]
    yield Finding(
        "untested_arguments", tuple(f"{tool.name}.{each.name}" for tool, each in arguments if each.state == "never")
    )
    partly = [(tool, each) for tool, each in arguments if each.unused_values]
    yield Finding(
        "untested_values",
        tuple(
            f"{tool.name}.{each.name} {len(each.unused_values)} of {len(each.values)}: "
            f"{' '.join(each.unused_values[:MAX_NAMED_VALUES])}"
            for tool, each in partly
        ),
    )


MAX_NAMED_VALUES = 5


def asserted_keys(facts: Iterable[CaseFacts]) -> frozenset[str]:
    """The keys of the final states that cases assert."""
    return frozenset(key for each in facts if each.state_keys for key in from_json(each.state_keys, list[str]))


def state_keys(trials: Iterable[PassingTrial]) -> frozenset[str]:
    """The state keys that trials changed, without the internal ones of frameworks."""
    return frozenset(key for trial in trials for key in trial.changed_keys if not key.startswith(TEMPORARY))


def state_finding(ids: Sequence[str], facts: Sequence[CaseFacts], trials: Sequence[PassingTrial]) -> Finding:
    """The states that trials change and that no case asserts, with the cases whose trials do so."""
    keys = sorted(state_keys(trials) - asserted_keys(facts)) if trials else []
    changing_ids = {trial.case_id for trial in trials if trial.changed_keys & set(keys)}
    return Finding("unasserted_states", tuple(keys), tuple(case_id for case_id in ids if case_id in changing_ids))
