"""Environment variables that hold the key of a provider of models, never their values.

A table of our own for the usual providers: LiteLLM knows them all, but takes 1.7 s to import.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

KEYS: Mapping[str, tuple[str, ...]] = {
    "anthropic": ("ANTHROPIC_API_KEY",),
    "azure": ("AZURE_API_KEY",),
    "bedrock": ("AWS_ACCESS_KEY_ID", "AWS_BEARER_TOKEN_BEDROCK", "AWS_PROFILE"),
    "cohere": ("COHERE_API_KEY", "CO_API_KEY"),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "mistral": ("MISTRAL_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY",),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_API_KEY"),
    "xai": ("XAI_API_KEY",),
}
_BARE = {"claude-": "anthropic", "gemini-": "gemini", "gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai"}
_ELSEWHERE = frozenset({"azure", "bedrock"})  # a role, a file or a token of the machine serves as well
_VERTEX = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")


def missing_keys(model: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The variables of which `environment` has none and `model` needs one, as one `A or B`; empty when all is there.

    Empty, too, for a provider that the table does not know, or whose key may be in another place: with the machine, at
    an address of its own, or in LiteLLM's settings, where the user's code put it.
    """
    provider = provider_of(model)
    names = () if provider in _ELSEWHERE or _is_known(provider) else KEYS.get(provider, ())
    if any(environment.get(f"{provider.upper()}_{end}") for end in ("API_BASE", "BASE_URL")):
        return ()
    if provider == "gemini" and any(environment.get(name, "").lower() in {"1", "true"} for name in _VERTEX):
        return ()
    if not names or any(environment.get(name) for name in names):
        return ()
    return (" or ".join(names),)


def set_variables(environment: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the variables that are set, and of those whose value the user's code gave LiteLLM."""
    known = (name for provider, names in KEYS.items() if _is_known(provider) for name in names)
    return tuple(sorted({name for name, value in environment.items() if value} | {*known}))


def _is_known(provider: str) -> bool:
    """Whether user code set `litellm.api_key` or `litellm.openai_key`."""
    litellm = sys.modules.get("litellm")
    return any(getattr(litellm, name, None) for name in ("api_key", f"{provider}_key"))


def provider_of(model: str) -> str:
    """`openai` of `openai/gpt-4o`; of a bare name that everybody knows, too; empty where it cannot be told."""
    provider, slash, _ = model.partition("/")
    if slash:
        return provider
    return next((provider for start, provider in _BARE.items() if model.startswith(start)), "")
