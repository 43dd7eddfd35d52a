"""The kind of a JSON file that is no eval set, so that a refusal can name it."""

from __future__ import annotations

import json
from typing import Any

from evaldesk.errors import NAME_LIMIT
from evaldesk.reading.values import snake_case

SHAPES = 'an eval set is {"eval_set_id": ..., "eval_cases": [...]} or a list of cases or of turns'

# The first row whose keys all exist names the file.
_OBJECTS: tuple[tuple[frozenset[str], str], ...] = tuple(
    (frozenset(keys.split()), what)
    for keys, what in (
        ("eval_case_results", "this is a result file of an eval run, not an eval set"),
        ("eval_metric_results", "this is the result of one case, not an eval set"),
        ("criteria", "this is an eval config (test_config.json), not an eval set"),
        ("user_simulator_config", "this is an eval config (test_config.json), not an eval set"),
        ("custom_metrics", "this is an eval config (test_config.json), not an eval set"),
        ("event_logs", "this is a session export of an ADK before its release, not an eval set"),
        ("past_events", "this is a session export of an ADK before its release, not an eval set"),
        ("id events", "this is a session export, not an eval set"),
        ("app_name user_id events", "this is a session export, not an eval set"),
        ("events", "this is a recording for `adk test` (a list of events), not an eval set"),
        ("eval_id", "this is one case alone; put it into the eval_cases of an eval set"),
        ("name data", "this is one case of the old form alone; put it into a list"),
        ("query", "this is one turn of the old form alone; put it into a list"),
        ("user_content", "this is one turn alone; put it into the conversation of a case"),
        ("scenarios", "this is a list of conversation scenarios, not an eval set"),
        ("starting_prompt", "this is one conversation scenario, not an eval set"),
        ("conversation_plan", "this is one conversation scenario, not an eval set"),
        ("state queries", "this is an input for `adk run --replay`, not an eval set"),
        ("count model_name", "this is a config for generating conversations, not an eval set"),
        ("app_name user_id", "this is a session input (the start of a session), not an eval set"),
        ("conversation", "this is one case alone, without eval_id; put it into the eval_cases of an eval set"),
        ("cases", f"this is not an eval set that ADK knows; {SHAPES}"),
    )
)


def refusal(value: Any) -> str:
    """Why no format recognised this value: its kind, or the expected one."""
    if isinstance(value, dict):
        keys = {snake_case(key) for key in value}
        kind = next((what for required_keys, what in _OBJECTS if required_keys <= keys), None)
        return kind or f"this is not an eval set: {_keys(value)}; {SHAPES}"
    if isinstance(value, list):
        return _list_refusal(value)
    if isinstance(value, str):
        return _text_refusal(value)
    return f"this is not an eval set but a bare value; {SHAPES}"


def _list_refusal(items: list[Any]) -> str:
    objects = [item for item in items if isinstance(item, dict)]
    if not objects:
        return f"this is not an eval set but a list without objects; {SHAPES}"
    keys = {snake_case(key) for key in objects[0]}
    if "eval_id" in keys or "conversation" in keys:
        return 'this is a list of cases of the new form; put it under "eval_cases" of an eval set'
    if "user_content" in keys:
        return "this is a list of turns of the new form; put it into the conversation of a case"
    if {"author", "content"} <= keys:
        return "this is a list of events of a session, not an eval set"
    return f"this is not an eval set: its first item has neither data nor query but {_keys(objects[0])}; {SHAPES}"


def _text_refusal(text: str) -> str:
    try:
        inner = json.loads(text)
    except (ValueError, RecursionError):
        return f"this is not an eval set but a bare string; {SHAPES}"
    if isinstance(inner, dict) and {"eval_case_results", "evalCaseResults"} & set(inner):
        return "this is a result file of an eval run (an older one, JSON inside a string), not an eval set"
    return f"this is JSON inside a JSON string; take it out of the string: {SHAPES}"


def _keys(value: dict[str, Any]) -> str:
    if not value:
        return "an empty object"
    names = ", ".join(repr(key[:NAME_LIMIT]) for key in list(value)[:5])
    return f"an object with the keys {names}" + (", …" if len(value) > 5 else "")
