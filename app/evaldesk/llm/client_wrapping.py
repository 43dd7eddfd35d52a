"""Wraps functions of clients once per process, after the import of their module. (decision 105)"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

CLIENTS_OF_OPENAI = tuple(
    f"{package}._base_client" for package in ("openai", "anthropic", "groq", "together", "cerebras.cloud.sdk")
)
"""The modules of OpenAI's client, and of clients from the same generator, with the same classes."""
# Private modules, as the public ones send through them; tests play each real package (decision 105).
CLIENT_OF_GOOGLE = "google.genai._api_client"

LITELLM_HANDLERS = ("litellm.llms.custom_httpx.http_handler", "litellm.llms.custom_httpx.aiohttp_handler")
HTTPX = ("httpx", "httpx2")
AIOHTTP = "aiohttp"

# A client that two threads import at once is wrapped one time: decision 105.
_lock = threading.Lock()
_actions: dict[str, list[Callable[[], None]]] = {}


def on_import(modules: Collection[str], act: Callable[[], None]) -> None:
    """Call `act` after each later import of one of `modules`; registering it twice has no effect."""
    with _lock:
        for name in modules:
            actions = _actions.setdefault(name, [])
            if act not in actions:
                actions.append(act)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)  # first, or another finder would load the module unobserved


class _Finder(MetaPathFinder):
    """The first finder: delegates to the others, and adds the actions to the loader."""

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
    """Let `loader` act after it has run a module, unless it permits no such change."""
    run = getattr(loader, "exec_module", None)
    if run is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
        return

    @wraps(run)
    def exec_module(module: ModuleType) -> None:
        run(module)
        for act in _actions.get(module.__name__, ()):
            act()

    loader.exec_module = exec_module


def parts_of(module: str, classes: tuple[str, ...], names: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """The classes of an imported module, with each of the function names."""
    loaded_module = sys.modules.get(module)
    if loaded_module is None:
        return
    owners = (getattr(loaded_module, name, None) for name in classes)
    yield from ((owner, name) for owner in owners if owner is not None for name in names)


def wrap_once(owner: Any, name: str, wrapper: Callable[[Any], Any], mark: str) -> None:
    """Put the wrapper around a function of a class, unless it has the mark already."""
    function = vars(owner).get(name)
    if function is None or hasattr(function, mark):
        return
    with _lock:
        function = vars(owner)[name]
        if not hasattr(function, mark):
            replacement = wrapper(function)
            setattr(replacement, mark, True)
            setattr(owner, name, replacement)
