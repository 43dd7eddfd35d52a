"""Rotating backups of an SQLite database, by SQLite's backup API: hourly while it changes (decision 501)."""

from __future__ import annotations

import re
import secrets
import shutil
import sqlite3
from collections.abc import Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evaldesk.durable_files import make_folder, move_file, remove_file, remove_leftovers
from evaldesk.errors import DamagedDatabaseError, NotFoundError
from evaldesk.paths import make_private_file

PERIOD = timedelta(hours=1)
N_HOURLY, N_DAILY = 24, 7
MOST_BYTES = 4 * 2**30
"""All backups together; the oldest go first, and a database of more than half of it gets none."""
FREE_BYTES = 64 * 2**20
"""This much of the disk stays free."""
LATEST = "latest"
_FOLDER, _STAMP = "backups", "%Y%m%dT%H%M%SZ"
_NAME = re.compile(r"evaldesk-(\d{8}T\d{6}Z)\.db")


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup, named by its moment: `20261128T231000Z`."""

    path: Path
    made_at: datetime
    n_bytes: int

    @property
    def name(self) -> str:
        """The name by which it is asked for."""
        return self.made_at.strftime(_STAMP)


def backups_of(path: Path, now: datetime) -> Sequence[Backup]:
    """The backups of a database, the newest first; one of the future was made by somebody else, or by another clock."""
    folder, backups = path.with_name(_FOLDER), []
    for each in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
        if (match := _NAME.fullmatch(each.name)) and each.is_file() and not each.is_symlink():
            made_at = datetime.strptime(match[1], _STAMP).replace(tzinfo=UTC)
            if made_at <= now:
                backups.append(Backup(each, made_at, each.stat().st_size))
    return sorted(backups, key=lambda backup: backup.made_at, reverse=True)


def backup_named(path: Path, name: str, now: datetime) -> Backup:
    """The backup of that name, or the newest for `latest`. Raises NotFoundError."""
    backups = backups_of(path, now)
    if name == LATEST and backups:
        return backups[0]
    for each in backups:
        if each.name == name:
            return each
    raise NotFoundError.among("backup", name, [LATEST, *(each.name for each in backups)] if backups else [])


def back_up(path: Path, now: datetime) -> Backup | None:
    """Make a backup where one is due, and remove those that expired; None where none is due or no room is left.

    Raises DamagedDatabaseError where the database is damaged: the older backups stay.
    """
    backups_before = backups_of(path, now)
    if not _is_due(path, backups_before, now):
        return None
    n_bytes, folder = path.stat().st_size, path.with_name(_FOLDER)
    make_folder(folder)
    folder.chmod(0o700)
    remove_leftovers(folder)
    if n_bytes > MOST_BYTES // 2 or shutil.disk_usage(folder).free < n_bytes + FREE_BYTES:
        return None
    target = folder / f"evaldesk-{now.astimezone(UTC).strftime(_STAMP)}.db"
    temporary = folder / f".{target.name}.{secrets.token_hex(8)}.evaldesk-tmp"
    try:
        copy_database(path, temporary)
        _check_sound(path, temporary)
        move_file(temporary, target)
    finally:
        remove_file(temporary)
    backups = backups_of(path, now)
    for each in expired(backups):
        remove_file(each.path)
    return backups[0]


def _is_due(path: Path, backups: Sequence[Backup], now: datetime) -> bool:
    if not path.is_file():
        return False
    parts = (path, path.with_name(f"{path.name}-wal"))
    changed_s = max(each.stat().st_mtime for each in parts if each.exists())
    return not backups or (now - backups[0].made_at >= PERIOD and changed_s > backups[0].made_at.timestamp())


def copy_database(source: Path, target: Path) -> None:
    """Copy a database as it is at one moment, while others write into it; the copy is on the disk afterwards."""
    make_private_file(target)
    address = f"{source.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as reading, closing(sqlite3.connect(target)) as writing:
        # One step for all pages: it reads one state of the log, where steps begin anew after each write of others.
        reading.backup(writing, pages=-1)


def _check_sound(path: Path, copy: Path) -> None:
    """Read each page of the copy: a damaged one must not displace a sound one."""
    with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        try:
            (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.DatabaseError as error:
            raise DamagedDatabaseError.at(path, error) from error
    if report != "ok":
        raise DamagedDatabaseError.at(path, report)


def expired(backups: Sequence[Backup]) -> Collection[Backup]:
    """All but the last 24 and the newest of each of the last 7 days with one, within the bound of bytes."""
    newest_first = sorted(backups, key=lambda backup: backup.made_at, reverse=True)
    of_days: dict[object, Backup] = {}
    for each in newest_first:
        of_days.setdefault(each.made_at.date(), each)
    names_to_keep = {each.name for each in (*newest_first[:N_HOURLY], *[*of_days.values()][:N_DAILY])}
    n_bytes, surplus = 0, []
    for number, each in enumerate(newest_first):
        n_bytes += each.n_bytes
        if each.name not in names_to_keep or (number and n_bytes > MOST_BYTES):
            n_bytes -= each.n_bytes
            surplus.append(each)
    return surplus
