"""The scenario of a case as fields of a form: first message, persona, goal, plan, required actions, limits, user model.

A task of tau2 keeps its `user_scenario` beside the scenario that is played: both are changed together. The goal of any
other scenario is the first paragraph of its plan, which every tool plays that knows the plan alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from evaldesk.errors import UsageError
from evaldesk.matching.required_calls import REQUIRED_CALLS
from evaldesk.model import Case, JsonObject, JsonValue, ToolCall
from evaldesk.model.json_text import json_line
from evaldesk.pages.typed import Problems, json_object
from evaldesk.reading.scenario import PLAN, TASK_SECTIONS, USER_MODEL, task_plan, with_persona
from evaldesk.wording.json_layout import as_json

MOST_TURNS = 1_000
"""The largest limit of messages of a simulated user."""
MAX_MODEL_NAME = 200
TASK = "user_scenario"
CRITERIA = "evaluation_criteria"
_GOAL = re.compile(r"Goal: (?P<goal>\S(?:[^\n]|\n(?!\n))*?)(?:\n\n(?P<plan>.+))?", re.DOTALL)
_SECTION_FIELDS = dict(zip(TASK_SECTIONS, ("domain", "goal", "known_info", "unknown_info", "plan"), strict=True))


@dataclass(slots=True)
class ScenarioTexts:
    """The texts of a scenario as they are typed; `limit` is a number of messages, `player` a function of the agent's.

    `user_model` is the model of this case alone.

    `persona` is a text, or a JSON object. Only a task with sections (`has_sections`) has `domain`, `known_info`,
    `unknown_info`.
    """

    opening: str = ""
    persona: str = ""
    goal: str = ""
    plan: str = ""
    domain: str = ""
    known_info: str = ""
    unknown_info: str = ""
    player: str = ""
    user_model: str = ""
    limit: str = ""
    has_sections: bool = False


def scenario_texts(case: Case) -> ScenarioTexts:
    """The scenario of a case as texts; all empty where it has none."""
    scenario = case.scenario or {}
    texts = ScenarioTexts(
        opening=_text(scenario.get("starting_prompt")),
        persona=_text(scenario.get("user_persona")),
        player=_text(scenario.get("user")),
        user_model=_text(scenario.get(USER_MODEL)),
        limit=_text(scenario.get("max_turns")),
    )
    task, plan = _task_of(case), _text(scenario.get(_plan_key(scenario)))
    if task is not None:
        texts.persona, instructions = _text(task.get("persona")), task.get("instructions")
        if isinstance(instructions, dict):
            texts.has_sections = True
            for section, name in _SECTION_FIELDS.items():
                setattr(texts, name, _text(instructions.get(section)))
            return texts
        plan = _text(instructions)
    texts.goal, texts.plan = _split_goal(plan)
    return texts


def with_scenario(before: Case, texts: ScenarioTexts, problems: Problems) -> Case:
    """The case with the typed scenario. A text that was not changed leaves its value as the file has it."""
    texts_before, scenario = scenario_texts(before), dict(before.scenario or {"starting_prompt": "", PLAN: ""})
    names = {
        name
        for name, text in asdict(texts).items()
        if isinstance(text, str) and _line_ends(text) != _line_ends(getattr(texts_before, name))
    }
    if "opening" in names:
        scenario["starting_prompt"] = _line_ends(texts.opening)
    if "player" in names:
        _set_or_drop(scenario, "user", texts.player.strip())
    if "user_model" in names:
        _set_or_drop(scenario, USER_MODEL, _model_name(texts.user_model, problems))
    if "limit" in names:
        _set_or_drop(scenario, "max_turns", _limit(texts.limit, problems))
    task, extra = _task_of(before), before.extra
    if task is not None and names & {"persona", *_SECTION_FIELDS.values()}:
        new_task = _with_texts(task, texts, names)
        extra, scenario[PLAN] = {**extra, TASK: new_task}, _played_plan(new_task)
    elif task is None:
        if "persona" in names:
            _set_or_drop(scenario, "user_persona", _persona(texts.persona, problems))
        if names & {"goal", "plan"}:
            scenario[_plan_key(scenario)] = _join_goal(texts.goal, texts.plan)
    if not scenario.get("user") and not (texts.goal.strip() or texts.plan.strip()):
        problems.add("plan", "Plan", "Enter the wish of the user: a plan or a goal.")
    return replace(before, turns=(), scenario=scenario, extra=extra)


def scenario_keys(case: Case) -> tuple[str, ...]:
    """The keys of the case that the form shows in parts."""
    task = (TASK,) if _task_of(case) is not None else ()
    actions = required_actions(case)
    return (*task, *((CRITERIA, REQUIRED_CALLS, "actions") if actions is not None else ()))


def required_actions(case: Case) -> tuple[ToolCall, ...] | None:
    """The actions that a task names, or the calls that a case requires; None where the form cannot show its list."""
    _, rows = _action_rows(case)
    if not isinstance(rows, list):
        return None
    calls = tuple(_call(row) for row in rows if isinstance(row, dict))
    names_and_args = [(call.name, call.args) for call in calls]
    is_readable = len(calls) == len(rows) and all(
        isinstance(name, str) and isinstance(args, dict) for name, args in names_and_args
    )
    return calls if is_readable else None


def with_required_actions(before: Case, case: Case, calls: Sequence[ToolCall], origins: Sequence[int | None]) -> Case:
    """The case with these actions; `origins` are their places in the list `before`, whose other keys are kept."""
    place, rows = _action_rows(before)
    rows_before: list[Any] = list(rows) if isinstance(rows, list) else []
    actions: list[Any] = [
        _row(call, rows_before[at] if at is not None and at < len(rows_before) else None, place)
        for call, at in zip(calls, origins, strict=True)
    ]
    if actions == rows_before:
        return case
    if place == CRITERIA:
        return replace(case, extra={**case.extra, CRITERIA: {**_mapping(case.extra.get(CRITERIA)), "actions": actions}})
    extra = {key: value for key, value in case.extra.items() if key != place or actions}
    return replace(case, extra={**extra, place: actions} if actions else extra)


def _action_rows(case: Case) -> tuple[str, JsonValue]:
    """The key under which the actions of a case stand, and the list; a case without any gets our own key."""
    if REQUIRED_CALLS in case.extra:
        return REQUIRED_CALLS, case.extra[REQUIRED_CALLS]
    criteria = case.extra.get(CRITERIA)
    if isinstance(criteria, dict) and "actions" in criteria:
        return CRITERIA, [] if criteria["actions"] is None else criteria["actions"]
    if "actions" in case.extra:  # a task of tau-bench
        return "actions", case.extra["actions"]
    return REQUIRED_CALLS, []


def _call(row: dict[str, Any]) -> ToolCall:
    return ToolCall(row.get("name", ""), row.get("arguments", row.get("kwargs", {})))


def _row(call: ToolCall, before: JsonValue, place: str) -> dict[str, Any]:
    row = before if isinstance(before, dict) else {}
    if row and _call(row) == ToolCall(call.name, call.args):
        return row
    key = next(
        (name for name in ("arguments", "kwargs") if name in row), "kwargs" if place == "actions" else "arguments"
    )
    return {**row, "name": call.name, key: dict(call.args)}


def _task_of(case: Case) -> dict[str, Any] | None:
    """The `user_scenario` of a tau2 task whose plan the scenario plays; None once the scenario went its own way."""
    task, plan = case.extra.get(TASK), (case.scenario or {}).get(PLAN)
    if not isinstance(task, dict) or not isinstance(plan, str):
        return None
    instructions = task.get("instructions")
    if isinstance(instructions, dict):
        sections = [instructions.get(section) for section in TASK_SECTIONS]
    else:
        sections = [instructions]
    are_texts = all(each is None or isinstance(each, str) for each in (*sections, task.get("persona")))
    return task if are_texts and _played_plan(task) == plan else None


def _played_plan(task: dict[str, Any]) -> str:
    return with_persona(task.get("persona") or "", task_plan(task.get("instructions") or ""))


def _with_texts(task: dict[str, Any], texts: ScenarioTexts, names: Collection[str]) -> dict[str, Any]:
    """The task with the texts of these names; an emptied section stays as an empty text."""
    new_task = dict(task)
    if "persona" in names:
        new_task["persona"] = _line_ends(texts.persona)
    instructions = task.get("instructions")
    if isinstance(instructions, dict):
        own = {section: _line_ends(getattr(texts, name)) for section, name in _SECTION_FIELDS.items() if name in names}
        new_task["instructions"] = {**instructions, **own}
    elif "goal" in names or "plan" in names:
        new_task["instructions"] = _join_goal(texts.goal, texts.plan)
    return new_task


def _set_or_drop(scenario: dict[str, Any], key: str, value: JsonValue) -> None:
    """Put a value under its key, or take the key away where there is none."""
    if value is None or value == "":
        scenario.pop(key, None)
    else:
        scenario[key] = value


def _plan_key(scenario: JsonObject) -> str:
    return "instructions" if not scenario.get(PLAN) and isinstance(scenario.get("instructions"), str) else PLAN


def _split_goal(plan: str) -> tuple[str, str]:
    match = _GOAL.fullmatch(plan)
    return (match["goal"], match["plan"] or "") if match else ("", plan)


def _join_goal(goal: str, plan: str) -> str:
    """The goal as the first paragraph of a plan: a goal of several paragraphs becomes one."""
    goal, plan = re.sub(r"\n\s*\n", "\n", _line_ends(goal).strip()), _line_ends(plan)
    if not goal:
        return plan
    return f"Goal: {goal}\n\n{plan}" if plan.strip() else f"Goal: {goal}"


def _persona(text: str, problems: Problems) -> JsonValue:
    if not text.lstrip().startswith("{"):
        return _line_ends(text).strip()
    try:
        return dict(json_object(text))
    except UsageError as error:
        problems.add("persona", "Persona", str(error))
        return None


def _limit(text: str, problems: Problems) -> JsonValue:
    words = text.strip()
    if not words:
        return None
    if words.isascii() and words.isdigit() and 1 <= int(words[:9]) <= MOST_TURNS:
        return int(words)
    problems.add("limit", "Most messages", f"Enter a whole number from 1 to {MOST_TURNS:,}, or nothing.")
    return None


def _model_name(text: str, problems: Problems) -> JsonValue:
    name = text.strip()
    if len(name) > MAX_MODEL_NAME or not name.isprintable() or "://" in name:
        problems.add("user_model", "User model", f"Enter the name of a model, at most {MAX_MODEL_NAME} characters.")
        return None
    return name


def _mapping(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _text(value: JsonValue) -> str:
    """A value as its field has it: a text itself, an object as readable JSON, nothing as an empty text."""
    if value is None or isinstance(value, str):
        return value or ""
    return as_json(value) if isinstance(value, dict) else json_line(value)


def _line_ends(text: str) -> str:
    return text.replace("\0", "\ufffd").replace("\r\n", "\n").replace("\r", "\n")
