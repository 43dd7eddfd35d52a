"""How clients that agents bring are wrapped, once and as soon as they are imported; and the redirects they refuse.

A finder in front of the others lets them find a module, and acts when their loader has run it.

No client may follow a redirect of a model endpoint: the key would travel with the request. The clients of OpenAI and
its kin, Google and LiteLLM follow redirects by default. The functions with which they send a request to a model are
marked; while one of them runs, the HTTP library below it hands no redirect on. Other requests, such as those of an
agent's own tools, are left alone.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from evaldesk.errors import ModelError
from evaldesk.unpacking import redirect_refusal

CLIENTS_OF_OPENAI = tuple(
    f"{package}._base_client" for package in ("openai", "anthropic", "groq", "together", "cerebras.cloud.sdk")
)
"""The modules of OpenAI's client and of those that its generator made, with the same classes."""
CLIENT_OF_GOOGLE = "google.genai._api_client"

_LITELLM = ("litellm.llms.custom_httpx.http_handler", "litellm.llms.custom_httpx.aiohttp_handler")
HTTPX = ("httpx", "httpx2")
AIOHTTP = "aiohttp"
_MODULES = (*CLIENTS_OF_OPENAI, CLIENT_OF_GOOGLE, *_LITELLM, *HTTPX, AIOHTTP)

_MARK = "_refuses_redirects"
_is_asking: ContextVar[bool] = ContextVar("is_asking_a_model", default=False)
_lock = threading.Lock()
_actions: dict[str, list[Callable[[], None]]] = {}


def when_imported(modules: Collection[str], act: Callable[[], None]) -> None:
    """Call `act` after each later import of one of `modules`; a second call with the same function changes nothing."""
    with _lock:
        for name in modules:
            actions = _actions.setdefault(name, [])
            if act not in actions:
                actions.append(act)
        if _finder not in sys.meta_path:
            sys.meta_path.insert(0, _finder)


class _Finder(MetaPathFinder):
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
    """Let `loader` act after it has run a module; one that permits no such change is left as it is."""
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
    """Wrap the clients and the HTTP libraries, those that are imported later as well."""
    when_imported(_MODULES, _refuse)
    _refuse()


def _refuse() -> None:
    for owner, name in _senders():
        wrap_once(owner, name, _asking, _MARK)
    for owner, name, option in _libraries():
        wrap_once(owner, name, partial(_refusing, option=option), _MARK)


def _senders() -> Iterator[tuple[Any, str]]:
    """The functions that send a request to a model: their class and their name."""
    for module in CLIENTS_OF_OPENAI:
        yield from parts_of(module, ("AsyncAPIClient", "SyncAPIClient"), ("request",))
    yield from parts_of(CLIENT_OF_GOOGLE, ("BaseApiClient",), ("_async_request", "_request"))
    by_httpx, by_aiohttp = _LITELLM
    yield from parts_of(by_httpx, ("AsyncHTTPHandler", "HTTPHandler"), ("post", "put", "patch"))
    yield from parts_of(by_aiohttp, ("BaseLLMAIOHTTPHandler",), ("_make_common_async_call", "_make_common_sync_call"))


def _libraries() -> Iterator[tuple[Any, str, str]]:
    """The functions of HTTP libraries that follow redirects, and the option that says whether they do."""
    for library in HTTPX:
        for owner, name in parts_of(library, ("AsyncClient", "Client"), ("send",)):
            yield owner, name, "follow_redirects"
    for owner, name in parts_of(AIOHTTP, ("ClientSession",), ("_request",)):
        yield owner, name, "allow_redirects"


def is_asking_model() -> bool:
    """Whether a client sends a request to a model here."""
    return _is_asking.get()


def parts_of(module: str, classes: tuple[str, ...], names: tuple[str, ...]) -> Iterator[tuple[Any, str]]:
    """The classes of a module that is imported, each with the names of its functions."""
    found = sys.modules.get(module)
    owners = (getattr(found, name, None) for name in classes)
    yield from ((owner, name) for owner in owners if owner is not None for name in names)


def wrap_once(owner: Any, name: str, wrapper: Callable[[Any], Any], mark: str) -> None:
    """Put the wrapper around a function of a class; one that has the mark has it already."""
    found = vars(owner).get(name)
    if found is None or hasattr(found, mark):
        return
    with _lock:
        found = vars(owner)[name]
        if not hasattr(found, mark):
            wrapped = wrapper(found)
            setattr(wrapped, mark, True)
            setattr(owner, name, wrapped)


def _asking(send: Callable[..., Any]) -> Callable[..., Any]:
    """`send`, known to ask a model as long as it runs."""

    @wraps(send)
    async def ask_soon(*args: Any, **options: Any) -> Any:
        token = _is_asking.set(True)
        try:
            return await send(*args, **options)
        finally:
            _is_asking.reset(token)

    @wraps(send)
    def ask_now(*args: Any, **options: Any) -> Any:
        token = _is_asking.set(True)
        try:
            return send(*args, **options)
        finally:
            _is_asking.reset(token)

    return ask_soon if inspect.iscoroutinefunction(send) else ask_now


def _refusing(send: Callable[..., Any], option: str) -> Callable[..., Any]:
    """`send` of a library, which raises ModelError for a redirect while a model is asked."""

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
    """Why the answer is not taken; None for an answer that is no redirect."""
    status: int = response.status_code if hasattr(response, "status_code") else response.status
    location = response.headers.get("location", "")
    if not (300 <= status < 400 and location):
        return None
    asked = response.url.host if hasattr(response.url, "host") else response.url
    return ModelError(f"{asked} {redirect_refusal(status, location)}", kind="redirect", is_fatal=True)
