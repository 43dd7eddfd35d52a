"""Floor 1: the one door to LiteLLM, opened when the first model is called or by `preload`."""

from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.failures import model_error
from evaldesk.llm.keys import missing_keys
from evaldesk.llm.loop import complete, preload
from evaldesk.llm.prices import price
from evaldesk.llm.retries import PATIENT, Patience, Wait
from evaldesk.llm.shared import litellm_endpoint, litellm_response

__all__ = [
    "PATIENT",
    "ModelCall",
    "ModelReply",
    "Patience",
    "RequestedCall",
    "Wait",
    "complete",
    "litellm_endpoint",
    "litellm_response",
    "missing_keys",
    "model_error",
    "preload",
    "price",
]
