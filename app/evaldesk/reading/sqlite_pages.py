"""An SQLite file read page by page, for a damaged one that SQLite refuses: a page that is broken costs its own rows.

The form is that of https://www.sqlite.org/fileformat2.html. Only bytes are looked at; nothing of the file is executed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Value: TypeAlias = int | float | str | bytes | None

PAGE_SIZE = 4096
"""What SQLite gives to a new file; used where the file does not say it any more."""

_MAGIC = b"SQLite format 3\0"
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_SIZES = frozenset(1 << power for power in range(9, 17))
_LEAVES = {"table": 13, "index": 10}
_BRANCHES = {"table": 5, "index": 2}


class _BrokenError(Exception):
    """Bytes that are no page, no cell or no record."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it is stored; `rowid` is None in an index and in a table without rowids."""

    rowid: int | None
    values: Sequence[Value]


@dataclass(frozen=True, slots=True)
class Tree:
    """A table or an index of the file, by the page at which it begins."""

    name: str
    table: str
    kind: str
    root: int


class SqlitePages:
    """The pages of a database, by its open handle, and of its write-ahead log.

    Reading raises nothing for damage: `n_broken` counts the pages, and the rows within pages, that cannot be read,
    `n_lost_log_pages` the pages of the log.
    """

    def __init__(self, handle: int, log: bytes = b"") -> None:
        self._handle = handle
        self._changed: dict[int, memoryview] = {}
        self.n_lost_log_pages = 0
        self.n_broken = 0
        self._seen: set[int] = set()
        header = os.pread(handle, 100, 0)
        size = int.from_bytes(header[16:18], "big")
        size = 65536 if size == 1 else size
        has_header = header[:16] == _MAGIC and size in _SIZES
        self._size = size if has_header else _size_in_log(log)
        self._usable = self._size - (header[20] if has_header else 0)
        self._apply(memoryview(log))

    @property
    def n_pages(self) -> int:
        """The number of pages, of the file and of the log."""
        return max(os.fstat(self._handle).st_size // self._size, max(self._changed, default=0))

    def trees(self) -> list[Tree]:
        """The tables and indexes; where the list of them is broken, every page is searched for parts of it."""
        before = self.n_broken
        trees = [tree for row in self.rows(1, "table") if (tree := _tree(row))]
        if self.n_broken > before:
            trees += [
                tree for page in self._unseen_pages() for row in self._leaf(page, "table") if (tree := _tree(row))
            ]
        return list({tree.name: tree for tree in reversed(trees)}.values())

    def rows(self, root: int, kind: str) -> Iterator[Row]:
        """The rows below a page, in their order; `kind` is `table` or `index`. Each page is read once."""
        waiting = [root]
        while waiting:
            number = waiting.pop()
            try:
                if number in self._seen:
                    raise _BrokenError
                content = self._page(number)
                self._seen.add(number)
                start = 100 if number == 1 else 0
                if content[start] == _LEAVES[kind]:
                    yield from self._cells(content, start, kind)
                elif content[start] == _BRANCHES[kind]:
                    children, rows = self._branch(content, start, kind)
                    waiting += reversed(children)
                    yield from rows
                else:
                    raise _BrokenError
            except (_BrokenError, IndexError, struct.error):
                self.n_broken += 1

    def strays(self) -> Iterator[tuple[str, Sequence[Row]]]:
        """The kind and the rows of each leaf to which no page leads any more, when all trees have been read.

        None where the free pages are not known: their rows were deleted.
        """
        free = self._free_pages()
        if free is None:
            return
        for page in self._unseen_pages():
            if page not in free:
                for kind in _LEAVES:
                    if rows := self._leaf(page, kind):
                        yield kind, rows

    def _unseen_pages(self) -> list[int]:
        return [number for number in range(2, self.n_pages + 1) if number not in self._seen]

    def _leaf(self, number: int, kind: str) -> list[Row]:
        """The rows of a page that is a leaf of this kind and whole in every row; else none."""
        before = self.n_broken
        try:
            content = self._page(number)
            rows = list(self._cells(content, 0, kind)) if content[0] == _LEAVES[kind] else []
        except (_BrokenError, IndexError, struct.error):
            rows = []
        is_whole = self.n_broken == before
        self.n_broken = before
        return rows if is_whole else []

    def _page(self, number: int) -> memoryview:
        if number < 1:
            raise _BrokenError
        content = self._changed.get(number)
        if content is None:
            content = memoryview(os.pread(self._handle, self._size, (number - 1) * self._size))
        if len(content) < self._size:
            raise _BrokenError
        return content

    def _cells(self, content: memoryview, start: int, kind: str) -> Iterator[Row]:
        for place in _places(content, start, 8):
            try:
                size, after = _varint(content, place)
                rowid, after = _varint(content, after) if kind == "table" else (None, after)
                yield Row(_to_signed(rowid), _record(self._payload(content, after, size, kind)))
            except (_BrokenError, IndexError, struct.error, UnicodeDecodeError):
                self.n_broken += 1

    def _branch(self, content: memoryview, start: int, kind: str) -> tuple[list[int], list[Row]]:
        children, rows = [], []
        for place in _places(content, start, 12):
            children.append(_number(content, place))
            if kind == "index":
                try:
                    size, first = _varint(content, place + 4)
                    rows.append(Row(None, _record(self._payload(content, first, size, kind))))
                except (_BrokenError, IndexError, struct.error, UnicodeDecodeError):
                    self.n_broken += 1
        return [*children, _number(content, start + 8)], rows

    def _payload(self, content: memoryview, place: int, size: int, kind: str) -> bytes:
        if size > self.n_pages * self._size:
            raise _BrokenError
        usable = self._usable
        most = usable - 35 if kind == "table" else (usable - 12) * 64 // 255 - 23
        if size <= most:
            return _slice(content, place, size)
        least = (usable - 12) * 32 // 255 - 23
        here = least + (size - least) % (usable - 4)
        here = here if here <= most else least
        parts = [_slice(content, place, here)]
        n_left, number, passed = size - here, _number(content, place + here), set[int]()
        while n_left:
            if number in passed:
                raise _BrokenError
            passed.add(number)
            more = self._page(number)
            parts.append(_slice(more, 4, min(n_left, usable - 4)))
            n_left, number = n_left - len(parts[-1]), _number(more, 0)
        self._seen |= passed
        return b"".join(parts)

    def _free_pages(self) -> set[int] | None:
        """The pages that are free, or None where their list is broken."""
        try:
            first = self._page(1)
            if first[:16] != _MAGIC:
                return None
            trunk, n_free = _number(first, 32), _number(first, 36)
            free: set[int] = set()
            while trunk:
                content = self._page(trunk)
                n_here = _number(content, 4)
                here = {trunk, *struct.unpack_from(f">{n_here}I", content, 8)} if n_here < self._size else set()
                if free & here or len(here) != n_here + 1:
                    return None
                free |= here
                trunk = _number(content, 0)
        except (_BrokenError, struct.error):
            return None
        return free if len(free) == n_free and not free & self._seen else None

    def _apply(self, log: memoryview) -> None:
        """Take the pages of every transaction that the log holds whole; the first broken page ends it."""
        if len(log) < 32 or _number(log, 0) not in _LOG_MAGIC:
            return
        # The last bit of the magic number is the byte order of checksums (SQLite file format 4.1): decision 079.
        order = ">" if log[3] & 1 else "<"
        if _number(log, 8) != self._size or _checksum(log[:24], order, (0, 0)) != struct.unpack_from(">2I", log, 24):
            self.n_lost_log_pages = (len(log) - 32) // (self._size + 24)
            return
        salt, sums = log[16:24], struct.unpack_from(">2I", log, 24)
        pending: dict[int, memoryview] = {}
        n_done = place = 0
        frames = [log[at : at + 24 + self._size] for at in range(32, len(log) - 23 - self._size, 24 + self._size)]
        for place, frame in enumerate(frames, 1):
            sums = _checksum(frame[24:], order, _checksum(frame[:8], order, sums))
            if frame[8:16] != salt or sums != struct.unpack_from(">2I", frame, 16):
                break
            pending[_number(frame, 0)] = frame[24:]
            if _number(frame, 4):
                self._changed |= pending
                pending, n_done = {}, place
        self.n_lost_log_pages = sum(frame[8:16] == salt for frame in frames[n_done:])


def _tree(row: Row) -> Tree | None:
    """The table or index that a row of the list names."""
    if len(row.values) != 5:
        return None
    kind, name, table, root, sql = row.values
    if kind not in ("table", "index") or not (isinstance(name, str) and isinstance(table, str)):
        return None
    if not isinstance(root, int) or root < 2:
        return None
    is_index = kind == "index" or (isinstance(sql, str) and sql.rstrip().upper().endswith("WITHOUT ROWID"))
    return Tree(name, table, "index" if is_index else "table", root)


def _size_in_log(log: bytes) -> int:
    size = int.from_bytes(log[8:12], "big")
    return size if size in _SIZES else PAGE_SIZE


def _places(content: memoryview, start: int, header: int) -> Sequence[int]:
    """Where the cells of a page begin."""
    (n_cells,) = struct.unpack_from(">H", content, start + 3)
    first = start + header + 2 * n_cells
    if first > len(content):
        raise _BrokenError
    places: tuple[int, ...] = struct.unpack_from(f">{n_cells}H", content, start + header)
    if any(not first <= place < len(content) for place in places) or len(set(places)) != n_cells:
        raise _BrokenError
    return places


def _record(payload: bytes) -> list[Value]:
    end, place = _varint(payload, 0)
    kinds = []
    while place < end:
        kind, place = _varint(payload, place)
        kinds.append(kind)
    values: list[Value] = []
    for kind in kinds:
        size = _width(kind)
        values.append(_value(kind, payload[place : place + size]))
        place += size
    if place != len(payload):
        raise _BrokenError
    return values


def _width(kind: int) -> int:
    if kind in (10, 11):
        raise _BrokenError
    return (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)[kind] if kind < 10 else (kind - 12) // 2


def _value(kind: int, data: bytes) -> Value:
    if kind == 0:
        return None
    if kind == 7:
        return float(struct.unpack(">d", data)[0])
    if kind < 7:
        return int.from_bytes(data, "big", signed=True)
    if kind < 10:
        return kind - 8
    return data.decode() if kind & 1 else data


def _varint(data: bytes | memoryview, place: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place after it."""
    number = 0
    for at in range(place, place + 8):
        number = number << 7 | data[at] & 0x7F
        if data[at] < 0x80:
            return number, at + 1
    return number << 8 | data[place + 8], place + 9


def _to_signed(number: int | None) -> int | None:
    return number if number is None or number < 1 << 63 else number - (1 << 64)


def _number(data: memoryview, place: int) -> int:
    return int(struct.unpack_from(">I", data, place)[0])


def _slice(content: memoryview, place: int, size: int) -> bytes:
    part = bytes(content[place : place + size])
    if len(part) != size:
        raise _BrokenError
    return part


def _checksum(data: memoryview, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    one, two = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one, two
