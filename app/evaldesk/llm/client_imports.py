"""Modules that are prepared as soon as they are imported, whoever imports them, also within a turn.

A finder in front of the others lets them find the module, and acts when their loader has run it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_lock = threading.Lock()
_actions: dict[str, list[Callable[[], None]]] = {}


def when_imported(modules: Collection[str], act: Callable[[], None]) -> None:
    """Call `act` after each later import of one of `modules`; a second call with the same function changes nothing."""
    with _lock:
        for name in modules:
            actions = _actions.setdefault(name, [])
            if act not in actions:
                actions.append(act)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _actions:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                _act_after(spec.loader)
                return spec
        return None


_finder = _Finder()


def _act_after(loader: Any) -> None:
    """Let `loader` act after it has run a module; one that permits no such change is left as it is."""
    run = getattr(loader, "exec_module", None)
    if run is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
        return

    @wraps(run)
    def exec_module(module: ModuleType) -> None:
        run(module)
        for act in _actions.get(module.__name__, ()):
            act()

    loader.exec_module = exec_module
