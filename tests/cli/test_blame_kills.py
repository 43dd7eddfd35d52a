"""SIGKILL of `evaldesk blame RUN`: the same command goes on, and no fork of the batch is lost or played twice."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long

KILLS = (3, 31, 45)
"""The played turns at which the agent kills the process of the command."""
BUDGET = 60
WAIT_S = 240.0
AGENT = """
import os
import signal
from pathlib import Path

FOLDER = Path(__file__).parent


def root_agent(message, state, session):
    with (FOLDER / "turns.txt").open("a") as file:
        file.write(".")
    mark = FOLDER / "kill_at"
    if mark.exists() and (FOLDER / "turns.txt").stat().st_size >= int(mark.read_text()):
        mark.unlink()
        os.kill(int((FOLDER / "pid").read_text()), signal.SIGKILL)
    if message == "step 2" and session.seed % 2 == 0:
        state["wrong"] = True
    return "no" if state.get("wrong") and message == "step 3" else "yes"


root_agent.tells_cost = True
"""


def command(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-m", "evaldesk", *words, "--workspace", str(folder)]
    environment = os.environ | {"EVALDESK_TRUST": "1"}
    return subprocess.Popen(
        arguments, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def output(process: subprocess.Popen[bytes]) -> tuple[str, str]:
    """The output of a command at its end, which comes in bounded time."""
    try:
        out, err = process.communicate(timeout=WAIT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return out.decode(), err.decode()


def end_leases(folder: Path) -> None:
    """Let the leases of a killed process be over, as they are after some seconds."""
    with closing(sqlite3.connect(folder / ".evaldesk" / "evaldesk.db")) as connection, connection:
        connection.execute("UPDATE blame SET leased_until = 0 WHERE leased_until IS NOT NULL")
        connection.execute("UPDATE run SET leased_until = 0 WHERE leased_until IS NOT NULL")


def rows(folder: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / ".evaldesk" / "evaldesk.db")) as connection:
        return connection.execute(query).fetchall()


def forks_of(folder: Path) -> list[tuple[Any, ...]]:
    """The point, the verdicts and the attempts of each fork, in their order."""
    return rows(
        folder,
        "SELECT run.parent_case, run.parent_trial, run.parent_turn, run_case.strip, run.n_duplicates, "
        "(SELECT max(attempt) FROM trial WHERE trial.run_id = run.id) "
        "FROM run JOIN run_case ON run_case.run_id = run.id WHERE run.parent_run IS NOT NULL ORDER BY run.id",
    )


def played(folder: Path) -> Path:
    """A folder with a run of which several trials failed; the verdict of a trial follows from its seed."""
    folder.mkdir()
    (folder / "shop.py").write_text(AGENT)
    turns: list[dict[str, Any]] = [{"user_content": {"parts": [{"text": f"step {number}"}]}} for number in (1, 2, 3)]
    turns[2]["final_response"] = {"parts": [{"text": "yes"}]}
    case = {"eval_id": "talk", "conversation": turns}
    (folder / "talk.evalset.json").write_text(json.dumps({"eval_set_id": "talk", "eval_cases": [case]}))
    process = command(folder, "eval", "shop:root_agent", "talk.evalset.json", "--n", "10", "--seed", "1")
    out, err = output(process)
    assert process.returncode == 1, out + err
    (folder / "turns.txt").unlink()
    return folder


def test_a_killed_batch_goes_on_and_neither_loses_nor_doubles_a_fork(tmp_path: Path) -> None:
    folder, whole = played(tmp_path / "killed"), played(tmp_path / "whole")
    expected, err = output(command(whole, "blame", "1", "--budget", str(BUDGET), "--json"))
    assert expected, err

    for n_turns in KILLS:
        (folder / "kill_at").write_text(str(n_turns))
        process = command(folder, "blame", "1", "--budget", str(BUDGET), "--json")
        (folder / "pid").write_text(str(process.pid))
        output(process)
        assert process.returncode == -signal.SIGKILL
        end_leases(folder)
    out, err = output(command(folder, "blame", "1", "--budget", str(BUDGET), "--json"))

    assert forks_of(folder) == forks_of(whole), err
    assert sum(len(strip) for _, _, _, strip, *_ in forks_of(folder)) == BUDGET
    assert {(n_duplicates, attempt) for *_, n_duplicates, attempt in forks_of(folder)} == {(0, 1)}
    assert [each["answer"] for each in json.loads(out)] == [each["answer"] for each in json.loads(expected)]
    query = "SELECT n_trials, n_passed, n_failed, cost FROM run WHERE id = 1"
    assert rows(folder, query) == rows(whole, query)
