"""Which edition of an agent's files a run used: a short hash of what they say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from evaldesk.engine.host.fingerprint import agent_files
from evaldesk.model import AgentRef, RunConfig

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
