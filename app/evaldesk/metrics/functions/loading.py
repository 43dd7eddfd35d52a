"""A function of the user: imported once in a worker, with its kind by the name of its first parameter."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any, Literal, TypeAlias

from evaldesk.errors import MetricError, UsageError
from evaldesk.registry import import_target

Function: TypeAlias = Callable[..., Any]
Mode: TypeAlias = Literal["solution", "messages", "trial", "adk"]

_MODES: Mapping[str, Mode] = {
    "solution_str": "solution",
    "messages": "messages",
    "transcript": "trial",
    "case": "trial",
    "state": "trial",
    "eval_metric": "adk",
}
PASSED: Mapping[Mode, tuple[str, ...]] = {
    "solution": ("solution_str", "ground_truth", "extra_info"),
    "messages": ("messages", "ground_truth", "metadata"),
    "trial": ("transcript", "case", "state", "messages", "ground_truth", "extra_info"),
    "adk": ("eval_metric", "actual_invocations", "expected_invocations", "conversation_scenario"),
}
"""The parameters that a function of each kind is called with, by keyword."""
_lock = Lock()
_loaded: dict[tuple[str, str], Function | BaseException] = {}


def load_function(target: str, root: str) -> Function:
    """The function that `target`, a `module:attr`, names, imported once with `root` first on `sys.path`.

    Raises MetricError naming its fault, and the exception of its import again each time.
    """
    key = (target, root)
    with _lock:
        if key not in _loaded:
            _loaded[key] = _import(target, root)
    found = _loaded[key]
    if isinstance(found, BaseException):
        raise found
    return found


def mode_of(function: Function) -> Mode:
    """The kind of the function's input. Raises MetricError when its first parameter does not name one."""
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError) as error:
        raise MetricError(f"the parameters of {function!r:.80} cannot be read: {error}") from error
    return mode_by_names(names)


def mode_by_names(names: Sequence[str]) -> Mode:
    """The kind of the input of a function with these parameters.

    Raises MetricError when the first does not name one.
    """
    if not names:
        raise MetricError("Eval function has no parameters. Expected (solution_str, ...) or (messages, ...)")
    if names[0] not in _MODES:
        raise MetricError(
            f"Cannot detect eval function mode: first parameter is {names[0]!r}. Expected 'solution_str' (simple mode) "
            "or 'messages' (full mode), or 'transcript', 'case' or 'state' to see the whole trial."
        )
    return _MODES[names[0]]


def _import(target: str, root: str) -> Function | BaseException:
    module, separator, name = target.rpartition(":")
    if not (module and separator and name):
        return MetricError(
            f"Invalid eval function path {target!r}. Expected format: 'module:function' (e.g., "
            "'rewards:compute_reward')"
        )
    if root and root not in sys.path:
        sys.path.insert(0, root)
    importlib.invalidate_caches()
    try:
        found = import_target(f"{module}:{name}")
    except UsageError:
        return MetricError(f"Module {module!r} has no attribute {name!r}. Available: {_available(module)}")
    except (Exception, SystemExit) as error:
        return error
    return found if callable(found) else MetricError(f"{name!r} in {module!r} is not callable")


def _available(module: str) -> list[str]:
    return [name for name in vars(sys.modules[module]) if not name.startswith("_")] if module in sys.modules else []
