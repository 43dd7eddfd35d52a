"""Servers on loopback for a test: any that is given, and one that gives prepared answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


class Answers:
    """A server that gives prepared answers (status, content type, body, other headers) and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, str, bytes, dict[str, str]]] = []
        self.asked: list[tuple[str, Any, dict[str, str]]] = []

    def gives(
        self,
        *objects: object,
        status: int = 200,
        kind: str = "application/json",
        raw: bytes = b"",
        headers: dict[str, str] | None = None,
    ) -> None:
        lines = [json.dumps(item).encode() for item in objects]
        if kind == "text/event-stream":
            lines = [b"data: " + line + b"\n" for line in lines]
        self.answers.append((status, kind, raw or b"\n".join(lines), headers or {}))


@contextmanager
def answering() -> Iterator[tuple[str, Answers]]:
    """The address of a server, and what it answers."""
    kept = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: Any) -> None:
            kept.asked.append((self.path, body, {name.lower(): value for name, value in self.headers.items()}))
            status, kind, data, headers = kept.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address, kept
