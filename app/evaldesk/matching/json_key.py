"""A hashable stand-in for a JSON value: two are equal exactly when the values are."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

_TRUE, _FALSE = ("true", object()), ("false", object())
_AS_IT_IS = frozenset({str, int, float, type(None)})
_SIMPLE = _AS_IT_IS | {bool}


def json_key(value: Any) -> Hashable:
    """What stands for `value` where equal values must fall together: 6 with 6.0, but true not with 1."""
    kind = type(value)
    if kind in _AS_IT_IS:
        plain: Hashable = value
        return plain
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
