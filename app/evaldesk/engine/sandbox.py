"""Hides files from a player by namespaces of Linux: eval sets, the database and the home, but for its own code.

The process moves into a user and a mount namespace of its own, covers hidden paths with empty files and folders, and
gives up every capability, so that it cannot uncover them; a namespace that it makes later inherits the covers locked
(mount_namespaces(7)). Nothing is installed and nobody is asked for rights. It imports only the standard library, since
a player on the agent's own interpreter runs it first. (decision 471)
"""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence

# Numbers of the kernel's headers, since ctypes has no names for them and nothing else may be imported (decision 471).
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MS_NOEXEC, MS_NOATIME, MS_NODIRATIME, MS_RELATIME = 8, 1024, 2048, 1 << 21
MNT_DETACH = 2
PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 24, 38, 47, 4
LINUX_CAPABILITY_VERSION_3 = 0x20080522
N_CAPABILITIES = 64

WALLS = ("--unshare-user", "--cap-drop", "ALL", "--dev-bind", "/", "/")
"""The arguments of bubblewrap for everything that is not hidden."""
FLAG = "--sandbox"
"""The argument of `boot.py` before the plan of a sandbox."""


def plan_text(hidden_paths: "list[str]", visible: "list[str]", read_only: "list[str]") -> str:
    """The argument that describes a sandbox.

    Paths to hide, paths inside of them that stay visible, and folders that cannot be written; absent ones are left out.
    """
    return json.dumps({"hidden": hidden_paths, "visible": visible, "read_only": read_only})


def enter(text: str) -> None:
    """Move this process, which must have one thread, into the sandbox of that description.

    Raises OSError where the machine does not allow it.
    """
    plan = json.loads(text)
    hidden_paths = _outermost([path for path in plan["hidden"] if os.path.exists(path)])
    inside = _visible_inside(plan["visible"], hidden_paths)
    folder = os.getcwd()
    uid, gid = os.getuid(), os.getgid()
    _call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
    # The kernel refuses a gid_map without rights until groups are given up (user_namespaces(7)).
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Before the first cover, or covers would appear outside as well: decision 471.
    _mount("none", "/", "", MS_REC | MS_PRIVATE)

    staging = tempfile.mkdtemp(prefix="evaldesk-sandbox-")
    # Forks of this process would share the sequence of names, so that a zygote refuses one that has begun.
    vars(tempfile)["_name_sequence"] = None
    _mount("tmpfs", staging, "tmpfs", MS_NOSUID | MS_NODEV)
    copies = []
    for number, path in enumerate(inside):  # held aside while their folder is covered
        copy = os.path.join(staging, str(number))
        _make_place(copy, is_folder=os.path.isdir(path))
        _mount(path, copy, "", MS_BIND | MS_REC)
        copies.append((copy, path))
    nothing = os.path.join(staging, "nothing")
    _make_place(nothing, is_folder=False)
    os.chmod(nothing, 0)
    for path in hidden_paths:
        _cover(path, nothing)
    for copy, path in copies:
        _make_place(path, is_folder=os.path.isdir(copy))
        _mount(copy, path, "", MS_BIND | MS_REC)
    for path in _hidden_again(plan["hidden"], hidden_paths):
        _cover(path, nothing)
    for path in plan["read_only"]:
        if os.path.isdir(path):
            _mount(path, path, "", MS_BIND | MS_REC)
            _mount("none", path, "", MS_REMOUNT | MS_BIND | MS_RDONLY | _kept_flags(path))
    _call("umount2", os.fsencode(staging), MNT_DETACH)
    os.rmdir(staging)
    if os.path.isdir(folder):
        os.chdir(folder)  # the one from before is below the covers
    _drop_capabilities()


def problem() -> str:
    """Why no process can be put into a sandbox here, in words; empty where it can."""
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    process = subprocess.run([sys.executable, "-I", __file__], check=False, capture_output=True, text=True, timeout=60)
    if not process.returncode:
        return ""
    return (
        f"this machine allows no user namespaces ({process.stderr.strip()[-200:]}); its administrator decides that by "
        "user.max_user_namespaces, and on Ubuntu by kernel.apparmor_restrict_unprivileged_userns"
    )


def has_bubblewrap() -> bool:
    """Whether bubblewrap is installed and may make namespaces."""
    command = shutil.which("bwrap")
    if command is None:
        return False
    try:
        trial = [command, *WALLS, "true"]
        return not subprocess.run(trial, check=False, capture_output=True, timeout=60).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def bubblewrap_command(
    hidden_paths: "Sequence[str]", visible: "Sequence[str]", read_only: "Sequence[str]"
) -> "list[str]":
    """The command, without that of the program, by which bubblewrap makes the same sandbox as `enter`."""
    there = _outermost([path for path in hidden_paths if os.path.exists(path)])
    command = ["bwrap", *WALLS, "--die-with-parent"]
    command += [part for path in there for part in _cover_arguments(path)]
    inside = _visible_inside(visible, there)
    command += [part for path in inside for part in ("--bind", path, path)]
    command += [part for path in _hidden_again(hidden_paths, there) for part in _cover_arguments(path)]
    command += [part for path in read_only if os.path.isdir(path) for part in ("--ro-bind", path, path)]
    return [*command, "--chdir", os.getcwd(), "--"]


def _cover_arguments(path: str) -> "tuple[str, ...]":
    return ("--tmpfs", path) if os.path.isdir(path) else ("--bind", os.devnull, path)


def _outermost(paths: "list[str]") -> "list[str]":
    """The paths that lie in none of the others, each once."""
    outermost = []  # type: list[str]
    for path in sorted(set(map(os.path.realpath, paths))):
        if not _is_inside(path, outermost):
            outermost.append(path)
    return outermost


def _visible_inside(visible: "Sequence[str]", hidden_paths: "list[str]") -> "list[str]":
    """The outermost visible paths inside of hidden folders; a hidden folder itself stays hidden."""
    return _outermost(
        [
            path
            for path in visible
            if os.path.exists(path) and _is_inside(path, hidden_paths) and os.path.realpath(path) not in hidden_paths
        ]
    )


def _hidden_again(paths: "Sequence[str]", outermost: "list[str]") -> "list[str]":
    """The outermost hidden paths inside of what is visible again, each once where links lead to it."""
    real = {os.path.realpath(path) for path in paths if os.path.exists(path)}
    return _outermost(sorted(real.difference(outermost)))


def _is_inside(path: str, folders: "list[str]") -> bool:
    real = os.path.realpath(path)
    return any(real == each or real.startswith(each.rstrip("/") + "/") for each in folders)


def _cover(path: str, nothing: str) -> None:
    """Put an empty folder, or the file `nothing`, over a path."""
    if os.path.isdir(path):
        _mount("tmpfs", path, "tmpfs", MS_NOSUID | MS_NODEV)
    else:
        _mount(nothing, path, "", MS_BIND)


def _kept_flags(path: str) -> int:
    """The flags of the mount at a path which a remount in a user namespace has to repeat."""
    flags = os.statvfs(path).f_flag
    return (flags & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME | MS_NODIRATIME)) | (
        MS_RELATIME if flags & os.ST_RELATIME else 0
    )


def _make_place(path: str, is_folder: bool) -> None:
    if is_folder:
        os.makedirs(path, exist_ok=True)
    elif not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x"):
            pass


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _mount(source: str, target: str, kind: str, flags: int) -> None:
    options = b"mode=755" if kind else None
    _call("mount", os.fsencode(source), os.fsencode(target), kind.encode() or None, ctypes.c_ulong(flags), options)


def _drop_capabilities() -> None:
    """Give up all capabilities, also for programs that root starts."""
    _call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _call("prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    for capability in range(N_CAPABILITIES):
        try:
            _call("prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError:
            break  # beyond the last one that this kernel knows
    header = (ctypes.c_uint32 * 2)(LINUX_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice 32 bits each
    _call("capset", header, nothing)


def _call(name: str, *arguments: object) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


if __name__ == "__main__":  # a trial, see `problem`
    try:
        enter(plan_text([], [], []))
    except OSError as error:
        sys.exit(str(error))
