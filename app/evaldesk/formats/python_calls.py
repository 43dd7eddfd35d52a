"""Tool calls written as Python: `mv(source='a', destination='b')`. Parsed as data, never run."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any

from evaldesk.model import ToolCall

_MAX_CHARS = 20_000
_DAMAGE = (SyntaxError, ValueError, TypeError, RecursionError, MemoryError, Warning)


def parse_call(text: str, parameters: Mapping[str, Sequence[str]]) -> ToolCall | None:
    """The call, or None when the text is no call of literals. `parameters` names those of each function.

    An argument given by position has the name of its parameter; without one, its number counted from 0.
    """
    if len(text) > _MAX_CHARS:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        if not isinstance(tree, ast.Call):
            return None
        name = ast.unparse(tree.func)
        values = [_plain(ast.literal_eval(argument)) for argument in tree.args]
        named = [(keyword.arg, _plain(ast.literal_eval(keyword.value))) for keyword in tree.keywords]
    except _DAMAGE:
        return None
    known = parameters.get(name, ())
    args = {known[index] if index < len(known) else str(index): value for index, value in enumerate(values)}
    for key, value in named:
        if key is None or key in args:
            return None
        args[key] = value
    return ToolCall(name, args)


def _plain(value: Any) -> Any:
    """The literal as JSON has it: a tuple is a list. Raises ValueError for bytes, sets, and whatever JSON has not."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise ValueError("a key that is no string")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number that JSON cannot hold")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(type(value).__name__)
