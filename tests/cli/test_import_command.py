"""`evaldesk import` on its way: what it shows, what it prints for programs, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.islands import of_tools

from evaldesk.store.runs import imports

if TYPE_CHECKING:
    from tests.cli.conftest import CommandFolder

N = 60

pytestmark = of_tools("openhands")


@pytest.fixture
def results(place: CommandFolder, monkeypatch: pytest.MonkeyPatch) -> CommandFolder:
    """A place with a file of a run of N cases, `rows.jsonl`, whose import has many transactions."""
    monkeypatch.setattr(imports, "MAX_ROWS", 20)
    rows = [
        {"instance_id": f"i{number}", "instruction": "Do.", "test_result": {"resolved": True}} for number in range(N)
    ]
    (place.folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return place


def test_json_says_the_progress_and_the_result(results: CommandFolder) -> None:
    said = results.run("import", "rows.jsonl", "--json")

    lines = [json.loads(line) for line in said.stdout.splitlines()]
    assert said.exit_code == 0
    assert {line["status"] for line in lines[:-1]} == {"importing"}
    assert [line["n_done"] for line in lines[:-1]] == sorted({line["n_done"] for line in lines[:-1]})
    assert (lines[-2]["n_done"], lines[-2]["n_total"]) == (2 * N, 2 * N)
    assert (lines[-1]["status"], lines[-1]["runs"], lines[-1]["evalset"]) == ("done", [1], None)
    assert lines[-1]["understood"][0] == f"A run of openhands: {N} trials of {N} cases; {N} passed."


def test_json_says_that_an_import_failed(results: CommandFolder) -> None:
    results.run("import", "rows.jsonl")

    said = results.run("import", "rows.jsonl", "--json")

    assert json.loads(said.stdout) == {"file": "rows.jsonl", "status": "failed"}
    assert said.exit_code != 0


def test_a_log_shows_the_result_alone(results: CommandFolder) -> None:
    said = results.run("import", "rows.jsonl")

    assert said.stderr == ""
    assert said.stdout.startswith("rows.jsonl:\n  A run of openhands")


SHOWN = """
import sys
from evaldesk.store.runs import imports
from evaldesk.cli import main

imports.MAX_ROWS = 20
sys.stderr.isatty = lambda: True
at = int(sys.argv[1])
real = imports.ImportStore.add

def add(*arguments):
    for number, step in enumerate(real(*arguments)):
        yield step
        if number == at:
            import os, signal
            os.kill(os.getpid(), signal.SIGINT)

imports.ImportStore.add = add
sys.argv = ["evaldesk", "import", "rows.jsonl", *sys.argv[2:]]
main()
"""


def play(place: CommandFolder, interrupt_at: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which gets Ctrl-C after so many transactions, on a terminal."""
    command = [sys.executable, "-c", SHOWN, str(interrupt_at), *arguments]
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    return subprocess.run(
        command, cwd=place.folder, capture_output=True, text=True, check=False, env=environment, errors="replace"
    )


@pytest.mark.server
def test_a_terminal_shows_a_line_that_changes(results: CommandFolder) -> None:
    said = play(results, 10_000)

    assert said.returncode == 0, said.stderr
    assert f"Importing rows.jsonl: {N} of {2 * N} cases and trials, 50 %; Ctrl-C cancels" in said.stderr
    assert said.stderr.endswith("\x1b[K")
    assert "Run 1." in said.stdout


@pytest.mark.server
@pytest.mark.parametrize("at", [0, 6])
def test_ctrl_c_cancels_and_nothing_is_stored(results: CommandFolder, at: int) -> None:
    said = play(results, at)

    assert said.returncode == 128 + signal.SIGINT
    assert "evaldesk: cancelled; nothing of rows.jsonl is stored" in said.stderr
    assert "Traceback" not in said.stderr
    with results.store() as store:
        assert store.runs.list() == []
        assert [each.status for each in store.imports.list()] == ["cancelled"]
    assert "Run 1." in results.run("import", "rows.jsonl").stdout
