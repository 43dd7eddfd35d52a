"""JSON as a tree that folds: what agents answer and tools return."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from evaldesk.model import JsonValue
from evaldesk.model.json_text import json_line

MAX_READ = 20_000
"""A longer text is not read as JSON."""
MAX_CHILDREN = 100
MAX_DEPTH = 20
MAX_ON_PAGE = 1_000
"""So many nodes are drawn for one page; what comes after them is text."""
MAX_LINE = 300


@dataclass(frozen=True, slots=True)
class Node:
    """A value under its key: on one line, and its `children` with the number of those that are left out."""

    key: str
    line: str
    children: tuple[Node, ...] = ()
    n_left_out: int = 0
    words: str = ""


@dataclass(slots=True)
class Trees:
    """Draws the trees of one page, until MAX_ON_PAGE nodes are drawn."""

    n_left: int = MAX_ON_PAGE

    def tree(self, value: JsonValue) -> Node | None:
        """The tree of a list or an object, also of one that stands in a text; None for any other value."""
        value = _read(value) if isinstance(value, str) else value
        return self._node("", value, 0) if _is_container(value) and self.n_left > 0 else None

    def _node(self, key: str, value: JsonValue, depth: int) -> Node:
        self.n_left -= 1
        line = _cut(json_line(value)) if not _is_container(value) else _beginning(value)
        if not _is_container(value) or depth == MAX_DEPTH:
            return Node(key, line)
        children: list[Node] = []
        for name, item in _items(value):
            if self.n_left <= 0 or len(children) == MAX_CHILDREN:
                break
            children.append(self._node(name, item, depth + 1))
        n = len(value)  # type: ignore[arg-type]
        return Node(key, line, tuple(children), n - len(children), _words(value, n))


def _read(text: str) -> JsonValue:
    if len(text) > MAX_READ or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value: JsonValue = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def _is_container(value: JsonValue) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str) and bool(value)


def _items(value: JsonValue) -> Iterable[tuple[str, JsonValue]]:
    if isinstance(value, Mapping):
        return value.items()
    return ((str(index), item) for index, item in enumerate(value))  # type: ignore[arg-type]


def _words(value: JsonValue, n: int) -> str:
    noun = "key" if isinstance(value, Mapping) else "item"
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def _beginning(value: JsonValue) -> str:
    """The names of an object, or the simple items of a list: never the whole of a large value."""
    names = []
    for name, item in _items(value):
        names.append(name if isinstance(value, Mapping) else "…" if _is_container(item) else _cut(json_line(item), 40))
        if len(names) == 6:
            break
    return _cut(", ".join(names), 80)


def _cut(text: str, length: int = MAX_LINE) -> str:
    return text if len(text) <= length else f"{text[:length]}… ({len(text) - length:,} more characters)"
