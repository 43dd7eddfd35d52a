"""The one layer that writes files: a reader, a crash and a full disk find the whole old file or the whole new one.

New bytes go to a temporary file in the same folder, down to the disk. A link gives it the name of a new file, which
never overwrites; a rename gives it the name of an old one. The folder is synced after it. A killed process leaves at
most a temporary file: a lock shows whether its writer lives, and the next writer in that folder removes it.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from evaldesk.errors import NAME_LIMIT, ConflictError, DiskError

if sys.platform != "win32":
    import fcntl

log = logging.getLogger("evaldesk.files")

_LEFTOVER = re.compile(r"\..{1,40}\.[0-9a-f]{16}\.evaldesk-tmp", re.DOTALL)
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
_NO_SYNC = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP})
_WORDS = {
    errno.ENOSPC: ("the disk is full", "free some space and try again"),
    errno.EDQUOT: ("your share of the disk is used up", "free some space and try again"),
    errno.EFBIG: ("the file is too large for this disk", "choose another folder"),
    errno.EIO: ("the disk reports an error", "check the disk, then try again"),
    errno.EROFS: ("the disk can only be read", "make it writable or choose another folder"),
    errno.EACCES: ("you have no permission to write there", "change the permission or choose another folder"),
    errno.EPERM: ("you have no permission to write there", "change the permission or choose another folder"),
}


class PreparedFile:
    """New bytes beside `path`, down to the disk, that are not in place yet."""

    def __init__(self, path: Path, temporary: Path) -> None:
        self.path = path
        self._temporary = temporary
        self._own = os.lstat(temporary)

    def create(self) -> None:
        """Put them in place as a new file. Raises ConflictError when `path` exists, and DiskError."""
        with _in_words(self.path):
            _link_new(self._temporary, self.path)

    def replace(self) -> None:
        """Put them in place of the file that is there. Raises DiskError.

        A folder that cannot be synced after the rename is logged and no error: readers see the new file already.
        """
        path = self.path
        with _in_words(path):
            os.replace(self._temporary, path)
            try:
                _sync_folder(path.parent)
            except OSError as error:
                log.warning("%s is written, but %s may forget it in a power failure: %s", path, path.parent, error)

    def take_back(self) -> None:
        """Remove the file that `create` made; another one under its name stays. Raises DiskError."""
        with _in_words(self.path), suppress(FileNotFoundError):
            if os.path.samestat(os.lstat(self.path), self._own):
                _remove(self.path)


class GrowingFile(PreparedFile):
    """A new file beside `path` whose bytes come one after the other; it is not in place before `create`."""

    def __init__(self, path: Path, temporary: Path, handle: int) -> None:
        super().__init__(path, temporary)
        self._handle = handle

    def write(self, data: bytes) -> None:
        """Add bytes. Raises DiskError."""
        with _in_words(self.path):
            _write_all(self._handle, data)

    def read(self) -> bytes:
        """The bytes so far. Raises DiskError."""
        with _in_words(self.path):
            return self._temporary.read_bytes()

    def create(self) -> None:
        """Put the bytes in place, down to the disk. Raises ConflictError when `path` exists, and DiskError."""
        with _in_words(self.path):
            os.fsync(self._handle)
        super().create()


Content: TypeAlias = bytes | Iterable[bytes]
"""The bytes of a file, all at once or one part after the other."""


@contextmanager
def prepared_file(path: Path, data: Content, *, mode: int | None = None) -> Iterator[PreparedFile]:
    """Write bytes beside `path`, to be put in place in one step later; they are gone afterwards if they are not.

    Raises DiskError.
    """
    with ExitStack() as stack:
        with _in_words(path):
            file = PreparedFile(path, stack.enter_context(_temporary(path, data, mode))[0])
        yield file


@contextmanager
def growing_file(path: Path, *, mode: int | None = None) -> Iterator[GrowingFile]:
    """A file that is written in parts and then put in place; it is gone afterwards if it is not. Raises DiskError."""
    with ExitStack() as stack:
        with _in_words(path):
            file = GrowingFile(path, *stack.enter_context(_temporary(path, b"", mode)))
        yield file


def create_file(path: Path, data: Content, *, mode: int | None = None) -> None:
    """Write a new file. Raises ConflictError when `path` exists, and DiskError; a failure leaves nothing there."""
    with prepared_file(path, data, mode=mode) as file:
        file.create()


def replace_file(path: Path, data: Content, *, mode: int | None = None) -> None:
    """Write `path` over the file that is there, or anew; the mode stays unless given. Raises DiskError."""
    with _in_words(path):
        mode = _mode(path) if mode is None else mode
    with prepared_file(path, data, mode=mode) as file:
        file.replace()


def copy_file(source: Path, target: Path) -> None:
    """Keep a file under a second name, as a link or else as a copy. Raises ConflictError or DiskError."""
    with _in_words(target):
        _copy(source, target)


def move_file(source: Path, target: Path) -> None:
    """Move a file without overwriting, across disks too. Raises ConflictError or DiskError.

    A killed move leaves the file under both names; the same move again finishes it.
    """
    with _in_words(target):
        if os.path.lexists(target) and not is_same_file(source, target):
            raise _exists(target)
        if source.parent == target.parent and source.name.casefold() == target.name.casefold():
            os.replace(source, target)  # one file, where the file system takes `Calc` for `calc`
            _sync_folder(target.parent)
            return
        if not os.path.lexists(target):
            _copy(source, target)
        _remove(source)


def remove_file(path: Path) -> None:
    """Remove a file; a missing one is no error. Raises DiskError."""
    with _in_words(path), suppress(FileNotFoundError):
        _remove(path)


def append_file(path: Path, data: bytes) -> None:
    """Add bytes to a file. Raises DiskError; a failure leaves the file as it was, a kill may tear the end."""
    with _in_words(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                _write_all(handle, data)
                return
            _lock(handle, waits=True)
            size = os.fstat(handle).st_size
            try:
                _write_all(handle, data)
                os.fsync(handle)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(handle, size)
                raise
        finally:
            os.close(handle)


def write_output(path: Path, data: Content) -> None:
    """Write the file that a command names: a link is followed, a pipe or device is written to. Raises DiskError."""
    if path.exists() and not path.is_file():
        with _in_words(path):
            handle = os.open(path, os.O_WRONLY)
            try:
                _write_all(handle, data)
            finally:
                os.close(handle)
    else:
        replace_file(Path(os.path.realpath(path)), data)


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents. Raises DiskError."""
    with _in_words(folder):
        missing_folders = [each for each in (folder, *folder.parents) if not each.is_dir()]
        for each in reversed(missing_folders):
            with suppress(FileExistsError):
                os.mkdir(each)
            if not each.is_dir():
                raise FileExistsError(errno.EEXIST, "there is a file of that name", str(each))
            _sync_folder(each.parent)


def remove_folder(folder: Path) -> None:
    """Remove an empty folder. Raises DiskError."""
    with _in_words(folder):
        os.rmdir(folder)
        _sync_folder(folder.parent)


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two names are one file, as a killed move leaves them; links are not followed."""
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


def remove_leftovers(folder: Path) -> int:
    """Remove the temporary files of killed writers from a folder, and give their number; live writers keep theirs."""
    return sum(_is_leftover(path, removes=True) for path in _temporary_files(folder))


def leftovers(folder: Path) -> list[Path]:
    """The temporary files of killed writers in a folder; those of live writers are left out."""
    return [path for path in _temporary_files(folder) if _is_leftover(path)]


def _temporary_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder / name for name in os.listdir(folder) if _LEFTOVER.fullmatch(name))
    except OSError:
        return []


@contextmanager
def _in_words(path: Path) -> Iterator[None]:
    try:
        yield
    except (ConflictError, DiskError):
        raise
    except OSError as error:
        message = error.strerror or str(error)
        why, advice = _WORDS.get(error.errno or 0, (message, "see to that and try again"))
        reason = why if why == message else f"{why} ({message})"
        raise DiskError(error.errno or 0, message, f"{path.name} cannot be written: {reason}; {advice}") from error


@contextmanager
def _temporary(path: Path, data: Content, mode: int | None) -> Iterator[tuple[Path, int]]:
    """A file beside `path`, open, that holds `data` down to the disk; it is gone afterwards unless it was renamed."""
    remove_leftovers(path.parent)
    handle, temporary = _open_temporary(path)
    try:
        try:
            _write_all(handle, data)
            if mode is not None:
                os.fchmod(handle, mode)
            os.fsync(handle)
            yield temporary, handle
        finally:
            with suppress(OSError):
                os.unlink(temporary)
    finally:
        os.close(handle)


def _open_temporary(path: Path) -> tuple[int, Path]:
    """A new locked file; another process that looks for leftovers may take one away before it is locked."""
    while True:
        temporary = path.with_name(f".{path.name[:NAME_LIMIT]}.{secrets.token_hex(8)}.evaldesk-tmp")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            if _lock(handle) and os.fstat(handle).st_nlink:
                return handle, temporary
        except BaseException:
            os.close(handle)
            with suppress(OSError):
                os.unlink(temporary)
            raise
        os.close(handle)
        with suppress(OSError):  # the other process may only have looked at it
            os.unlink(temporary)


def _is_leftover(path: Path, *, removes: bool = False) -> bool:
    """Whether the writer of a temporary file is dead; the file is removed while its lock is held, if asked."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            if stat.S_ISREG(os.fstat(handle).st_mode) and _lock(handle, is_sure=True):
                if removes:
                    os.unlink(path)
                return True
        finally:
            os.close(handle)
    return False


def _lock(handle: int, *, waits: bool = False, is_sure: bool = False) -> bool:
    """Lock an open file until it is closed; a disk without locks says yes, unless the answer must be sure."""
    if sys.platform == "win32":
        return not is_sure
    try:
        # The kernel ends this lock with its holder; a process id could be used again: decision 034.
        fcntl.flock(handle, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return not is_sure
    return True


def _write_all(handle: int, data: Content) -> None:
    for part in (data,) if isinstance(data, bytes) else data:
        remainder = memoryview(part)  # a write may be short, and a slice of bytes would copy the rest (decision 034)
        while remainder:
            remainder = remainder[os.write(handle, remainder) :]


def _copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except FileExistsError:
        raise _exists(target) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        create_file(target, source.read_bytes(), mode=_mode(source))
    else:
        _sync_new(target, source)


def _link_new(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path, follow_symlinks=False)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            raise _exists(path) from None
        os.replace(temporary, path)
        _sync_folder(path.parent)
    else:
        _sync_new(path, temporary)


def _sync_new(path: Path, other: Path) -> None:
    """Make the new name of the file `other` durable; where that fails, the name is taken back."""
    try:
        _sync_folder(path.parent)
    except OSError:
        if is_same_file(path, other):
            os.unlink(path)
        raise


def _remove(path: Path) -> None:
    os.unlink(path)
    with suppress(OSError):  # after a power failure the file is there again, whole
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise
    finally:
        os.close(handle)


def _exists(path: Path) -> ConflictError:
    return ConflictError(f"there is a file {path.name!r} already")


def _mode(path: Path) -> int | None:
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        return None
