"""The judges and their votes: `judge_model_options` as in ADK, and several judges beyond it. (reference/adk.md 1.4)"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeGuard

import msgspec

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import JsonObject, ModelOptions
from evaldesk.model.options import ADK_JUDGE
from evaldesk.run_options import EFFORTS
from evaldesk.wire import converted

FIELD = "judge_model_options"
N_SAMPLES = 5
MAX_SAMPLES = 100
CONFIG_KEYS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}
THINKING = "thinking_config"
THINKING_KEYS = ("include_thoughts", "thinking_budget", "thinking_level")
EFFORT_BUDGETS = {"none": 0, "low": 1024, "medium": 2048}
"""The tokens that LiteLLM gives a Gemini model for an effort; more are `high`."""
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """`judge_model` or several `judge_models`, each asked `num_samples` times, `parallelism_limit` calls at once.

    `judge_model_config` is a `GenerateContentConfig` of ADK (`sampling_of`); `timeout_s` bounds each attempt of a call.
    `base_url` is an OpenAI-compatible endpoint, `api_key_env` the variable that holds its key, `price_in` and
    `price_out` its prices of a million tokens in US dollars.
    """

    judge_model: str = ""
    judge_models: list[str] = field(default_factory=list)
    judge_model_config: dict[str, Any] | None = None
    num_samples: int | None = None
    parallelism_limit: int = 5
    timeout_s: float = 60.0
    base_url: str | None = None
    api_key_env: str | None = None
    price_in: float | None = None
    price_out: float | None = None

    def __post_init__(self) -> None:
        if self.judge_model and self.judge_models:
            raise _wrong("name judge_model or judge_models, not both")
        for name, value in (("num_samples", self.num_samples), ("parallelism_limit", self.parallelism_limit)):
            if value is not None and not 1 <= value <= MAX_SAMPLES:
                raise _wrong(f"{name} must be 1 to {MAX_SAMPLES}, got {value}")
        if not 0 < self.timeout_s <= 3600:
            raise _wrong(f"timeout_s must be above 0 and at most 3600, got {self.timeout_s:g}")
        _ = self.endpoint, self.sampling

    @property
    def endpoint(self) -> ModelOptions:
        """The endpoint of the judges, and its price. Raises UsageError."""
        return ModelOptions(
            base_url=self.base_url, api_key_env=self.api_key_env, price_in=self.price_in, price_out=self.price_out
        )

    @property
    def models(self) -> tuple[str, ...]:
        """The judges as LiteLLM names them."""
        names = self.judge_models or [self.judge_model or ADK_JUDGE]
        return tuple(dict.fromkeys(full_name(model) for model in names))

    @property
    def sampling(self) -> JsonObject:
        """The fields of a ModelCall that `judge_model_config` sets. Raises UsageError for any other."""
        try:
            return sampling_of(self.judge_model_config or {}, "judge_model_config")
        except UsageError as error:
            error.field = FIELD
            raise


def sampling_of(config: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The fields of a ModelCall that a `GenerateContentConfig` of ADK sets; `name` is its key in a file.

    Raises UsageError for a key that Evaldesk cannot follow.
    """
    settings: dict[str, Any] = {}
    for key, value in config.items():
        setting = _HUMP.sub("_", key).lower()
        if setting == THINKING:
            settings["reasoning_effort"] = _effort(value, f"{name}.{key}")
            continue
        if setting not in CONFIG_KEYS:
            raise NotFoundError.among(f"setting of {name}", key, (*CONFIG_KEYS, THINKING))
        if value is not None and not _is_number(value):
            raise UsageError(f"{name}.{key} must be a number, got {value!r:.40}")
        settings[CONFIG_KEYS[setting]] = value
    return settings


def _effort(config: object, name: str) -> str | None:
    """The effort that is nearest to a `ThinkingConfig`; None leaves it to the model, as a budget of -1 does."""
    if config is not None and not isinstance(config, Mapping):
        raise UsageError(f"{name} must be an object, got {config!r:.40}")
    settings = {_HUMP.sub("_", key).lower(): value for key, value in (config or {}).items()}
    for key in settings:
        if key not in THINKING_KEYS:
            raise NotFoundError.among(f"setting of {name}", key, THINKING_KEYS)
    level, budget = settings.get("thinking_level"), settings.get("thinking_budget")
    if level is not None:
        if not isinstance(level, str) or level.lower() not in EFFORTS:
            raise UsageError(f"{name}.thinking_level must be one of {', '.join(EFFORTS)}, got {level!r:.40}")
        return level.lower()
    if budget is not None and not _is_number(budget):
        raise UsageError(f"{name}.thinking_budget must be a number, got {budget!r:.40}")
    if budget is None or budget < 0:
        return None
    return next((effort for effort, tokens in EFFORT_BUDGETS.items() if budget <= tokens), "high")


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_options(raw: Mapping[str, Any]) -> JudgeOptions:
    """The options as a criterion holds them. Raises UsageError for a wrong one, naming the nearest."""
    names = [field.name for field in fields(JudgeOptions)]
    for name in raw:
        if name not in names:
            raise _unknown_error("option of judge_model_options", name, names)
    try:
        return converted(dict(raw), JudgeOptions)
    except msgspec.ValidationError as error:
        raise _wrong(f"judge_model_options: {error}") from error


def full_name(model: str) -> str:
    """The name LiteLLM knows: ADK writes Gemini models without their provider."""
    return f"gemini/{model}" if model.startswith("gemini-") else model


def _wrong(message: str) -> UsageError:
    return UsageError(message, field=FIELD)


def _unknown_error(kind: str, name: str, names: Iterable[str]) -> UsageError:
    error = NotFoundError.among(kind, name, names)
    error.field = FIELD
    return error
