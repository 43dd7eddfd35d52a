"""Reading files that other programs may be changing: regular files only, no links, never more than the limit."""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO

from evaldesk.errors import FormatError
from evaldesk.reading.strict_json import MAX_RECORDED_BYTES

PART = 1024 * 1024


def read_regular(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file, at most `max_bytes` + 1 of them.

    Raises FormatError for links, pipes and devices, which are not opened for reading; OSError when it is not there.
    """
    with open_regular(path) as file:
        return read_at_most(file, max_bytes + 1)


def read_at_most(file: IO[bytes], n_bytes: int) -> bytes:
    """The next bytes of a file or a pipe, at most `n_bytes`; no memory is set aside for more than come."""
    buffer = io.BytesIO()
    while part := file.read(min(PART, n_bytes - buffer.tell())):
        buffer.write(part)
    return buffer.getvalue()


def open_regular(path: Path) -> BinaryIO:
    """A regular file, open for reading. Raises as `read_regular` does."""
    check_regular(path)
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise FormatError("this is not a regular file", source=path.name)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def open_regular_file(path: Path) -> BinaryIO:
    """A file that a person named, which may be behind links, or the pipe of a shell, which has no name of its own.

    Raises FormatError for any other pipe or device, whose reader may wait without end; OSError when it is not there.
    """
    mode = path.stat().st_mode
    is_of_shell = stat.S_ISFIFO(mode) and not path.resolve().exists()
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or is_of_shell):
        raise FormatError("this is a pipe or a device, not a file; save its contents in a file", source=str(path))
    return path.open("rb")


def read_regular_file(path: Path, max_bytes: int = MAX_RECORDED_BYTES) -> bytes:
    """The bytes of a file that a person named. Raises as `open_regular_file` does, and FormatError for a larger one."""
    with open_regular_file(path) as file:
        data = read_at_most(file, max_bytes + 1)
    if len(data) > max_bytes:
        raise FormatError(f"the file has more than {max_bytes // 2**20} MiB, the most that is read", source=str(path))
    return data


def bytes_of(path: Path) -> Iterator[bytes]:
    """The bytes of a regular file, one part after the other. Raises as `read_regular` does."""
    with open_regular(path) as file:
        while part := file.read(PART):
            yield part


def version_of_file(path: Path) -> str:
    """The version of a file, of any size. Raises as `read_regular` does."""
    digest = hashlib.sha256()
    for part in bytes_of(path):
        digest.update(part)
    return digest.hexdigest()[:32]


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
