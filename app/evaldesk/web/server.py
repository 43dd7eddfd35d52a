"""The server process: hold the workspace, bind, say where, serve, and leave nothing behind."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import cast

import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from evaldesk.desk.desk import Desk
from evaldesk.desk.serving import hold_desk
from evaldesk.desk.trust.trust import Trust
from evaldesk.errors import WorkspaceError
from evaldesk.gc_control import freeze, gc_paused
from evaldesk.settings import Settings
from evaldesk.web.app import create_app
from evaldesk.web.guard import guard_settings
from evaldesk.web.live import closing_of

GRACE_S = 3
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the last when its terminal is closed
EXIT_INTERRUPTED = 130
ADDRESS_NAME = "desk.url"
_OF_PORTS = (errno.EADDRINUSE, errno.EACCES)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen, which names to answer to, the token (random when None), and the page to begin with."""

    host: str
    port: int
    names: tuple[str, ...]
    token: str | None = None
    page: str = ""


def serve(settings: Settings, address: Address, *, is_person_there: bool, trust: Trust | None = None) -> None:
    """Serve the desk until it is told to stop. Raises WorkspaceError when the workspace or the port is taken."""
    token = address.token or secrets.token_urlsafe(24)
    with hold_desk(settings) as hold, _bound(address) as listener:
        port = listener.getsockname()[1]
        home = f"http://{_shown(address.host)}:{port}/"
        hold.update(home)
        with gc_paused():
            app = create_app(Desk.open(settings, trust), guard_settings(token, port, address.names))
            freeze()
        closing = closing_of(cast("Starlette", app.app))
        browser_folder = settings.state_folder if is_person_there else None
        with _written_down(settings.state_folder / ADDRESS_NAME, f"{home}?token={token}"):
            _Server(server_config(app), f"{home}{address.page}?token={token}", browser_folder, closing).run([listener])


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
    """Says where it is once it answers; being told to stop is no failure, so it ends with exit code 0."""

    def __init__(self, config: uvicorn.Config, url: str, browser_folder: Path | None, closing: asyncio.Event) -> None:
        super().__init__(config)
        self._url = url
        self._browser_folder = browser_folder
        self._closing = closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        heard = [number for number in ENDS if signal.getsignal(number) is not signal.SIG_IGN]  # as nohup has it
        before = {number: signal.signal(number, self.handle_exit) for number in heard}
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
        sys.stdout.write(f"Evaldesk ready at {self._url}\n")
        sys.stdout.flush()
        if self._browser_folder:
            open_in_browser(self._url, self._browser_folder)


def _bound(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with ExitStack() as undo:
        try:
            listener = undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address.host, address.port))
        except OSError as error:
            place = f"{_shown(address.host)}:{address.port}"
            advice = "choose another with --port, or --port 0" if error.errno in _OF_PORTS else "choose another --host"
            raise WorkspaceError(f"{place} cannot be used: {error.strerror}; {advice}") from error
        undo.pop_all()
    return listener


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def open_in_browser(url: str, folder: Path) -> None:
    """Through a file that only this person can read: a command line would show the token to everyone."""
    import webbrowser

    page = folder / "open.html"
    _write_privately(page, f'<!doctype html><meta http-equiv="refresh" content="0;url={url}"><title>Evaldesk</title>\n')
    webbrowser.open(page.as_uri())


@contextmanager
def _written_down(path: Path, url: str) -> Iterator[None]:
    """The address with its token while the desk is open, for `evaldesk open` and this person alone."""
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
