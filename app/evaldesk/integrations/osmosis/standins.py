"""Stand-ins for the package `osmosis_ai`, where it is not installed. (reference/osmosis.md section 3)"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from evaldesk.agents.standins import StandinPackage

OSMOSIS_NAME = "osmosis_ai"

_LOOP = ("schemas", "exceptions", "loop", "tools", "serving")
_FLOW = ("workflow", "serving")
_OSMOSIS_MODULES: Mapping[str, Sequence[str]] = {
    "": ("rewards",),
    "utils": ("rewards",),
    "rollout": ("workflow", *_LOOP),  # its RolloutContext is that of agent loops
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


OSMOSIS = StandinPackage(
    OSMOSIS_NAME,
    "evaldesk.integrations.osmosis.kit",
    _OSMOSIS_MODULES,
    "install the real package with `pip install osmosis-ai` where Evaldesk is started",
)
PACKAGES = (OSMOSIS,)
