"""What a call costs at prices that a person gave."""

from __future__ import annotations

from evaldesk.llm.client import DEMO_PREFIX
from evaldesk.model import Usage

TOKENS = 1_000_000


def cost_at(prices: tuple[float, float] | None, usage: Usage) -> float | None:
    """US dollars; what is known already without prices, for a scripted or replayed answer, and without tokens."""
    is_free = usage.is_replayed or usage.model.startswith(DEMO_PREFIX)
    if prices is None or is_free or not (usage.tokens_in or usage.tokens_out):
        return usage.cost
    return (usage.tokens_in * prices[0] + usage.tokens_out * prices[1]) / TOKENS
