"""Prices of common providers' models, read from LiteLLM's price list without its import of 1.8 CPU-s."""

from __future__ import annotations

import importlib.util
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from evaldesk.codec import msgspec
from evaldesk.secrets import provider_of

LIST = "model_prices_and_context_window_backup.json"
VARIABLE = "EVALDESK_PRICE_LIST"
"""The variable with the path of the list, for a player without LiteLLM."""
PROVIDERS = frozenset({"anthropic", "fireworks_ai", "gemini", "groq", "mistral", "openai", "xai"})
MODES = frozenset({"chat", "completion", "responses"})
MAX_TOKENS_IN = 100_000
"""Above it some models have other token prices."""


CACHED = "cache_read_input_token_cost"
"""The key of the price of a cached token; without one LiteLLM counts it as free."""
_WITH_PROVIDER = re.compile(r"[/:@]|[a-z]\.", re.IGNORECASE)
"""Matches a provider in a name, also `anthropic.claude-x` of Bedrock, but no version, as in `qwen2.5`."""


def listed_cost(model: str, tokens_in: int, tokens_out: int, tokens_cached: int = 0) -> float | None:
    """US dollars of a call with plain token prices; None if only LiteLLM can compute it."""
    prices = listed_prices(model)
    if prices is None or tokens_in > MAX_TOKENS_IN:
        return None
    return (tokens_in - tokens_cached) * prices[0] + tokens_out * prices[1] + tokens_cached * prices[2]


@cache
def listed_prices(model: str) -> tuple[float, float, float] | None:
    """US dollars for a token in, out and from the cache; None without a plain entry."""
    provider = provider_of(model)
    if provider not in PROVIDERS:
        return None
    entries = _entries()
    entry = entries.get(model) or entries.get(model.partition("/")[2], {})
    is_plain = entry.get("litellm_provider") == provider and entry.get("mode") in MODES
    is_bare_gemini = provider == "gemini" and "/" not in model  # one of Vertex AI for LiteLLM
    if not is_plain or is_bare_gemini or any(name.startswith("tier") or "peak" in name for name in entry):
        return None
    price_in, price_out = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if price_in is None or price_out is None:
        return None
    price_cached = entry.get(CACHED)
    return float(price_in), float(price_out), float(price_in if price_cached is None else price_cached)


@cache
def sees_images(model: str) -> bool:
    """Whether the price list says that the model takes images."""
    entries = _entries()
    entry = entries.get(model) or entries.get(model.partition("/")[2], {})
    return entry.get("supports_vision") is True


def is_listed(model: str) -> bool:
    """Whether the list has this very name."""
    return model in _entries()


@cache
def is_unlisted(model: str) -> bool:
    """Whether LiteLLM has no price: no provider in the name, and no entry with the name as a part."""
    if not model or _WITH_PROVIDER.search(model) or provider_of(model):
        return False
    entries = _entries()
    pattern = re.compile(rf"(?:^|[/.:@]){re.escape(model)}(?:$|[/.:@])", re.IGNORECASE)
    return bool(entries) and not any(map(pattern.search, entries))


def price_list() -> str:
    """The price file of the installed LiteLLM, else the file that Evaldesk gave to its player."""
    spec = importlib.util.find_spec("litellm")
    place = str(Path(spec.origin).with_name(LIST)) if spec and spec.origin else ""
    return place if place and os.path.isfile(place) else os.environ.get(VARIABLE, "")


def _entries() -> dict[str, dict[str, Any]]:
    """The entries of the list; empty without one."""
    place = price_list()
    try:
        data = Path(place).read_bytes() if place else b"{}"
        return msgspec.json.decode(data, type=dict[str, dict[str, Any]])
    except (OSError, ValueError, msgspec.MsgspecError):
        return {}
