"""The trash of eval set files: `<trash>/<token>/` holds the file and `origin.json`, where it came from."""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

import msgspec

from evaldesk.errors import ConflictError, NotFoundError
from evaldesk.formats.atomic_file import sync_folder, write_atomically, write_new
from evaldesk.formats.strict_json import MAX_BYTES
from evaldesk.store.regular_file import check_folder, check_regular, read_regular

_TOKEN = re.compile(r"[a-z0-9]{16}")
_ORIGIN = "origin.json"


def put_in_trash(path: Path, trash: Path) -> str:
    """Move the file into the trash and give the token that brings it back. Raises OSError."""
    check_regular(path)
    token = secrets.token_hex(8)
    folder = trash / token
    folder.mkdir(parents=True)
    write_atomically(folder / _ORIGIN, msgspec.json.encode({"path": str(path)}))
    _move(path, folder / path.name)
    return token


def take_from_trash(token: str, trash: Path) -> Path:
    """Move the file back to where it was, and give its path. Raises NotFoundError or ConflictError."""
    origin = origin_of(token, trash)
    if os.path.lexists(origin):
        raise ConflictError(f"there is a file {origin.name!r} again; rename it before you restore the old one")
    check_folder(origin)
    origin.parent.mkdir(parents=True, exist_ok=True)
    folder = trash / token
    _move(folder / origin.name, origin)
    (folder / _ORIGIN).unlink()
    folder.rmdir()
    return origin


def origin_of(token: str, trash: Path) -> Path:
    """Where the file behind the token came from. Raises NotFoundError."""
    origin = trash / token / _ORIGIN
    if not _TOKEN.fullmatch(token) or not origin.is_file():
        raise NotFoundError(f"nothing in the trash under {token[:40]!r}; it may have been restored already")
    found = msgspec.json.decode(read_regular(Path(os.path.realpath(origin)), MAX_BYTES), type=dict[str, str])
    # The trash may have come with a repository: a path that climbs is nobody's origin.
    return Path(os.path.normpath(found["path"]))


def _move(source: Path, target: Path) -> None:
    """Move a regular file, across file systems too, without ever overwriting."""
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise ConflictError(f"there is a file {target.name!r} already") from None
    except OSError:
        # Another file system, or one without links.
        check_regular(source)
        write_new(target, source.read_bytes())
        target.chmod(source.stat().st_mode & 0o7777)
    sync_folder(target.parent)
    source.unlink()
    sync_folder(source.parent)
