"""Connections and processes that an agent starts: a sign of calls that nobody sees."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from functools import cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

from evaldesk.llm.retry_events import PLAYED_TURN, current_turns

_EVENTS = frozenset({"socket.connect", "subprocess.Popen", "os.posix_spawn", "os.exec"})
"""Audit events of Python. (https://docs.python.org/3/library/audit_events.html)"""


CALLERS: WeakSet[Any] = WeakSet()
"""Functions of which an earlier turn opened a connection or started a process, which a later turn may use again."""


def names_package(function: Callable[..., Any], packages: Collection[str]) -> bool:
    """Whether the module of a function has one of the packages, or an object of it, as a global variable."""
    values = getattr(inspect.unwrap(function), "__globals__", {}).copy().values()
    names = map(_module_of, values)
    return any(name and any(name == each or name.startswith(f"{each}.") for each in packages) for name in names)


def _module_of(value: object) -> str:
    """The name of a module, the module of a class or a function, else that of the class of an object.

    No code of a lazy object is called, which a look at its attributes would do.
    """
    kind = type(value)
    if issubclass(kind, ModuleType):
        name = object.__getattribute__(value, "__dict__").get("__name__")
    elif issubclass(kind, type):
        name = type.__dict__["__module__"].__get__(value)
    elif issubclass(kind, FunctionType | BuiltinFunctionType):
        name = object.__getattribute__(value, "__module__")
    else:
        name = type.__dict__["__module__"].__get__(kind)
    return name if isinstance(name, str) else ""


def may_use_again(code: object) -> bool:
    """Whether an earlier turn of this code opened a connection or started a process."""
    try:
        return code in CALLERS
    except TypeError:  # an object that cannot be hashed
        return False


def note_caller(code: object) -> None:
    """Note that a turn of this code opened a connection or started a process."""
    try:
        CALLERS.add(code)
    except TypeError:  # one that cannot be referred to weakly
        return


@cache
def watch_outside_calls() -> None:
    """Tell the current turn of connections and of started processes, from now on; a hook cannot be removed."""
    sys.addaudithook(_note_event)


def _note_event(event: str, _: object) -> None:
    if event in _EVENTS:
        turn = PLAYED_TURN.get()
        for each in [turn] if turn else current_turns():
            each.note_outside_call()
