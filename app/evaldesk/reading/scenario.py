"""The plan by which a model plays the user of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from evaldesk.errors import NAME_LIMIT

PLAN = "conversation_plan"
KEYS = frozenset({"starting_prompt", PLAN, "instructions", "user_persona", "max_turns", "user"})
"""Those that a simulated user obeys; `instructions` is the plan of tau-bench."""

TASK_SECTIONS = ("domain", "reason_for_call", "known_info", "unknown_info", "task_instructions")
"""The parts of the instructions of a tau2 task, in the order of its plan."""


def task_plan(instructions: str | Mapping[str, Any]) -> str:
    """The instructions of a tau2 task as the one text that a simulated user is given."""
    if isinstance(instructions, str):
        return instructions
    sections = ((key, instructions.get(key)) for key in TASK_SECTIONS)
    return "\n\n".join(f"{key.replace('_', ' ').capitalize()}: {text}" for key, text in sections if text)


def with_persona(persona: str, plan: str) -> str:
    """A plan behind the persona of a tau2 task."""
    return f"Persona: {persona}\n\n{plan}" if persona else plan


def plan_of(scenario: Mapping[str, Any]) -> str:
    """The plan; empty where there is none, or a blank one."""
    plan = scenario.get(PLAN) or scenario.get("instructions")
    return plan.strip() if isinstance(plan, str) else ""


def unknown_keys(scenario: Mapping[str, Any]) -> list[str]:
    """The keys that no simulated user obeys, the one most like that of the plan first."""
    keys = [key for key in scenario if key not in KEYS and not key.startswith("$")]
    near = get_close_matches(PLAN, keys, n=1)
    return [*near, *(key for key in keys if key not in near)]


def no_plan_words(scenario: Mapping[str, Any]) -> str:
    """`the scenario has no conversation_plan; is it 'user_goal'?`."""
    near = unknown_keys(scenario)
    hint = f"; is it {near[0][:NAME_LIMIT]!r}? Name it {PLAN}" if near else f"; say in {PLAN} what the user wants"
    return f"the scenario has no {PLAN}{hint}"
