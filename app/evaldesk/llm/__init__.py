"""Floor 1: the one door to LiteLLM, opened when the first model is called or by `preload`."""

from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.loop import complete, preload
from evaldesk.llm.retries import PATIENT, Patience, Wait
from evaldesk.llm.shared import litellm_response

__all__ = [
    "PATIENT",
    "ModelCall",
    "ModelReply",
    "Patience",
    "RequestedCall",
    "Wait",
    "complete",
    "litellm_response",
    "preload",
]
