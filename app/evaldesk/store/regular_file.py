"""Reading files that other programs may be changing: regular files only, no links, never more than the limit."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from evaldesk.errors import FormatError


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file, at most `max_bytes` + 1 of them.

    Raises FormatError for links, pipes and devices, which are not opened for reading; OSError when it is not there.
    """
    check_regular(path)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FormatError("this is not a regular file", source=path.name)
        with os.fdopen(handle, "rb", closefd=False) as file:
            return file.read(max_bytes + 1)
    finally:
        os.close(handle)


def check_regular(path: Path) -> None:
    """Refuse anything but a regular file in the folder it was found in. Raises FormatError or OSError."""
    check_folder(path)
    if not stat.S_ISREG(path.lstat().st_mode):
        raise FormatError("this is a link, a pipe or a device; only regular files are touched", source=path.name)


def check_folder(path: Path) -> None:
    """Refuse a file whose folder has become a symbolic link since it was found. Raises FormatError."""
    if Path(os.path.realpath(path.parent)) != path.parent:
        raise FormatError("the folder of this file is a symbolic link now; it is not followed", source=path.name)


def version_of(data: bytes) -> str:
    """The version of a file: a hash of its bytes."""
    return hashlib.sha256(data).hexdigest()[:32]
