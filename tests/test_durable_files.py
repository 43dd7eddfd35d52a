"""The file layer on a disk that fails, or killed, at every call: a name holds the whole old or the whole new file."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from tests.faulty_disk import FaultyDisk, Killed

from evaldesk.durable_files import (
    append_file,
    copy_file,
    create_file,
    make_folder,
    move_file,
    remove_file,
    remove_leftovers,
    replace_file,
    write_output,
)
from evaldesk.errors import ConflictError, DiskError

OLD, NEW = b"old" * 50_000, b"new!" * 70_000
FAULTS = [
    pytest.param((None, False), id="killed"),
    *[pytest.param((number, False), id=errno.errorcode[number]) for number in (errno.ENOSPC, errno.EIO, errno.EROFS)],
    pytest.param((errno.ENOSPC, True), id="full-from-then-on"),
]
Fault = tuple[int | None, bool]


@dataclass(frozen=True)
class Operation:
    """A call of the layer in an empty folder; the files that it begins with, and those that it ends with."""

    act: Callable[[Path], None]
    before: dict[str, bytes]
    after: dict[str, bytes]


OPERATIONS = {
    "create": Operation(lambda here: create_file(here / "a", NEW), {}, {"a": NEW}),
    "replace": Operation(lambda here: replace_file(here / "a", NEW), {"a": OLD}, {"a": NEW}),
    "replace-nothing": Operation(lambda here: replace_file(here / "a", NEW), {}, {"a": NEW}),
    "move": Operation(lambda here: move_file(here / "a", here / "b"), {"a": OLD}, {"b": OLD}),
    "move-case": Operation(lambda here: move_file(here / "a", here / "A"), {"a": OLD}, {"A": OLD}),
    "copy": Operation(lambda here: copy_file(here / "a", here / "b"), {"a": OLD}, {"a": OLD, "b": OLD}),
    "remove": Operation(lambda here: remove_file(here / "a"), {"a": OLD}, {}),
}


def files(folder: Path) -> dict[str, bytes]:
    """What a reader finds: the temporary files of killed writers are hidden ones."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}


def broken_off(operation: Operation, fault: Fault, folder: Path) -> Iterator[Path]:
    """A folder for each call at which the operation failed."""
    number, lasts = fault
    for at in count(1):
        here = folder / str(at)
        here.mkdir()
        for name, data in operation.before.items():
            (here / name).write_bytes(data)
        disk = FaultyDisk(at, number, lasts=lasts)
        with disk.inserted(), suppress(Killed, DiskError):
            operation.act(here)
        yield here
        if not disk.was_reached:
            return


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_call_that_fails_leaves_whole_files_and_the_retry_succeeds(
    name: str, fault: Fault, tmp_path: Path
) -> None:
    operation = OPERATIONS[name]
    known = {**operation.before, **operation.after}
    n_states = 0

    for here in broken_off(operation, fault, tmp_path):
        found = files(here)
        n_states += 1
        assert all(data in (operation.before.get(each), operation.after.get(each)) for each, data in found.items())
        assert found or not (operation.before and operation.after), "the bytes are under none of the names"
        if fault[1]:
            assert [each.name for each in here.iterdir() if each.name.startswith(".")] == []
        if found != operation.after:
            operation.act(here)
        remove_leftovers(here)
        assert files(here) == operation.after
        assert {path.name for path in here.iterdir()} <= set(known)

    assert n_states > 3 or name == "remove"


@pytest.mark.parametrize("fault", FAULTS[1:])
@pytest.mark.parametrize("lacks_links", [False, True])
def test_a_disk_without_links_gets_whole_files_too(
    lacks_links: bool, fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if lacks_links:
        monkeypatch.setattr(os, "link", refuse)
    for name in ("create", "move", "copy"):
        (tmp_path / name).mkdir()
        for here in broken_off(OPERATIONS[name], fault, tmp_path / name):
            found = files(here)
            assert set(found.values()) <= {OLD, NEW}


SCRIPT = """
import os, pathlib, signal, sys
from tests.faulty_disk import FaultyDisk
from tests.test_durable_files import OPERATIONS

folder = pathlib.Path(sys.argv[1])
for name, operation in OPERATIONS.items():
    for at in range(1, 60):
        here = folder / f"{name}.{at}"
        here.mkdir()
        for each, data in operation.before.items():
            (here / each).write_bytes(data)
        child = os.fork()
        if not child:
            with FaultyDisk(at, kill=lambda: os.kill(os.getpid(), signal.SIGKILL)).inserted():
                operation.act(here)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            break
"""


@pytest.mark.long
def test_a_real_kill_at_every_call_leaves_whole_files_and_the_next_writer_cleans_up(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path)], check=True, cwd=Path(__file__).parents[1])

    folders = sorted(tmp_path.iterdir())
    assert len(folders) > 40
    for here in folders:
        operation = OPERATIONS[here.name.partition(".")[0]]
        found = files(here)
        assert all(data in (operation.before.get(each), operation.after.get(each)) for each, data in found.items())
        if found != operation.after:
            operation.act(here)
        assert files(here) == operation.after
        replace_file(here / "next", b"")
        assert [path.name for path in here.iterdir() if path.name.startswith(".")] == []


def test_a_writer_that_lives_keeps_its_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_write = os.write
    removed = []

    def write(handle: int, data: bytes) -> int:
        removed.append(remove_leftovers(tmp_path))
        return real_write(handle, data)

    monkeypatch.setattr(os, "write", write)
    create_file(tmp_path / "a", NEW)

    assert removed == [0]
    assert files(tmp_path) == {"a": NEW}


def test_hidden_files_of_others_and_links_are_no_leftovers(tmp_path: Path) -> None:
    kept = [".a.tmp", ".a.0123456789abcdef.tmp", "a.0123456789abcdef.evaldesk-tmp", ".gitignore"]
    for name in kept:
        (tmp_path / name).write_text("kept")
    link = tmp_path / ".a.0123456789abcdef.evaldesk-tmp"
    link.symlink_to(tmp_path / ".gitignore")

    assert remove_leftovers(tmp_path) == 0
    assert {path.name for path in tmp_path.iterdir()} == {*kept, link.name}


def test_a_new_file_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(OLD)
    (tmp_path / "b").write_bytes(NEW)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")

    for name in ("a", "link"):
        with pytest.raises(ConflictError, match="already"):
            create_file(tmp_path / name, NEW)
        with pytest.raises(ConflictError, match="already"):
            move_file(tmp_path / "b", tmp_path / name)
        with pytest.raises(ConflictError, match="already"):
            copy_file(tmp_path / "b", tmp_path / name)

    assert (tmp_path / "b").read_bytes() == NEW
    assert (tmp_path / "a").read_bytes() == OLD
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (
            errno.ENOSPC,
            "a cannot be written: the disk is full (No space left on device); free some space and",
        ),
        (errno.EROFS, "a cannot be written: the disk can only be read (Read-only file system); make it writable"),
        (errno.EIO, "a cannot be written: the disk reports an error (Input/output error); check the disk"),
    ],
)
def test_a_failure_is_told_in_words(number: int, words: str, tmp_path: Path) -> None:
    with FaultyDisk(1, number, lasts=True).inserted(), pytest.raises(DiskError) as raised:
        create_file(tmp_path / "a", NEW)

    assert str(raised.value).startswith(words)
    assert (raised.value.errno, raised.value.strerror) == (number, os.strerror(number))
    assert isinstance(raised.value, OSError)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_line_that_does_not_fit_leaves_the_lines_before_it(number: int, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_file(path, b"one\n")

    for at in count(1):
        disk = FaultyDisk(at, number)
        with disk.inserted():
            try:
                append_file(path, b"two\n")
            except DiskError:
                assert path.read_bytes() == b"one\n"
        path.write_bytes(b"one\n")
        if not disk.was_reached:
            break


def test_an_output_follows_a_link_and_goes_into_a_pipe_and_keeps_the_mode(tmp_path: Path) -> None:
    real, link, pipe = tmp_path / "real", tmp_path / "link", tmp_path / "pipe"
    real.write_bytes(OLD)
    real.chmod(0o640)
    link.symlink_to(real)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_output(link, NEW)
    write_output(pipe, b"x")

    assert (link.is_symlink(), real.read_bytes(), real.stat().st_mode & 0o777) == (True, NEW, 0o640)
    assert (pipe.is_fifo(), os.read(reader, 9)) == (True, b"x")
    os.close(reader)


def test_a_folder_where_a_file_stands_is_told_in_words(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")

    with pytest.raises(DiskError, match="there is a file of that name"):
        make_folder(tmp_path / "a" / "b")

    make_folder(tmp_path / "c" / "d")
    assert (tmp_path / "c" / "d").is_dir()
