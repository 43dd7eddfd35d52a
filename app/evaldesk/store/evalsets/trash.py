"""The trash of eval set files: `<trash>/<token>/` holds the file and `origin.json`, where it came from."""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from evaldesk.durable_files import copy_file, create_file, is_same_file, make_folder, remove_file, remove_folder
from evaldesk.errors import NAME_LIMIT, ConflictError, DiskError, EvaldeskError, NotFoundError
from evaldesk.reading.regular_file import check_folder, check_regular, read_regular, version_of_file
from evaldesk.reading.strict_json import MAX_BYTES
from evaldesk.wire import from_json

_TOKEN = re.compile(r"[a-z0-9]{16}")
_ORIGIN = "origin.json"


@dataclass(frozen=True, slots=True)
class InTrash:
    """A file in the trash; the token brings it back."""

    token: str
    folder: Path
    name: str

    def discard(self) -> None:
        """Remove it; a disk that fails at this leaves it there."""
        with suppress(DiskError):
            remove_file(self.folder / self.name)
            remove_file(self.folder / _ORIGIN)
            remove_folder(self.folder)


def put_in_trash(path: Path, trash: Path) -> str:
    """Move the file into the trash and give the token that brings it back. Raises FormatError or DiskError."""
    entry = keep_in_trash(path, trash)
    try:
        remove_file(path)
    except DiskError:
        entry.discard()
        raise
    return entry.token


def keep_in_trash(path: Path, trash: Path) -> InTrash:
    """Put the file into the trash and leave it where it is, too. Raises FormatError or DiskError."""
    check_regular(path)
    token = secrets.token_hex(8)
    entry = InTrash(token, trash / token, path.name)
    try:
        make_folder(entry.folder)
        create_file(entry.folder / _ORIGIN, msgspec.json.encode({"path": str(path)}))
        copy_file(path, entry.folder / path.name)
    except DiskError:
        entry.discard()
        raise
    return entry


def take_from_trash(token: str, trash: Path) -> Path:
    """Move the file back to where it was, and give its path. Raises NotFoundError, ConflictError or DiskError.

    A restoration that was killed is finished.
    """
    origin = origin_of(token, trash)
    entry = InTrash(token, trash / token, origin.name)
    source = entry.folder / origin.name
    if os.path.lexists(origin):
        if source.exists() and not _is_restored(source, origin):
            raise ConflictError(f"there is a file {origin.name!r} again; rename it before you restore the old one")
    else:
        check_folder(origin)
        make_folder(origin.parent)
        check_regular(source)
        copy_file(source, origin)
    entry.discard()
    return origin


def _is_restored(source: Path, origin: Path) -> bool:
    if is_same_file(source, origin):
        return True
    check_regular(origin)
    return version_of_file(source) == version_of_file(origin)


def origin_of(token: str, trash: Path) -> Path:
    """Where the file behind the token came from. Raises NotFoundError."""
    origin = trash / token / _ORIGIN
    if not _TOKEN.fullmatch(token) or not origin.is_file():
        raise NotFoundError(f"nothing in the trash under {token[:NAME_LIMIT]!r}; it may have been restored already")
    try:
        fields = from_json(read_regular(Path(os.path.realpath(origin)), MAX_BYTES), dict[str, str])
    except msgspec.MsgspecError:
        fields = {}
    path = fields.get("path", "")
    if not Path(path).name or "\0" in path:
        raise NotFoundError(
            f"the trash does not say where {token} came from; `evaldesk doctor --repair` moves it aside"
        )
    # The trash may have come with a repository: a path that climbs is no origin.
    return Path(os.path.normpath(path))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def list_trash(trash: Path) -> list[tuple[str, str, datetime, int]]:
    """Token, name, time of deletion and size of each file in the trash; a folder that is no part of it is left out."""
    entries = []
    for folder in sorted(trash.glob("*")) if trash.is_dir() else ():
        try:
            origin = origin_of(folder.name, trash)
            deleted_at = datetime.fromtimestamp((folder / _ORIGIN).stat().st_mtime, UTC)
            if (folder / origin.name).is_file():
                entries.append((folder.name, origin.name, deleted_at, (folder / origin.name).stat().st_size))
        except (EvaldeskError, OSError, ValueError):
            continue
    return entries


def trash_remains(trash: Path) -> list[tuple[InTrash, bool]]:
    """The folders of the trash that cannot be restored, each with whether a file is left in it.

    A kill while something was deleted, restored or removed for good leaves them, or an origin that cannot be read.
    """
    restorable_tokens = {token for token, *_ in list_trash(trash)}
    folders = [folder for folder in sorted(trash.glob("*")) if _TOKEN.fullmatch(folder.name) and _is_folder(folder)]
    remains = []
    for folder in folders:
        if folder.name not in restorable_tokens:
            names = [each.name for each in sorted(folder.iterdir()) if each.name != _ORIGIN]
            if len(names) < 2:
                remains.append((InTrash(folder.name, folder, *(names or [_ORIGIN])), bool(names)))
    return remains
