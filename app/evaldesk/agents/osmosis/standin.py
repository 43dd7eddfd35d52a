"""A stand-in for the package `osmosis_ai` where it is not installed, so that agents written for it load unchanged.

The real package wins wherever it can be imported. The names are those of reference/osmosis.md section 3; one that is
not there says so by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import PathFinder

from evaldesk.agents import standins

NAME = "osmosis_ai"

_LOOP = ("schemas", "exceptions", "loop", "tools", "serving")
_FLOW = ("workflow", "serving")
_MODULES: Mapping[str, Sequence[str]] = {
    "": ("rewards",),
    "utils": ("rewards",),
    "rollout": (*_LOOP, "workflow_names"),
    "rollout.core": ("schemas", "exceptions", "loop"),
    "rollout.core.base": ("schemas", "loop"),
    "rollout.core.schemas": ("schemas",),
    "rollout.core.exceptions": ("exceptions",),
    "rollout.core.llm_client": ("loop",),
    "rollout.client": ("loop",),
    "rollout.tools": ("tools", "exceptions"),
    "rollout.utils": ("tools",),
    "rollout.server": ("serving",),
    "rollout.server.app": ("serving",),
    "rollout.agent_workflow": _FLOW,
    "rollout.grader": _FLOW,
    "rollout.context": _FLOW,
    "rollout.types": (*_FLOW, "schemas"),
    "rollout.backend": _FLOW,
    "rollout.backend.local": _FLOW,
    "rollout.backend.local.backend": _FLOW,
    "rollout.integrations": (),
    "rollout.integrations.agents": (),
    "rollout.integrations.agents.openai_agents": ("openai_agents",),
    "rollout.integrations.openai_agents": ("openai_agents",),
}


PACKAGE = standins.StandinPackage(
    NAME,
    "evaldesk.agents.osmosis.kit",
    _MODULES,
    "install the real package with `pip install osmosis-ai` where Evaldesk is started",
)


def install() -> None:
    """Let `import osmosis_ai` find the stand-in from now on, after everything that is installed."""
    standins.install(PACKAGE)


def is_standin() -> bool:
    """Whether the `osmosis_ai` of this process is ours; a module that is not imported yet is only looked up."""
    loaded = sys.modules.get(NAME)
    return isinstance(loaded, standins.StandinModule) if loaded else PathFinder.find_spec(NAME) is None
