"""Floor 1: the client of models. LiteLLM is imported by the first call that needs it, or by `warm`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaldesk.llm.attempts import is_direct as is_direct
    from evaldesk.llm.attempts import warm as warm
    from evaldesk.llm.call import ModelCall as ModelCall
    from evaldesk.llm.call import ModelReply as ModelReply
    from evaldesk.llm.call import RequestedCall as RequestedCall
    from evaldesk.llm.costs import cost_at as cost_at
    from evaldesk.llm.costs import needs_litellm as needs_litellm
    from evaldesk.llm.costs import only_litellm_prices as only_litellm_prices
    from evaldesk.llm.costs import price as price
    from evaldesk.llm.costs import with_cost as with_cost
    from evaldesk.llm.failures import model_error as model_error
    from evaldesk.llm.loop import complete as complete
    from evaldesk.llm.loop import litellm_endpoint as litellm_endpoint
    from evaldesk.llm.loop import litellm_response as litellm_response
    from evaldesk.llm.model_names import model_fault as model_fault
    from evaldesk.llm.retries import DEFAULT_RETRIES as DEFAULT_RETRIES
    from evaldesk.llm.retries import RetryPolicy as RetryPolicy
    from evaldesk.llm.retry_events import RetryWait as RetryWait
    from evaldesk.secrets import missing_keys as missing_keys
    from evaldesk.secrets import set_variables as set_variables

_MODULES = {
    "DEFAULT_RETRIES": "llm.retries",
    "ModelCall": "llm.call",
    "ModelReply": "llm.call",
    "RetryPolicy": "llm.retries",
    "RequestedCall": "llm.call",
    "RetryWait": "llm.retry_events",
    "complete": "llm.loop",
    "cost_at": "llm.costs",
    "is_direct": "llm.attempts",
    "litellm_endpoint": "llm.loop",
    "litellm_response": "llm.loop",
    "missing_keys": "secrets",
    "model_error": "llm.failures",
    "model_fault": "llm.model_names",
    "needs_litellm": "llm.costs",
    "only_litellm_prices": "llm.costs",
    "price": "llm.costs",
    "set_variables": "secrets",
    "warm": "llm.attempts",
    "with_cost": "llm.costs",
}
"""Lazy imports: the driver of a run needs only failures and prices."""

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module 'evaldesk.llm' has no attribute {name!r}")
        return getattr(import_module(f"evaldesk.{_MODULES[name]}"), name)
