"""Copies of eval sets under other names: backups, exports, reports, found by what they hold."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice

import zstandard

from evaldesk.errors import EvaldeskError
from evaldesk.formats import load_evalset
from evaldesk.model import Case
from evaldesk.wire import to_json

MAX_SETS, MAX_SET_BYTES = 50, 8 * 1024 * 1024
MAX_CASES = 20
"""Cases of a set that its copies are known by, from all of it."""
MAX_FILE_BYTES, MAX_READ_BYTES = 32 * 1024 * 1024, 512 * 1024 * 1024
CODE = frozenset({".py", ".pyi", ".pyc", ".so", ".pyd", ".js", ".ts", ".mjs", ".sh", ".toml", ".whl", ".lock", ".css"})
"""Endings of files that an agent is made of: they are hidden only where they are the same file as a set."""
MIN_QUERY, MIN_ANSWER, MAX_FRAGMENT = 8, 3, 60
_SPECIAL = re.compile(rb"[^\x20-\x7e]|[\"'\\<>&;=]")
"""Characters that some format writes in another way."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The longest plain piece of a case's first message, and those of what is expected of it."""

    query: bytes
    answers: tuple[bytes, ...]


class SetCopies:
    """Knows the files that hold the content of some eval sets."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._digests: dict[int, set[bytes]] = {}
        self._marks: list[_Mark] = []
        self._linked_files: set[tuple[int, int]] = set()
        self._n_left = MAX_READ_BYTES
        for path in islice(paths, MAX_SETS):
            with suppress(OSError, EvaldeskError, ValueError):
                status = os.stat(path)
                self._linked_files.add((status.st_dev, status.st_ino))
                if status.st_size > MAX_SET_BYTES:
                    continue
                with open(path, "rb") as file:
                    content = file.read()
                self._digests.setdefault(len(content), set()).add(hashlib.sha256(content).digest())
                cases = load_evalset(path).cases
                self._marks += filter(None, map(_mark, cases[:: -(-len(cases) // MAX_CASES) or 1]))

    def has(self, path: str) -> bool:
        """Whether a file is a copy: the same file, or one with a case and what is expected of it, packed or not.

        So is each database of Evaldesk, in which cases are packed, and each bundle of git.
        """
        if self.is_same(path):
            return True
        if os.path.splitext(path)[1].lower() in CODE:
            return False
        if _is_database(path):
            return True
        with suppress(OSError):
            size = os.path.getsize(path)
            if 0 < size <= min(MAX_FILE_BYTES, self._n_left) and os.path.isfile(path):
                self._n_left -= size
                with open(path, "rb") as file:
                    content = file.read()
                return _is_bundle(content) or any(
                    self._holds(text) for text in chain([content], _unpacked_texts(content))
                )
        return False

    def is_same(self, path: str) -> bool:
        """Whether a file is a hard link to a set, or holds the same bytes, whatever its name says."""
        with suppress(OSError):
            status = os.stat(path)
            if (status.st_dev, status.st_ino) in self._linked_files:
                return True
            if status.st_size in self._digests and stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    return hashlib.sha256(file.read()).digest() in self._digests[status.st_size]
        return False

    def _holds(self, text: bytes) -> bool:
        if len(text) in self._digests and hashlib.sha256(text).digest() in self._digests[len(text)]:
            return True
        return any(mark.query in text and any(answer in text for answer in mark.answers) for mark in self._marks)


def _is_database(path: str) -> bool:
    with suppress(OSError):
        if os.path.isfile(path):  # no pipe, which would not answer
            with open(path, "rb") as file:
                return file.read(len(_SQLITE)) == _SQLITE and b"CREATE TABLE case_snapshot" in file.read(MAX_SCHEMA)
    return False


def _is_bundle(content: bytes) -> bool:
    """Whether a file is packed git data: a bundle."""
    return content.startswith((b"# v2 git bundle", b"# v3 git bundle"))


_SQLITE, MAX_SCHEMA = b"SQLite format 3\0", 4 * 1024 * 1024


def _mark(case: Case) -> _Mark | None:
    query = max((_plain_part(turn.query) for turn in case.turns), key=len, default=b"")
    expectations = [turn.expected for turn in case.turns]
    texts = [each.reference for each in expectations if each.reference]
    texts += [text for each in expectations for _, text in each.intermediate]
    texts += [
        to_json(value).decode()
        for each in expectations
        for call in each.tool_calls or ()
        for value in call.args.values()
    ]
    answers = tuple(dict.fromkeys(part for part in map(_plain_part, texts) if len(part) >= MIN_ANSWER))
    return _Mark(query, answers) if len(query) >= MIN_QUERY and answers else None


def _plain_part(text: str) -> bytes:
    """The longest piece of a text that every format writes as it is."""
    return max(_SPECIAL.split(text.encode()), key=len).strip()[:MAX_FRAGMENT]


def _unpacked_texts(content: bytes) -> Iterator[bytes]:
    """The contents of a packed file, within bounds; a packed tar archive holds the text of its files as it is."""
    with suppress(*_FAULTS):
        if content.startswith(b"\x1f\x8b"):
            yield gzip.GzipFile(fileobj=io.BytesIO(content)).read(MAX_FILE_BYTES)
        elif content.startswith(b"BZh"):
            yield bz2.BZ2Decompressor().decompress(content, MAX_FILE_BYTES)
        elif content.startswith(b"\xfd7zXZ\0"):
            yield lzma.LZMADecompressor(memlimit=MAX_UNPACKER_BYTES).decompress(content, MAX_FILE_BYTES)
        elif content.startswith(b"\x28\xb5\x2f\xfd"):
            window = zstandard.ZstdDecompressor(max_window_size=MAX_UNPACKER_BYTES)
            yield window.stream_reader(io.BytesIO(content)).read(MAX_FILE_BYTES)
        elif content.startswith(b"PK\x03\x04"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                for entry in archive.infolist()[:1_000]:
                    with archive.open(entry) as file:
                        yield file.read(MAX_FILE_BYTES)


_FAULTS = (
    *(OSError, EOFError, ValueError, RuntimeError, NotImplementedError),
    *(zlib.error, lzma.LZMAError, zipfile.BadZipFile, zstandard.ZstdError),
)
MAX_UNPACKER_BYTES = 128 * 1024 * 1024
