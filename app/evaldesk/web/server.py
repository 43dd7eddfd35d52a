"""The server process and its application: hold the workspace, bind, serve the pages, and leave nothing behind."""

from __future__ import annotations

import asyncio
import errno
import gc
import hashlib
import logging
import os
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import cast
from urllib.parse import quote, unquote

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from evaldesk import paths
from evaldesk.desk.desk import Desk
from evaldesk.desk.process_owner import AT_BROWSER
from evaldesk.desk.serving import hold_desk
from evaldesk.desk.trust import Trust
from evaldesk.errors import (
    TEXT_LIMIT,
    ConflictError,
    DamagedDatabaseError,
    DiskError,
    EvaldeskError,
    NotFoundError,
    TrustError,
    WorkspaceError,
)
from evaldesk.process_setup import gc_paused, prepare_numpy
from evaldesk.registry import import_target
from evaldesk.settings import MAX_NAME, PublicUrl, Settings
from evaldesk.web.guard import MCP_PATH, Guard, GuardSettings, guard_settings, mcp_key
from evaldesk.web.live import closing_of
from evaldesk.web.render import desk_of, environment, page
from evaldesk.web.visits import WithVisits
from evaldesk.wording.writer import show

GRACE_S = 3
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last when its terminal is closed
EXIT_INTERRUPTED = 130
ADDRESS_NAME = "desk.url"
ANY_PORT = 0
BACKLOG = 2048  # that of uvicorn
# Two readers at one desk have two names: decision 265.
NAME_COOKIE, YEAR_S = "evaldesk-name", 365 * 24 * 3600
_OF_PORTS = (errno.EADDRINUSE, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, which names to answer to, the token (random when None), and the page to begin with.

    The first of `ports` that is free is used; 0 is any. `public` is the address of a proxy, which browsers open.
    """

    host: str
    ports: tuple[int, ...]
    names: tuple[str, ...]
    token: str | None = None
    page: str = ""
    public: PublicUrl | None = None


def serve(settings: Settings, address: Address, *, is_person_there: bool, trust: Trust | None = None) -> None:
    """Serve the desk until it is told to stop. Raises WorkspaceError when the workspace or the port is taken."""
    token = address.token or secrets.token_urlsafe(24)
    with hold_desk(settings) as hold, _bind(address.host, address.ports) as listener:
        port = listener.getsockname()[1]
        if address.ports[0] not in (port, ANY_PORT):
            show(f"Port {address.ports[0]} is taken; this desk uses {port}.", err=True)
        listens_at = f"http://{_url_host(address.host)}:{port}/"
        home = f"{address.public}/" if address.public else listens_at
        if address.public:
            show(f"Listening at {listens_at} for the proxy of {address.public}", err=True)
        address_file = None if hold.is_read_only else settings.state_folder / ADDRESS_NAME
        with _address_file(address_file, f"{home}?token={token}"):
            # After the file: who reads this address may read that one, which a desk that was killed may have left.
            hold.update(home)
            with gc_paused():
                desk = Desk.open(settings, trust)
                app = create_app(desk, guard_settings(token, port, address.names, address.public))
                gc.freeze()
            if settings.mcp.serve and not desk.is_restricted:
                show_door(home, token)
            closing = closing_of(cast("Starlette", app.app))
            browser_folder = settings.state_folder if is_person_there and not hold.is_read_only else None
            _Server(server_config(app), f"{home}{address.page}?token={token}", browser_folder, closing).run([listener])


def show_door(home: str, token: str) -> None:
    """Print the address for coding agents of a desk with that token, and the key that they need."""
    show(f"Coding agents are served at {home}{MCP_PATH[1:]}", err=True)
    show(f"  Authorization: Bearer {mcp_key(token)}", err=True)


def server_config(app: ASGIApp) -> uvicorn.Config:
    """How uvicorn serves: no logs of requests (the first holds the token), no proxies, no websockets."""
    return uvicorn.Config(
        app,
        http=BoundedHttp,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws="none",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_S,
    )


class _Server(uvicorn.Server):
    """Prints its address once it answers. It ends with exit code 0 on a signal. (decision 114)"""

    def __init__(self, config: uvicorn.Config, url: str, browser_folder: Path | None, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._url = url
        self._browser_folder = browser_folder
        self._closing = closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        handled = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup has it
        before = {number: signal.signal(number, self.handle_exit) for number in handled}
        try:
            yield
        finally:
            # Once it was told to stop, a second Ctrl-C ends it to the last, also while the process is on its way out.
            for number, handler in before.items() if not self.should_exit else ():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            os._exit(EXIT_INTERRUPTED)  # requested twice: finished trials are stored, and workers end with their parent
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._closing.set()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.should_exit:
            return
        show(f"Evaldesk ready at {self._url}")
        if self._browser_folder:
            open_in_browser(self._url, self._browser_folder)


def _bind(host: str, ports: Sequence[int]) -> socket.socket:
    """A listener on the first port that is free. Raises WorkspaceError, about the last port, where none is."""
    port, *others = ports
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as undo:
        try:
            listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            # Until it listens, another desk that starts at the same time may bind to the same port.
            listener.listen(BACKLOG)
        except OSError as error:
            if others and error.errno in _OF_PORTS:
                return _bind(host, others)
            advice = "choose another with --port, or --port 0" if error.errno in _OF_PORTS else "choose another --host"
            raise WorkspaceError(f"{_url_host(host)}:{port} cannot be used: {error.strerror}; {advice}") from error
        undo.pop_all()
    return listener


def _url_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def open_in_browser(url: str, folder: Path) -> None:
    """Through a file that only this person can read: a command line would show the token to everyone."""
    import webbrowser

    page = folder / "open.html"
    _write_privately(page, f'<!doctype html><meta http-equiv="refresh" content="0;url={url}"><title>Evaldesk</title>\n')
    webbrowser.open(page.as_uri())


@contextmanager
def _address_file(path: Path | None, url: str) -> Iterator[None]:
    """The address with its token while the desk is open, for `evaldesk open` and this person alone."""
    if path is None:
        yield
        return
    _write_privately(path, f"{url}\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _write_privately(path: Path, text: str) -> None:
    try:
        path.unlink(missing_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise WorkspaceError(f"{path} cannot be written: {error.strerror}; name another workspace") from error


HEAD_S = 10.0
MAX_HEAD = 1024 * 1024
"""More than all cookies that Chromium or Firefox keep for one host: 180 of 4 KiB."""
HEAD_TOO_LARGE = (
    "The head of this request is too large. If a browser sent it, other programs on this machine set too many cookies: "
    "delete the cookies of this host, or open the desk under its other name, localhost or 127.0.0.1.\n"
)


class BoundedHttp(HttpToolsProtocol):
    """Closes a connection that does not bring the whole head of its next request in HEAD_S seconds.

    The clock starts with the connection, and with the first byte of every further request.
    """

    head_s = HEAD_S
    _head_timer: asyncio.TimerHandle | None = None
    _n_head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head_timer is None:
            return
        self._n_head_bytes += len(data)
        if self._n_head_bytes > MAX_HEAD and not self.transport.is_closing():
            self.send_400_response(HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        super().connection_lost(exc)

    def _begin_head(self) -> None:
        if self._head_timer is None:
            self._n_head_bytes = 0
            self._head_timer = self.loop.call_later(self.head_s, self.transport.close)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


log = logging.getLogger("evaldesk.web")
FIRST_VISIT_S = 0.5
# The first two requests may come at once; the routes are added one time.
_adding = Lock()

ROUTES: tuple[str, ...] = (
    "evaldesk.web.routes.home:routes",
    "evaldesk.web.routes.trust:routes",
    "evaldesk.web.routes.agents:routes",
    "evaldesk.web.routes.recording:routes",
    "evaldesk.web.routes.turns:routes",
    "evaldesk.web.routes.sessions:routes",
    "evaldesk.web.routes.bench:routes",
    "evaldesk.web.routes.media:routes",
    "evaldesk.web.routes.cases:routes",
    "evaldesk.web.routes.selection:routes",
    "evaldesk.web.routes.evalsets:routes",
    "evaldesk.web.routes.set_versions:routes",
    "evaldesk.web.routes.set_health:routes",
    "evaldesk.web.routes.imports:routes",
    "evaldesk.web.routes.trials:routes",
    "evaldesk.web.routes.failures:routes",
    "evaldesk.web.routes.queues:routes",
    "evaldesk.web.routes.inbox_draws:routes",
    "evaldesk.web.routes.inbox:routes",
    "evaldesk.web.routes.runs:routes",
    "evaldesk.web.routes.rescoring:routes",
    "evaldesk.web.routes.accepting:routes",
    "evaldesk.web.routes.blame:routes",
    "evaldesk.web.routes.forks:routes",
    "evaldesk.web.routes.comparison:routes",
    "evaldesk.web.routes.table:routes",
    "evaldesk.web.routes.experiments:routes",
    "evaldesk.web.routes.adding_variants:routes",
    "evaldesk.web.routes.trash:routes",
    "evaldesk.web.routes.finding:routes",
    "evaldesk.web.routes.proposals:routes",
    "evaldesk.web.routes.mcp:routes",
)


def create_app(desk: Desk, guard: GuardSettings) -> Guard:
    """The application for `desk`, inside the guard: not even the error page of a defect escapes it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await desk.start()
        opening = asyncio.create_task(_open_later_parts(app, desk))
        try:
            yield
        finally:
            opening.cancel()
            await desk.close()

    app = Starlette(
        routes=[*_routes(ROUTES[:1]), Mount("/static", app=_static())],
        middleware=[
            Middleware(_WithNames),
            Middleware(WithVisits, mark=desk.mark, clock=desk.now),
            Middleware(_WithAllPages),
            Middleware(_WithBrokenRows),
        ],
        exception_handlers={
            HTTPException: _http_error,
            EvaldeskError: _evaldesk_error,
            Exception: _unexpected_error,
        },
        lifespan=lifespan,
    )
    app.state.desk = desk
    app.state.has_all_pages = False
    app.state.has_answered = asyncio.Event()
    app.state.templates = environment()
    app.state.templates.globals["static"] = _static_addresses(paths.shipped("static"))
    return Guard(app, guard)


class _WithNames:
    """Keeps the name of the person at each browser in a cookie, because several people may read at one desk."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        cookies = HTTPConnection(scope).cookies if scope["type"] == "http" else {}
        cookie_name = unquote(cookies.get(NAME_COOKIE, ""))
        names = [cookie_name] if cookie_name.isprintable() and 0 < len(cookie_name) <= MAX_NAME else []
        AT_BROWSER.set(names)

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start" and names not in ([], [cookie_name]):
                cookie = f"{NAME_COOKIE}={quote(names[0])}; Path=/; HttpOnly; SameSite=Strict; Max-Age={YEAR_S}"
                cookie += "; Secure" if scope.get("scheme") == "https" else ""
                MutableHeaders(scope=message).append("set-cookie", cookie)
            await send(message)

        await self._app(scope, receive, sending)


class _WithAllPages:
    """Lets the first page pass at once, which is all that a browser opens with; any other waits for all of them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_first = scope["type"] != "http" or scope["path"] == "/" or scope["path"].startswith("/static/")
        if not is_first and not scope["app"].state.has_all_pages:
            await asyncio.to_thread(add_pages, scope["app"])
        await self._app(scope, receive, send)
        if scope["type"] == "http":
            scope["app"].state.has_answered.set()


class _WithBrokenRows:
    """Answers with a sentence where a row that somebody else wrote broke a page; other defects pass."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def sending(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            if has_begun or scope["type"] != "http":
                raise
            request = Request(scope, receive)
            row_error = await run_in_threadpool(desk_of(request).broken_row_error, error)
            if row_error is None:
                raise
            response = _error_page(request, 422, "A row of the database cannot be read", str(row_error))
            await response(scope, receive, send)


def add_pages(app: Starlette) -> None:
    """Import the pages but the first, and serve them from now on; any thread may ask, and ask again."""
    with _adding, gc_paused():
        if not app.state.has_all_pages:
            prepare_numpy()
            app.router.routes.extend(_routes(ROUTES[1:]))
            app.state.has_all_pages = True


async def _open_later_parts(app: Starlette, desk: Desk) -> None:
    """The start-up work that no first page needs: it begins after the first answer, or soon without one."""
    with suppress(TimeoutError):
        await asyncio.wait_for(app.state.has_answered.wait(), FIRST_VISIT_S)
    await asyncio.to_thread(add_pages, app)
    await desk.go_on()
    await asyncio.to_thread(_open_metrics)


def _open_metrics() -> None:
    """Import the metrics, so that no form waits for them."""
    from evaldesk.pages.criteria.metric_form import metric_form

    metric_form(ImmutableMultiDict(), ())


def _routes(targets: Sequence[str]) -> list[BaseRoute]:
    all_routes: list[BaseRoute] = []
    for target in targets:
        routes = import_target(target)
        if isinstance(routes, Sequence):
            all_routes.extend(routes)
    return all_routes


def _static() -> ASGIApp:
    return GZipMiddleware(_Static(directory=paths.shipped("static")), minimum_size=1024)


class _Static(StaticFiles):
    """Files that never change under one address: the address carries their hash."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        is_versioned = b"v=" in scope["query_string"]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_versioned else "no-cache"
        return response


@cache
def _static_addresses(folder: Path) -> dict[str, str]:
    """The address of each static file, with a part that changes when the file does."""
    addresses = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            name = path.relative_to(folder).as_posix()
            addresses[name] = f"/static/{name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
    return addresses


def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    sentences = {
        404: ("Nothing is at this address", "It may have been deleted or renamed. Look for it in the lists above."),
        405: ("This request does not fit its address", "Go back and use the form again."),
        413: ("This is too large", "At most 10 MiB can be sent at once."),
        503: ("Too much at once", "Close a few windows of Evaldesk and try again in a moment."),
    }
    title, text = sentences.get(status, ("This request could not be read", "Go back and try again."))
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return _error_page(request, status, title, text, headers)


async def _evaldesk_error(request: Request, error: Exception) -> Response:
    if isinstance(error, NotFoundError):
        evalsets, set_id = desk_of(request).evalsets, request.path_params.get("set_id", "")
        if set_id := await run_in_threadpool(evalsets.find_current_id, set_id):
            return RedirectResponse(_with_set(request, set_id), 307)  # with the form that was sent
        text = str(error)
        return _error_page(request, 404, "Nothing is at this address", text[:1].upper() + text[1:])
    if isinstance(error, ConflictError):
        return _error_page(request, 409, "It changed meanwhile", str(error))
    if isinstance(error, DiskError):
        return _error_page(request, 507, "This could not be written to the disk", str(error))
    if isinstance(error, DamagedDatabaseError):
        return _error_page(request, 500, "The database is damaged", str(error))
    if isinstance(error, TrustError):
        return _error_page(request, 403, "This folder is not trusted", str(error))
    return _error_page(request, 422, "This cannot be done", str(error))


def _with_set(request: Request, set_id: str) -> str:
    """The address of the request, of another eval set."""
    subpath = request.url.path.removeprefix(f"/evalsets/{request.path_params['set_id']}")
    return f"/evalsets/{set_id}{subpath}" + (f"?{request.url.query}" if request.url.query else "")


def _unexpected_error(request: Request, error: Exception) -> Response:
    """Only an id goes to the browser; the trace goes to the log."""
    error_id = secrets.token_hex(4)
    log.error("error %s at %s %r", error_id, request.method, request.url.path[:TEXT_LIMIT], exc_info=error)
    text = f"This is a defect of Evaldesk. Its log has the trace under {error_id}."
    return _error_page(request, 500, "Something broke here", text)


def _error_page(
    request: Request, status: int, title: str, text: str, headers: dict[str, str] | None = None
) -> Response:
    """A page of its own: it has no place in the part of another page that htmx asked for."""
    headers = {**(headers or {}), "HX-Reswap": "none"}
    return page(request, "error.html", status=status, headers=headers, title=title, text=text)
