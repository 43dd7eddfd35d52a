"""Stand-ins for `openhands` and `evaluation.utils.shared`, so that benchmarks of OpenHands load unchanged.

The names are those that the benchmarks of OpenHands import. (reference/openhands_tau.md sections 1 and 2)
"""

from __future__ import annotations

from evaldesk.agents import standins

_KIT = "evaldesk.agents.openhands.kit"
_ADVICE = "start Evaldesk in the environment of OpenHands, whose own packages are used then"
_EVENTS, _CONFIG = ("events",), ("config",)

EVALUATION = standins.StandinPackage("evaluation", _KIT, {"": (), "utils": (), "utils.shared": ("shared",)}, _ADVICE)
OPENHANDS = standins.StandinPackage(
    "openhands",
    _KIT,
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
    _ADVICE,
)


def install() -> None:
    """Let imports of these packages find the stand-ins from now on, after everything that is installed."""
    standins.install(EVALUATION)
    standins.install(OPENHANDS)
