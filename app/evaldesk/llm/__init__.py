"""Floor 1: the one door to models. LiteLLM is imported when a call needs it, or by `warm`."""

from evaldesk.llm.attempts import is_direct, warm
from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.costs import cost_at
from evaldesk.llm.failures import model_error
from evaldesk.llm.hearing import Wait
from evaldesk.llm.keys import missing_keys
from evaldesk.llm.loop import complete
from evaldesk.llm.prices import price
from evaldesk.llm.retries import PATIENT, Patience
from evaldesk.llm.shared import litellm_endpoint, litellm_response

__all__ = [
    "PATIENT",
    "ModelCall",
    "ModelReply",
    "Patience",
    "RequestedCall",
    "Wait",
    "complete",
    "cost_at",
    "is_direct",
    "litellm_endpoint",
    "litellm_response",
    "missing_keys",
    "model_error",
    "price",
    "warm",
]
