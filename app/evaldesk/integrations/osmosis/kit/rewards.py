"""The decorators of reward functions and rubrics, with the checks of the original. (reference/osmosis.md 2.1)"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["osmosis_reward", "osmosis_rubric"]

F = TypeVar("F", bound=Callable[..., Any])


def osmosis_reward(function: F) -> F:
    """Mark a reward function. Raises TypeError for a classic one (`solution_str` first) with wrong parameters.

    A classic function must return a float; `data_source` is dropped if it is no parameter.
    """
    parameters = inspect.signature(function).parameters
    names = list(parameters)
    if not names or names[0] != "solution_str":
        return function
    _check_reward(function.__name__, function, list(parameters.values()))
    takes_source = "data_source" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return _check_float_result(function, drop=None if takes_source else "data_source")


def osmosis_rubric(function: F) -> F:
    """Mark a rubric function. Raises TypeError for a classic one with wrong parameters, or without a float result."""
    parameters = list(inspect.signature(function).parameters.values())
    name = function.__name__
    if not parameters or parameters[0].name != "solution_str":
        return function
    if len(parameters) < 3:
        raise TypeError(f"Function {name} must have at least 3 parameters, got {len(parameters)}")
    for parameter, expected_name in zip(parameters[1:], ("ground_truth", "extra_info"), strict=False):
        if parameter.name != expected_name:
            raise TypeError(f"Function {name}: the parameter {parameter.name!r} must be named {expected_name!r}")
    for parameter in parameters[:2]:
        if parameter.default is not parameter.empty:
            raise TypeError(f"Function {name}: {parameter.name!r} must not have a default value")
    return _check_float_result(function)


def _check_reward(name: str, function: Callable[..., Any], parameters: list[inspect.Parameter]) -> None:
    if len(parameters) < 3:
        raise TypeError(f"Function {name} must have at least 3 parameters, got {len(parameters)}")
    hints = _hints(function)
    solution, truth, extra = parameters[:3]
    if hints.get("solution_str") is not str:
        raise TypeError(f"First parameter 'solution_str' must be annotated as str, got {solution.annotation}")
    if truth.name != "ground_truth":
        raise TypeError(f"Second parameter must be named 'ground_truth', got '{truth.name}'")
    if hints.get("ground_truth") is not str:
        raise TypeError(f"Second parameter 'ground_truth' must be annotated as str, got {truth.annotation}")
    if extra.name != "extra_info":
        raise TypeError(f"Third parameter must be named 'extra_info', got '{extra.name}'")
    if not _is_dict(hints.get("extra_info")):
        raise TypeError(
            f"Third parameter 'extra_info' must be annotated as dict or dict | None, got {extra.annotation}"
        )
    if extra.default is extra.empty:
        raise TypeError("Third parameter 'extra_info' must have a default value of None")


def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    """The resolved annotations; the original fails with `from __future__ import annotations` here."""
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError):
        return inspect.get_annotations(function)


def _is_dict(hint: Any) -> bool:
    if typing.get_origin(hint) in {types.UnionType, typing.Union}:
        return all(part is type(None) or _is_dict(part) for part in typing.get_args(hint))
    return (typing.get_origin(hint) or hint) is dict


def _check_float_result(function: F, drop: str | None = None) -> F:
    def checked(value: Any) -> float:
        if type(value) is not float:
            raise TypeError(f"Function {function.__name__} must return a float, got {type(value).__name__}")
        return value

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped_async(*args: Any, **kwargs: Any) -> float:
            return checked(await function(*args, **_without(kwargs, drop)))

        return typing.cast("F", wrapped_async)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> float:
        return checked(function(*args, **_without(kwargs, drop)))

    return typing.cast("F", wrapped)


def _without(kwargs: dict[str, Any], name: str | None) -> dict[str, Any]:
    return {key: value for key, value in kwargs.items() if key != name}
