"""git without the commands that a repository of others brings: the one place that starts it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

OLDEST = (2, 31)
"""Earlier versions take no configuration from the environment, so they are not asked."""
TIMEOUT_S = 60.0
_NO_CODE = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", os.devnull),
    ("core.attributesFile", os.devnull),
    ("core.sshCommand", "false"),
    ("core.askPass", "false"),
    ("core.editor", "false"),
    ("core.pager", "cat"),
    ("credential.helper", ""),
    ("gpg.program", "false"),
    ("log.showSignature", "false"),
    ("diff.ignoreSubmodules", "dirty"),
    ("protocol.allow", "never"),
)
_COMMANDS = re.compile(
    r"(?:filter\..*\.(?:clean|smudge|process)|diff\..*\.(?:textconv|command)|merge\..*\.driver|pager\..*|alias\..*"
    r"|remote\..*\.(?:uploadpack|receivepack|vcs|proxy)|credential\..*\.helper|trailer\..*\.(?:command|cmd)"
    r"|core\.(?:gitproxy|alternaterefscommand)|diff\.external|gpg\..*\.program|uploadpack\.packobjectshook)",
    re.DOTALL | re.IGNORECASE,
)
"""The keys of a configuration whose values git runs."""
_PLACES = frozenset(
    {
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_COMMON_DIR",
        "GIT_OBJECT_DIRECTORY",
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_NAMESPACE",
        "GIT_PREFIX",
        "GIT_EXTERNAL_DIFF",
        "GIT_TEMPLATE_DIR",
    }
)
"""Variables of a hook that calls us: they name another repository than that of the folder."""
_FIXED = {
    "GIT_ALLOW_PROTOCOL": "none",  # a clone without all objects fetches them, from an address of its configuration
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}


def git_text(folder: Path, *arguments: str) -> str:
    """The output of git about a folder, without blanks around it; empty where git fails or there is none."""
    return os.fsdecode(git_bytes(folder, *arguments) or b"").strip()


def git_bytes(folder: Path, *arguments: str) -> bytes | None:
    """The output of git about a folder; None where git fails, is too old, or there is none.

    A `.git/config` of others may name commands that git runs, and addresses to fetch from; all are taken away.
    """
    program = shutil.which("git")
    if program is None or _version(program) < OLDEST:
        return None
    git = [program, "-C", str(folder)]
    listing = [*git, "config", "--list", "--show-scope", "--name-only", "-z"]
    file_names = os.fsdecode(_output(listing, {}) or b"").split("\0")
    keys = {
        key for scope, key in zip(file_names[::2], file_names[1::2], strict=False) if scope in ("local", "worktree")
    }
    commands = sorted(filter(_COMMANDS.fullmatch, keys))
    filters = sorted({key.rpartition(".")[0] for key in keys if key.startswith("filter.")})
    protocols = sorted(key for key in keys if key.startswith("protocol."))
    values = [
        *_NO_CODE,
        *((key, "") for key in commands),
        *((f"{name}.required", "false") for name in filters),
        *((key, "never") for key in protocols),
    ]
    return _output([*git, *arguments], _variables(values))


def _variables(values: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Configuration as variables, after that of the caller; `-c` would end a key at its first "="."""
    count = os.environ.get("GIT_CONFIG_COUNT", "")
    start = int(count) if count.isdecimal() else 0
    variables = {"GIT_CONFIG_COUNT": str(start + len(values))}
    for number, (key, value) in enumerate(values, start):
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return variables


@cache
def _version(program: str) -> tuple[int, ...]:
    text = os.fsdecode(_output([program, "--version"], {}) or b"")
    match = re.match(r"git version (\d{1,4})\.(\d{1,4})", text)
    return tuple(map(int, match.groups())) if match else (0,)


def _output(command: Sequence[str], variables: Mapping[str, str]) -> bytes | None:
    inherited = {name: value for name, value in os.environ.items() if name not in _PLACES}
    try:
        process = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            env={**inherited, **_FIXED, **variables},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return process.stdout if process.returncode == 0 else None
