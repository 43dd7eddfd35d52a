"""Retries for agents' own clients: OpenAI's and its relatives, Google's, LiteLLM.

The request function of each client is wrapped once per process, after its import: inside a turn requests are retried
by the run's policy, and the turn notes each pause. (decision 105)
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

from evaldesk.llm.apis import model_in
from evaldesk.llm.client import is_cached
from evaldesk.llm.client_wrapping import CLIENT_OF_GOOGLE, CLIENTS_OF_OPENAI, on_import, parts_of, wrap_once
from evaldesk.llm.failures import failure_of
from evaldesk.llm.loop import on_loop
from evaldesk.llm.redirects import refuse_redirects
from evaldesk.llm.retries import DEFAULT_RETRIES, RetryPolicy, wait_after
from evaldesk.llm.retry_events import (
    RetryWait,
    TurnListener,
    current_listeners,
    mute_listeners,
    notifier,
    waiting_s,
)

_WRAPPED_MARK = "_is_wrapped"


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of a request without the client's own retries; `retry_policy` is the client's setting.

    `is_on_our_loop`: it must run on the loop of our own model calls.
    """

    args: tuple[Any, ...]
    options: Mapping[str, Any]
    retry_policy: RetryPolicy
    model: str
    is_on_our_loop: bool = False


def wrap_clients() -> None:
    """Wrap the clients, also after a later import."""
    refuse_redirects()
    on_import((*CLIENTS_OF_OPENAI, CLIENT_OF_GOOGLE, "litellm"), _wrap)
    _wrap()


def _wrap() -> None:
    for owner, name, read_request in _places():
        wrap_once(owner, name, partial(_with_retries, read_request=read_request), _WRAPPED_MARK)


def _places() -> Iterator[tuple[Any, str, Callable[..., _Request]]]:
    """The request functions: class or module, name, and the reader of their arguments."""
    for client in CLIENTS_OF_OPENAI:
        for owner, name in parts_of(client, ("AsyncAPIClient", "SyncAPIClient"), ("request",)):
            yield owner, name, _of_openai_like
    for owner, name in parts_of(CLIENT_OF_GOOGLE, ("BaseApiClient",), ("_async_request", "_request")):
        yield owner, name, _of_google
    litellm = sys.modules.get("litellm")
    if litellm is not None:
        yield from ((litellm, name, _of_litellm) for name in ("acompletion", "completion"))


def _with_retries(send: Callable[..., Any], read_request: Callable[..., _Request]) -> Callable[..., Any]:
    @wraps(send)
    async def send_soon(*args: Any, **options: Any) -> Any:
        (turn, _), n_tried = current_listeners(), 0
        request = _read_request(read_request, turn, args, options)
        if turn is None or request is None:
            return await send(*args, **options)
        while True:
            n_tried += 1
            await asyncio.sleep(waiting_s(turn.pace, request.model))
            try:
                with mute_listeners():
                    pending = send(*request.args, **request.options)
                    return _note_cached_reply(await (on_loop(pending) if request.is_on_our_loop else pending), turn)
            except Exception as error:  # any exception of the client
                wait = _wait(error, n_tried, request)
                if wait is None:
                    raise
            await asyncio.sleep(wait.seconds)

    @wraps(send)
    def send_now(*args: Any, **options: Any) -> Any:
        (turn, _), n_tried = current_listeners(), 0
        request = _read_request(read_request, turn, args, options)
        if turn is None or request is None:
            return send(*args, **options)
        while True:
            n_tried += 1
            time.sleep(waiting_s(turn.pace, request.model))
            try:
                with mute_listeners():
                    return _note_cached_reply(send(*request.args, **request.options), turn)
            except Exception as error:  # any exception of the client
                wait = _wait(error, n_tried, request)
                if wait is None:
                    raise
            time.sleep(wait.seconds)

    return send_soon if inspect.iscoroutinefunction(send) else send_now


def _read_request(
    read_call: Callable[..., _Request], turn: TurnListener | None, args: tuple[Any, ...], options: dict[str, Any]
) -> _Request | None:
    """The request with the run's retries; None outside of turns, and for arguments of an unknown version."""
    if turn is None:
        return None
    try:
        request = read_call(*args, **options)
    except Exception:  # the agent is to work, whether its attempts can be counted or not
        return None
    return replace(request, retry_policy=request.retry_policy.with_retries(turn.n_retries))


def _wait(error: Exception, n_tried: int, request: _Request) -> RetryWait | None:
    """The pause before the next attempt, reported to the listeners; None for no further attempt."""
    wait = wait_after(failure_of(error, request.model), n_tried, request.retry_policy)
    if wait is not None:
        notifier(is_counted=False)(wait)
    return wait


def _note_cached_reply(response: Any, turn: TurnListener) -> Any:
    if is_cached(response):
        turn.note_cached_reply()
    return response


def _of_openai_like(client: Any, cast_to: Any, options: Any, **more: Any) -> _Request:
    model = options.json_data.get("model") if isinstance(options.json_data, Mapping) else None
    retry_policy = DEFAULT_RETRIES.with_retries(options.get_max_retries(client.max_retries))
    once = options.model_copy(update={"max_retries": 0})
    return _Request((client, cast_to, once), more, retry_policy, str(model or "the model"))


def _of_google(client: Any, http_request: Any, http_options: Any = None, stream: bool = False) -> _Request:
    """The request of Google's client; without retry options it gets our policy, as it does not retry by default."""
    from google.genai.types import HttpOptions, HttpRetryOptions

    google_options = HttpOptions(**http_options) if isinstance(http_options, dict) else http_options or HttpOptions()
    retry_options = google_options.retry_options or getattr(client._http_options, "retry_options", None)
    once = google_options.model_copy(update={"retry_options": HttpRetryOptions(attempts=1)})
    model = model_in(http_request.url) or "the model"  # `gemini-2.0-flash` of `…/gemini-2.0-flash:generateContent`
    return _Request((client, http_request, once, stream), {}, _google_policy(retry_options), model)


def _google_policy(options: Any) -> RetryPolicy:
    if options is None:
        return DEFAULT_RETRIES
    values = {
        "n_attempts": options.attempts,
        "first_wait_s": options.initial_delay,
        "max_backoff_s": options.max_delay,
        "max_retry_after_s": options.max_delay,
    }
    return replace(DEFAULT_RETRIES, **{name: value for name, value in values.items() if value is not None})


def _of_litellm(*args: Any, **options: Any) -> _Request:
    """The request of LiteLLM, on our loop unless it streams: a stream must be read on its own loop."""
    settings = (options.get(name) for name in ("num_retries", "max_retries"))
    n_retries = next((number for number in settings if number is not None), None)
    model = str(options.get("model") or next(iter(args), "the model"))
    once = {**options, "num_retries": 0, "max_retries": 0}
    is_whole = not options.get("stream")
    return _Request(args, once, DEFAULT_RETRIES.with_retries(n_retries), model, is_on_our_loop=is_whole)
