"""A worker's end of the pipes: frames of the parent in, batches of frames out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import BinaryIO

from evaldesk.engine.frames import FromWorker, Lines
from evaldesk.secrets import known_values
from evaldesk.wire import json_scrubber, to_json


class Channel:
    """Writes frames from any thread; all that wait are written in one go."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport) -> None:
        self._loop = loop
        self._transport = transport
        self._lock = Lock()
        self._waiting: list[bytes] = []

    def send(self, frame: FromWorker) -> None:
        """Send a frame."""
        self.send_raw(to_json(frame))

    def send_raw(self, frame: bytes) -> None:
        """Send a frame that is JSON already, without the secrets of this process."""
        frame = _scrubbed(frame)
        with self._lock:
            self._waiting.append(frame)
            is_first = len(self._waiting) == 1
        if is_first:
            self._loop.call_soon_threadsafe(self._flush)

    def _flush(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        self._transport.write(b"\n".join((*waiting, b"")))


def _scrubbed(frame: bytes) -> bytes:
    """What agents read into the environment themselves, from a `.env` file for one, is known in this process only."""
    return _scrubber(tuple(known_values(os.environ).items()))(frame)


@lru_cache(maxsize=8)
def _scrubber(known: tuple[tuple[str, str], ...]) -> Callable[[bytes], bytes]:
    return json_scrubber({name: value for value, name in known})


class _Reader(asyncio.Protocol):
    def __init__(self, receive: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        self._lines = Lines()
        self._receive = receive
        self._on_end = on_end

    def data_received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._receive(line)

    def eof_received(self) -> None:
        self._on_end()

    def connection_lost(self, error: Exception | None) -> None:
        self._on_end()


async def open_channel(pipe: BinaryIO) -> Channel:
    """The channel that writes to `pipe`."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, pipe)
    return Channel(loop, transport)


async def read_frames(pipe: BinaryIO, receive: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
    """Give every line of `pipe` to `receive` from now on, and call `on_end` when the other side is gone."""
    await asyncio.get_running_loop().connect_read_pipe(lambda: _Reader(receive, on_end), pipe)
