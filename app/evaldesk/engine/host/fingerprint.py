"""The files that make an agent, and whether they changed, told from their names, times and sizes."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import islice

MAX_FILES = 2_000

_SUFFIXES = (".py", ".yaml", ".yml", ".toml", ".txt", ".md")
_NAMES = (".env",)
_OTHERS = {"__pycache__", "node_modules", "site-packages", "venv"}


def agent_files(folder: str) -> Iterator[os.DirEntry[str]]:
    """The first MAX_FILES files of code, configuration and prompts in an agent's folder, in the order of their paths.

    Eval sets and data beside the agent are not among them: to save a case is not to change the agent.
    """
    return islice(_files(folder), MAX_FILES)


def fingerprint(folder: str) -> str:
    """A digest over the agent's files; empty for an agent without a folder."""
    if not folder:
        return ""
    digest = hashlib.blake2b(digest_size=16)
    for entry in agent_files(folder):
        try:
            status = entry.stat()
        except OSError:
            continue  # removed between the listing and now; the next look sees it gone
        digest.update(f"{entry.path}\0{status.st_mtime_ns}\0{status.st_size}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
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
