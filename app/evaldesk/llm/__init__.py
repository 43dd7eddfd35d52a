"""Floor 1: the one door to models. LiteLLM is imported when a call needs it, or by `warm`."""

from evaldesk.llm.attempts import is_direct, warm
from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall, pace_of
from evaldesk.llm.costs import cost_at, needs_litellm, price
from evaldesk.llm.failures import model_error
from evaldesk.llm.loop import complete, litellm_endpoint, litellm_response
from evaldesk.llm.retries import PATIENT, Patience
from evaldesk.llm.retry_events import RetryWait
from evaldesk.secrets import missing_keys, set_variables

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
    "pace_of",
    "price",
    "set_variables",
    "warm",
]
