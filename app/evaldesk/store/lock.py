"""One desk for each workspace: a lock that the kernel releases at any death of its holder. (decision 114)"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from time import sleep
from types import TracebackType

from evaldesk.errors import WorkspaceError
from evaldesk.paths import check_no_links, is_read_only, make_private_folder

LOCK_NAME = "desk.lock"
OPENING = "unknown"
"""The address of a desk before it has written it down."""
N_LOOKS = 5
LOOK_S = 0.02


class WorkspaceHold:
    """The hold on a workspace; it ends with `release`, with the block, or with the process.

    A read-only workspace has no holder: any number of desks may show it.
    """

    def __init__(self, folder: Path, descriptor: int | None) -> None:
        self._folder = folder
        self._descriptor = descriptor
        self._is_read_only = descriptor is None

    @property
    def is_read_only(self) -> bool:
        """Whether the workspace cannot be written, and so is held by nobody."""
        return self._is_read_only

    def update(self, url: str) -> None:
        """Write down the address of the desk, for a second process. Raises WorkspaceError when the disk is full."""
        if self._descriptor is None:
            return
        try:
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()} {url}\n".encode(), 0)
        except OSError as error:
            raise WorkspaceError(
                f"{self._folder} cannot be written: {error.strerror}; name another workspace"
            ) from error

    def release(self) -> None:
        """Let go of the workspace. May be called again."""
        if self._descriptor is None:
            return
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None

    def __enter__(self) -> WorkspaceHold:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


def hold_workspace(folder: Path, *, url: str) -> WorkspaceHold:
    """Hold the workspace whose state folder (`Settings.state_folder`) is `folder`; it is created if need be.

    Raises WorkspaceError saying which process holds it and where that one answers, or which link lies in it.
    """
    check_no_links(folder)
    if folder.is_dir() and is_read_only(folder / LOCK_NAME):
        return WorkspaceHold(folder, None)
    try:
        make_private_folder(folder)
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)  # one that came with a repository has the permissions of the umask at its clone
        descriptor = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise WorkspaceError(f"{folder}: {error.strerror}; name another workspace") from error
    try:
        os.fchmod(descriptor, 0o600)
        _take(descriptor)
    except OSError as error:
        if not isinstance(error, BlockingIOError):  # a disk without locks, or a file of another user
            os.close(descriptor)
            raise WorkspaceError(f"{folder} cannot be locked: {error.strerror}; name another workspace") from error
        holder = _holder(descriptor)
        os.close(descriptor)
        raise WorkspaceError(f"{folder.parent} is held by {holder}; use that one, or end it first") from error
    hold = WorkspaceHold(folder, descriptor)
    try:
        hold.update(url)
    except WorkspaceError:
        hold.release()
        raise
    return hold


def address_of_holder(folder: Path) -> str:
    """The address of the desk that holds the workspace, OPENING while it opens; empty when there is none.

    The kernel is asked, not the file: that of a desk which was killed stays, and one may have come with a repository.
    """
    try:
        descriptor = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        # A shared lock tells whether somebody holds the exclusive one, and is let go at once.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _read_holder(descriptor)[1] or OPENING
    else:
        return ""
    finally:
        os.close(descriptor)


def _take(descriptor: int) -> None:
    """Take the lock; a process that only asks for the holder lets go at once. Raises OSError when it is held."""
    for _ in range(N_LOOKS):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        sleep(LOOK_S)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(descriptor: int) -> str:
    process, url = _read_holder(descriptor)
    if not process:
        return "another process"
    return f"process {process}, {url}" if url else f"process {process}"


def _read_holder(descriptor: int) -> tuple[str, str]:
    """The process and the address that the holder wrote down."""
    process, _, url = os.pread(descriptor, 1000, 0).decode("utf-8", "replace").strip().partition(" ")
    return process, url
