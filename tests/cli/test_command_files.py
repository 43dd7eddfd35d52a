"""The files of a command of several runs, written again after one of them was resumed or retried."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import CommandFolder

FILES = ("-o", "now.json", "-o", "now.jsonl", "--junit", "now.xml", "--summary", "now.md")


@pytest.fixture
def sets(place: CommandFolder) -> list[Path]:
    """Three eval sets; the second has a case with the name of one of the first."""
    return [
        place.evalset(name, {"one": "one", word: word}) for name, word in (("a", "two"), ("b", "three"), ("c", "x"))
    ]


def written(place: CommandFolder) -> dict[str, Any]:
    """The contents of the files, without times and numbers of attempts."""
    value = json.loads((place.folder / "now.json").read_text())
    return {
        "outcome": value["outcome"],
        "reasons": value["reasons"],
        "counts": value["counts"],
        "gates": value["gates"],
        "runs": [run["run_id"] for run in value["runs"]],
        "rows": len((place.folder / "now.jsonl").read_text().splitlines()),
        "junit": (place.folder / "now.xml").read_text().count("<testcase"),
        "summary": (place.folder / "now.md").read_text(),
    }


def remove_files(place: CommandFolder) -> None:
    for name in ("now.json", "now.jsonl", "now.xml", "now.md"):
        (place.folder / name).unlink(missing_ok=True)


def break_off(place: CommandFolder, run_id: int, *, n_gone: int = 0) -> None:
    """Undo the last trial of a run, as after kill -9, and the runs after it."""
    with closing(sqlite3.connect(place.folder / ".evaldesk/evaldesk.db")) as database, database:
        later = [run_id + at for at in range(1, n_gone + 1)]
        for each in later:
            database.execute("DELETE FROM trial WHERE run_id = ?", (each,))
            database.execute("UPDATE run SET deleted_at = '2020-01-01 00:00:00' WHERE id = ?", (each,))
        database.execute(
            "UPDATE trial SET verdict = NULL, status = 'planned' WHERE run_id = ? AND case_index = 1", (run_id,)
        )
        database.execute("UPDATE run SET status = 'running', driver = '' WHERE id = ?", (run_id,))


@pytest.mark.parametrize("asked", [(), ("--min-pass-rate", 0.9), ("--baseline", "base.json", "--max-regressions", 0)])
def test_the_last_run_of_a_command_is_resumed_and_the_files_have_all_runs(
    asked: tuple[object, ...], place: CommandFolder, sets: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    place.eval(*sets, "-o", "base.json")
    monkeypatch.setenv("ECHO_WRONG", "three")  # a case of the second set fails
    first = place.eval(*sets, *FILES, *asked)
    before = written(place)
    remove_files(place)
    break_off(place, 6)

    resumed = place.run("run", "resume", 6)

    assert before["runs"] == [4, 5, 6]
    assert written(place) == before
    assert first.exit_code == 1
    assert "Runs 4, 5, 6 of one command: failed" in resumed.stderr
    assert "Written: " in resumed.stderr


def test_an_earlier_run_that_is_retried_leaves_no_run_out(
    place: CommandFolder, sets: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ECHO_RAISE", "two")
    assert place.eval(*sets, *FILES).exit_code == 3
    monkeypatch.delenv("ECHO_RAISE")

    place.run("run", "retry", 1)

    after = written(place)
    assert (after["outcome"], after["runs"], after["rows"]) == ("passed", [1, 2, 3], 6)


def test_runs_that_were_not_begun_leave_the_command_undecided(place: CommandFolder, sets: list[Path]) -> None:
    place.eval(*sets, *FILES)
    remove_files(place)
    break_off(place, 2, n_gone=1)

    place.run("run", "resume", 2)

    after = written(place)
    assert (after["outcome"], after["runs"]) == ("undecided", [1, 2])
    assert after["reasons"] == ["1 of 3 runs of the command was not begun; play the command again"]


def test_a_run_whose_neighbour_is_gone_writes_no_file(place: CommandFolder, sets: list[Path]) -> None:
    place.eval(*sets, *FILES)
    remove_files(place)
    place.run("run", "rm", 1, "--yes")
    break_off(place, 3)

    resumed = place.run("run", "resume", 3)

    assert "Not written: the files of all runs of the command; " in resumed.stderr
    assert not (place.folder / "now.json").exists()
