"""Calls by which an agent ends or goes on, by one table for all frameworks. (docs/agents.md)"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ENDING_TOOLS = frozenset(
    {"attempt_completion", "final_answer", "final_result", "finish", "mark_task_complete", "submit"}
)
"""Tools by whose call an agent ends: the call is its answer, and has no result in many files."""
TRANSFER = "transfer_to_"
"""How the name of a call begins by which an agent hands over to another one."""


def is_answer_call(name: str, request: Mapping[str, Any]) -> bool:
    """Whether a call without a result is the agent's answer: by its name, or where the request demands this call."""
    choice: Any = request.get("tool_choice")
    if not isinstance(choice, Mapping):
        return name in ENDING_TOOLS
    function = choice.get("function")
    wanted_name = function.get("name") if isinstance(function, Mapping) else choice.get("name")
    return name in ENDING_TOOLS or name == wanted_name


def is_plumbing(name: str) -> bool:
    """Whether a call ends an agent or hands over to another one: no double stands for it unless its case names it."""
    return name in ENDING_TOOLS or name.startswith(TRANSFER)
