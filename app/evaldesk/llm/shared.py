"""LiteLLM calls made by other frameworks, on the one loop and with the one patience that our own have."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from evaldesk.errors import ModelError
from evaldesk.llm.client import open_litellm
from evaldesk.llm.failures import failure_of
from evaldesk.llm.loop import on_loop
from evaldesk.llm.retries import PATIENT, Patience, patiently


async def litellm_response(
    arguments: Mapping[str, Any],
    *,
    patience: Patience = PATIENT,
    on_done: Callable[[int], None] = lambda n_attempts: None,
) -> Any:
    """What `litellm.acompletion` gives for `arguments`; a stream comes as an async iterator of its chunks.

    `on_done` is told the number of attempts. Raises ModelError.
    """
    model = str(arguments.get("model", ""))

    async def attempt() -> Any:
        return await open_litellm().acompletion(**arguments, num_retries=0)

    response, n_attempts = await on_loop(patiently(attempt, model, patience))
    on_done(n_attempts)
    return _chunks(response, model) if arguments.get("stream") else response


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
