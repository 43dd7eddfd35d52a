"""Whether a folder is on another machine's disk, where SQLite's promises do not hold."""

from __future__ import annotations

import re
from pathlib import Path

KINDS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "afs", "9p", "vboxsf", "prl_fs", "fuse.sshfs"})
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
    found = [mount for mount in map(_mount, lines) if mount and here.is_relative_to(mount[0])]
    kind = max(found, key=lambda mount: len(mount[0].parts), default=(here, ""))[1]
    return kind if kind in KINDS else ""


def disk_warning(folder: Path) -> str:
    """A sentence for a folder on a network disk; empty for any other."""
    kind = network_disk(folder)
    if not kind:
        return ""
    return (
        f"{folder} is on a network disk ({kind}): two machines that write there at once may damage the database; "
        "name a workspace on a local disk with --workspace"
    )


def _mount(line: str) -> tuple[Path, str] | None:
    """Where a file system is mounted, and its kind; blanks in the path are written as octal numbers."""
    fields, _, kind = line.partition(" - ")
    parts = fields.split(" ")
    if len(parts) < 5 or not kind:
        return None
    place = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), parts[4])
    return Path(place), kind.split(" ")[0]
