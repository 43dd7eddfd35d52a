"""Stand-ins for the packages that benchmarks of OpenHands import. (reference/openhands_tau.md sections 1 and 2)"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from evaldesk.agents.standins import StandinPackage, install

_OPENHANDS_KIT = "evaldesk.integrations.openhands.kit"
_OPENHANDS_ADVICE = "start Evaldesk in the environment of OpenHands, whose own packages are used then"
_EVENTS, _CONFIG = ("events",), ("config",)

EVALUATION = StandinPackage(
    "evaluation", _OPENHANDS_KIT, {"": (), "utils": (), "utils.shared": ("shared",)}, _OPENHANDS_ADVICE
)
OPENHANDS = StandinPackage(
    "openhands",
    _OPENHANDS_KIT,
    {
        "": (),
        "agenthub": (),
        "controller": (),
        "controller.state": (),
        "controller.state.state": ("state",),
        "core": (),
        "core.config": _CONFIG,
        "core.config.agent_config": _CONFIG,
        "core.config.arg_utils": _CONFIG,
        "core.config.condenser_config": _CONFIG,
        "core.config.llm_config": _CONFIG,
        "core.config.openhands_config": _CONFIG,
        "core.config.sandbox_config": _CONFIG,
        "core.config.utils": _CONFIG,
        "core.logger": ("logger",),
        "core.main": ("controller",),
        "core.schema": ("state", "events"),
        "events": _EVENTS,
        "events.action": _EVENTS,
        "events.action.agent": _EVENTS,
        "events.action.commands": _EVENTS,
        "events.action.files": _EVENTS,
        "events.action.message": _EVENTS,
        "events.event": _EVENTS,
        "events.observation": _EVENTS,
        "events.observation.commands": _EVENTS,
        "events.observation.error": _EVENTS,
        "events.serialization": _EVENTS,
        "events.serialization.event": _EVENTS,
        "events.utils": _EVENTS,
        "llm": (),
        "llm.metrics": ("state",),
        "runtime": ("runtime",),
        "runtime.base": ("runtime",),
        "runtime.runtime": ("runtime",),
        "utils": (),
        "utils.async_utils": ("controller",),
    },
    _OPENHANDS_ADVICE,
)
PACKAGES = (OPENHANDS, EVALUATION)


def replace_package(name: str, file: str) -> None:
    """Replace the package `name` during the import of its `__init__.py`, `file`.

    The replacement is the installed package, else the stand-in. The folder of `file` is removed from `sys.path`.
    """
    folder = Path(file).resolve().parents[1]
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != folder]
    sys.path_importer_cache.pop(str(folder), None)
    install(*PACKAGES)
    del sys.modules[name]
    importlib.import_module(name)
