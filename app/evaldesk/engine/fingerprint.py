"""Whether the files of an agent changed, told from their names, times and sizes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

MAX_FILES = 2_000

_SUFFIXES = (".py", ".yaml", ".yml", ".toml")
_NAMES = (".env",)
_OTHERS = {"__pycache__", "node_modules", "site-packages", "venv"}


def fingerprint(folder: str) -> str:
    """A digest over at most MAX_FILES of the agent's files; empty for an agent without a folder."""
    if not folder:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for n_files, entry in enumerate(_files(folder)):
        if n_files >= MAX_FILES:
            break
        try:
            status = entry.stat()
        except OSError:
            continue  # removed between the listing and now; the next look sees it gone
        digest.update(f"{entry.path}\0{status.st_mtime_ns}\0{status.st_size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: str | Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if entry.name not in _OTHERS and not entry.name.startswith("."):
                yield from _files(entry.path)
        elif entry.name.endswith(_SUFFIXES) or entry.name in _NAMES:
            yield entry
