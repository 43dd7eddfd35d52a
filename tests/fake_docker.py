"""A `docker` for machines without a daemon: `run`, `exec` and `kill`, with namespaces in the place of containers.

A container has its own processes, its own mounts and, with `--network none`, no network. Its image is a folder whose
`bin` is first on PATH. Nothing else of docker is here: bounds of memory and CPU are read and not held.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

PLACE = "FAKE_DOCKER"
"""The variable with the folder of images, of running containers, and of the log of commands."""
UNSHARE = "/usr/bin/unshare"
GET_FLAGS, SET_FLAGS, IS_UP = 0x8913, 0x8914, 1
NO_DAEMON, NO_COMMAND = 125, 127
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGABRT)


def install(folder: Path, client: str = "docker") -> Path:
    """A folder for PATH with a `docker` that is this file; images are folders of `images` beside it."""
    binaries = folder / "bin"
    for each in (binaries, folder / "images", folder / "running"):
        each.mkdir(exist_ok=True, parents=True)
    command = binaries / client
    command.write_text(
        f'#!/bin/sh\n{PLACE}="{folder}" exec "{sys.executable}" -S -E "{Path(__file__).resolve()}" "$@"\n'
    )
    command.chmod(0o755)
    return binaries


def need_namespaces() -> None:
    """Skip a test where the kernel gives this user no namespaces and no mounts."""
    import pytest  # not in the command, which has the standard library alone

    tried = subprocess.run([UNSHARE, "-m", "-p", "-f", "-n", "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip("this user may make no namespaces")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in ("--interactive", "--rm", "--init"):
        parser.add_argument(flag, action="store_true", required=True)
    parser.add_argument("--read-only", action="store_true")
    for flag in (
        "--name",
        "--cpus",
        "--memory",
        "--memory-swap",
        "--pids-limit",
        "--workdir",
        "--entrypoint",
    ):
        parser.add_argument(flag, required=True)
    for flag in ("--network", "--user", "--userns"):
        parser.add_argument(flag)
    for flag in ("--cap-drop", "--security-opt", "--mount", "--tmpfs", "--env"):
        parser.add_argument(flag, action="append", default=[])
    parser.add_argument("image")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _run(place: Path, words: list[str]) -> int:
    asked = _parser().parse_args(words)
    image = place / "images" / asked.image.replace(":", "_")
    if not image.is_dir():
        sys.stderr.write(f"Unable to find image '{asked.image}' locally\n")
        return NO_DAEMON
    environment = {"PATH": "/opt/image/bin:/usr/bin:/bin", **_variables(asked.env)}
    plan = {
        "mounts": [dict(part.partition("=")[::2] for part in each.split(",")) for each in asked.mount],
        "tmpfs": [each.partition(":")[0] for each in asked.tmpfs],
        "image": str(image),
        "workdir": asked.workdir,
        "command": [asked.entrypoint, *asked.arguments],
        "environment": environment,
    }
    flags = ["-m", "-p", "-f", "--kill-child", "--mount-proc", *(["-n"] if asked.network == "none" else [])]
    inside = [sys.executable, "-S", "-E", __file__, "inside", json.dumps(plan)]
    started = subprocess.Popen([UNSHARE, *flags, *inside], start_new_session=True)
    running = place / "running" / asked.name
    running.write_text(json.dumps({"pid": started.pid, "environment": environment, "workdir": asked.workdir}))
    for number in PASSED_ON:
        signal.signal(number, lambda got, _: _to_container(started.pid, got))
    code = started.wait()
    running.unlink()
    return code if code >= 0 else 128 - code


def _variables(asked: list[str]) -> dict[str, str]:
    found = {}
    for each in asked:
        name, has_value, value = each.partition("=")
        if has_value or name in os.environ:
            found[name] = value if has_value else os.environ[name]
    return found


def _exec(place: Path, words: list[str]) -> int:
    """A command in a running container, which leads a session of its own, as one of runc does."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--interactive", action="store_true")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("name")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    try:
        running = json.loads((place / "running" / asked.name).read_text())
    except OSError:
        sys.stderr.write(f"no such container: {asked.name}\n")
        return 1
    [first] = Path(f"/proc/{running['pid']}/task/{running['pid']}/children").read_text().split()
    inside = ["/usr/bin/nsenter", "-t", first, "-m", "-p", "-n", "-r", f"--wd=/proc/{first}/root{running['workdir']}"]
    given = sys.stdin if asked.interactive else subprocess.DEVNULL
    environment = {**running["environment"], **_variables(asked.env)}
    command = [*inside, "/usr/bin/setsid", "-w", *asked.command]
    return subprocess.run(command, env=environment, stdin=given, check=False).returncode


def _to_container(unshare: int, number: int) -> None:
    """`unshare` passes nothing on: the signal is for the first process of the container."""
    children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    for child in children:
        os.kill(int(child), number)


def _inside(plan: dict[str, Any]) -> int:
    """The first process of a container: mounts, then the command, and what becomes of it."""
    _raise_loopback()
    _mount("-t", "tmpfs", "tmpfs", "/opt")
    places = [*plan["mounts"], {"source": plan["image"], "target": "/opt/image"}]
    for each in places:
        target = Path(each["target"])
        if Path(each["source"]).is_dir():
            target.mkdir(parents=True)
        elif not target.exists():
            target.touch()
        _mount("--bind", each["source"], str(target))
        _mount("-o", "remount,ro,bind", str(target))
    if not Path(plan["workdir"]).exists():
        _change_root(Path("/mnt"), plan["workdir"])
    for folder in plan["tmpfs"]:
        Path(folder).mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", "tmpfs", folder)
    try:
        started = subprocess.Popen(
            plan["command"],
            env=plan["environment"],
            cwd=plan["workdir"],
            start_new_session=True,
        )
    except OSError as error:
        sys.stderr.write(f"exec: {error}\n")
        return NO_COMMAND
    for number in PASSED_ON:
        signal.signal(number, lambda got, _: os.kill(started.pid, got))
    code: int = started.wait()
    return code if code >= 0 else 128 - code


def _change_root(root: Path, workdir: str) -> None:
    """A root of its own that can be written, with the folders of this one and an empty /tmp."""
    folders = [each for each in Path("/").iterdir() if each != root]
    _mount("-t", "tmpfs", "tmpfs", str(root))
    for each in folders:
        target = root / each.name
        if each.is_symlink():
            target.symlink_to(each.readlink())
        elif each.is_dir():
            target.mkdir()
            if each.name != "tmp":
                _mount("--rbind", str(each), str(target))
    os.chroot(root)
    Path(workdir).mkdir(parents=True)


def _raise_loopback() -> None:
    """A container without a network has a loopback; a namespace of the kernel has it off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        found = fcntl.ioctl(asked, GET_FLAGS, struct.pack("16sh", b"lo", 0))
        name, flags = struct.unpack("16sh", found)
        fcntl.ioctl(asked, SET_FLAGS, struct.pack("16sh", name, flags | IS_UP))


def _mount(*words: str) -> None:
    subprocess.run(["/bin/mount", *words], check=True)


def _kill(place: Path, name: str) -> int:
    try:
        os.kill(json.loads((place / "running" / name).read_text())["pid"], signal.SIGKILL)
    except (OSError, ValueError):
        sys.stderr.write(f"no such container: {name}\n")
        return 1
    (place / "running" / name).unlink(missing_ok=True)
    return 0


def main() -> int:
    """What docker would do."""
    if sys.argv[1] == "inside":
        return _inside(json.loads(sys.argv[2]))
    place = Path(os.environ[PLACE])
    with (place / "log").open("a") as log:
        log.write(json.dumps(sys.argv[1:]) + "\n")
    if sys.argv[1] == "kill":
        return _kill(place, sys.argv[2])
    return (_exec if sys.argv[1] == "exec" else _run)(place, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
