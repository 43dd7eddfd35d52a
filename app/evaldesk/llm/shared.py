"""LiteLLM calls made by other frameworks, on the one loop and with the one patience that our own have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from evaldesk.errors import ModelError
from evaldesk.llm.call import ModelCall
from evaldesk.llm.client import endpoint, is_cached, open_litellm
from evaldesk.llm.failures import failure_of
from evaldesk.llm.hearing import CURRENT_TURN, heard
from evaldesk.llm.loop import on_loop
from evaldesk.llm.retries import PATIENT, patiently
from evaldesk.model import ModelOptions


async def litellm_response(arguments: Mapping[str, Any]) -> Any:
    """What `litellm.acompletion` gives for `arguments`; a stream comes as an async iterator of its chunks.

    The current turn says how often to try, and is told of pauses and of answers from a cache. Raises ModelError.
    """
    turn = CURRENT_TURN.get()
    patience = PATIENT.with_retries(turn.n_retries if turn else None)
    model = str(arguments.get("model", ""))

    async def attempt() -> Any:
        return await open_litellm().acompletion(**{**arguments, "num_retries": 0})

    response, _ = await on_loop(patiently(attempt, model, patience, on_wait=heard(is_counted=False)))
    if turn and is_cached(response):
        turn.was_cached()
    return _chunks(response, model) if arguments.get("stream") else response


def litellm_endpoint(model: str, options: ModelOptions) -> dict[str, Any]:
    """The arguments of `litellm.acompletion` that say which model is asked, and where. Raises ModelError."""
    call = ModelCall(model, (), api_base=options.base_url, api_key_env=options.api_key_env, extra=options.extra)
    return endpoint(call)


async def _chunks(stream: Any, model: str) -> AsyncIterator[Any]:
    iterator = aiter(stream)

    async def following() -> Any:
        try:
            return await anext(iterator, None)
        except Exception as error:  # LiteLLM and the provider's client raise whatever they like
            failure = failure_of(error, model)
            raise ModelError(failure.sentence, kind=failure.kind, is_fatal=failure.is_fatal) from None

    while (chunk := await on_loop(following())) is not None:
        yield chunk
