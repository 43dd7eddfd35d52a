"""The lines of eval sets in lists: kept by the stamp of their file, and never a reason to wait for a large one."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest
from tests.store.conftest import Clock
from tests.store.evalset_folders import SET, put

from evaldesk.formats import write_evalset
from evaldesk.model import Case, EvalSet, Turn
from evaldesk.model.stored import EvalSetFacts, EvalSetFile
from evaldesk.reading.regular_file import read_regular
from evaldesk.store import Store
from evaldesk.store.evalsets import lines
from evaldesk.store.evalsets.files import EvalSetFiles
from evaldesk.store.evalsets.indexing import indexed_facts

LARGE = EvalSet("large", cases=tuple(Case(f"c{n}", (Turn("Roll a die. " * 40),)) for n in range(1_500)))


@pytest.fixture
def opened(store: Store, root: Path) -> Callable[[], EvalSetFiles]:
    """Another process that serves the same folder."""
    return lambda: EvalSetFiles([root], root / "evalsets", root / "trash", home=root, lines=store.evalset_lines)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read."""
    seen: list[str] = []

    def counted(path: Path, max_bytes: int) -> bytes:
        seen.append(path.name)
        return read_regular(path, max_bytes)

    monkeypatch.setattr("evaldesk.store.evalsets.files.read_regular", counted)
    return seen


def settled(root: Path, name: str, evalset: EvalSet = SET) -> Path:
    """A file that was not changed a moment ago."""
    path = put(root, name, write_evalset(evalset))
    os.utime(path, ns=(0, time.time_ns() - 10**10))
    return path


def read_in_full(files: EvalSetFiles) -> Sequence[EvalSetFile]:
    """The list, when nothing of it is being read and all of it is kept."""
    while any(file.is_reading for file in files.list()) or files.is_reading:
        time.sleep(0.005)
    return files.list()


def test_a_file_is_read_once_for_all_lists_of_all_processes(
    opened: Callable[[], EvalSetFiles], root: Path, reads: list[str]
) -> None:
    settled(root, "calc.evalset.json", replace(SET, name="Calculator", description="Sums"))
    settled(root, "evals/other.json", SET)
    put(root, "evals/data.json", b"[1]")
    put(root, "bad.evalset.json", b"{")
    os.utime(root / "bad.evalset.json", ns=(0, 1))
    os.utime(root / "evals/data.json", ns=(0, 1))
    first = read_in_full(opened())
    n_read = len(reads)

    again = opened().list()

    assert again == first
    assert [file.error for file in again if file.error]
    assert (n_read, len(reads)) == (4, 4)


def test_a_changed_file_is_read_again(opened: Callable[[], EvalSetFiles], root: Path) -> None:
    path = settled(root, "calc.evalset.json")
    read_in_full(opened())
    settled(root, "calc.evalset.json", replace(SET, cases=SET.cases[:1]))

    (file,) = opened().list()

    assert (file.n_cases, file.size) == (1, path.stat().st_size)


def test_a_line_goes_with_its_file_to_another_id_and_place(
    store: Store, opened: Callable[[], EvalSetFiles], root: Path, reads: list[str]
) -> None:
    settled(root, "inner/calc.evalset.json")
    read_in_full(opened())

    (file,) = EvalSetFiles([root / "inner"], root / "inner", root / "t", home=root, lines=store.evalset_lines).list()

    assert (file.place, file.n_cases, len(reads)) == ("calc.evalset.json", 2, 1)


def test_a_file_that_was_just_changed_is_not_believed_by_the_next_process(
    opened: Callable[[], EvalSetFiles], root: Path, reads: list[str]
) -> None:
    put(root, "calc.evalset.json", write_evalset(SET))
    read_in_full(opened())

    opened().list()

    assert len(reads) == 2


def test_a_line_with_a_secret_is_not_kept(store: Store, root: Path, reads: list[str]) -> None:
    settled(root, "calc.evalset.json", replace(SET, description="key sk-secret"))

    for _ in range(2):
        files = EvalSetFiles(
            [root],
            root / "e",
            root / "t",
            home=root,
            lines=store.evalset_lines,
            has_secrets=lambda data: b"sk-secret" in data,
        )
        assert read_in_full(files)[0].description == "key sk-secret"

    assert (len(reads), store.evalset_lines.all()) == (2, {})


@pytest.mark.long
def test_a_list_does_not_wait_for_a_large_file_that_nobody_has_read(
    opened: Callable[[], EvalSetFiles], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(root, "large.evalset.json", LARGE)
    settled(root, "small.evalset.json")
    may_read = Event()

    def slow(path: Path, folder: Path) -> EvalSetFacts:
        assert may_read.wait(300)
        return indexed_facts(path, folder)

    monkeypatch.setattr("evaldesk.store.evalsets.large.indexed_facts", slow)
    files = opened()

    before = files.list()
    may_read.set()
    after = read_in_full(files)

    assert [(file.name, file.is_reading, file.n_cases) for file in before] == [("large", True, 0), ("small", False, 2)]
    assert [(file.name, file.is_reading, file.n_cases) for file in after] == [
        ("large", False, 1_500),
        ("small", False, 2),
    ]
    assert [file.n_cases for file in opened().list()] == [1_500, 2]


def test_many_small_new_files_are_not_all_waited_for(
    opened: Callable[[], EvalSetFiles], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        settled(root, f"s{number}.evalset.json")
    monkeypatch.setattr(lines, "AT_ONCE", 2 * (root / "s0.evalset.json").stat().st_size)
    files = opened()

    before = [file.is_reading for file in files.list()]

    assert before == [False, False, True, True]
    assert [file.n_cases for file in read_in_full(files)] == [2, 2, 2, 2]


@pytest.mark.long
def test_the_contents_of_a_large_file_are_waited_for_and_its_line_is_not(
    opened: Callable[[], EvalSetFiles], root: Path
) -> None:
    settled(root, "large.evalset.json", LARGE)
    files = opened()
    file_id = files.id_of(root / "large.evalset.json")

    assert files.file(file_id).is_reading
    assert len(files.read(file_id)[0].cases) == 1_500
    assert files.file(file_id).n_cases == 1_500


def test_lines_of_files_that_are_gone_for_a_month_are_removed(
    store: Store, opened: Callable[[], EvalSetFiles], root: Path, clock: Clock
) -> None:
    gone = settled(root, "gone.evalset.json")
    settled(root, "kept.evalset.json")
    read_in_full(opened())
    gone.unlink()

    clock.move(days=31)
    settled(root, "new.evalset.json")
    read_in_full(opened())

    assert len(store.evalset_lines.all()) == 2


@pytest.mark.parametrize("line", ["", "{", '{"n_cases": "many"}', "[]", "\x00"])
def test_a_line_that_cannot_be_read_is_as_none(
    opened: Callable[[], EvalSetFiles], store: Store, root: Path, line: str, database: Path
) -> None:
    settled(root, "calc.evalset.json")
    read_in_full(opened())
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE evalset_line SET line = ?", (line,))

    assert [file.n_cases for file in opened().list()] == [2]


def test_a_database_that_was_closed_ends_no_list(store: Store, opened: Callable[[], EvalSetFiles], root: Path) -> None:
    settled(root, "calc.evalset.json")
    files = opened()
    store.close()

    assert [file.n_cases for file in read_in_full(files)] == [2]
