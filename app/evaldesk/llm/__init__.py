"""Floor 1: the one door to models. LiteLLM is imported when a call needs it, or by `warm`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaldesk.llm.attempts import is_direct, warm
    from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
    from evaldesk.llm.costs import cost_at, needs_litellm, only_litellm_prices, price, priced
    from evaldesk.llm.failures import model_error
    from evaldesk.llm.loop import complete, litellm_endpoint, litellm_response
    from evaldesk.llm.retries import PATIENT, Patience
    from evaldesk.llm.retry_events import RetryWait
    from evaldesk.secrets import missing_keys, set_variables

_MODULES = {
    "PATIENT": "llm.retries",
    "ModelCall": "llm.call",
    "ModelReply": "llm.call",
    "Patience": "llm.retries",
    "RequestedCall": "llm.call",
    "RetryWait": "llm.retry_events",
    "complete": "llm.loop",
    "cost_at": "llm.costs",
    "is_direct": "llm.attempts",
    "litellm_endpoint": "llm.loop",
    "litellm_response": "llm.loop",
    "missing_keys": "secrets",
    "model_error": "llm.failures",
    "needs_litellm": "llm.costs",
    "only_litellm_prices": "llm.costs",
    "price": "llm.costs",
    "priced": "llm.costs",
    "set_variables": "secrets",
    "warm": "llm.attempts",
}
"""The driver of a run reads failures and prices, and asks no model."""

__all__ = [
    "PATIENT",
    "ModelCall",
    "ModelReply",
    "Patience",
    "RequestedCall",
    "RetryWait",
    "complete",
    "cost_at",
    "is_direct",
    "litellm_endpoint",
    "litellm_response",
    "missing_keys",
    "model_error",
    "needs_litellm",
    "only_litellm_prices",
    "price",
    "priced",
    "set_variables",
    "warm",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'evaldesk.llm' has no attribute {name!r}")
        return getattr(import_module(f"evaldesk.{_MODULES[name]}"), name)
