"""The one way out of a container without a network: to the models of the providers, and nowhere else.

The driver answers on a socket in a folder that is mounted into the container, and forwards calls of models to the
address that its own environment has for their provider. Keys stay outside: a container gets a word in their place.
Inside, `carry` lets clients find that socket at an address of the loopback. (decision 145)
"""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import socketserver
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from evaldesk.agents.remote.providers import HOP_BY_HOP, MAX_BODY, PIECE, PROVIDERS, TIMEOUT_S, open_answer
from evaldesk.llm.apis import api_of
from evaldesk.secrets import KEYS

SOCKET = "models"
KEY = "kept-by-evaldesk"
"""Stands in a container where a key would."""
_ASKED = ("/embeddings", ":countTokens", "/count_tokens", ":embedContent", ":batchEmbedContents")
"""Ends of other paths at which models are asked; files and batches of a provider stay shut."""


def is_open(method: str, path: str) -> bool:
    """Whether a request asks a model, or for the names of models."""
    path = path.partition("?")[0]
    if method == "GET":
        return "/models" in path
    return api_of(path) is not None or path.endswith(_ASKED)


def variables(environment: Mapping[str, str], own: tuple[str, ...]) -> dict[str, str]:
    """A word for each key that `environment` has and the container does not get itself."""
    names = (name for provider in PROVIDERS for name in KEYS[provider])
    return {name: KEY for name in names if environment.get(name) and name not in own}


class Door(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """The way out for the containers of one environment."""

    daemon_threads = True

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder = tempfile.mkdtemp(prefix="evaldesk-models-")
        self.environment = environment
        super().__init__(os.path.join(self.folder, SOCKET), _Handler)
        threading.Thread(target=self.serve_forever, name="evaldesk-models", daemon=True).start()
        atexit.register(self.close)

    def close(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)


_doors: dict[frozenset[tuple[str, str]], Door] = {}
# Containers with one environment share a door: decision 145.
_lock = threading.Lock()


def door_for(environment: Mapping[str, str]) -> Door:
    """The door to the models of this environment."""
    names = [
        *(each for known_provider in PROVIDERS.values() for each in known_provider.variables),
        *(name for provider in PROVIDERS for name in KEYS[provider]),
    ]
    door_environment = {name: environment[name] for name in names if environment.get(name)}
    key = frozenset(door_environment.items())
    with _lock:
        if key not in _doors:
            _doors[key] = Door(door_environment)
        return _doors[key]


class _Handler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S
    server: Door

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def address_string(self) -> str:
        """A socket has none."""
        return ""

    def _forward(self) -> None:
        provider, slash, path = self.path.removeprefix("/").partition("/")
        model_provider = PROVIDERS.get(provider)
        if model_provider is None or ".." in path or not path.isascii() or not is_open(self.command, slash + path):
            self._answer(404, b"a container without a network can ask models, and nothing else")
            return
        try:
            length = int(self.headers.get("content-length") or 0)
        except ValueError:
            length = -1
        if not 0 <= length <= MAX_BODY:
            self._answer(400, f"a request has at most {MAX_BODY // 2**20} MiB".encode())
            return
        data = self.rfile.read(length)
        address = self._with_key(model_provider.base(self.server.environment) + slash + path, provider)
        headers = {
            name: self._with_key(value, provider)
            for name, value in self.headers.items()
            if name.lower() not in HOP_BY_HOP
        }
        try:
            with open_answer(self.command, address, data, headers) as answer:
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in HOP_BY_HOP:
                        self.send_header(name, value)
                self.end_headers()
                while piece := answer.read1(PIECE):
                    self.wfile.write(piece)
                    self.wfile.flush()
        except (OSError, HTTPException) as error:
            self._answer(502, f"the model cannot be reached: {type(error).__name__}".encode())

    do_GET = do_POST = _forward  # noqa: N815

    def _with_key(self, text: str, provider: str) -> str:
        """The text with the key of the provider where the word for it stands."""
        own = next((self.server.environment[k] for k in KEYS[provider] if k in self.server.environment), "")
        return text.replace(KEY, own) if own else text

    def _answer(self, status: int, data: bytes) -> None:
        with suppress(OSError):
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)


def carry(folder: str) -> dict[str, str]:
    """Carry requests to an address of the loopback to the door in `folder`; returns the variables for the address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_listen, args=(listener, folder), name="evaldesk-models", daemon=True).start()
    here = f"http://127.0.0.1:{listener.getsockname()[1]}"
    return {each: f"{here}/{name}" for name, provider in PROVIDERS.items() for each in provider.variables}


def _listen(listener: socket.socket, folder: str) -> None:
    while True:
        caller, _ = listener.accept()
        door = socket.socket(socket.AF_UNIX)
        try:
            door.connect(str(Path(folder, SOCKET)))
        except OSError:
            caller.close()
            door.close()
            continue
        for source, target in ((caller, door), (door, caller)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(PIECE):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
