"""The package to install after a failed import, also when a folder of the user shadows a framework.

A folder `agents/` without an `__init__.py` is a namespace package: where the OpenAI Agents SDK is not installed, Python
imports the folder in its place, and `from agents import Agent` says "unknown location".
"""

from __future__ import annotations

import re
import sys
from types import ModuleType

from evaldesk.agents.agent import AGENTS, own_python
from evaldesk.registry import is_installed

_IMPORTED_NAME = re.compile(r"cannot import name '(\w+)'")


def missing_package(error: BaseException) -> str:
    """The sentence on the package to install after a failed import; empty unless a supported framework is missing."""
    module, name = _failed_import(error)
    if module.startswith("osmosis_ai."):
        return f"Evaldesk's stand-in for osmosis_ai has no {module}; pip install osmosis-ai where Evaldesk is started"
    kind = AGENTS.of_module(module)
    if kind is None or is_installed(kind.package):
        return ""
    parent, _, part = module.rpartition(".")
    if not name:
        module, name = parent, part
    if "." in module and module in sys.modules:
        return ""  # a part of the user's own package lacks it
    place = _place_of(module.partition(".")[0])
    shadow = f" ({module.partition('.')[0]!r} is {place} here, which has no {name!r})" if place else ""
    if python := own_python():
        return f"it needs {kind.package}, which {python} does not have: {python} -m pip install {kind.package}{shadow}"
    requirement = f"'evaldesk[{kind.extra}]'" if kind.extra else kind.package
    return f"it needs {kind.package}: pip install {requirement}{shadow}"


def _failed_import(error: BaseException) -> tuple[str, str]:
    """The module of a failed import, and the missing name in an existing module; empty for other errors."""
    if isinstance(error, ModuleNotFoundError):
        return error.name or "", ""
    if isinstance(error, ImportError):
        match = _IMPORTED_NAME.search(str(error))
        return (error.name or "", match[1]) if match else ("", "")
    module = getattr(error, "obj", None)  # of an AttributeError of Python 3.10 and later
    return (module.__name__, str(getattr(error, "name", ""))) if isinstance(module, ModuleType) else ("", "")


def _place_of(module: str) -> str:
    """The folder or file imported under the name; empty without one."""
    loaded_module = sys.modules.get(module)
    return next(iter(getattr(loaded_module, "__path__", ())), "") or getattr(loaded_module, "__file__", None) or ""
