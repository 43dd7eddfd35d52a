"""A visitor of a desk in the test's own process, who crosses to the loop of the application once for each request.

Starlette's own client crosses several times for a request, and starts a loop for each one where it is not entered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import unquote

from httpx2 import BaseTransport, ByteStream, Client, Request, Response
from starlette.types import ASGIApp, Message

T = TypeVar("T")
PATIENCE_S = 300.0


class DeskClient(Client):
    """Asks `app`; while it is entered, the application has started, and what it does goes on between two requests."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        base_url: str,
        headers: Mapping[str, str],
        follow_redirects: bool = True,
        raise_server_exceptions: bool = True,
    ) -> None:
        self.app = app
        self._application = _Application(app, raise_server_exceptions)
        super().__init__(
            base_url=base_url, headers=headers, follow_redirects=follow_redirects, transport=self._application
        )

    def __enter__(self) -> Self:
        self._application.start()
        return super().__enter__()

    def __exit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        super().__exit__(exc_type, exc_value, traceback)
        self._application.stop()

    def within(self, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any) -> T:
        """What an async function gives in the loop of the application."""
        return self._application.run(function(*arguments))


class _Application(BaseTransport):
    def __init__(self, app: ASGIApp, raises: bool) -> None:
        self._app, self._raises = app, raises
        self._loop: asyncio.AbstractEventLoop | None = None
        self._state: dict[str, Any] = {}

    def start(self) -> None:
        """Start it in a loop of its own."""
        has_started: Future[asyncio.AbstractEventLoop] = Future()
        thread = ThreadPoolExecutor(1)
        self._life = thread.submit(asyncio.run, self._live(has_started))
        thread.shutdown(wait=False)
        self._loop = has_started.result()

    def stop(self) -> None:
        """Let it end, and its loop. Raises TimeoutError where it does not, once its tasks are cancelled."""
        assert self._loop
        loop, self._loop = self._loop, None
        loop.call_soon_threadsafe(self._is_left.set)
        try:
            self._life.result(PATIENCE_S)
        except TimeoutError:
            for task in asyncio.all_tasks(loop):
                loop.call_soon_threadsafe(task.cancel)
            raise

    def run(self, called: Coroutine[Any, Any, T]) -> T:
        """What a coroutine gives in the loop of the application; before this has started, in one of its own."""
        if not self._loop:
            return asyncio.run(called)
        future = asyncio.run_coroutine_threadsafe(called, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()  # where a time limit broke off the wait

    def handle_request(self, request: Request) -> Response:
        """The whole answer to a request."""
        return self.run(self._answer(request, request.read()))

    async def _live(self, has_started: Future[asyncio.AbstractEventLoop]) -> None:
        self._is_left = asyncio.Event()
        is_asked = False

        async def receive() -> Message:
            nonlocal is_asked
            if is_asked:
                await self._is_left.wait()
            said = "shutdown" if is_asked else "startup"
            is_asked = True
            return {"type": f"lifespan.{said}"}

        async def send(message: Message) -> None:
            assert message["type"] in ("lifespan.startup.complete", "lifespan.shutdown.complete"), message
            if message["type"] == "lifespan.startup.complete":
                has_started.set_result(asyncio.get_running_loop())

        try:
            await self._app({"type": "lifespan", "state": self._state}, receive, send)
        except BaseException as error:
            if has_started.done():
                raise
            has_started.set_exception(error)

    async def _answer(self, request: Request, body: bytes) -> Response:
        start: Message | None = None
        parts: list[bytes] = []
        is_asked, is_answered = False, asyncio.Event()

        async def receive() -> Message:
            nonlocal is_asked
            if is_asked:
                await is_answered.wait()
                return {"type": "http.disconnect"}
            is_asked = True
            return {"type": "http.request", "body": body}

        async def send(message: Message) -> None:
            nonlocal start
            assert not is_answered.is_set(), message
            if message["type"] == "http.response.start":
                assert start is None, message
                start = message
            elif message["type"] == "http.response.body":
                assert start, message
                parts.append(bytes(message.get("body", b"")))
                if not message.get("more_body"):
                    is_answered.set()

        try:
            await self._app(self._scope(request), receive, send)
        except Exception:
            if self._raises or start is None:
                raise
        assert start, "no answer"
        content = b"" if request.method == "HEAD" else b"".join(parts)
        headers = [(name.decode(), value.decode()) for name, value in start.get("headers", ())]
        return Response(start["status"], headers=headers, stream=ByteStream(content))

    def _scope(self, request: Request) -> dict[str, Any]:
        url = request.url
        return {
            "type": "http",
            "http_version": "1.1",
            "method": request.method,
            "path": unquote(url.path),
            "raw_path": url.raw_path.partition(b"?")[0],
            "root_path": "",
            "scheme": url.scheme,
            "query_string": url.query,
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "client": ("testclient", 50000),
            "server": (url.host, url.port or 80),
            "extensions": {},
            "state": dict(self._state),
        }
