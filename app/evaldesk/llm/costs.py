"""The cost of a call at configured prices."""

from __future__ import annotations

import sys
from dataclasses import replace

from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.llm.client import UNPRICED, open_litellm
from evaldesk.llm.price_list import CACHED, is_unlisted, listed_cost, listed_prices
from evaldesk.model import Usage
from evaldesk.model.transcript import checked_count

TOKENS = 1_000_000


def cost_at(prices: tuple[float, float] | None, usage: Usage) -> float | None:
    """US dollars at the prices; without prices, and for demo, replayed or empty calls, the usage's own cost."""
    is_free = usage.is_replayed or usage.model.startswith(DEMO_PREFIX)
    if prices is None or is_free or not (usage.tokens_in or usage.tokens_out):
        return usage.cost
    return (usage.tokens_in * prices[0] + usage.tokens_out * prices[1]) / TOKENS


def with_cost(usage: Usage) -> Usage:
    """The usage with its cost by the price list; unchanged for unknown tokens."""
    if usage.is_least:
        return usage
    return replace(usage, cost=price(usage.model, usage.tokens_in, usage.tokens_out, usage.tokens_cached))


def price(model: str, tokens_in: int, tokens_out: int, tokens_cached: int = 0) -> float | None:
    """US dollars; None for a model without a price. A bare Gemini name belongs to Google's own API.

    Cached tokens have the cache price of the model, if it has one. Raises BadNumberError for invalid counts; LiteLLM
    would report them as a missing price.
    """
    tokens_in, tokens_out = checked_count("usage.tokens_in", tokens_in), checked_count("usage.tokens_out", tokens_out)
    tokens_cached = min(tokens_cached, tokens_in)
    if model.startswith(DEMO_PREFIX):
        return 0.0
    bare_gemini = model.startswith("gemini-")
    gemini_price = _price(f"gemini/{model}", tokens_in, tokens_out, tokens_cached) if bare_gemini else None
    return _price(model, tokens_in, tokens_out, tokens_cached) if gemini_price is None else gemini_price


def needs_litellm(model: str) -> bool:
    """Whether a framework calls `model` through LiteLLM, or only LiteLLM knows its price.

    Frameworks call models with a bare name by their own clients.
    """
    return "/" in model or only_litellm_prices(model)


def only_litellm_prices(model: str) -> bool:
    """Whether the price of `model` may be in an entry of LiteLLM's list that only LiteLLM can evaluate."""
    prices = listed_prices(f"gemini/{model}" if model.startswith("gemini-") else model)
    return prices is None and not is_unlisted(model)


def _price(model: str, tokens_in: int, tokens_out: int, tokens_cached: int) -> float | None:
    if model in UNPRICED:
        return None
    if "litellm" not in sys.modules:  # where it is imported, the user's code may have given it prices
        cost = listed_cost(model, tokens_in, tokens_out, tokens_cached)
        if cost is not None or is_unlisted(model):
            return cost
    try:
        litellm = open_litellm()
        entry = litellm.model_cost.get(model) or litellm.model_cost.get(model.partition("/")[2]) or {}
        tokens = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
        tokens |= {} if entry.get(CACHED) is None else {"cache_read_input_tokens": tokens_cached}
        return float(sum(litellm.cost_per_token(model=model, **tokens)))
    except Exception:  # LiteLLM raises a bare Exception for a model without a price
        UNPRICED.add(model)
        return None
