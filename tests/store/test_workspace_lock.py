"""Two desks on one workspace: the second is told who holds it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from evaldesk.errors import WorkspaceError
from evaldesk.store import Store, hold_workspace
from evaldesk.store.lock import address_of_holder
from evaldesk.store.network_disk import network_disk

HOLDER = """
import sys, signal
from pathlib import Path
from evaldesk.store import Store, hold_workspace
from evaldesk.store.network_disk import network_disk
hold = hold_workspace(Path(sys.argv[1]), url="http://127.0.0.1:1/")
print("held", flush=True)
signal.pause()
"""


def test_the_second_desk_is_told_who_holds_the_workspace(tmp_path: Path) -> None:
    folder = tmp_path / ".evaldesk"

    with hold_workspace(folder, url="http://127.0.0.1:8420"), pytest.raises(WorkspaceError) as caught:
        hold_workspace(folder, url="http://127.0.0.1:9000")

    assert f"{tmp_path} is held by process {os.getpid()}, http://127.0.0.1:8420" in str(caught.value)


def test_the_port_that_was_bound_can_be_written_later(tmp_path: Path) -> None:
    with hold_workspace(tmp_path, url="http://127.0.0.1:0/a/long/address") as hold:
        hold.update("http://127.0.0.1:53211")

        assert not hold.is_read_only
        with pytest.raises(WorkspaceError, match=r"process \d+, http://127.0.0.1:53211;"):
            hold_workspace(tmp_path, url="")


def test_a_released_workspace_can_be_held_again(tmp_path: Path) -> None:
    hold = hold_workspace(tmp_path, url="http://127.0.0.1:1")
    hold.release()
    hold.release()

    hold_workspace(tmp_path, url="http://127.0.0.1:2").release()


def test_a_full_disk_is_said_and_the_workspace_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def is_full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", is_full)
        with pytest.raises(WorkspaceError, match="No space left on device; name another"):
            hold_workspace(tmp_path, url="")

    hold_workspace(tmp_path, url="").release()


@pytest.mark.server
def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(WorkspaceError, match=f"process {holder.pid}, http://127.0.0.1:1/"):
            hold_workspace(tmp_path, url="")

        holder.send_signal(signal.SIGKILL)
        holder.wait()

    hold_workspace(tmp_path, url="").release()


def test_the_lock_is_private_and_no_link(tmp_path: Path) -> None:
    folder = tmp_path / ".evaldesk"
    with hold_workspace(folder, url=""):
        modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "desk.lock")]
    (tmp_path / "desk.lock").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(WorkspaceError, match="name another workspace"):
        hold_workspace(tmp_path, url="")

    assert modes == [0o700, 0o600]
    assert not (tmp_path / "elsewhere").exists()


def test_a_desk_is_where_the_kernel_says_and_not_where_a_file_says(tmp_path: Path) -> None:
    (tmp_path / "desk.lock").write_text(f"{os.getpid()} http://evil.invalid/\n")  # it came with a repository
    assert address_of_holder(tmp_path) == ""

    with hold_workspace(tmp_path, url="") as hold:
        assert address_of_holder(tmp_path) == "unknown"
        hold.update("http://127.0.0.1:53211/")
        assert address_of_holder(tmp_path) == "http://127.0.0.1:53211/"

    assert address_of_holder(tmp_path) == ""
    assert address_of_holder(tmp_path / "nowhere") == ""


def test_who_only_looks_keeps_no_desk_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "desk.lock").touch()
    looking = os.open(tmp_path / "desk.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("evaldesk.store.lock.sleep", lambda _: os.close(looking))

    hold_workspace(tmp_path, url="").release()


def test_a_disk_without_locks_is_not_mistaken_for_another_desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)

    with pytest.raises(WorkspaceError, match="cannot be locked: No locks available; name another workspace"):
        hold_workspace(tmp_path, url="")


@pytest.mark.parametrize(
    ("place", "expected"),
    [("/shared/me/desk", "nfs4"), ("/shared/my work/desk", "fuse.sshfs"), ("/shared", ""), ("/sharedness/desk", "")],
)
def test_a_network_disk_is_told_from_a_local_one(tmp_path: Path, place: str, expected: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 0:40 / /shared/me rw shared:2 master:3 - nfs4 server:/me rw,vers=4.2\n"
        "31 22 0:41 / /shared/my\\040work rw - fuse.sshfs me@server: rw\n"
        "garbage\n"
    )

    assert network_disk(Path(place), mounts) == expected
    assert network_disk(Path(place), tmp_path / "no proc here") == ""


@pytest.mark.parametrize("kind", ["nfs", "ceph", "lustre", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone"])
def test_of_two_mounts_at_one_place_the_last_is_the_disk(tmp_path: Path, kind: str) -> None:
    lines = ("30 22 0:40 / /data rw - autofs systemd-1 rw\n", f"31 30 0:41 / /data rw - {kind} server:/data rw\n")
    mounts = tmp_path / "mountinfo"

    mounts.write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + "".join(lines))
    of_automounter = network_disk(Path("/data/me"), mounts)
    mounts.write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" + lines[1] + "32 31 8:2 / /data rw - ext4 /dev/sdb rw\n")
    local = network_disk(Path("/data/me"), mounts)

    assert (of_automounter, local) == (kind, "")


@pytest.mark.parametrize("is_made", [False, True], ids=["a new file", "a file that is there"])
def test_a_database_on_a_network_disk_is_refused_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made: bool
) -> None:
    file = tmp_path / ".evaldesk" / "evaldesk.db"
    if is_made:
        Store.open(file).close()
    monkeypatch.setattr("evaldesk.store.network_disk.network_disk", lambda _: "nfs4")

    with pytest.raises(WorkspaceError, match=r"is on a network disk \(nfs4\).*--workspace.*PostgreSQL.*=1"):
        Store.open(file)
    monkeypatch.setenv("EVALDESK_NETWORK_DISK", "1")  # of a person who works there alone
    Store.open(file).close()

    assert file.exists()
