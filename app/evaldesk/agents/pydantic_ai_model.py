"""The model a run asks pydantic-ai for, and how it is sampled."""

from __future__ import annotations

import os
from typing import Any

from evaldesk.errors import ModelError
from evaldesk.llm import PATIENT
from evaldesk.model import ModelOptions


def settings_of(asked: ModelOptions) -> dict[str, Any]:
    """`model_settings` of a run."""
    wanted: dict[str, Any] = {
        "temperature": asked.temperature,
        "top_p": asked.top_p,
        "max_tokens": asked.max_tokens,
        "extra_body": dict(asked.extra) or None,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def model_of(name: str | None, asked: ModelOptions, found: Any, *, own: str) -> dict[str, Any]:
    """`model` of a run; nothing where the agent's own, `found`, is more than a name. Raises ModelError."""
    provider, slash, bare = (name or own).partition("/")
    if not asked.base_url:
        from pydantic_ai.models import infer_model

        named = (f"{provider}:{bare}" if slash else provider) if name else found
        return {"model": infer_model(named)} if isinstance(named, str) else {}
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = bare if slash and provider in {"openai", "hosted_vllm"} else name or own
    key = os.environ.get(asked.api_key_env or "OPENAI_API_KEY")
    if asked.api_key_env and not key:
        sentence = f"the environment has no {asked.api_key_env}; set it where Evaldesk is started"
        raise ModelError(sentence, kind="authentication", is_fatal=True)
    client = AsyncOpenAI(base_url=asked.base_url, api_key=key or "none", max_retries=PATIENT.n_attempts - 1)
    return {"model": OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))}
