"""Clients that agents bring of their own - OpenAI's and its kin, Google's, LiteLLM - in the turns that we play.

Each is wrapped where it sends a request, once for the process: inside of a turn a request is tried again with our
patience, as often as the run asks for, and the turn is told of each pause. Outside of turns only redirects are refused.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any

from evaldesk.llm.apis import model_in
from evaldesk.llm.client import is_cached
from evaldesk.llm.client_wrapping import CLIENT_OF_GOOGLE, CLIENTS_OF_OPENAI, refuse_redirects, when_imported
from evaldesk.llm.failures import failure_of
from evaldesk.llm.loop import on_loop
from evaldesk.llm.retries import PATIENT, Patience, wait_after
from evaldesk.llm.retry_events import CURRENT_TURN, RetryWait, TurnListener, muted, notifier, waiting_s

_WRAPPED = "_is_wrapped"

_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Request:
    """A request as its client is to send it once; `patience` is the client's own setting.

    `is_on_our_loop`: it is sent from the loop of our own model calls.
    """

    args: tuple[Any, ...]
    options: Mapping[str, Any]
    patience: Patience
    model: str
    is_on_our_loop: bool = False


def wrap_clients() -> None:
    """Wrap the clients, those that are imported later as well."""
    refuse_redirects()
    when_imported((*CLIENTS_OF_OPENAI, CLIENT_OF_GOOGLE, "litellm"), _wrap)
    _wrap()


def _wrap() -> None:
    for owner, name, read in _places():
        found = vars(owner).get(name)
        if found is not None and not hasattr(found, _WRAPPED):
            with _lock:
                found = vars(owner)[name]
                if not hasattr(found, _WRAPPED):
                    setattr(owner, name, _wrapped(found, read))


def _places() -> Iterator[tuple[Any, str, Callable[..., _Request]]]:
    """The sender of requests: the class or module, the name of its function, and how a call of that is read."""
    for client in CLIENTS_OF_OPENAI:
        module = sys.modules.get(client)
        for name in ("AsyncAPIClient", "SyncAPIClient"):
            if hasattr(module, name):
                yield getattr(module, name), "request", _of_openai_like
    google = getattr(sys.modules.get(CLIENT_OF_GOOGLE), "BaseApiClient", None)
    if google is not None:
        yield from ((google, name, _of_google) for name in ("_async_request", "_request"))
    litellm = sys.modules.get("litellm")
    if litellm is not None:
        yield from ((litellm, name, _of_litellm) for name in ("acompletion", "completion"))


def _wrapped(send: Callable[..., Any], read: Callable[..., _Request]) -> Callable[..., Any]:
    @wraps(send)
    async def send_soon(*args: Any, **options: Any) -> Any:
        turn, n_tried = CURRENT_TURN.get(), 0
        request = _asked(read, turn, args, options)
        if turn is None or request is None:
            return await send(*args, **options)
        while True:
            n_tried += 1
            await asyncio.sleep(waiting_s(turn.pace, request.model))
            try:
                with muted():
                    sent = send(*request.args, **request.options)
                    return _noted(await (on_loop(sent) if request.is_on_our_loop else sent), turn)
            except Exception as error:  # any exception of the client
                wait = _wait(error, n_tried, request)
                if wait is None:
                    raise
            await asyncio.sleep(wait.seconds)

    @wraps(send)
    def send_now(*args: Any, **options: Any) -> Any:
        turn, n_tried = CURRENT_TURN.get(), 0
        request = _asked(read, turn, args, options)
        if turn is None or request is None:
            return send(*args, **options)
        while True:
            n_tried += 1
            time.sleep(waiting_s(turn.pace, request.model))
            try:
                with muted():
                    return _noted(send(*request.args, **request.options), turn)
            except Exception as error:  # any exception of the client
                wait = _wait(error, n_tried, request)
                if wait is None:
                    raise
            time.sleep(wait.seconds)

    wrapped = send_soon if inspect.iscoroutinefunction(send) else send_now
    setattr(wrapped, _WRAPPED, True)
    return wrapped


def _asked(
    read: Callable[..., _Request], turn: TurnListener | None, args: tuple[Any, ...], options: dict[str, Any]
) -> _Request | None:
    """The request, as patient as the run asks for; None outside of turns, and in a form that a new version gave it."""
    if turn is None:
        return None
    try:
        request = read(*args, **options)
    except Exception:  # the agent is to work, whether its attempts can be counted or not
        return None
    return replace(request, patience=request.patience.with_retries(turn.n_retries))


def _wait(error: Exception, n_tried: int, request: _Request) -> RetryWait | None:
    """The pause before another attempt, reported to its listeners; None when there should be none."""
    wait = wait_after(failure_of(error, request.model), n_tried, request.patience)
    if wait is not None:
        notifier(is_counted=False)(wait)
    return wait


def _noted(response: Any, turn: TurnListener) -> Any:
    if is_cached(response):
        turn.was_cached()
    return response


def _of_openai_like(client: Any, cast_to: Any, options: Any, **more: Any) -> _Request:
    model = options.json_data.get("model") if isinstance(options.json_data, Mapping) else None
    patience = PATIENT.with_retries(options.get_max_retries(client.max_retries))
    once = options.model_copy(update={"max_retries": 0})
    return _Request((client, cast_to, once), more, patience, str(model or "the model"))


def _of_google(client: Any, http_request: Any, http_options: Any = None, stream: bool = False) -> _Request:
    """Google's own client does not retry by itself: without a setting, it does as we do."""
    from google.genai.types import HttpOptions, HttpRetryOptions

    given = HttpOptions(**http_options) if isinstance(http_options, dict) else http_options or HttpOptions()
    asked = given.retry_options or getattr(client._http_options, "retry_options", None)
    once = given.model_copy(update={"retry_options": HttpRetryOptions(attempts=1)})
    return _Request((client, http_request, once, stream), {}, _google_patience(asked), _google_model(http_request.url))


def _google_patience(options: Any) -> Patience:
    if options is None:
        return PATIENT
    found = {
        "n_attempts": options.attempts,
        "first_wait_s": options.initial_delay,
        "longest_wait_s": options.max_delay,
    }
    return replace(PATIENT, **{name: value for name, value in found.items() if value is not None})


def _google_model(url: str) -> str:
    """`gemini-2.0-flash` of `…/models/gemini-2.0-flash:generateContent`."""
    return model_in(url) or "the model"


def _of_litellm(*args: Any, **options: Any) -> _Request:
    """LiteLLM is clean on one loop only; a stream must be read where it was begun."""
    found = (options.get(name) for name in ("num_retries", "max_retries"))
    n_retries = next((number for number in found if number is not None), None)
    model = str(options.get("model") or next(iter(args), "the model"))
    once = {**options, "num_retries": 0, "max_retries": 0}
    is_whole = not options.get("stream")
    return _Request(args, once, PATIENT.with_retries(n_retries), model, is_on_our_loop=is_whole)
