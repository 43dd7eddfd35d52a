"""The agent's files as hosts get them: a zip file of its folder, without ignored files and without secrets."""

from __future__ import annotations

import os
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from evaldesk.engine.boot import LEFT_OUT
from evaldesk.errors import UsageError
from evaldesk.git import git_bytes

MAX_BYTES = 100 * 1024 * 1024
N_NAMED = 5
LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The date of every file, so that the same files are the same package."""
VARIABLES = ".env"
"""Files of this name, or with an ending after it, stay here: their variables go by another way."""


def write_code(root: Path, target: Path) -> int:
    """Write the files of `root` to the zip file `target`; returns their number. Raises UsageError beyond MAX_BYTES."""
    files = sorted(code_files(root))
    sizes = {name: (root / name).stat().st_size for name in files}
    total = sum(sizes.values())
    if total > MAX_BYTES:
        largest = sorted(files, key=lambda name: -sizes[name])[:N_NAMED]
        largest_files = ", ".join(f"{name} ({_mib(sizes[name])})" for name in largest)
        raise UsageError(
            f"the files of {root} have {_mib(total)}, and hosts are sent at most {_mib(MAX_BYTES)}; the largest: "
            f"{largest_files}. List what the agent does not need in .gitignore",
            field="on",
        )
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name in files:
            path = root / name
            entry = zipfile.ZipInfo(name, LONG_AGO)
            entry.external_attr = (0o755 if os.access(path, os.X_OK) else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return len(files)


def code_files(root: Path) -> Iterator[str]:
    """The regular files below `root` by their paths from there, as git would take them up; links out of it are left."""
    home = root.resolve()
    names = _as_git(root)
    for name in names if names is not None else _walked(root):
        parts = Path(name).parts
        if any(part in LEFT_OUT for part in parts) or parts[-1] == VARIABLES or parts[-1].startswith(f"{VARIABLES}."):
            continue
        path = root / name
        try:
            is_file = stat.S_ISREG(path.stat().st_mode) and path.resolve().is_relative_to(home)
        except OSError:
            continue
        if is_file:
            yield name


def _as_git(root: Path) -> list[str] | None:
    """Files that no `.gitignore` names, whether or not they are in a repository; None where there is no git."""
    listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    own = git_bytes(root, *listing)
    if own is not None:
        return _names(own)
    with tempfile.TemporaryDirectory(prefix="evaldesk-git-") as empty:
        if git_bytes(Path(empty), "init", "--quiet", "--bare", "--template=", empty) is None:
            return None
        listing_bytes = git_bytes(root, f"--git-dir={empty}", f"--work-tree={root}", *listing)
    return None if listing_bytes is None else _names(listing_bytes)


def _names(listing_bytes: bytes) -> list[str]:
    return list(dict.fromkeys(name for name in os.fsdecode(listing_bytes).split("\0") if name))


def _walked(root: Path) -> Iterator[str]:
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in LEFT_OUT]
        for name in files:
            yield os.path.relpath(os.path.join(folder, name), root)


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 1024 / 1024:,.1f} MiB"
