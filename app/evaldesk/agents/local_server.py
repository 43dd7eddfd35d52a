"""Servers of this process on the loopback address, which agents find by variables of their environment."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class LocalServer:
    """One server for the process, which starts when its address is asked for first."""

    def __init__(self, name: str, handler: type[BaseHTTPRequestHandler]) -> None:
        self._name, self._handler = name, handler
        # Trial threads that ask at once must get one server.
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT`."""
        with self._lock:
            if self._server is None:
                self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
                self._server.daemon_threads = True
                threading.Thread(target=self._server.serve_forever, name=self._name, daemon=True).start()
            return f"http://127.0.0.1:{self._server.server_address[1]}"


class LocalHandler(BaseHTTPRequestHandler):
    """Answers the requests of an agent, which may be gone before that."""

    def log_message(self, *_: object) -> None:
        """Say nothing: the turn's events say it all."""

    def answer(self, status: int, data: bytes, kind: str = "application/json") -> None:
        """Send the whole answer."""
        with suppress(OSError):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


def no_proxy_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables by which clients reach the loopback address past a proxy, beside all that they had past it."""
    names = ("no_proxy", "NO_PROXY")
    return {name: ",".join(filter(None, (environment.get(name), "127.0.0.1"))) for name in names}
