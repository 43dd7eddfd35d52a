"""The desk's own folder: it may have come with a repository, so no link in it is followed."""

from __future__ import annotations

import os
from pathlib import Path

from evaldesk.errors import WorkspaceError


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
