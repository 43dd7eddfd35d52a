"""Calls of the scripted demo model, answered here: neither LiteLLM nor a network is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from evaldesk.demo_model import DEMO_PREFIX
from evaldesk.demo_model.answering import answer
from evaldesk.demo_model.mistakes import OVERLOADED, Overloaded
from evaldesk.llm.call import ModelCall, ModelReply, RequestedCall
from evaldesk.llm.endpoints import has_listeners
from evaldesk.llm.refusals import EndpointError
from evaldesk.model import Usage


def is_demo(call: ModelCall) -> bool:
    """Whether the demo model answers the call here: where something listens to LiteLLM's calls, LiteLLM asks it."""
    return call.model.startswith(DEMO_PREFIX) and not has_listeners()


async def ask(call: ModelCall, on_text: Callable[[str], object] | None) -> ModelReply:
    """One request, streamed word by word with `on_text`. Raises EndpointError."""
    try:
        found = answer(call.model.removeprefix(DEMO_PREFIX), call.messages, call.tools, seed=call.seed)
    except ValueError as error:
        raise EndpointError(404, str(error).encode()) from None
    except Overloaded:
        raise EndpointError(503, OVERLOADED.encode(), {"x-should-retry": "false"}) from None
    if on_text:
        for word in found.words:
            await asyncio.sleep(found.delay_s)
            on_text(word)
    calls = tuple(
        RequestedCall(each["id"], each["function"]["name"], each["function"]["arguments"]) for each in found.calls
    )
    usage = Usage(call.model, tokens_in=found.tokens_in, tokens_out=found.tokens_out, cost=0.0)
    return ModelReply(found.text, calls, usage, found.finish_reason)
