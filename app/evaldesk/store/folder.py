"""The folder of a workspace's state: for the user alone, without links, and perhaps read-only."""

from __future__ import annotations

import os
from pathlib import Path

from evaldesk.errors import WorkspaceError


def is_read_only(path: Path) -> bool:
    """Whether nothing can be written beside the file: it is on a read-only mount, or in a folder of somebody else."""
    folder = path.parent
    try:
        return bool(os.statvfs(folder).f_flag & os.ST_RDONLY) or not os.access(folder, os.W_OK)
    except FileNotFoundError:
        return False


def make_private_folder(folder: Path) -> None:
    """Create `folder` for the user alone, with any umask; one that exists is left as it is."""
    if folder.is_dir():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)


def make_private_file(path: Path) -> None:
    """Create `path` empty, or keep it, readable for the user alone; SQLite gives its -wal and -shm the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    path.chmod(0o600)


def check_no_links(folder: Path) -> None:
    """Raise WorkspaceError when the folder is a link, or holds one: writes would land elsewhere.

    An entry that is neither a file nor a folder, as a named pipe, is refused as well: opening it may wait without end.
    """
    if folder.is_symlink():
        raise WorkspaceError(f"{folder} is a link, which is not followed; go where it leads to, or remove it")
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        odd = {entry.path: entry.is_symlink() for entry in entries if not _is_plain(entry)}
    for path, is_link in sorted(odd.items()):
        what = "is a link, which is not followed" if is_link else "is neither a file nor a folder"
        raise WorkspaceError(f"{path} {what}; remove it, or name another workspace")


def _is_plain(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)
