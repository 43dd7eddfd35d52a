"""The desk's own folder: it may have come with a repository, so no link in it is followed."""

from __future__ import annotations

import os
from pathlib import Path

from evaldesk.errors import WorkspaceError


def check_no_links(folder: Path) -> None:
    """Raise WorkspaceError when the folder is a link, or holds one: what is written there would land elsewhere."""
    if folder.is_symlink():
        raise WorkspaceError(f"{folder} is a link, which is not followed; go where it leads to, or remove it")
    if not folder.is_dir():
        return
    with os.scandir(folder) as entries:
        linked = [entry.path for entry in entries if entry.is_symlink()]
    if linked:
        raise WorkspaceError(f"{min(linked)} is a link, which is not followed; remove it, or name another workspace")
