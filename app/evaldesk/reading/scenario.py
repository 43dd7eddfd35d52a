"""The plan by which a model plays the user of a scenario."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from evaldesk.errors import NAME_LIMIT

PLAN = "conversation_plan"
USER_MODEL = "user_model"
"""The model that plays the user of this case, in place of that of the run."""
KEYS = frozenset({"starting_prompt", PLAN, "instructions", "user_persona", "max_turns", "user", USER_MODEL})
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


def own_model(scenario: Mapping[str, Any] | None) -> str:
    """The model that the scenario names for its user; empty where it names none, or also a function."""
    model = (scenario or {}).get(USER_MODEL)
    return model.strip() if isinstance(model, str) and "user" not in (scenario or {}) else ""


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


def unlisted_words(model: str) -> str:
    """`the scenario names the model 'x' for its user, which is not among `models` in evaldesk.toml`."""
    return (
        f"the scenario names the model {model[:NAME_LIMIT]!r} for its user, which is not among `models` in "
        "evaldesk.toml; add it there, or take it out of the case"
    )
