"""Uploaded files that wait for a yes: on the disk, so that none is lost to another or to a restart."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from evaldesk.durable_files import GrowingFile, create_file, growing_file, remove_file, replace_file
from evaldesk.errors import DiskError, FormatError, NotFoundError, UsageError
from evaldesk.paths import make_private_folder
from evaldesk.reading.regular_file import check_regular, read_regular
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES
from evaldesk.wire import from_json, to_json

MAX_WAITING = 50
MAX_LABEL = 10_000
MAX_SMALL = 10 * 1024 * 1024
"""A file of so many bytes is in memory while it is uploaded and read; a larger one is on the disk from there on."""
KEPT_FREE = 64 * 1024 * 1024
"""Bytes of the disk that a large upload leaves to the database."""
LOOK_EVERY = 8 * 1024 * 1024
_TOKEN = re.compile(r"[0-9a-f]{24}")
_SUFFIX = ".upload"
_APART = ".bytes"


class Label(msgspec.Struct, frozen=True):
    """The name of the uploaded file, and the chosen key by which its trials passed; empty for the usual one.

    The bytes of a large file are in a file of their own; `is_apart` says so. A data set of no known format has its
    `columns`, a mapping such as `input=question`; before a person has written it, `refusal` says why it is no format.
    """

    source: str
    outcome: str = ""
    is_apart: bool = False
    columns: str = ""
    refusal: str = ""


class ArrivingFile:
    """A file that is being uploaded: in memory while it is small, then on the disk, where nobody else sees it.

    A disk that is full, or would be, is kept as `problem`; the bytes after that are dropped.
    """

    def __init__(self, name: str, uploads: Uploads) -> None:
        self.name = name.replace("\\", "/").rsplit("/", 1)[-1][:200]
        self.size = 0
        self.problem: DiskError | UsageError | None = None
        self._uploads = uploads
        self._open_files = ExitStack()
        self._data = bytearray()
        self._on_disk: tuple[str, GrowingFile] | None = None

    @property
    def is_large(self) -> bool:
        """Whether it is on the disk."""
        return self._on_disk is not None

    def write(self, data: bytes) -> int:
        """Take the next bytes."""
        try:
            if self.problem is None:
                self._take(data)
        except (DiskError, UsageError) as error:
            self.problem = error
            self.close()
        return len(data)

    def _take(self, data: bytes) -> None:
        before, self.size = self.size, self.size + len(data)
        if self._on_disk is None and self.size <= MAX_SMALL:
            self._data += data
            return
        if self._on_disk is None:
            self._uploads.check_room(self.size)
            self._on_disk = self._open_files.enter_context(self._uploads.growing())
            data, self._data = bytes(self._data) + data, bytearray()
        elif before // LOOK_EVERY < self.size // LOOK_EVERY:
            self._uploads.check_room(LOOK_EVERY)
        self._on_disk[1].write(data)

    def seek(self, _: int) -> int:
        """Do nothing: the file is read as a whole, or by its path."""
        return 0

    def read(self) -> bytes:
        """The bytes, from the disk where they are there."""
        return self._on_disk[1].read() if self._on_disk else bytes(self._data)

    def keep(self, label: Label) -> str:
        """Let a large file wait as an upload, and give its token. Raises DiskError."""
        if self._on_disk is None:
            raise ValueError("a small file is kept by its bytes")
        token, file = self._on_disk
        self._uploads.keep(token, file, label)
        return token

    def close(self) -> None:
        """Forget the bytes of a file that is not kept."""
        self._open_files.close()


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload that waits."""

    token: str
    source: str
    size: int
    came_at: datetime


class Uploads:
    """The uploads of a workspace in `folder`: each is one file, its label in the first line and then its bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(os.path.realpath(folder))

    def add(self, label: Label, data: bytes) -> str:
        """Keep an upload and give its token. Raises UsageError when too many wait, and DiskError."""
        make_private_folder(self._folder)
        if len(self.list()) >= MAX_WAITING:
            raise _too_many()
        token = secrets.token_hex(12)
        create_file(self._path(token), _pack(label, data), mode=0o600)
        return token

    def check_room(self, n_bytes: int) -> None:
        """Raise DiskError where the disk has no room for these bytes, and UsageError when too many uploads wait."""
        if len(self.list()) >= MAX_WAITING:
            raise _too_many()
        make_private_folder(self._folder)
        free = shutil.disk_usage(self._folder).free
        if n_bytes + KEPT_FREE > free:
            words = (
                f"the file has no room on the disk: {free // 2**20:,} MiB are free, of which {KEPT_FREE // 2**20} stay "
                "for the database; free some space and try again"
            )
            raise DiskError(errno.ENOSPC, "the disk is full", words)

    @contextmanager
    def growing(self) -> Iterator[tuple[str, GrowingFile]]:
        """The token of a new upload, and the file for its bytes; it is gone afterwards unless it is kept."""
        token = secrets.token_hex(12)
        with growing_file(self._large_path(token), mode=0o600) as file:
            yield token, file

    def keep(self, token: str, file: GrowingFile, label: Label) -> None:
        """Let the bytes of a new file wait; one whose label is there without them is no upload. Raises DiskError."""
        label = Label(label.source, label.outcome, is_apart=True)
        create_file(self._path(token), _pack(label, b""), mode=0o600)
        try:
            file.create()
        except DiskError:
            remove_file(self._path(token))
            raise

    def find_large(self, token: str) -> tuple[Label, Path, int] | None:
        """The label of a large upload, its file and its size; None for a small one. Raises NotFoundError."""
        label, _ = self.read(token)
        if not label.is_apart:
            return None
        try:
            return label, self._large_path(token), _size_apart(self._large_path(token))
        except (OSError, FormatError):
            raise _not_here() from None

    def change(self, token: str, label: Label, data: bytes = b"") -> None:
        """Give an upload another label. Raises DiskError."""
        replace_file(self._path(token), _pack(label, data))

    def read(self, token: str) -> tuple[Label, bytes]:
        """The label and the bytes of an upload; a large one gives no bytes. Raises NotFoundError."""
        try:
            first, _, data = read_regular(self._path(token), MAX_RECORDED_BYTES).partition(b"\n")
            return from_json(first, Label), data
        except (OSError, FormatError, msgspec.MsgspecError):
            raise _not_here() from None

    def remove(self, token: str) -> None:
        """Forget an upload. Raises NotFoundError, DiskError."""
        if not self._path(token).is_file():
            raise _not_here()
        remove_file(self._path(token))
        remove_file(self._large_path(token))

    def list(self) -> Sequence[Upload]:
        """The uploads that wait, oldest first."""
        try:
            paths = [path for path in self._folder.iterdir() if path.suffix == _SUFFIX and _TOKEN.fullmatch(path.stem)]
        except OSError:
            return []
        uploads = [_read_upload(path) for path in paths]
        return sorted((each for each in uploads if each), key=lambda each: (each.came_at, each.token))

    def _path(self, token: str) -> Path:
        if not _TOKEN.fullmatch(token):
            raise _not_here()
        return self._folder / f"{token}{_SUFFIX}"

    def _large_path(self, token: str) -> Path:
        return self._path(token).with_suffix(_APART)


def _pack(label: Label, data: bytes) -> bytes:
    return to_json(label) + b"\n" + data


def _read_upload(path: Path) -> Upload | None:
    try:
        first = read_regular(path, MAX_LABEL).partition(b"\n")[0]
        label, stat = from_json(first, Label), path.stat()
        size = _size_apart(path.with_suffix(_APART)) if label.is_apart else stat.st_size - len(first) - 1
        return Upload(path.stem, label.source, size, datetime.fromtimestamp(stat.st_mtime, UTC))
    except (OSError, FormatError, msgspec.MsgspecError):
        return None


def _size_apart(path: Path) -> int:
    """The bytes of a large upload; a folder that came with a repository may have a link or a pipe in their place."""
    check_regular(path)
    return path.stat().st_size


def _too_many() -> UsageError:
    return UsageError(f"{MAX_WAITING} uploads wait already; import or discard one of them first")


def _not_here() -> NotFoundError:
    return NotFoundError("This upload is not here any more: it was imported or discarded.")
