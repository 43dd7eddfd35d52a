"""The judges and their votes: `judge_model_options` as in ADK, and several judges beyond it. (reference/adk.md 1.4)"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from evaldesk.errors import NotFoundError, UsageError
from evaldesk.model import JsonObject, ModelOptions
from evaldesk.model.options import ADK_JUDGE
from evaldesk.wire import converted

FIELD = "judge_model_options"
N_SAMPLES = 5
MAX_SAMPLES = 100
CONFIG_KEYS = {"temperature": "temperature", "top_p": "top_p", "max_output_tokens": "max_tokens"}
_HUMP = re.compile(r"(?<!^)(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """`judge_model` or several `judge_models`, each asked `num_samples` times, `parallelism_limit` calls at once.

    `judge_model_config` may set temperature, top_p and max_output_tokens; `timeout_s` bounds each attempt of a call.
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
        named = self.judge_models or [self.judge_model or ADK_JUDGE]
        return tuple(dict.fromkeys(full_name(model) for model in named))

    @property
    def sampling(self) -> JsonObject:
        """The fields of a ModelCall that `judge_model_config` sets. Raises NotFoundError for any other."""
        found = {}
        for key, value in (self.judge_model_config or {}).items():
            name = _HUMP.sub("_", key).lower()
            if name not in CONFIG_KEYS:
                raise _unknown("setting of judge_model_config", key, CONFIG_KEYS)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise _wrong(f"judge_model_config.{key} must be a number, got {value!r:.40}")
            found[CONFIG_KEYS[name]] = value
        return found


def read_options(given: Mapping[str, Any]) -> JudgeOptions:
    """The options as a criterion holds them. Raises UsageError for a wrong one, naming the nearest."""
    known = [found.name for found in fields(JudgeOptions)]
    for name in given:
        if name not in known:
            raise _unknown("option of judge_model_options", name, known)
    try:
        return converted(dict(given), JudgeOptions)
    except msgspec.ValidationError as error:
        raise _wrong(f"judge_model_options: {error}") from error


def full_name(model: str) -> str:
    """The name LiteLLM knows: ADK writes Gemini models without their provider."""
    return f"gemini/{model}" if model.startswith("gemini-") else model


def _wrong(message: str) -> UsageError:
    return UsageError(message, field=FIELD)


def _unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    error = NotFoundError.among(kind, name, known)
    error.field = FIELD
    return error
