"""The folders that this user trusts on this machine, kept in the user's state folder and nowhere else.

A workspace of this user carries a mark that only this user can make: a digest of its path under a key that never
leaves the state folder. A repository that comes with a `.evaldesk` of its own has no such mark, and a folder that was
deleted and made again at the same path has lost it.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from evaldesk.durable_files import create_file, make_folder, replace_file
from evaldesk.errors import ConflictError
from evaldesk.store.database import check_no_links, make_private_folder

MARK_NAME = "owner"
KEY_NAME = "key"
ANSWERED, MADE = "answered", "made"
MAX_FILE = 4096


class Answers:
    """The answers in `$XDG_STATE_HOME/evaldesk`, by default `~/.local/state/evaldesk`; none where there is no home."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._home = _state_home(environment)

    def is_trusted(self, folder: Path) -> bool:
        """Whether the folder, or one above it, is trusted."""
        return bool(self.how(folder))

    def how(self, folder: Path) -> str:
        """How the folder, or one above it, came to be trusted; empty where it is not.

        The yes for a folder that was empty does not hold for another repository inside of it.
        """
        is_other_repository = False
        folder = folder.resolve()
        for each in (folder, *folder.parents):
            how = self._answer(each)
            if how:
                return "" if how == MADE and is_other_repository else how
            is_other_repository |= (each / ".git").exists()
        return ""

    def trust(self, folder: Path, how: str = ANSWERED) -> bool:
        """Write down that the folder is trusted; False where it cannot be kept."""
        folder = folder.resolve()
        try:
            seen = folder.stat()
            answer = {"folder": str(folder), "inode": seen.st_ino, "owner": seen.st_uid, "how": how}
            path = self._path(folder)
            if path is None:
                return False
            make_folder(path.parent)
            replace_file(path, json.dumps(answer).encode(), mode=0o600)
        except OSError:
            return False
        return True

    def is_own(self, state_folder: Path) -> bool:
        """Whether this user's desk made the folder `.evaldesk`, on this machine and at this path."""
        wanted, found = self._mark(state_folder), _read_own(state_folder / MARK_NAME)
        return bool(wanted and found) and hmac.compare_digest(wanted, found)

    def mark_own(self, state_folder: Path) -> bool:
        """Mark `.evaldesk` as made by this user; False where that cannot be kept. Raises WorkspaceError for a link."""
        check_no_links(state_folder)
        try:
            mark = self._mark(state_folder, is_made=True)
            if mark:
                make_private_folder(state_folder)
                replace_file(state_folder / MARK_NAME, mark.encode(), mode=0o600)
        except OSError:
            return False
        return bool(mark)

    def _answer(self, folder: Path) -> str:
        """How the folder came to be trusted; empty where it is not, or is another folder at the same path."""
        path = self._path(folder)
        try:
            found = json.loads(_read_own(path) or "null") if path else None
            seen = folder.stat()
        except (OSError, ValueError):
            return ""
        if not isinstance(found, dict):
            return ""
        is_same = (found.get("folder"), found.get("inode"), found.get("owner")) == (
            str(folder),
            seen.st_ino,
            seen.st_uid,
        )
        return str(found.get("how", "")) if is_same else ""

    def _path(self, folder: Path) -> Path | None:
        name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
        return self._home / "trusted" / f"{name}.json" if self._home else None

    def _mark(self, state_folder: Path, *, is_made: bool = False) -> str:
        """The digest that the folder carries; empty where there is no key."""
        key = self._key(is_made=is_made)
        if not key:
            return ""
        place = os.fsencode(state_folder.parent.resolve() / state_folder.name)
        return hmac.new(key.encode(), place, hashlib.sha256).hexdigest()

    def _key(self, *, is_made: bool) -> str:
        if self._home is None:
            return ""
        path = self._home / KEY_NAME
        if is_made and not path.exists():
            make_folder(self._home)
            with suppress(ConflictError):  # another desk of this user was quicker
                create_file(path, secrets.token_hex(32).encode(), mode=0o600)
        return _read_own(path)


def _state_home(environment: Mapping[str, str]) -> Path | None:
    named = environment.get("XDG_STATE_HOME", "")
    if os.path.isabs(named):
        return Path(named) / "evaldesk"
    home = environment.get("HOME", "")
    return Path(home) / ".local" / "state" / "evaldesk" if os.path.isabs(home) else None


def _read_own(path: Path) -> str:
    """The text of a file that this user alone can write; empty for any other."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        seen = os.fstat(handle)
        is_ours = stat.S_ISREG(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o022
        return os.read(handle, MAX_FILE).decode("ascii", "replace") if is_ours else ""
    except OSError:
        return ""
    finally:
        os.close(handle)
