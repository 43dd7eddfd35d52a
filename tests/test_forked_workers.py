"""Tests that are played in forks are told as pytest tells them, and each file stays in one."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

PATIENCE_S = 300.0
pytest_plugins = ["pytester"]
CHECKOUT = Path(__file__).parents[1]
CONFTEST = """
import os, pytest
from tests.forked_workers import play_in_forks

def pytest_runtestloop(session):
    play_in_forks(session, 2, ["test_z.py"])
    return True

@pytest.fixture(scope="session")
def own_folder(tmp_path_factory):
    yield tmp_path_factory.getbasetemp()
    note("ended", "")

@pytest.fixture(autouse=True)
def noted(request, own_folder):
    note(request.path.stem, own_folder.name)

def note(what, folder):
    with open("notes", "a") as notes:
        print(what, os.getpid(), folder, sep=",", file=notes)
"""
EVERY_OUTCOME = """
import os, pytest

def test_passes(tmp_path, capfd):
    os.system("echo spoken")
    assert capfd.readouterr().out == "spoken\\n"

def test_fails():
    os.system("echo before it fails")
    assert 1 == 2

def test_is_skipped():
    pytest.skip("not here")

@pytest.fixture
def torn():
    yield
    raise OSError("torn")

def test_is_torn_down(torn):
    pass
"""
KILLED = """
import os

def test_before(): pass
def test_killed(): os.kill(os.getpid(), 9)
def test_after(): pass
"""
LEFT = """
import os, time

def test_leaves_a_process():
    process = os.fork()
    if not process:
        time.sleep(3600)
        os._exit(0)
    with open("left", "w") as left:
        left.write(str(process))
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    pytester.makeconftest(CONFTEST)
    return pytester


def test_all_outcomes_are_told_and_a_killed_worker_fails_one_test(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=EVERY_OUTCOME, test_b=KILLED, test_z="def test_one(): pass")

    found = project.runpytest_subprocess("-p", "no:xdist", "-vrf")

    found.assert_outcomes(passed=5, failed=2, skipped=1, errors=1)
    found.stdout.fnmatch_lines(["*OSError: torn", "*before it fails", "*the worker ended with SIGKILL*"])
    notes = [tuple(line.split(",")) for line in (project.path / "notes").read_text().splitlines()]
    workers = {name: {process for other, process, _ in notes if other == name} for name, _, _ in notes}
    assert len(workers["test_a"]) == 1
    assert len(workers["test_b"]) == 2
    assert "test_z" in {name for name, _, _ in notes[:2]}
    assert len(workers["ended"]) == 2
    folders = {(process, folder) for _, process, folder in notes if folder}
    assert len({folder for _, folder in folders}) == len(folders)


def test_after_the_first_failure_nothing_is_begun(project: pytest.Pytester) -> None:
    project.makepyfile(**{f"test_{number}": "def test_a(): assert 0\ndef test_b(): pass" for number in range(9)})

    found = project.runpytest_subprocess("-p", "no:xdist", "-x")

    found.assert_outcomes(failed=1)


def test_a_process_that_a_test_left_holds_nobody(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=LEFT)

    try:
        found = project.runpytest_subprocess("-p", "no:xdist", timeout=PATIENCE_S)
    finally:
        os.kill(int((project.path / "left").read_text()), signal.SIGKILL)

    found.assert_outcomes(passed=1)


def test_a_test_that_waits_for_ever_fails_with_where_it_stands(project: pytest.Pytester) -> None:
    project.makepyfile(test_a="import time\ndef test_waits(): time.sleep(3600)\ndef test_after(): pass")

    found = project.runpytest_subprocess("-p", "no:xdist", "-o", "timeout=1", timeout=PATIENCE_S)

    found.assert_outcomes(passed=1, failed=1)
    found.stdout.fnmatch_lines(["*time.sleep(3600)*", "*Timeout (>1.0s) from pytest-timeout*"])
