"""Where things stand in the text of a JSON document: lines for paths, and the first value JSON cannot hold.

It runs only when there is an error to explain, over text that the parser has found to be JSON up to that error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

JsonPath: TypeAlias = tuple[str | int, ...]

MAX_DIGITS = 4000
"""Python itself refuses to print integers of more than 4,300 digits."""

NUMBER_NAMES = ("NaN", "Infinity", "-Infinity")

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
_SPACE = re.compile(r"[ \t\n\r]*")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*")
_SKIP = json.JSONDecoder(strict=False).raw_decode


@dataclass(frozen=True, slots=True)
class Fault:
    """A key or a value that cannot be kept: its path, its offset in the text, and why."""

    path: JsonPath
    offset: int
    reason: str


def path_text(path: JsonPath) -> str:
    """The path as people write it: `eval_cases[2].conversation`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}"
        else:
            text += f"[{json.dumps(step)}]"
    return text.removeprefix(".")


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of `offset`, both counting from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def find_place(text: str, path: JsonPath) -> tuple[int, int]:
    """Line and column of the value at `path`, or of the nearest value around it that exists."""
    offset = after_space(text, 0)
    for step in path:
        inner = next((start for key, start in _children(text, offset) if key == step), None)
        if inner is None:
            break
        offset = inner
    return line_and_column(text, offset)


def first_fault(text: str, *, has_number_names: bool = False) -> Fault | None:
    """The first key or value that the text may have but JSON, UTF-8 or we cannot hold, and why.

    With `has_number_names`, NaN and numbers that overflow are no faults.
    """
    path: list[str | int] = []
    keys: list[set[str] | None] = []  # of the objects around this place; None for a list
    is_key_next = False
    for match in _TOKEN.finditer(text):
        symbol = match.group()
        reason = _fault(symbol, has_number_names)
        if symbol in ("{", "["):
            keys.append(set() if symbol == "{" else None)
            path.append("" if symbol == "{" else 0)
        elif symbol in ("}", "]"):
            del path[-1:], keys[-1:]
        elif symbol == "," and keys and keys[-1] is None:
            path[-1] = int(path[-1]) + 1
        elif is_key_next and symbol[0] == '"':
            path[-1] = key = json.loads(symbol, strict=False)
            reason = _note_key(key, keys[-1]) or reason
        if reason:
            return Fault(tuple(path), match.start(), reason)
        is_key_next = symbol in ("{", ",") and bool(keys) and keys[-1] is not None
    return None


def _note_key(key: str, keys: set[str] | None) -> str | None:
    """Why `key` may not be there again; notes it otherwise."""
    if keys is None:
        return None
    if key in keys:
        return repeated_key(key)
    keys.add(key)
    return None


def repeated_key(key: str) -> str:
    """Why an object may not have a key twice."""
    return f"the key {_clip(key)} is there twice in one object"


def _children(text: str, offset: int) -> Iterator[tuple[str | int, int]]:
    """Key or index and offset of each value inside the one at `offset`; the values themselves are skipped over."""
    is_object = text[offset : offset + 1] == "{"
    if not is_object and text[offset : offset + 1] != "[":
        return
    offset = after_space(text, offset + 1)
    index = 0
    while text[offset : offset + 1] not in ("}", "]", ""):
        key: str | int = index
        if is_object:
            key, offset = _SKIP(text, offset)
            offset = after_space(text, after_space(text, offset) + 1)
        yield key, offset
        _, offset = _SKIP(text, offset)
        offset = after_space(text, offset)
        if text[offset : offset + 1] == ",":
            offset = after_space(text, offset + 1)
        index += 1


def after_space(text: str, offset: int) -> int:
    """Where the next character is that is no space."""
    match = _SPACE.match(text, offset)
    return match.end() if match else offset


def _fault(token: str, has_number_names: bool) -> str | None:
    if token[0] == '"':
        lone = _SURROGATE.search(json.loads(token, strict=False)) if "\\u" in token else None
        return f"half a character, \\u{ord(lone.group()):04x} alone: UTF-8 cannot hold it" if lone else None
    if token in NUMBER_NAMES:
        return None if has_number_names else f"{token} is not a JSON number"
    digits = token.lstrip("-")
    if digits.isdecimal():
        is_huge = len(digits) > MAX_DIGITS
        return f"an integer of {len(digits)} digits; at most {MAX_DIGITS} can be kept" if is_huge else None
    if not has_number_names and digits[:1].isdecimal() and math.isinf(_number(digits)):
        return f"{_clip(token)} is too large for a number"
    return None


def _number(token: str) -> float:
    try:
        return float(token)
    except ValueError:
        return 0.0


def _clip(text: str) -> str:
    return json.dumps(text if len(text) <= 80 else text[:80] + "…", ensure_ascii=False)
