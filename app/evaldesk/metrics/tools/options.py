"""The options that all metrics of tool calls share: the comparison of arguments, and the scope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaldesk.matching import CallRule, Tolerance
from evaldesk.metrics.option import option
from evaldesk.model import JsonValue

Mode: TypeAlias = Literal["exact", "ignore", "superset", "subset"]
Scope: TypeAlias = Literal["turn", "conversation"]

SCOPES = (("turn", "each turn"), ("conversation", "the whole conversation"))
_MODES = (
    ("exact", "the same"),
    ("ignore", "not compared"),
    ("superset", "the expected ones, more allowed"),
    ("subset", "none but expected ones"),
)


@dataclass(frozen=True)
class ToolOptions:
    """How expected and actual calls are compared; the same words in criteria files and on the form."""

    args: Mode | list[str] = option(
        "exact",
        "keys",
        "Arguments",
        "When the arguments of a call count as the expected ones; named keys are the only ones compared.",
        choices=_MODES,
    )
    args_by_tool: dict[str, Mode | list[str]] = option(
        {},
        "modes",
        "Arguments of single tools",
        "One tool a line, with exact, ignore, superset, subset, or the only keys that are compared.",
        example="search = ignore\nbook = only city, date",
    )
    any_of: dict[str, list[JsonValue]] = option(
        {},
        "values",
        "Allowed values",
        "One argument a line, or tool/argument, with JSON values that count as well as the expected one.",
        example='city = "Paris", "Lyon"',
    )
    patterns: dict[str, str] = option(
        {},
        "patterns",
        "Patterns",
        "One argument a line, or tool/argument, with a regular expression that a whole text may match instead.",
        example="query = (?i)weather in .*",
    )
    tolerances: dict[str, float] = option(
        {},
        "tolerances",
        "Tolerances",
        "One argument a line, or tool/argument, with how far a number may be from the expected one.",
        example="price = 0.5",
    )
    scope: Scope = option(
        "turn",
        "choice",
        "Compared over",
        "Each turn against its own expectation, or all calls of the conversation against all that are expected.",
        choices=SCOPES,
    )

    def __post_init__(self) -> None:
        self.rule()

    def rule(self) -> CallRule:
        """When a call is taken for an expected one. Raises UsageError naming the option at fault."""
        return CallRule(self.args, self.args_by_tool, Tolerance(self.any_of, self.patterns, self.tolerances))
