"""Parts of a JSON value by RFC 6901 pointers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ABSENT: Any = object()


def pointer_steps(pointer: str) -> list[str] | None:
    """The keys of a pointer; None for a text that is no pointer, and no key for the empty one."""
    if not pointer:
        return []
    if not pointer.startswith("/"):
        return None
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer[1:].split("/")]


def part_at(value: Any, pointer: str) -> Any:
    """The part of the value at the pointer; ABSENT where it has none."""
    for step in pointer_steps(pointer) or []:
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return ABSENT
    return value


def with_part(value: Any, pointer: str, part: Any) -> Any:
    """A copy of the value with another part at the pointer, or without it for ABSENT; its parent is there."""
    steps = pointer_steps(pointer) or []
    if not steps:
        return part
    first, rest = steps[0], pointer[1:].partition("/")[1:]
    inner = "".join(rest)
    if isinstance(value, list):
        at = int(first)
        return [
            *value[:at],
            *([] if part is ABSENT and not inner else [with_part(value[at], inner, part)]),
            *value[at + 1 :],
        ]
    if not isinstance(value, Mapping) or (inner and first not in value):
        return value
    if part is ABSENT and not inner:
        return {key: each for key, each in value.items() if key != first}
    return {**value, first: with_part(value.get(first), inner, part)}
