"""Equality and differences of JSON values, as JSON sees them: 6 equals 6.0, true is not 1, null is not absent."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from evaldesk.model import JsonObject, JsonValue

K = TypeVar("K", str, int)

_ABSENT = object()
_PLAIN = frozenset({str, int, float, bool})


@dataclass(frozen=True, slots=True)
class ArgChange:
    """One difference of arguments. `pointer` is an RFC 6901 pointer; the absent side is None."""

    op: Literal["added", "removed", "changed"]
    pointer: str
    expected: JsonValue = None
    actual: JsonValue = None


def json_equal(a: object, b: object) -> bool:
    """Whether two JSON values are the same: numbers by exact value, true and false never numbers."""
    if a is b:
        return True
    if isinstance(a, str):
        return isinstance(b, str) and a == b
    if a is None or b is None or isinstance(a, bool) or isinstance(b, bool):
        return False
    if isinstance(a, int | float):
        return isinstance(b, int | float) and a == b
    if isinstance(a, Mapping):
        return isinstance(b, Mapping) and objects_equal(a, b)
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(json_equal, a, b))
    return False


def covers(larger: object, smaller: object) -> bool:
    """Whether `larger` contains `smaller`, at every depth; arrays have the same length, item by item."""
    if type(smaller) is dict or isinstance(smaller, Mapping):
        return isinstance(larger, Mapping) and all(
            key in larger and covers(larger[key], value) for key, value in smaller.items()
        )
    if isinstance(smaller, list | tuple):
        return isinstance(larger, list | tuple) and len(larger) == len(smaller) and all(map(covers, larger, smaller))
    return json_equal(larger, smaller)


def differing_keys(expected: JsonObject, actual: JsonObject) -> list[str]:
    """The keys that one side lacks, or whose values differ: those of `expected` in their order, then new ones."""
    keys = dict.fromkeys([*expected, *actual])
    return [key for key in keys if not json_equal(expected.get(key, _ABSENT), actual.get(key, _ABSENT))]


def diff_args(expected: JsonObject, actual: JsonObject) -> tuple[ArgChange, ...]:
    """The differences of two argument objects; keys sorted, arrays by index, empty when they are equal."""
    changes: list[ArgChange] = []
    _diff("", expected, actual, changes)
    return tuple(changes)


def objects_equal(a: JsonObject, b: JsonObject) -> bool:
    """Whether two JSON objects are equal, with keys in any order."""
    if len(a) != len(b):
        return False
    for key, value in a.items():
        other = b.get(key, _ABSENT)
        if type(value) is type(other) and type(value) in _PLAIN:
            if value != other:
                return False
        elif not json_equal(value, other):
            return False
    return True


def _diff(pointer: str, expected: object, actual: object, changes: list[ArgChange]) -> None:
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        _diff_items(pointer, expected, actual, sorted({*expected, *actual}), changes)
    elif isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        left_items, right_items = dict(enumerate(expected)), dict(enumerate(actual))
        _diff_items(pointer, left_items, right_items, range(max(len(left_items), len(right_items))), changes)
    elif not json_equal(expected, actual):
        changes.append(ArgChange("changed", pointer, expected, actual))  # type: ignore[arg-type]


def _diff_items(
    pointer: str,
    expected: Mapping[K, JsonValue],
    actual: Mapping[K, JsonValue],
    keys: Iterable[K],
    changes: list[ArgChange],
) -> None:
    for key in keys:
        place = f"{pointer}/{str(key).replace('~', '~0').replace('/', '~1')}"
        if key not in actual:
            changes.append(ArgChange("removed", place, expected[key], None))
        elif key not in expected:
            changes.append(ArgChange("added", place, None, actual[key]))
        else:
            _diff(place, expected[key], actual[key], changes)


_TRUE, _FALSE = ("true", object()), ("false", object())
_AS_IT_IS = frozenset({str, int, float, type(None)})
_SIMPLE = _AS_IT_IS | {bool}


def json_key(value: Any) -> Hashable:
    """A key for `value` under which equal values fall together: 6 with 6.0, but true not with 1."""
    kind = type(value)
    if kind in _AS_IT_IS:
        hashable: Hashable = value
        return hashable
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is dict or isinstance(value, Mapping):
        kinds = {*map(type, value.values())}
        if _AS_IT_IS.issuperset(kinds):
            return frozenset(value.items())
        if _SIMPLE.issuperset(kinds):  # the usual case; Python takes true for 1, so the names of truths stand beside
            return frozenset(value.items()), frozenset([key for key, item in value.items() if type(item) is bool])
        return frozenset([(key, json_key(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return tuple([json_key(item) for item in value])
    if isinstance(value, str | int | float):  # a class of its own, such as an enumeration
        own: Hashable = value
        return own
    return (_AS_IT_IS, id(value))
