"""Backups of the database: hourly while it changes, few of them, never of a damaged one, and back in its place."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evaldesk.desk.desk import Desk
from evaldesk.errors import DamagedDatabaseError, NotFoundError, WorkspaceError
from evaldesk.model import AgentRef, Case, RunConfig, Turn
from evaldesk.settings import Settings
from evaldesk.store import Store, backups, recovery
from evaldesk.store.backups import Backup, back_up, backup_named, backups_of, expired

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LATER = NOW + 100 * HOUR
CONFIG = RunConfig(AgentRef("dice", "dice:agent"), "set")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / ".evaldesk" / "evaldesk.db"
    found.parent.mkdir()
    add_run(found)
    return found


def add_run(path: Path) -> None:
    with Store.open(path) as store:
        store.runs.create(CONFIG, [Case("one", (Turn("Hello"),))])


def n_runs(path: Path) -> int:
    with Store.open(path, must_exist=True) as store:
        store.check()
        return sum(store.runs.counts_by_status().values())


def touch(path: Path, at: datetime) -> None:
    """Let the database look as if it was written at that moment."""
    for each in (path, path.with_name(f"{path.name}-wal")):
        if each.exists():
            os.utime(each, (at.timestamp(), at.timestamp()))


def damage(path: Path) -> None:
    """Overwrite all pages behind the first one."""
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\x07" * (path.stat().st_size - 4096))


def test_a_backup_is_made_hourly_while_the_database_changes(path: Path) -> None:
    touch(path, NOW - HOUR)
    first = back_up(path, NOW)
    touch(path, NOW + HOUR / 2)

    soon = back_up(path, NOW + HOUR / 2)
    later = back_up(path, NOW + HOUR)
    unchanged = back_up(path, NOW + 3 * HOUR)

    assert first
    assert later
    assert (soon, unchanged) == (None, None)
    assert [each.made_at for each in backups_of(path, LATER)] == [NOW + HOUR, NOW]
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert first.path.parent.stat().st_mode & 0o777 == 0o700
    assert not [each for each in first.path.parent.iterdir() if each.suffix != ".db"]


def test_a_file_of_the_future_is_no_backup_and_keeps_none_from_being_made(path: Path) -> None:
    folder = path.with_name("backups")
    folder.mkdir()
    (folder / "evaldesk-20990101T000000Z.db").write_bytes(path.read_bytes())
    (folder / "evaldesk-20260101T000000Z.db").symlink_to(path)

    made = back_up(path, NOW)

    assert backups_of(path, LATER) == [made]
    assert backup_named(path, "latest", LATER) == made


def test_a_backup_has_the_rows_that_are_still_in_the_log(path: Path) -> None:
    with Store.open(path) as store:
        store.runs.create(CONFIG, [Case("two", (Turn("Hello"),))])
        made = back_up(path, NOW)

    assert made
    with closing(sqlite3.connect(made.path)) as connection:
        assert connection.execute("SELECT count(*) FROM run").fetchone() == (2,)


def test_the_last_24_backups_stay_and_the_newest_of_each_of_7_days() -> None:
    every = [Backup(Path(str(at)), NOW - at * HOUR, 1) for at in range(24 * 20)]

    gone = expired(every)
    left = [each for each in every if each not in gone]

    assert left[:24] == every[:24]
    assert [each.made_at.isoformat() for each in left[24:]] == [
        f"2026-11-{day}T23:00:00+00:00" for day in (26, 25, 24, 23, 22)
    ]


def test_all_backups_together_are_bounded_and_the_newest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "MOST_BYTES", 25)
    every = [Backup(Path(str(at)), NOW - at * HOUR, 10) for at in range(5)]

    assert expired(every) == every[2:]
    assert expired([Backup(Path("large"), NOW, 100)]) == []


def test_a_database_that_is_too_large_or_a_full_disk_gets_no_backup(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backups, "MOST_BYTES", 1000)
    too_large = back_up(path, NOW)
    monkeypatch.undo()
    monkeypatch.setattr(backups, "FREE_BYTES", 2**62)

    assert (too_large, back_up(path, NOW), backups_of(path, LATER)) == (None, None, [])


def test_a_damaged_database_displaces_no_backup(path: Path) -> None:
    first = back_up(path, NOW)
    damage(path)
    touch(path, NOW + HOUR)

    with pytest.raises(DamagedDatabaseError, match="is damaged"):
        back_up(path, NOW + 2 * HOUR)

    assert backups_of(path, LATER) == [first]
    assert first
    assert [each.name for each in first.path.parent.iterdir()] == [first.path.name]


def test_a_restored_backup_has_its_rows_and_the_damaged_file_is_kept(path: Path) -> None:
    back_up(path, NOW)
    add_run(path)
    damage(path)

    sentence = recovery.restore(path, backup_named(path, "latest", LATER))

    (aside,) = path.parent.glob("damaged-*")
    assert n_runs(path) == 1
    assert (aside / path.name).exists()
    assert sentence == (
        f"The backup of 2026-11-28 12:00 UTC is in the place of {path}. Rows that were written after it are only in "
        f"{aside / path.name}, which is kept."
    )
    assert len(backups_of(path, LATER)) == 1


@pytest.mark.parametrize("step", ["make_folder", "_move_aside", "copy_database", "_put_in_place", "remove_file"])
def test_a_restore_that_was_killed_is_finished_by_the_repair(
    path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(path, NOW)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(recovery, step, killed)
        with pytest.raises(KeyboardInterrupt):
            recovery.restore(path, backup_named(path, "latest", LATER))
    with pytest.raises(WorkspaceError, match="doctor --repair"):
        Store.open(path)

    recovery.recover(path)

    assert n_runs(path) == 1


def test_a_name_of_no_backup_is_refused_with_those_there_are(path: Path) -> None:
    with pytest.raises(NotFoundError):
        backup_named(path, "latest", LATER)
    back_up(path, NOW)

    with pytest.raises(NotFoundError, match="20261128T120000Z"):
        backup_named(path, "20261128T110000Z", LATER)


def test_a_database_that_is_open_elsewhere_is_not_replaced(path: Path) -> None:
    made = back_up(path, NOW)
    with Store.open(path) as store:
        store.runs.counts_by_status()
        assert made

        with pytest.raises(WorkspaceError, match="open in another process"):
            _restored_elsewhere(path, made)


def _restored_elsewhere(path: Path, made: Backup) -> None:
    """Locks are those of a process: the restore is tried in another one."""
    import subprocess
    import sys

    code = (
        "import sys\nfrom datetime import UTC, datetime\nfrom pathlib import Path\n"
        "from evaldesk.store.recovery import restore\n"
        "from evaldesk.store.backups import backup_named\npath = Path(sys.argv[1])\n"
        "restore(path, backup_named(path, 'latest', datetime.max.replace(tzinfo=UTC)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise WorkspaceError(done.stderr.splitlines()[-1])


def test_an_open_desk_makes_backups_and_logs_a_damaged_database(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = path.parent.parent
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    desk = Desk.open(Settings(home, (home,)))
    desk.back_up(NOW)
    desk.store.close()
    damage(path)
    touch(path, NOW + HOUR)
    desk.back_up(NOW + 2 * HOUR)

    assert len(backups_of(path, LATER)) == 1
    assert "cannot be backed up" in caplog.text
