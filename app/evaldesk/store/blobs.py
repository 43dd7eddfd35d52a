"""Values as compressed JSON: a codec number and the bytes."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TypeVar

import zstandard

from evaldesk.errors import WorkspaceError
from evaldesk.wire import from_json, to_json

T = TypeVar("T")

PLAIN = 0
ZSTD = 1

# A compressor must not be used by two threads at once, and making one costs as much as using it.
_of_thread = threading.local()


def pack(value: object) -> tuple[int, bytes]:
    """The codec and the bytes of a value of `evaldesk.model`."""
    data = to_json(value)
    packed = _compressor().compress(data)
    return (ZSTD, packed) if len(packed) < len(data) else (PLAIN, data)


def unpack(codec: int, data: bytes, kind: type[T]) -> T:
    """The value that `pack` was given. Raises WorkspaceError for a codec of a newer Evaldesk."""
    if codec not in (PLAIN, ZSTD):
        raise WorkspaceError(f"the database holds a value packed with codec {codec}; a newer Evaldesk can read it")
    return from_json(zstandard.ZstdDecompressor().decompress(data) if codec == ZSTD else data, kind)


def unpack_all(rows: Iterable[tuple[int, bytes]], kind: type[T]) -> tuple[T, ...]:
    """The values of many rows, in order."""
    return tuple(unpack(codec, data, kind) for codec, data in rows)


def _compressor() -> zstandard.ZstdCompressor:
    if not hasattr(_of_thread, "compressor"):
        _of_thread.compressor = zstandard.ZstdCompressor(level=3)
    compressor: zstandard.ZstdCompressor = _of_thread.compressor
    return compressor
