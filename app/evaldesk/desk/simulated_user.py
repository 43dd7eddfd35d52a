"""`user_simulator_config` of a criteria file as the simulated user of a run. (reference/adk.md 1.4)"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.formats.shape import snake_case
from evaldesk.metrics.judges.options import CONFIG_KEYS, full_name
from evaldesk.model import JsonObject, ModelOptions
from evaldesk.model.user import UserConfig

KEYS = (
    "type",
    "model",
    "model_configuration",
    "max_allowed_invocations",
    "custom_instructions",
    "include_function_calls",
)
NO_BOUND = -1
_HISTORY = re.compile(r"\{\{\s*conversation_history\s*\}\}")
HISTORY_FOLLOWS = "(it follows as messages)"


def user_of(config: JsonObject) -> UserConfig:
    """The simulated user that the config describes. Raises UsageError for what Evaldesk cannot do, or does not know."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        name = snake_case(key)
        if name not in KEYS:
            raise NotFoundError.among("key of user_simulator_config", key, KEYS)
        found[name] = value
    if found.get("type", "llm_backed") != "llm_backed":
        raise UsageError(f"user_simulator_config: no simulated user of type {found['type']!r}; there is: llm_backed")
    if found.get("include_function_calls"):
        raise UsageError("user_simulator_config: Evaldesk shows its simulated user no function calls; remove the key")
    asked = found.get("max_allowed_invocations")
    bound: dict[str, Any] = {} if asked is None else {"max_turns": None if asked == NO_BOUND else _whole(asked)}
    return UserConfig(
        model=full_name(_text(found, "model")),
        options=_options(found.get("model_configuration") or {}),
        instructions=_HISTORY.sub(HISTORY_FOLLOWS, _text(found, "custom_instructions")),
        **bound,
    )


def _options(given: Any) -> ModelOptions:
    if not isinstance(given, Mapping):
        raise UsageError("user_simulator_config.model_configuration must be an object")
    options: dict[str, Any] = {}
    for key, value in given.items():
        name = snake_case(key)
        if name not in CONFIG_KEYS:
            raise NotFoundError.among("setting of model_configuration", key, CONFIG_KEYS)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise UsageError(f"user_simulator_config.model_configuration.{key} must be a number, got {value!r:.40}")
        options[CONFIG_KEYS[name]] = value
    return ModelOptions(**options)


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"user_simulator_config.{key} must be a text, got {value!r:.40}")
    return value or ""


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise UsageError(f"user_simulator_config.max_allowed_invocations must be a whole number, got {value!r:.40}")
    return value
