"""One event loop in a thread of its own for the model calls of a process.

LiteLLM is clean only on one loop: called from several it prints tracebacks and grows threads. (stack.md section 3)
What does without it may stay on the loop of its caller, where that has connections of its own: going to another
thread and back costs as much processor time as the call.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from evaldesk.llm.attempts import is_direct
from evaldesk.llm.call import ModelCall, ModelReply
from evaldesk.llm.direct import is_home
from evaldesk.llm.hearing import heard, unheard
from evaldesk.llm.recording import CURRENT_RECORDER
from evaldesk.llm.retries import PATIENT, Patience, complete_patiently

T = TypeVar("T")

_lock = threading.Lock()
_running: asyncio.AbstractEventLoop | None = None


async def complete(
    call: ModelCall,
    on_text: Callable[[str], None] | None = None,
    *,
    patience: Patience = PATIENT,
) -> ModelReply:
    """Ask a model, trying again where that may help, or its recording where the trial has one. Raises ModelError.

    With `on_text` the answer is streamed: it is called in the caller's loop with each piece of text. Cancelling the
    caller cancels the call.
    """
    caller = asyncio.get_running_loop()
    recorder = CURRENT_RECORDER.get()

    async def ask() -> ModelReply:
        if is_home() and is_direct(call):
            with unheard():
                return await complete_patiently(call, on_text, patience, on_wait)
        return await on_loop(complete_patiently(call, tell, patience, on_wait))

    tell = (lambda text: caller.call_soon_threadsafe(on_text, text)) if on_text else None
    on_wait = heard(is_counted=True)
    return await (recorder.reply(call, on_text, ask) if recorder else ask())


async def on_loop(work: Coroutine[Any, Any, T]) -> T:
    """What `work` gives on the loop of the model calls; cancelling the caller cancels it."""
    with unheard():
        future = asyncio.run_coroutine_threadsafe(work, _loop())
    return await asyncio.wrap_future(future)


def _loop() -> asyncio.AbstractEventLoop:
    global _running  # noqa: PLW0603 - one for the process
    with _lock:
        if _running is None:
            _running = asyncio.new_event_loop()
            threading.Thread(target=_running.run_forever, name="evaldesk-llm", daemon=True).start()
        return _running
