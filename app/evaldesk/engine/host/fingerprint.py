"""The files that make an agent: whether they changed, and the short hash of what they say that a run keeps."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from evaldesk.model import AgentRef, RunConfig

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


MAX_BYTES = 8 * 1024 * 1024


def agent_version(ref: AgentRef) -> str:
    """The first 12 hex digits of the SHA-256 of names and contents; empty when the agent has no folder of its own.

    Of each file the first MAX_BYTES count; hidden files, which may hold keys, and those that cannot be read do not.
    """
    if not ref.folder or not Path(ref.folder).is_dir():
        return ""
    digest = hashlib.sha256()
    for path, content in _contents(ref.folder):
        digest.update(f"{path.relative_to(ref.folder).as_posix()}\0{len(content)}\0".encode("utf-8", "surrogateescape"))
        digest.update(content)
    return digest.hexdigest()[:12]


def agent_change(config: RunConfig) -> str:
    """A sentence when the agent's files are not those that the run started with; else empty."""
    if config.source_run_id is not None:
        return ""
    now = agent_version(config.agent)
    if not config.agent_version or now == config.agent_version:
        return ""
    return f"The agent's files changed while the run rested: {config.agent_version} became {now or 'unreadable'}."


def _contents(folder: str) -> Iterator[tuple[Path, bytes]]:
    for entry in agent_files(folder):
        if entry.name.startswith(".") or not entry.is_file(follow_symlinks=False):
            continue
        try:
            with open(entry.path, "rb") as file:
                yield Path(entry.path), file.read(MAX_BYTES)
        except OSError:
            continue  # not ours to read, or removed at this moment
