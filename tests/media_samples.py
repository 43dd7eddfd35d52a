"""A picture, a sound and a file for tests: as small as they can be, and as large as is kept apart."""

from __future__ import annotations

import struct
import zlib
from functools import cache

from evaldesk.model.media import Media, media_of


@cache
def png(width: int = 2, seed: int = 0) -> bytes:
    """A square PNG of gray pixels that do not compress."""
    rows = b"".join(b"\x00" + bytes((x * y * 31 + seed + x * x) % 256 for x in range(width)) for y in range(width))
    head = struct.pack(">IIBBBBB", width, width, 8, 0, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows, 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts)


@cache
def picture(name: str = "cat.png", width: int = 60, at: int = 0, seed: int = 0) -> Media:
    """An image, of 60 x 60 pixels unless told: some 3.7 kB."""
    return media_of("image/png", png(width, seed), name=name, at=at)


def sound() -> Media:
    """A sound without a sample."""
    return media_of("audio/wav", b"RIFF\x24\x00\x00\x00WAVEfmt " + b"\x00" * 28, name="hm.wav")


def report() -> Media:
    """A file."""
    return media_of("application/pdf", b"%PDF-1.4 nothing", name="report.pdf")


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
