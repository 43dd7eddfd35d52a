"""A long value in blocks: its JSON in pieces that are packed one by one, so that some turns are read without the rest.

Four bytes with the length of the index and four with that of the head, both big-endian; the index, the head, and the
blocks, each one frame of zstd. The blocks, unpacked and joined, are the JSON of the value, byte for byte; the head says
of the whole value what a page of some turns shows. (docs/decisions/089-long-trials.md)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, TypeVar

import msgspec
import zstandard

from evaldesk.errors import DamagedDatabaseError, WorkspaceError
from evaldesk.wire import from_json, to_json

T = TypeVar("T")

BLOCKS = 2
"""The codec of such a value."""
BEGINNING = 64 * 1024
"""Bytes that a page reads first: they hold index and head of all but the largest values."""
MAX_UNPACKED = 256 * 1024 * 1024
"""More than any frame of a worker and any file that is imported."""
# Bytes of index and head, in front of them (decision 089).
_LENGTHS = struct.Struct(">II")


@dataclass(frozen=True, slots=True)
class Block:
    """Where a piece of the JSON is: at `start` items of the list `name`, of the turns from `first` up to `end`.

    The text between lists has no name.
    """

    name: str
    first: int
    end: int
    start: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A block before it is packed. Items of a list are separated by commas, and all but its first block begin so."""

    data: bytes
    name: str = ""
    first: int = 0
    end: int = 0


def pack_blocks(pieces: Sequence[Piece], head: bytes, compressor: zstandard.ZstdCompressor) -> bytes:
    """The pieces, which joined are a JSON text, with a head of their own."""
    frames = [compressor.compress(piece.data) for piece in pieces]
    rows = [(piece.name, piece.first, piece.end, len(frame)) for piece, frame in zip(pieces, frames, strict=True)]
    index = compressor.compress(to_json(rows))
    packed_head = compressor.compress(head)
    return b"".join([_LENGTHS.pack(len(index), len(packed_head)), index, packed_head, *frames])


def whole_json(data: bytes) -> bytes:
    """The JSON of the whole value. Raises DamagedDatabaseError and WorkspaceError as `Blocks`."""
    blocks = Blocks(lambda start, n: data[start : start + n])
    return b"".join(blocks.texts(blocks.index))


class Blocks:
    """A stored value of which only the wanted blocks are read.

    Raises DamagedDatabaseError for bytes that were never packed so, and WorkspaceError for a packed bomb.
    """

    def __init__(self, read_bytes: Callable[[int, int], bytes]) -> None:
        """`read_bytes` gives so many bytes of the value from a place on."""
        self._read = read_bytes
        self._beginning = read_bytes(0, BEGINNING)
        self._n_unpacked = 0
        self._items: dict[tuple[Block, object], Any] = {}
        if len(self._beginning) < _LENGTHS.size:
            raise _damage_error("it is too short")
        self._n_index, self._n_head = _LENGTHS.unpack_from(self._beginning)

    @cached_property
    def index(self) -> tuple[Block, ...]:
        """All blocks in order."""
        text = self._decompress(self._bytes(_LENGTHS.size, self._n_index))
        rows = _decode(text, tuple[tuple[str, int, int, int], ...])
        starts = accumulate((n for *_, n in rows), initial=_LENGTHS.size + self._n_index + self._n_head)
        return tuple(Block(*row[:3], start, row[3]) for row, start in zip(rows, starts, strict=False))

    def head(self, kind: type[T]) -> T:
        """The head."""
        return _decode(self._decompress(self._bytes(_LENGTHS.size + self._n_index, self._n_head)), kind)

    def items(self, name: str, kind: type[T], first: int = 0, end: int | None = None) -> list[tuple[Block, T]]:
        """The blocks of the list `name` that have something of the turns from `first` up to `end`, each as `kind`.

        Each is read once, since some parts of a page ask for the same turns.
        """
        own = (block for block in self.index if block.name == name)
        blocks = [block for block in own if block.end > first and (end is None or block.first < end)]
        unread_blocks = [block for block in blocks if (block, kind) not in self._items]
        for block, text in zip(unread_blocks, self.texts(unread_blocks), strict=True):
            self._items[block, kind] = _decode(b"[" + text.removeprefix(b",") + b"]", kind)
        return [(block, self._items[block, kind]) for block in blocks]

    def each(self, name: str, kind: type[T]) -> Iterator[T]:
        """The blocks of the list `name` one after the other, each as `kind`."""
        for text in self.texts([block for block in self.index if block.name == name]):
            yield _decode(b"[" + text.removeprefix(b",") + b"]", kind)

    def texts(self, blocks: Sequence[Block]) -> Iterator[bytes]:
        """The unpacked bytes of some blocks; those that follow each other are read at once."""
        row: list[Block] = []
        for block in blocks:
            if row and row[-1].start + row[-1].n_bytes != block.start:
                yield from self._row(row)
                row = []
            row.append(block)
        yield from self._row(row)

    def _row(self, row: Sequence[Block]) -> Iterator[bytes]:
        if not row:
            return
        start = row[0].start
        data = self._bytes(start, row[-1].start + row[-1].n_bytes - start)
        for block in row:
            yield self._decompress(data[block.start - start :][: block.n_bytes])

    def _bytes(self, start: int, n: int) -> bytes:
        if start + n <= len(self._beginning):
            return self._beginning[start : start + n]
        return self._read(start, n)

    def _decompress(self, frame: bytes) -> bytes:
        try:
            self._n_unpacked += max(zstandard.frame_content_size(frame), 0)
            if self._n_unpacked > MAX_UNPACKED:
                raise WorkspaceError(
                    f"the database holds a value that unpacks to more than {MAX_UNPACKED // 2**20} MiB"
                )
            return zstandard.ZstdDecompressor().decompress(frame)
        except zstandard.ZstdError as error:
            raise _damage_error(str(error)) from error


def _decode(text: bytes, kind: type[T]) -> T:
    try:
        return from_json(text, kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        raise _damage_error(str(error)) from error


def _damage_error(why: str) -> DamagedDatabaseError:
    return DamagedDatabaseError.at("the database", f"a value in blocks: {why}")
