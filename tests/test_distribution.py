"""Workers of pytest-xdist report each outcome; a file stays in one worker, and all play one order (decision 370)."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

PATIENCE_S = 300.0
WORKERS = ("-p", "no:evaldesk", "-n", "2")
pytest_plugins = ["pytester"]
CHECKOUT = Path(__file__).parents[1]
CONFTEST = """
import os, pytest
from tests.conftest import (
    pytest_addoption, pytest_collection_modifyitems, pytest_configure, pytest_configure_node,
    pytest_exception_interact, pytest_runtest_protocol,
    pytest_terminal_summary, pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler
)
pytest_collection_modifyitems.__globals__["LONGEST"] = ("test_z.py",)
if "TEARDOWN_S" in os.environ:
    pytest_exception_interact.__globals__["TEARDOWN_S"] = float(os.environ["TEARDOWN_S"])
if "SILENCE_S" in os.environ:
    pytest_configure.__globals__["SILENCE_S"] = float(os.environ["SILENCE_S"])

@pytest.fixture(scope="session")
def own_folder(tmp_path_factory):
    yield tmp_path_factory.getbasetemp()
    note("ended", "", "")

@pytest.fixture(autouse=True)
def noted(request, own_folder):
    note(request.path.stem, own_folder.name, request.node.name)

def note(what, folder, test):
    with open("notes", "a") as notes:
        print(what, os.getpid(), folder, test, sep=",", file=notes)
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


def _notes(project: pytest.Pytester) -> Sequence[Sequence[str]]:
    """Read the file, process, temporary folder and name of each test, and of the end of each worker."""
    return [line.split(",") for line in (project.path / "notes").read_text().splitlines()]


def test_all_outcomes_are_reported_and_a_killed_worker_fails_one_test(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=EVERY_OUTCOME, test_b=KILLED, test_z="def test_one(): pass")

    result = project.runpytest_subprocess(*WORKERS, "-vrf")

    result.assert_outcomes(passed=5, failed=2, skipped=1, errors=1)
    result.stdout.fnmatch_lines(["*OSError: torn", "*before it fails"])
    result.stdout.fnmatch_lines(["FAILED test_b.py::test_killed*"])
    result.stdout.fnmatch_lines(["worker 'gw?' crashed while running 'test_b.py::test_killed'"])
    notes = _notes(project)
    workers = {name: {process for other, process, *_ in notes if other == name} for name, *_ in notes}
    assert len(workers["test_a"]) == 1
    assert len(workers["test_b"]) == 2
    assert not workers["test_z"] & workers["test_a"]  # each worker begins with a file of its own
    assert len(workers["ended"]) == 2
    folders = {(process, folder) for _, process, folder, _ in notes if folder}
    assert len({folder for _, folder in folders}) == len(folders)


def test_a_seed_gives_all_workers_one_order(project: pytest.Pytester) -> None:
    names = [f"test_{letter}" for letter in "abcdz"]
    tests = "".join(f"def test_{n}(): pass\n" for n in range(9))
    project.makepyfile(**dict.fromkeys(names, tests))

    result = project.runpytest_subprocess(*WORKERS, "--random-order")
    seed = next(line.partition("=")[2] for line in result.outlines if line.startswith("in a random order"))
    first = _notes(project)
    (project.path / "notes").unlink()
    again = project.runpytest_subprocess(*WORKERS, f"--random-order={seed}")

    result.assert_outcomes(passed=45)
    again.assert_outcomes(passed=45)
    orders = [
        [[test for file, *_, test in notes if file == name] for name in names] for notes in (first, _notes(project))
    ]
    assert orders[0] == orders[1]
    assert all(order != sorted(order) for order in orders[0])
    assert len({tuple(order) for order in orders[0]}) == len(names)


def test_after_the_first_failure_nothing_is_begun(project: pytest.Pytester) -> None:
    project.makepyfile(**{f"test_{number}": "def test_a(): assert 0\ndef test_b(): pass" for number in range(9)})

    result = project.runpytest_subprocess(*WORKERS, "-x")

    assert 1 <= result.parseoutcomes()["failed"] <= 2  # one of each worker, which stops by itself
    assert {*result.parseoutcomes()} <= {"failed", "xdist.dsession.Interrupted"}


def test_a_process_that_a_test_left_holds_nobody(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=LEFT)

    try:
        result = project.runpytest_subprocess(*WORKERS, timeout=PATIENCE_S)
    finally:
        os.kill(int((project.path / "left").read_text()), signal.SIGKILL)

    result.assert_outcomes(passed=1)


def test_a_test_that_waits_for_ever_fails_with_where_it_stands(project: pytest.Pytester) -> None:
    project.makepyfile(test_a="import time\ndef test_waits(): time.sleep(3600)\ndef test_after(): pass")

    result = project.runpytest_subprocess(*WORKERS, "-o", "timeout=1", timeout=PATIENCE_S)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*time.sleep(3600)*", "*Timeout (>1.0s) from pytest-timeout*"])
    result.stdout.fnmatch_lines(["FAILED test_a.py::test_waits*"])


TEARDOWN_WITHOUT_END = """
import time, pytest

@pytest.fixture
def torn():
    yield
    while True:
        time.sleep(3600)

def test_is_torn_down(torn): assert False
def test_after(): pass
"""


def test_a_teardown_that_waits_for_ever_after_a_failure_ends_its_worker_with_its_stacks(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEARDOWN_S", "1")
    project.makepyfile(test_a=TEARDOWN_WITHOUT_END)

    result = project.runpytest_subprocess(*WORKERS, timeout=PATIENCE_S)

    assert result.parseoutcomes()["passed"] == 1
    result.stdout.fnmatch_lines(["worker 'gw?' crashed while running 'test_a.py::test_is_torn_down'"])
    result.stderr.fnmatch_lines(["Timeout (0:00:01)!", "*test_a.py*in torn"])


CLEANUP_WITHOUT_END = """
import time

def test_cleans_up():
    try:
        time.sleep(3600)
    finally:
        time.sleep(3600)

def test_after(): pass
"""


def test_a_cleanup_that_waits_for_ever_after_the_limit_ends_its_worker_with_its_stacks(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILENCE_S", "5")
    project.makepyfile(test_a=CLEANUP_WITHOUT_END)

    result = project.runpytest_subprocess(*WORKERS, "-o", "timeout=1", timeout=PATIENCE_S)

    assert result.parseoutcomes()["passed"] == 1
    result.stdout.fnmatch_lines(["worker 'gw?' crashed while running 'test_a.py::test_cleans_up'"])
    result.stderr.fnmatch_lines(["no outcome for 5 s; the stacks of gw? follow", "*test_a.py*in test_cleans_up"])


KILLED_WITH_A_CHILD = """
import os, time

def test_leaves_a_process_and_is_killed():
    process = os.fork()
    if not process:
        time.sleep(3600)
        os._exit(0)
    with open("left", "w") as left:
        left.write(str(process))
    os.kill(os.getpid(), 9)

def test_after(): pass
"""


def test_a_killed_worker_whose_child_lives_on_holds_nobody(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SILENCE_S", "5")
    project.makepyfile(test_a=KILLED_WITH_A_CHILD)

    try:
        result = project.runpytest_subprocess(*WORKERS, timeout=60)
    finally:
        os.kill(int((project.path / "left").read_text()), signal.SIGKILL)

    result.assert_outcomes(passed=1, failed=1)


def test_a_path_that_does_not_exist_is_named(project: pytest.Pytester) -> None:
    result = project.runpytest_subprocess(*WORKERS, "test_a.py::test_of_nothing")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*file or directory not found: test_a.py::test_of_nothing"])
