"""What model calls cost, by LiteLLM's price map."""

from __future__ import annotations

from evaldesk.llm.client import DEMO_PREFIX, UNPRICED, open_litellm


def price(model: str, tokens_in: int, tokens_out: int) -> float | None:
    """US dollars; None for a model that has no price. A bare Gemini name is one of Google's own API."""
    if model.startswith(DEMO_PREFIX):
        return 0.0
    bare_gemini = model.startswith("gemini-")
    found = _price(f"gemini/{model}", tokens_in, tokens_out) if bare_gemini else None
    return _price(model, tokens_in, tokens_out) if found is None else found


def _price(model: str, tokens_in: int, tokens_out: int) -> float | None:
    if model in UNPRICED:
        return None
    try:
        return float(
            sum(open_litellm().cost_per_token(model=model, prompt_tokens=tokens_in, completion_tokens=tokens_out))
        )
    except Exception:  # LiteLLM raises a bare Exception for a model without a price
        UNPRICED.add(model)
        return None
