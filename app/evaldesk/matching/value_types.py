"""The types of JSON values that a case accepts in the place of an expected value."""

from __future__ import annotations

from collections.abc import Mapping

from evaldesk.model import JsonValue

VALUE_TYPES = ("any", "string", "number", "integer", "boolean", "array", "object", "null")


def is_of_type(name: str, value: JsonValue) -> bool:
    """Whether the value is of a type of JSON Schema; `any` is each value, and 2.0 is an integer."""
    if name == "any":
        return True
    if name == "integer":
        return is_of_type("number", value) and (isinstance(value, int) or float(value).is_integer())  # type: ignore[arg-type]
    return name == type_of(value)


def type_of(value: JsonValue) -> str:
    """The type of the value, without `integer` and `any`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"
