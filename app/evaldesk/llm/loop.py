"""The event loop for the model calls of a process, in a thread of its own.

LiteLLM needs one loop: on several it prints tracebacks and leaks threads. (stack.md section 3) Calls of our own client
stay on the caller's loop, if it has connections: two thread switches cost as much CPU time as the call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from evaldesk.background_loop import BackgroundLoop
from evaldesk.errors import ModelError
from evaldesk.llm.attempts import is_direct
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.client import endpoint, is_cached, open_litellm
from evaldesk.llm.direct import is_own_loop
from evaldesk.llm.failures import failure_of
from evaldesk.llm.recording import CURRENT_RECORDER
from evaldesk.llm.retries import DEFAULT_RETRIES, RetryPolicy, call_with_retries, complete_with_retries
from evaldesk.llm.retry_events import CURRENT_TURN, PLAYED_TURN, hide_requests, mute_listeners, notifier, waiting_s
from evaldesk.model import ModelOptions

T = TypeVar("T")

_calls = BackgroundLoop("evaldesk-llm")


async def complete(
    call: ModelCall,
    on_text: Callable[[str], None] | None = None,
    *,
    retry_policy: RetryPolicy = DEFAULT_RETRIES,
) -> ModelReply:
    """Call a model with retries, or answer from the trial's recording. Raises ModelError.

    With `on_text` the answer is streamed: it is called in the caller's loop with each piece of text. Cancelling the
    caller cancels the call.
    """
    caller = asyncio.get_running_loop()
    recorder = CURRENT_RECORDER.get()

    async def ask() -> ModelReply:
        with hide_requests():
            if is_own_loop() and is_direct(call):
                with mute_listeners():
                    return await complete_with_retries(call, on_text, retry_policy, on_wait)
            return await on_loop(complete_with_retries(call, send, retry_policy, on_wait))

    send = (lambda text: caller.call_soon_threadsafe(on_text, text)) if on_text else None
    on_wait = notifier(is_counted=True)
    turn, start = PLAYED_TURN.get(), time.perf_counter()
    try:
        reply = await (recorder.reply(call, on_text, ask) if recorder else ask())
    except ModelError as error:
        if turn:
            turn.note_failure(call, str(error), (time.perf_counter() - start) * 1000)
        raise
    if turn:
        turn.note_reply(call, reply)
    return reply


async def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on the loop of the model calls; cancelling the caller cancels it."""
    with mute_listeners():
        future = asyncio.run_coroutine_threadsafe(work, _calls.loop)
    return await asyncio.wrap_future(future)


async def litellm_response(arguments: Mapping[str, Any]) -> Any:
    """Call `litellm.acompletion` with `arguments`; a stream is an async iterator of its chunks.

    The current turn has the number of retries, and notes pauses and cached answers. Raises ModelError.
    """
    turn = CURRENT_TURN.get()
    retry_policy = DEFAULT_RETRIES.with_retries(turn.n_retries if turn else None)
    model = str(arguments.get("model", ""))

    pace = turn.pace if turn else None

    async def attempt() -> Any:
        await asyncio.sleep(waiting_s(pace, model))
        return await open_litellm().acompletion(**{**arguments, "num_retries": 0})

    response, _ = await on_loop(call_with_retries(attempt, model, retry_policy, on_wait=notifier(is_counted=False)))
    if turn and is_cached(response):
        turn.note_cached_reply()
    return _chunks(response, model) if arguments.get("stream") else response


def litellm_endpoint(model: str, options: ModelOptions) -> dict[str, Any]:
    """The arguments of `litellm.acompletion` for the model and its endpoint. Raises ModelError."""
    call = ModelCall(model, (), api_base=options.base_url, api_key_env=options.api_key_env, extra=options.extra)
    return endpoint(call)


async def _chunks(stream: Any, model: str) -> AsyncIterator[Any]:
    iterator = aiter(stream)

    async def next_chunk() -> Any:
        try:
            return await anext(iterator, None)
        except Exception as error:  # LiteLLM and the provider's client raise exceptions of any kind
            failure = failure_of(error, model)
            raise ModelError(failure.sentence, kind=failure.kind, is_fatal=failure.is_fatal) from None

    while (chunk := await on_loop(next_chunk())) is not None:
        yield chunk
