"""Which edition of an agent's files a run used: a short hash of what they say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from evaldesk.desk.agents import MAX_FILES, SKIPPED_FOLDERS
from evaldesk.model import AgentRef, RunConfig

CODE_SUFFIXES = frozenset({".py", ".yaml", ".yml", ".toml", ".txt", ".md"})
MAX_BYTES = 8 * 1024 * 1024


def agent_version(ref: AgentRef) -> str:
    """The first 12 hex digits of the SHA-256 of names and contents; empty when the agent has no folder of its own.

    Eval sets and data beside the agent do not count: to save a case is not to change the agent.
    """
    if not ref.folder or not Path(ref.folder).is_dir():
        return ""
    digest = hashlib.sha256()
    for path in _code(Path(ref.folder)):
        content = path.read_bytes()[:MAX_BYTES]
        digest.update(f"{path.relative_to(ref.folder).as_posix()}\0{len(content)}\0".encode())
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


def _code(folder: Path) -> Iterator[Path]:
    n = 0
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.suffix not in CODE_SUFFIXES or any(part in SKIPPED_FOLDERS or part.startswith(".") for part in parts):
            continue
        if path.is_file() and not path.is_symlink():
            yield path
            n += 1
        if n == MAX_FILES:
            return
