"""The desk on a real socket, served as `evaldesk ui` does."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import uvicorn

from evaldesk.web.http import BoundedHttp
from evaldesk.web.server import server_config


@dataclass
class Served:
    """A desk, and where it answers."""

    fort: Any
    port: int

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(self, data: bytes, *, timeout_s: float = 5.0) -> bytes:
        """All that comes back for these bytes until the other side closes, or is silent for `timeout_s`."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s) as connection:
            connection.sendall(data)
            return read_all(connection)

    def head(self, method: str = "GET", target: str = "/", *lines: str) -> bytes:
        """The head of a request by somebody who holds the token."""
        token = f"Cookie: evaldesk-{self.port}={self.fort.token}"
        given = (f"{method} {target} HTTP/1.1", f"Host: 127.0.0.1:{self.port}", token, "Connection: close", *lines)
        return ("\r\n".join(given) + "\r\n\r\n").encode("latin-1")


def read_all(connection: socket.socket) -> bytes:
    """What comes until the end of the connection or until its timeout."""
    data = b""
    try:
        while chunk := connection.recv(65536):
            data += chunk
    except (TimeoutError, ConnectionResetError):
        pass
    return data


@pytest.fixture
def serve(tmp_path: Path, build_fort: Callable[..., Any]) -> Iterator[Callable[..., Served]]:
    """Serves a desk in a thread of this process; `head_s` is how long the head of a request may take."""
    stops: list[Callable[[], None]] = []

    def start(*texts: str, head_s: float | None = None) -> Served:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        fort = build_fort(tmp_path / "served", *([texts] if texts else []), port=port)
        config = server_config(cast("Any", fort.client.app))
        if head_s is not None:
            config.http = type("HastyHttp", (BoundedHttp,), {"head_s": head_s})
        server = uvicorn.Server(config)
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
        thread.start()

        def stop() -> None:
            server.should_exit = True
            thread.join(10)
            listener.close()

        stops.append(stop)
        return Served(fort, port)

    yield start
    for stop in stops:
        stop()


@pytest.fixture
def served(serve: Callable[..., Served]) -> Served:
    return serve()
