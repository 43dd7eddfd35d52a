"""An experiment of real commands: killed twice, resumed, read at each door, exported, and imported elsewhere."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
import time
from collections import Counter
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.cli.conftest import CommandFolder

from evaldesk.desk.trash import open_desk
from evaldesk.settings import read_settings
from evaldesk.store import Store
from evaldesk.web.guard import guard_settings
from evaldesk.web.server import create_app

CONCURRENCY = 4
AGENT = '''
"""Passes by the digest of the case, its seed and the instruction; waits once it was asked as often as allowed."""
import os
import time
from hashlib import blake2b
from pathlib import Path

HERE = Path(__file__).parent


def root_agent(message, session, instruction="0"):
    cell = f"{message} {session.seed} {instruction}"
    with open(HERE / "cells.txt", "a") as file:
        file.write(cell + "\\n")
    until = time.monotonic() + 500
    while (HERE / "cells.txt").read_bytes().count(b"\\n") > int((HERE / "most.txt").read_text()):
        if time.monotonic() > until:
            raise TimeoutError("no test looks after this agent")
        time.sleep(0.02)
    return message if blake2b(cell.encode(), digest_size=1).digest()[0] % 12 > int(instruction) else "no"


root_agent.tells_cost = True
'''


def is_passed(cell: str) -> bool:
    """Whether the agent passes in a cell, as it is noted."""
    return blake2b(cell.encode(), digest_size=1).digest()[0] % 12 > int(cell.rpartition(" ")[2])


def begun_cells(agent: Path) -> list[str]:
    """The cells that the agent was asked for, in order, whatever became of their trials."""
    file = agent / "cells.txt"
    return file.read_text().splitlines() if file.exists() else []


def play_and_kill(place: CommandFolder, n_cells: int, n_before: int, *command: object) -> None:
    """Play until the agent waits with so many cells begun and more than `n_before` are stored; kill the process."""
    (place.agent / "most.txt").write_text(str(n_cells))
    arguments = [sys.executable, "-P", "-m", "evaldesk", *map(str, command)]
    with (place.folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(arguments, cwd=place.folder, stdout=output, stderr=output)
        try:
            until = time.monotonic() + 400
            while not _is_waiting(place, n_cells, n_before):
                assert process.poll() is None, (place.folder / "output.txt").read_text()
                assert time.monotonic() < until, (place.folder / "output.txt").read_text()
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait(60)


def _is_waiting(place: CommandFolder, n_cells: int, n_before: int) -> bool:
    """Whether the agent waits with so many cells begun, and more than `n_before` are stored."""
    return len(begun_cells(place.agent)) > n_cells and n_stored(strips_of(place.folder, 1)) > n_before


def numbers_of(place: CommandFolder, experiment_id: int, *options: object) -> Any:
    """All that `show --json` gives, without the numbers of one database."""
    answer = json.loads(place.run("experiment", "show", experiment_id, "--json", *options).stdout)
    for each in (answer, *answer["variants"]):
        for key in ("id", "run_id", "status", "reason"):
            each.pop(key, None)
    return answer


def strips_of(folder: Path, experiment_id: int) -> list[list[str]]:
    """The verdicts of the trials of each variant."""
    with Store.open(folder / ".evaldesk/evaldesk.db", must_exist=True) as store:
        return [list(store.runs.strips(run_id)) for run_id in store.experiments.get(experiment_id).run_ids]


def n_stored(strips: list[list[str]]) -> int:
    """The number of trials with a verdict."""
    return sum(letter != "." for each in strips for strip in each for letter in strip)


def page_of(folder: Path, experiment_id: int) -> str:
    """The page of an experiment at a desk on that folder."""
    token = "a-token-of-enough-letters"
    with open_desk(read_settings(folder, (folder,), environment={})) as desk:
        client = TestClient(
            create_app(desk, guard_settings(token, 8420)),
            base_url="http://127.0.0.1:8420",
            headers={"Cookie": f"evaldesk-8420={token}"},
        )
        answer = client.get(f"/experiments/{experiment_id}")
    assert answer.status_code == 200
    return answer.text


@pytest.mark.parametrize(
    ("n_variants", "n_cases", "n", "kills"),
    [
        pytest.param(2, 6, 2, (8, 16), id="2 x 6 x 2"),
        pytest.param(6, 50, 5, (400, 1_000), id="6 x 50 x 5", marks=pytest.mark.long),
    ],
)
def test_an_experiment_that_was_killed_twice_is_whole_at_each_door_and_elsewhere(
    place: CommandFolder, n_variants: int, n_cases: int, n: int, kills: tuple[int, int]
) -> None:
    (place.agent / "agent.py").write_text(AGENT)
    evalset = place.evalset("killed", {f"case {at}": f"case {at}" for at in range(n_cases)})
    levels = ",".join(str(2 * at) for at in range(n_variants))
    begin = ("eval", place.agent, evalset, "--criterion", "response_match_score=0.8", "--seed", 7)
    other = place.folder / "other"
    other.mkdir()

    play_and_kill(place, kills[0], 0, *begin, "--n", n, "--concurrency", CONCURRENCY, "--vary", f"instruction={levels}")
    after_first = strips_of(place.folder, 1)
    play_and_kill(place, kills[1], n_stored(after_first), "experiment", "resume", 1, "--trust")
    after_second = strips_of(place.folder, 1)
    n_begun = len(begun_cells(place.agent))
    (place.agent / "most.txt").write_text(str(10**6))
    resumed = place.run("experiment", "resume", 1, "--trust")
    strips = strips_of(place.folder, 1)
    exported = place.run("experiment", "export", 1, "-o", place.folder / "experiment.json")
    imported = place.run("experiment", "import", place.folder / "experiment.json", "--workspace", other)

    assert (resumed.exit_code, exported.exit_code, imported.exit_code) == (0, 0, 0), (
        resumed.output + imported.output + repr(imported.exception)
    )
    n_cells = n_variants * n_cases * n
    for stored, later in ((after_first, after_second), (after_second, strips)):
        assert 0 < n_stored(stored) < n_cells
        assert [_is_continued(*pair) for pair in zip(stored, later, strict=True)] == [True] * n_variants
    cells = Counter(begun_cells(place.agent))
    assert len(cells) == n_cells
    n_left = n_cells - n_stored(after_second)
    assert n_left <= cells.total() - n_begun <= n_left + CONCURRENCY, "trials that were stored are not played again"
    expected = Counter(cell.rpartition(" ")[2] for cell in cells if is_passed(cell))
    n_passed = ["".join(each).count("p") for each in strips]
    assert n_passed == [expected[str(2 * at)] for at in range(n_variants)]
    assert {len(strip) for each in strips for strip in each} == {n}
    assert {letter for each in strips for strip in each for letter in strip} <= {"p", "f"}
    shown = numbers_of(place, 1)
    assert [each["pass_rate"] for each in shown["rates"]] == pytest.approx([k / (n_cases * n) for k in n_passed])
    assert (shown["n_blocks"], shown["is_cut"]) == (n, False)
    assert numbers_of(place, 1, "--workspace", other) == shown
    assert strips_of(other, 1) == strips
    lines = [place.run("experiment", "show", 1, "--csv", *at).stdout for at in ((), ("--workspace", other))]
    rows = [list(csv.DictReader(io.StringIO(each))) for each in lines]
    assert [{**each, "run_id": ""} for each in rows[0]] == [{**each, "run_id": ""} for each in rows[1]]
    for page in (page_of(place.folder, 1), page_of(other, 1)):
        assert [f"<b>{100 * k / (n_cases * n):.0f} %</b>" in page for k in n_passed] == [True] * n_variants
        assert f"{n_variants} variants, the same {n_cases} cases" in page
    reports = [place.run("experiment", "report", 1, *at).stdout for at in ((), ("--workspace", other))]
    assert reports[0] == reports[1] != ""


def _is_continued(earlier: list[str], later: list[str]) -> bool:
    """Whether each verdict that was stored is the same later."""
    pairs = zip("".join(earlier), "".join(later), strict=True)
    return all(old in (".", new) for old, new in pairs)
