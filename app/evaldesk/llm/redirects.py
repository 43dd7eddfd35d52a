"""Redirect protection for agents' own clients: the API key would be sent along. (decision 053)

No client may follow a redirect of a model endpoint, also outside of turns. These clients follow redirects by default.
Their request functions are marked; while one of them runs, the HTTP library below raises an error for a redirect. Other
requests, such as requests of an agent's tools, are unchanged.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

from evaldesk.errors import ModelError
from evaldesk.llm.client_wrapping import (
    AIOHTTP,
    CLIENT_OF_GOOGLE,
    CLIENTS_OF_OPENAI,
    HTTPX,
    LITELLM_HANDLERS,
    on_import,
    parts_of,
    wrap_once,
)
from evaldesk.llm.context import context_value
from evaldesk.unpacking import redirect_refusal

_MODULES = (*CLIENTS_OF_OPENAI, CLIENT_OF_GOOGLE, *LITELLM_HANDLERS, *HTTPX, AIOHTTP)
# A redirect would take the key along: decision 053.
_REDIRECT_MARK = "_refuses_redirects"
_is_asking: ContextVar[bool] = ContextVar("is_asking_a_model", default=False)


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
    by_httpx, by_aiohttp = LITELLM_HANDLERS
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
