"""What `.ci/run` plays in its second part, in which order, and what it says of the tests that no part played."""

from __future__ import annotations

import importlib.util
import json
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.selection import shuffle

pytest_plugins = ["pytester"]
CHECKOUT = Path(__file__).parents[1]
CONFTEST = """
import os
from tests.conftest import (
    pytest_addoption, pytest_collection_modifyitems, pytest_configure, pytest_configure_node,
    pytest_terminal_summary, pytest_xdist_auto_num_workers, pytest_xdist_make_scheduler
)
"""
TESTS = """
import os, pytest

@pytest.mark.parametrize("n", range(8))
def test_played(n): pass

def test_with_a_framework():
    if "INSTALLED" not in os.environ:
        pytest.skip("agents is not installed")

def test_of_the_machine():
    pytest.skip("root may read everything")
"""
WHOLE_FILE = """
import os, pytest
if "INSTALLED" not in os.environ:
    pytest.skip("agents is not installed", allow_module_level=True)

def test_with_the_framework(): pass
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT))
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_a=TESTS, test_b=TESTS, test_c=WHOLE_FILE)
    return pytester


def _skips() -> Any:
    spec = importlib.util.spec_from_file_location("skips", CHECKOUT / ".ci" / "skips.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_second_part_plays_what_the_first_did_not_and_the_rest_is_told(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("-p", "no:evaldesk", "-n", "2")
    first = project.runpytest_subprocess(*options, "--outcomes", "first", "--cpu-by-file", "seconds")
    alone = _skips().main(["first"])
    told_alone = capsys.readouterr().out
    monkeypatch.setenv("INSTALLED", "1")

    second = project.runpytest_subprocess(*options, "--but-passed", "first", "--random-order", "--outcomes", "second")

    first.assert_outcomes(passed=16, skipped=5)
    first.stdout.re_match_lines([r" +\d+\.\d +10 tests  test_a.py", r" +\d+\.\d +20 tests  in all files"])
    second.assert_outcomes(passed=3, skipped=2)
    second.stdout.fnmatch_lines(["*again with --random-order=*"])
    assert alone == 1
    assert "3 tests skipped for any other reason" in told_alone
    assert "test_c.py: agents is not installed" in told_alone
    capsys.readouterr()
    assert _skips().main(["first", "second"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("2 tests skipped for reasons of this machine\n      2  user: root may read everything (")
    assert told.endswith("0 tests skipped for any other reason, and played by no part of the gate\n")


ACCIDENTS = """
import pathlib, pytest

@pytest.mark.parametrize("n", range(N_ACCIDENTS))
def test_fails_once(n):
    place = pathlib.Path(f"again-{n}")
    if not place.exists():
        place.touch()
        raise AssertionError("among others")

def test_passes(): pass
"""
OPTIONS = ("-p", "no:evaldesk", "-n", "2")


def test_a_few_accidents_are_played_once_more_alone(project: pytest.Pytester) -> None:
    project.makepyfile(test_d=ACCIDENTS.replace("N_ACCIDENTS", "2"))
    first = project.runpytest_subprocess(*OPTIONS, "test_d.py", "--outcomes", "first")

    again = project.runpytest_subprocess("-p", "no:evaldesk", "-v", "--failed-in", "first")

    first.assert_outcomes(failed=2, passed=1)
    again.assert_outcomes(passed=2, skipped=1)
    again.stdout.fnmatch_lines(["test_d.py::test_fails_once?0? PASSED*", "test_d.py::test_fails_once?1? PASSED*"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def test_passes(): pass", "0 tests failed in first; 1 to 5 are played again"),
        (ACCIDENTS.replace("N_ACCIDENTS", "6"), "6 tests failed in first; 1 to 5 are played again"),
        ("import a_module_that_nobody_has", ""),  # nor is the file that imports it collected
    ],
    ids=["none failed", "many", "a file that cannot be imported"],
)
def test_no_accident_is_played_again(project: pytest.Pytester, text: str, told: str) -> None:
    project.makepyfile(test_d=text)
    project.runpytest_subprocess(*OPTIONS[:2], "test_d.py", "--outcomes", "first")

    again = project.runpytest_subprocess("-p", "no:evaldesk", "test_a.py", "test_d.py", "--failed-in", "first")

    assert again.ret not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    again.stdout.no_fnmatch_line("*passed*")
    if told:
        again.stderr.fnmatch_lines([f"*{told}*"])


def test_a_failed_test_is_no_skip() -> None:
    rows = [
        {"id": "test_a.py::test_one", "outcome": "failed", "reason": ""},
        {"id": "test_a.py::test_two", "outcome": "skipped", "reason": "not here"},
    ]

    assert _skips().unplayed(rows) == {"test_a.py::test_two": "not here"}


def test_a_seed_gives_one_order_of_files_and_tests() -> None:
    def order(seed: int) -> list[tuple[str, int]]:
        items: Any = [SimpleNamespace(path=Path(file), n=n) for file in "abcdef" for n in range(9)]
        shuffle(items, seed)
        return [(str(item.path), item.n) for item in items]

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2)) != order(1)
    assert [file for file, _ in groupby(order(1), key=lambda place: place[0])] != [*"abcdef"]
    assert len([*groupby(order(1), key=lambda place: place[0])]) == 6


def test_every_reason_of_the_machine_says_why() -> None:
    skips = _skips()
    entries = skips.tomllib.loads(skips.LIST.read_text())["skip"]

    assert all(entry.keys() == {"kind", "pattern", "why"} and entry["why"] for entry in entries)
    assert "is not installed" not in json.dumps(entries)
