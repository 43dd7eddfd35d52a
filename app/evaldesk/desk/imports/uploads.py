"""Uploaded files that wait for a yes: on the disk, so that none is lost to another or to a restart."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from evaldesk.durable_files import create_file, remove_file, replace_file
from evaldesk.errors import FormatError, NotFoundError, UsageError
from evaldesk.paths import make_private_folder
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES
from evaldesk.store.regular_file import read_regular
from evaldesk.wire import from_json, to_json

MAX_WAITING = 50
MAX_LABEL = 10_000
_TOKEN = re.compile(r"[0-9a-f]{24}")
_SUFFIX = ".upload"


class Label(msgspec.Struct, frozen=True):
    """The name of the uploaded file, and the chosen key by which its trials passed; empty for the usual one."""

    source: str
    outcome: str = ""


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
            raise UsageError(f"{MAX_WAITING} uploads wait already; import or discard one of them first")
        token = secrets.token_hex(12)
        create_file(self._path(token), _packed(label, data), mode=0o600)
        return token

    def change(self, token: str, label: Label, data: bytes) -> None:
        """Give an upload another label. Raises DiskError."""
        replace_file(self._path(token), _packed(label, data))

    def read(self, token: str) -> tuple[Label, bytes]:
        """The label and the bytes of an upload. Raises NotFoundError."""
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

    def list(self) -> Sequence[Upload]:
        """The uploads that wait, oldest first."""
        try:
            found = [path for path in self._folder.iterdir() if path.suffix == _SUFFIX and _TOKEN.fullmatch(path.stem)]
        except OSError:
            return []
        uploads = [_shown(path) for path in found]
        return sorted((each for each in uploads if each), key=lambda each: (each.came_at, each.token))

    def _path(self, token: str) -> Path:
        if not _TOKEN.fullmatch(token):
            raise _not_here()
        return self._folder / f"{token}{_SUFFIX}"


def _packed(label: Label, data: bytes) -> bytes:
    return to_json(label) + b"\n" + data


def _shown(path: Path) -> Upload | None:
    try:
        first = read_regular(path, MAX_LABEL).partition(b"\n")[0]
        stat = path.stat()
        came_at = datetime.fromtimestamp(stat.st_mtime, UTC)
        return Upload(path.stem, from_json(first, Label).source, stat.st_size - len(first) - 1, came_at)
    except (OSError, FormatError, msgspec.MsgspecError):
        return None


def _not_here() -> NotFoundError:
    return NotFoundError("This upload is not here any more: it was imported or discarded.")
