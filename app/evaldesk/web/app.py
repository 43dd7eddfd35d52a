"""The application: the table of pages, the layers around them, and the pages of errors."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Lock

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from evaldesk import paths
from evaldesk.desk.desk import Desk
from evaldesk.errors import ConflictError, DiskError, EvaldeskError, NotFoundError, TrustError
from evaldesk.gc_control import gc_paused
from evaldesk.registry import import_target
from evaldesk.web.guard import Guard, GuardSettings
from evaldesk.web.render import environment, page

log = logging.getLogger("evaldesk.web")
FIRST_VISIT_S = 0.5
_adding = Lock()

ROUTES: tuple[str, ...] = (
    "evaldesk.web.routes.home:routes",
    "evaldesk.web.routes.trust:routes",
    "evaldesk.web.routes.agents:routes",
    "evaldesk.web.routes.recording:routes",
    "evaldesk.web.routes.turns:routes",
    "evaldesk.web.routes.sessions:routes",
    "evaldesk.web.routes.watching:routes",
    "evaldesk.web.routes.cases:routes",
    "evaldesk.web.routes.evalsets:routes",
    "evaldesk.web.routes.imports:routes",
    "evaldesk.web.routes.trials:routes",
    "evaldesk.web.routes.labels:routes",
    "evaldesk.web.routes.runs:routes",
    "evaldesk.web.routes.rescoring:routes",
    "evaldesk.web.routes.comparison:routes",
)


def create_app(desk: Desk, guard: GuardSettings) -> Guard:
    """The application for `desk`, inside the guard: not even the error page of a defect escapes it."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        await desk.start()
        opening = asyncio.create_task(_open_rest(app, desk))
        try:
            yield
        finally:
            opening.cancel()
            await desk.close()

    app = Starlette(
        routes=[*_routes(ROUTES[:1]), Mount("/static", app=_static())],
        middleware=[Middleware(_WithAllPages)],
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


def add_pages(app: Starlette) -> None:
    """Import the pages but the first, and serve them from now on; any thread may ask, and ask again."""
    with _adding, gc_paused():
        if not app.state.has_all_pages:
            app.router.routes.extend(_routes(ROUTES[1:]))
            app.state.has_all_pages = True


async def _open_rest(app: Starlette, desk: Desk) -> None:
    """The start-up work that no first page needs: it begins after the first answer, or soon without one."""
    with suppress(TimeoutError):
        await asyncio.wait_for(app.state.has_answered.wait(), FIRST_VISIT_S)
    await asyncio.to_thread(add_pages, app)
    await desk.go_on()


def _routes(targets: Sequence[str]) -> list[BaseRoute]:
    found: list[BaseRoute] = []
    for target in targets:
        routes = import_target(target)
        if isinstance(routes, Sequence):
            found.extend(routes)
    return found


def _static() -> ASGIApp:
    return GZipMiddleware(_Static(directory=paths.shipped("static")), minimum_size=1024)


class _Static(StaticFiles):
    """Files that never change under one address: the address carries their hash."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        is_versioned = b"v=" in scope["query_string"]
        response.headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_versioned else "no-cache"
        return response


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
        404: ("Nothing is at this address", "It may have been deleted or renamed. The lists above show what is there."),
        405: ("This address does not take that request", "Go back and use the form again."),
        413: ("This is too large", "At most 10 MiB can be sent at once."),
        503: ("Too much at once", "Close a few windows of Evaldesk and try again in a moment."),
    }
    title, text = sentences.get(status, ("This request could not be read", "Go back and try again."))
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return _error_page(request, status, title, text, headers)


def _evaldesk_error(request: Request, error: Exception) -> Response:
    if isinstance(error, NotFoundError):
        text = str(error)
        return _error_page(request, 404, "Nothing is at this address", text[:1].upper() + text[1:])
    if isinstance(error, ConflictError):
        return _error_page(request, 409, "It changed meanwhile", str(error))
    if isinstance(error, DiskError):
        return _error_page(request, 507, "The disk did not take this", str(error))
    if isinstance(error, TrustError):
        return _error_page(request, 403, "This folder is not trusted", str(error))
    return _error_page(request, 422, "This cannot be done", str(error))


def _unexpected_error(request: Request, error: Exception) -> Response:
    """Only an id goes to the browser; the trace goes to the log."""
    error_id = secrets.token_hex(4)
    log.error("error %s at %s %r", error_id, request.method, request.url.path[:200], exc_info=error)
    text = f"This is a defect of Evaldesk. Its log has the trace under {error_id}."
    return _error_page(request, 500, "Something broke here", text)


def _error_page(
    request: Request, status: int, title: str, text: str, headers: dict[str, str] | None = None
) -> Response:
    return page(request, "error.html", status=status, headers=headers, title=title, text=text)
