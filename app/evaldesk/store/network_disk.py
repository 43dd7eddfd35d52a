"""Whether a folder is on another machine's disk, where SQLite's promises do not hold."""

from __future__ import annotations

import os
import re
from pathlib import Path

from evaldesk.errors import WorkspaceError

KINDS = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb2", "smb3", "smbfs", "ncpfs", "afs", "coda", "davfs"),
        *("ceph", "lustre", "gpfs", "beegfs", "orangefs", "pvfs2", "glusterfs", "gfs2", "ocfs2"),
        *("9p", "vboxsf", "vmhgfs", "prl_fs"),
        *(f"fuse.{name}" for name in ("sshfs", "ceph", "ceph-fuse", "glusterfs", "juicefs", "davfs", "davfs2")),
        *(f"fuse.{name}" for name in ("s3fs", "goofys", "mount-s3", "gcsfuse", "blobfuse", "blobfuse2", "rclone")),
        *(f"fuse.{name}" for name in ("smbnetfs", "cifs", "curlftpfs", "vmhgfs-fuse")),
    }
)
"""Disks of other machines, of clusters and object stores, and of the host of a virtual machine; not virtiofs, which is
the root of containers that no other machine writes."""
VARIABLE = "EVALDESK_NETWORK_DISK"
MOUNTS = Path("/proc/self/mountinfo")


def network_disk(folder: Path, mounts: Path = MOUNTS) -> str:
    """The kind of network file system that `folder` is on, such as `nfs4`; empty for a local one, or where unknown.

    `mounts` is as proc(5) describes /proc/[pid]/mountinfo; other systems than Linux have none.
    """
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:
        return ""
    here = folder.resolve()
    enclosing_mounts = [mount for mount in map(_mount, lines) if mount and here.is_relative_to(mount[0])]
    # Of mounts at one place the last hides the others: the automounter has one there, and then the disk itself.
    kind = max(reversed(enclosing_mounts), key=lambda mount: len(mount[0].parts), default=(here, ""))[1]
    return kind if kind in KINDS else ""


def disk_refusal(folder: Path) -> str:
    """The reason why no SQLite file is opened in a folder on a network disk; empty for any other.

    Locks and shared memory of SQLite are of one machine. A person may permit the folder by VARIABLE.
    """
    kind = "" if os.environ.get(VARIABLE) == "1" else network_disk(folder)
    if not kind:
        return ""
    return (
        f"{folder} is on a network disk ({kind}), where the locks of SQLite do not hold: two machines that write there "
        "would damage the database; name a workspace on a local disk with --workspace, or a server of PostgreSQL with "
        f"EVALDESK_STORE (docs/store.md), or set {VARIABLE}=1 where no other machine ever opens it"
    )


def check_disk(folder: Path) -> None:
    """Raise WorkspaceError for a folder in which no SQLite file may be opened."""
    if words := disk_refusal(folder):
        raise WorkspaceError(words)


def _mount(line: str) -> tuple[Path, str] | None:
    """Where a file system is mounted, and its kind; blanks in the path are written as octal numbers."""
    fields, _, kind = line.partition(" - ")
    parts = fields.split(" ")
    if len(parts) < 5 or not kind:
        return None
    place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), parts[4])
    return Path(place), kind.split(" ")[0]
