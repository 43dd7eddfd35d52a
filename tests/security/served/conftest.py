"""The desk on a real socket, served as `evaldesk ui` does."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from evaldesk.web.server import BoundedHttp, server_config

PATIENCE_S = 300.0


@dataclass
class Served:
    """A desk, and where it answers."""

    fort: Any
    port: int
    http: type[BoundedHttp]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """A connection that waits, however slow this machine is, and not for ever."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)

    def send(self, data: bytes) -> bytes:
        """All that comes back for these bytes until the other side closes."""
        with self.connect() as connection:
            connection.sendall(data)
            return self.rest(connection)

    def head_of_answer(self, data: bytes) -> bytes:
        """What comes back for these bytes up to the first blank line, of an answer that may go on."""
        with self.connect() as connection:
            connection.sendall(data)
            answer = b""
            while b"\r\n\r\n" not in answer and (chunk := connection.recv(65536)):
                answer += chunk
            return answer

    def rest(self, connection: socket.socket) -> bytes:
        """What comes until the other side closes."""
        data = b""
        with suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                data += chunk
        return data

    def head(self, method: str = "GET", target: str = "/", *lines: str) -> bytes:
        """The head of a request by somebody who holds the token."""
        token = f"Cookie: evaldesk-{self.port}={self.fort.token}"
        given = (f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", token, "Connection: close", *lines)
        return ("\r\n".join(given) + "\r\n\r\n").encode("latin-1")


@pytest.fixture
def serve(tmp_path: Path, build_fort: Callable[..., Any]) -> Iterator[Callable[..., Served]]:
    """Serves a desk in a thread of this process."""
    stops: list[Callable[[], None]] = []

    def start(*texts: str) -> Served:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        fort = build_fort(tmp_path / "served", *([texts] if texts else []), port=port)
        config = server_config(cast("Any", fort.client.app))
        http = type("ServedHttp", (BoundedHttp,), {"head_s": PATIENCE_S})
        config.http = http
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join(PATIENCE_S)
            listener.close()

        stops.append(stop)
        return Served(fort, port, http)

    yield start
    for stop in stops:
        stop()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()
