"""The model a run asks pydantic-ai for, and how it is sampled."""

from __future__ import annotations

import os
from typing import Any

from evaldesk.agents.client_retries import heed_retries
from evaldesk.errors import ModelError
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
    """`model` of a run; nothing for the agent's own, which is `found`. Raises ModelError for a missing key."""
    provider, slash, bare = (name or own).partition("/")
    if not asked.base_url:
        named = (f"{provider}:{bare}" if slash else provider) if name else found
        model = _patient(named, asked.n_retries)
        return {} if model is found else {"model": model}
    from openai import AsyncOpenAI
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = bare if slash and provider in {"openai", "hosted_vllm"} else name or own
    key = os.environ.get(asked.api_key_env or "OPENAI_API_KEY")
    if asked.api_key_env and not key:
        sentence = f"the environment has no {asked.api_key_env}; set it where the desk is started"
        raise ModelError(sentence, kind="authentication", is_fatal=True)
    n_retries = 4 if asked.n_retries is None else asked.n_retries
    client = AsyncOpenAI(base_url=asked.base_url, api_key=key or "none", max_retries=n_retries)
    return {"model": OpenAIChatModel(model, provider=OpenAIProvider(openai_client=client))}


def _patient(model: Any, n_retries: int | None) -> Any:
    """The model, with a client that tries again as often as the run asks for."""
    from pydantic_ai.models import infer_model

    if isinstance(model, str) and n_retries is not None:
        model = infer_model(model)
    heed_retries(getattr(model, "client", None), n_retries)
    return model
