"""JSON of answers and tool results as a folding tree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from evaldesk.diff.text_diff import opcodes
from evaldesk.matching import json_equal
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
    """A value under its key: on one line, and its `children` with the number of omitted ones.

    In a comparison `op` is that of an argument, and `other` the actual value beside the expected one.
    """

    key: str
    line: str
    children: tuple[Node, ...] = ()
    n_left_out: int = 0
    words: str = ""
    op: str = ""
    other: str = ""


@dataclass(slots=True)
class Trees:
    """Draws the trees of one page, until MAX_ON_PAGE nodes are drawn; `longest` is None where no value is cut."""

    n_left: int = MAX_ON_PAGE
    longest: int | None = MAX_LINE
    is_cut: bool = False

    def tree(self, value: JsonValue) -> Node | None:
        """The tree of a list or an object, also of JSON in a text; None for any other value."""
        value = read_container(value, MAX_READ) if isinstance(value, str) else value
        return self._node("", value, 0) if _is_container(value) and self.n_left > 0 else None

    def difference(self, expected: str, actual: str) -> Node | None:
        """The tree of two texts of JSON with their differences marked.

        None where one is no list and no object, or where a difference would be left out.
        """
        expected_value, actual_value = read_container(expected, MAX_READ), read_container(actual, MAX_READ)
        if self.n_left <= 0 or not (_is_container(expected_value) and _is_container(actual_value)):
            return None
        self.is_cut = False
        tree = self._compare("", expected_value, actual_value, 0)
        return None if self.is_cut else tree

    def _compare(self, key: str, expected: JsonValue, actual: JsonValue, depth: int) -> Node:
        if json_equal(expected, actual):
            return replace(self._node(key, expected, depth), op="=")
        self.n_left -= 1
        pairs = list(_pairs(expected, actual)) if depth < MAX_DEPTH else []
        if not pairs:
            return Node(key, cut(json_line(expected), MAX_LINE), op="~", other=cut(json_line(actual), MAX_LINE))
        if len(pairs) > min(self.n_left, MAX_CHILDREN):
            self.is_cut = True
            return Node(key, "")
        children = [
            self._compare(name, was[0], now[0], depth + 1)
            if was and now
            else Node(name, cut(json_line((was or now)[0]), MAX_LINE), op="-" if was else "+")
            for name, was, now in pairs
        ]
        return Node(key, "", tuple(children), 0, _words(actual, len(pairs)), "~")

    def _node(self, key: str, value: JsonValue, depth: int) -> Node:
        self.n_left -= 1
        line = cut(json_line(value), self.longest) if not _is_container(value) else _beginning(value)
        if not _is_container(value) or depth == MAX_DEPTH:
            return Node(key, line)
        children: list[Node] = []
        for name, item in _items(value):
            if self.n_left <= 0 or len(children) == MAX_CHILDREN:
                break
            children.append(self._node(name, item, depth + 1))
        n = len(value)  # type: ignore[arg-type]
        return Node(key, line, tuple(children), n - len(children), _words(value, n))


def _pairs(expected: JsonValue, actual: JsonValue) -> Iterator[tuple[str, list[JsonValue], list[JsonValue]]]:
    """The items of two objects by key, or of two lists by alignment, each as a list of one or none."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        for key in dict.fromkeys([*expected, *actual]):
            yield key, [expected[key]] if key in expected else [], [actual[key]] if key in actual else []
    elif isinstance(expected, list) and isinstance(actual, list):
        for _, i, i_end, j, j_end in opcodes([*map(json_line, expected)], [*map(json_line, actual)]):
            for was, now in zip_longest(range(i, i_end), range(j, j_end)):
                name = str(was if now is None else now)
                yield name, [] if was is None else [expected[was]], [] if now is None else [actual[now]]


def read_container(text: str, most: int = 1_000_000) -> JsonValue:
    """The list or the object that a text is; None for any other text, and one of more characters."""
    if len(text) > most or not text.lstrip().startswith(("{", "[")):
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
        names.append(name if isinstance(value, Mapping) else "…" if _is_container(item) else cut(json_line(item), 40))
        if len(names) == 6:
            break
    return cut(", ".join(names), 80)


def cut(text: str, length: int | None) -> str:
    """The beginning of a longer text, with the number of characters after it; None is no limit."""
    if length is None or len(text) <= length:
        return text
    return f"{text[:length]}… ({len(text) - length:,} more characters)"
