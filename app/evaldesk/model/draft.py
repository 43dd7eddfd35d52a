"""Drafted instructions: texts in place of those of an agent and of agents of its tree.

A draft has its texts under the names of the options of a variant: `instruction` is that of the agent itself,
`instruction@NAME` that of an agent of its tree. An agent without an entry keeps its own. (decision 509)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from evaldesk.model.options import ModelOptions
from evaldesk.model.stored import Draft

OWN: Draft = MappingProxyType({})
"""No draft: all instructions are the agent's own."""
INSTRUCTION = "instruction"


def option_name(agent: str, *, is_root: bool) -> str:
    """The name of the option that replaces the instruction of an agent."""
    return INSTRUCTION if is_root else f"{INSTRUCTION}@{agent}"


def with_draft(options: ModelOptions, draft: Draft) -> ModelOptions:
    """The options of model calls with the instructions of the draft."""
    texts: Mapping[str, str] = {name.partition("@")[2]: text for name, text in draft.items() if "@" in name}
    return replace(
        options,
        instruction=draft.get(INSTRUCTION, options.instruction),
        instructions={**options.instructions, **texts},
    )
