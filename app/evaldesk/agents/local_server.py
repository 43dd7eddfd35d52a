"""HTTP servers of this process on the loopback address; agents get their address by environment variables."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class LocalServer:
    """One server of the process; it starts at the first use of its address."""

    def __init__(self, name: str, handler: type[BaseHTTPRequestHandler]) -> None:
        self._name, self._handler = name, handler
        # Trial threads that ask at once must get one server (decision 125).
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    @property
    def address(self) -> str:
        """`http://127.0.0.1:PORT`."""
        with self._lock:
            if self._server is None:
                self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler)
                self._server.daemon_threads = True  # an open connection must not delay the exit of the process
                threading.Thread(target=self._server.serve_forever, name=self._name, daemon=True).start()
            return f"http://127.0.0.1:{self._server.server_address[1]}"


class LocalHandler(BaseHTTPRequestHandler):
    """Answers HTTP requests of an agent; a closed connection is ignored."""

    def log_message(self, *_: object) -> None:
        """Log nothing: the events of the turn are the log."""

    def answer(self, status: int, data: bytes, kind: str = "application/json") -> None:
        """Send status, headers and body."""
        with suppress(OSError):
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


def no_proxy_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """`no_proxy` variables with the loopback address added."""
    names = ("no_proxy", "NO_PROXY")
    return {name: ",".join(filter(None, (environment.get(name), "127.0.0.1"))) for name in names}
