"""The description of a metric's option for people and forms; it travels with the field of the dataclass."""

from __future__ import annotations

from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar, cast

from evaldesk.model import JsonValue

T = TypeVar("T")

OptionKind: TypeAlias = Literal[
    "choice",  # one of `choices`
    "keys",  # one of `choices`, or a list of names
    "switch",  # true or false
    "number",
    "whole",  # a whole number
    "text",
    "model",  # one of the models that the desk allows as judges
    "long_text",
    "json",  # any JSON value
    "list",  # texts, one a line
    "modes",  # name: one of the argument modes or a list of keys
    "values",  # name: list of JSON values
    "patterns",  # name: text
    "tolerances",  # name: number
]

_KEY = "evaldesk.option"


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """The form field of an option: its `label`, one line of explanation, and an example of a value.

    `choices` are pairs of value and words. `default` is the value that is not written into a criterion. A number lies
    between `low` and `high` where they are set. `example` shows in an empty field.
    """

    name: str
    kind: OptionKind
    label: str
    explanation: str
    choices: tuple[tuple[str, str], ...] = ()
    default: JsonValue = None
    low: float | None = None
    high: float | None = None
    example: str = ""


def option(
    default: T,
    kind: OptionKind,
    label: str,
    explanation: str,
    *,
    choices: tuple[tuple[str, str], ...] = (),
    low: float | None = None,
    high: float | None = None,
    example: str = "",
) -> T:
    """A field of a metric with its description; lists and objects are made anew for each metric."""
    info = OptionInfo("", kind, label, explanation, choices, None, low, high, example)
    metadata = {_KEY: info}
    if isinstance(default, list | dict):
        return cast("T", field(default_factory=default.copy, metadata=metadata))
    return field(default=default, metadata=metadata)


def option_infos(metric: type[Any]) -> tuple[OptionInfo, ...]:
    """The options of a metric in their order; fields without a description are left out."""
    if not is_dataclass(metric):
        return ()
    options = ((each, each.metadata.get(_KEY)) for each in fields(metric))
    return tuple(replace(info, name=each.name, default=_default_of(each)) for each, info in options if info)


def _default_of(each: Field[Any]) -> JsonValue:
    return cast("JsonValue", each.default if each.default_factory is MISSING else each.default_factory())
