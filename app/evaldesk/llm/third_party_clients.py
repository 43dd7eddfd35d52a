"""Retries and redirect protection for agents' own clients: OpenAI's and its relatives, Google's, LiteLLM.

The request function of each client is wrapped once per process, after its import: inside a turn requests are retried
by the run's policy, and the turn notes each pause. (decision 105)

No client may follow a redirect of a model endpoint, also outside of turns: the API key would be sent along. These
clients follow redirects by default. Their request functions are marked; while one of them runs, the HTTP library below
raises an error for a redirect. Other requests, such as requests of an agent's tools, are unchanged. (decision 053)
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from evaldesk.errors import ModelError
from evaldesk.llm.apis import model_in
from evaldesk.llm.client import is_cached
from evaldesk.llm.failures import failure_of
from evaldesk.llm.loop import on_loop
from evaldesk.llm.retries import PATIENT, Patience, wait_after
from evaldesk.llm.retry_events import (
    RetryWait,
    TurnListener,
    context_value,
    current_listeners,
    mute_listeners,
    notifier,
    waiting_s,
)
from evaldesk.unpacking import redirect_refusal

CLIENTS_OF_OPENAI = tuple(
    f"{package}._base_client" for package in ("openai", "anthropic", "groq", "together", "cerebras.cloud.sdk")
)
"""The modules of OpenAI's client, and of clients from the same generator, with the same classes."""
# Private modules, as the public ones send through them; tests play each real package (decision 105).
CLIENT_OF_GOOGLE = "google.genai._api_client"

_LITELLM = ("litellm.llms.custom_httpx.http_handler", "litellm.llms.custom_httpx.aiohttp_handler")
HTTPX = ("httpx", "httpx2")
AIOHTTP = "aiohttp"
_MODULES = (*CLIENTS_OF_OPENAI, CLIENT_OF_GOOGLE, *_LITELLM, *HTTPX, AIOHTTP)

_WRAPPED_MARK = "_is_wrapped"
# A redirect would take the key along: decision 053.
_REDIRECT_MARK = "_refuses_redirects"
_is_asking: ContextVar[bool] = ContextVar("is_asking_a_model", default=False)
# A client that two threads import at once is wrapped one time: decision 105.
_lock = threading.Lock()
_actions: dict[str, list[Callable[[], None]]] = {}


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of a request without the client's own retries; `patience` is the client's setting.

    `is_on_our_loop`: it must run on the loop of our own model calls.
    """

    args: tuple[Any, ...]
    options: Mapping[str, Any]
    patience: Patience
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
    return replace(request, patience=request.patience.with_retries(turn.n_retries))


def _wait(error: Exception, n_tried: int, request: _Request) -> RetryWait | None:
    """The pause before the next attempt, reported to the listeners; None for no further attempt."""
    wait = wait_after(failure_of(error, request.model), n_tried, request.patience)
    if wait is not None:
        notifier(is_counted=False)(wait)
    return wait


def _note_cached_reply(response: Any, turn: TurnListener) -> Any:
    if is_cached(response):
        turn.note_cached_reply()
    return response


def _of_openai_like(client: Any, cast_to: Any, options: Any, **more: Any) -> _Request:
    model = options.json_data.get("model") if isinstance(options.json_data, Mapping) else None
    patience = PATIENT.with_retries(options.get_max_retries(client.max_retries))
    once = options.model_copy(update={"max_retries": 0})
    return _Request((client, cast_to, once), more, patience, str(model or "the model"))


def _of_google(client: Any, http_request: Any, http_options: Any = None, stream: bool = False) -> _Request:
    """The request of Google's client; without retry options it gets our policy, as it does not retry by default."""
    from google.genai.types import HttpOptions, HttpRetryOptions

    google_options = HttpOptions(**http_options) if isinstance(http_options, dict) else http_options or HttpOptions()
    retry_options = google_options.retry_options or getattr(client._http_options, "retry_options", None)
    once = google_options.model_copy(update={"retry_options": HttpRetryOptions(attempts=1)})
    model = model_in(http_request.url) or "the model"  # `gemini-2.0-flash` of `…/gemini-2.0-flash:generateContent`
    return _Request((client, http_request, once, stream), {}, _google_patience(retry_options), model)


def _google_patience(options: Any) -> Patience:
    if options is None:
        return PATIENT
    values = {
        "n_attempts": options.attempts,
        "first_wait_s": options.initial_delay,
        "longest_wait_s": options.max_delay,
    }
    return replace(PATIENT, **{name: value for name, value in values.items() if value is not None})


def _of_litellm(*args: Any, **options: Any) -> _Request:
    """The request of LiteLLM, on our loop unless it streams: a stream must be read on its own loop."""
    settings = (options.get(name) for name in ("num_retries", "max_retries"))
    n_retries = next((number for number in settings if number is not None), None)
    model = str(options.get("model") or next(iter(args), "the model"))
    once = {**options, "num_retries": 0, "max_retries": 0}
    is_whole = not options.get("stream")
    return _Request(args, once, PATIENT.with_retries(n_retries), model, is_on_our_loop=is_whole)


def on_import(modules: Collection[str], act: Callable[[], None]) -> None:
    """Call `act` after each later import of one of `modules`; registering it twice has no effect."""
    with _lock:
        for name in modules:
            actions = _actions.setdefault(name, [])
            if act not in actions:
                actions.append(act)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)  # first, or another finder would load the module unobserved


class _Finder(MetaPathFinder):
    """The first finder: delegates to the others, and adds the actions to the loader."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _actions:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                _act_after(spec.loader)
                return spec
        return None


_finder = _Finder()


def _act_after(loader: Any) -> None:
    """Let `loader` act after it has run a module, unless it permits no such change."""
    run = getattr(loader, "exec_module", None)
    if run is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": None}):
        return

    @wraps(run)
    def exec_module(module: ModuleType) -> None:
        run(module)
        for act in _actions.get(module.__name__, ()):
            act()

    loader.exec_module = exec_module


def refuse_redirects() -> None:
    """Wrap the clients and the HTTP libraries, also after a later import."""
    on_import(_MODULES, _refuse)
    _refuse()


def _refuse() -> None:
    for owner, name in _senders():
        wrap_once(owner, name, _mark_model_call, _REDIRECT_MARK)
    for owner, name, option in _libraries():
        wrap_once(owner, name, partial(_without_redirects, option=option), _REDIRECT_MARK)


def _senders() -> Iterator[tuple[Any, str]]:
    """The functions for model requests: class and name."""
    for module in CLIENTS_OF_OPENAI:
        yield from parts_of(module, ("AsyncAPIClient", "SyncAPIClient"), ("request",))
    yield from parts_of(CLIENT_OF_GOOGLE, ("BaseApiClient",), ("_async_request", "_request"))
    by_httpx, by_aiohttp = _LITELLM
    yield from parts_of(by_httpx, ("AsyncHTTPHandler", "HTTPHandler"), ("post", "put", "patch"))
    yield from parts_of(by_aiohttp, ("BaseLLMAIOHTTPHandler",), ("_make_common_async_call", "_make_common_sync_call"))


def _libraries() -> Iterator[tuple[Any, str, str]]:
    """The request functions of HTTP libraries, and their option to follow redirects."""
    for library in HTTPX:
        for owner, name in parts_of(library, ("AsyncClient", "Client"), ("send",)):
            yield owner, name, "follow_redirects"
    for owner, name in parts_of(AIOHTTP, ("ClientSession",), ("_request",)):
        yield owner, name, "allow_redirects"


def is_asking_model() -> bool:
    """Whether a model request of a known client is in progress in this context."""
    return _is_asking.get()


def parts_of(module: str, classes: tuple[str, ...], names: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """The classes of an imported module, with each of the function names."""
    loaded_module = sys.modules.get(module)
    if loaded_module is None:
        return
    owners = (getattr(loaded_module, name, None) for name in classes)
    yield from ((owner, name) for owner in owners if owner is not None for name in names)


def wrap_once(owner: Any, name: str, wrapper: Callable[[Any], Any], mark: str) -> None:
    """Put the wrapper around a function of a class, unless it has the mark already."""
    function = vars(owner).get(name)
    if function is None or hasattr(function, mark):
        return
    with _lock:
        function = vars(owner)[name]
        if not hasattr(function, mark):
            replacement = wrapper(function)
            setattr(replacement, mark, True)
            setattr(owner, name, replacement)


def _mark_model_call(send: Callable[..., Any]) -> Callable[..., Any]:
    """`send` with the context variable of a model request."""

    @wraps(send)
    async def ask_soon(*args: Any, **options: Any) -> Any:
        with context_value(_is_asking, True):
            return await send(*args, **options)

    @wraps(send)
    def ask_now(*args: Any, **options: Any) -> Any:
        with context_value(_is_asking, True):
            return send(*args, **options)

    return ask_soon if inspect.iscoroutinefunction(send) else ask_now


def _without_redirects(send: Callable[..., Any], option: str) -> Callable[..., Any]:
    """`send` of a library; inside a model request it raises ModelError for a redirect."""

    @wraps(send)
    async def send_soon(*args: Any, **options: Any) -> Any:
        if not _is_asking.get():
            return await send(*args, **options)
        response = await send(*args, **{**options, option: False})
        refusal = _refusal(response)
        if refusal:
            await response.aclose() if hasattr(response, "aclose") else response.close()
            raise refusal
        return response

    @wraps(send)
    def send_now(*args: Any, **options: Any) -> Any:
        if not _is_asking.get():
            return send(*args, **options)
        response = send(*args, **{**options, option: False})
        refusal = _refusal(response)
        if refusal:
            response.close()
            raise refusal
        return response

    return send_soon if inspect.iscoroutinefunction(send) else send_now


def _refusal(response: Any) -> ModelError | None:
    """The error for a redirect; None for any other answer."""
    status: int = response.status_code if hasattr(response, "status_code") else response.status
    location = response.headers.get("location", "")
    if not (300 <= status < 400 and location):
        return None
    host = response.url.host if hasattr(response.url, "host") else response.url
    return ModelError(f"{host} {redirect_refusal(status, location)}", kind="redirect", is_fatal=True)
