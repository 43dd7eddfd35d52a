"""A test that leaves something to the next one fails, and the next one begins as if it had not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
CHECKOUT = Path(__file__).parents[1]
LEAVING = """
import os, sys, types
import pytest

def test_leaves_an_entry(tmp_path):
    (tmp_path / "agents").mkdir()
    sys.path.insert(0, str(tmp_path))

def test_leaves_an_order():
    sys.path.reverse()

def test_leaves_a_variable():
    os.environ["LEFT"] = "1"

def test_takes_a_variable():
    del os.environ["THERE"]

def test_leaves_a_folder(tmp_path):
    os.chdir(tmp_path)

def test_leaves_a_framework(tmp_path, monkeypatch):
    (tmp_path / "agents").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules["agents"] = types.ModuleType("agents")

def test_takes_a_framework():
    sys.modules["google"] = types.ModuleType("google")

def test_leaves_nothing(tmp_path, monkeypatch, own_imports):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LEFT", "1")
    (tmp_path / "thing_of_the_test").mkdir()
    sys.path.insert(0, str(tmp_path))
    import thing_of_the_test

@pytest.mark.parametrize("n", range(2))
def test_begins_without_it(n, tmp_path_factory):
    assert "LEFT" not in os.environ and os.environ["THERE"] == "1"
    assert not {"agents", "google", "thing_of_the_test"} & sys.modules.keys()
    assert not any(entry.startswith(str(tmp_path_factory.getbasetemp())) for entry in sys.path)
    assert os.getcwd() == os.environ["FOLDER"]
"""
LEFT = [
    "*the test leaves sys.path: *test_leaves_an_entry0 added",
    "*the test leaves the order of sys.path",
    "*the test leaves os.environ: LEFT added",
    "*the test leaves os.environ: THERE removed",
    "*the test leaves the working folder: *test_leaves_a_folder0",
    "*the test leaves sys.modules: agents",
    "*the test leaves sys.modules: google",
]


def test_whatever_a_test_leaves_is_named_and_taken_back(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    monkeypatch.setenv("THERE", "1")
    monkeypatch.setenv("FOLDER", str(pytester.path))
    pytester.makeconftest("from tests.leftovers import nothing_left, own_imports")
    pytester.makepyfile(test_a=LEAVING)

    played = pytester.runpytest_subprocess("-p", "no:xdist", "-p", "no:asyncio")

    played.assert_outcomes(passed=10, errors=7)
    played.stdout.fnmatch_lines(LEFT)
