"""Which tests are played, in which order, and what became of them: for the two parts of `.ci/run`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from xdist.workermanage import WorkerController

SKIPPED_FILES = "evaldesk_skipped_files"
"""The key of the files that a worker skipped while it collected, in its output for the process that writes outcomes."""
MAX_ACCIDENTS = 5
"""Of the failures of one run, as many may be played again."""


class Outcomes:
    """Writes the outcome of each test to a file of JSON lines: its id, passed, failed or skipped, and the reason."""

    def __init__(self, file: str) -> None:
        self._file = Path(file)
        self._outcomes: dict[str, tuple[str, str]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that is skipped whole while it is collected, or cannot be."""
        if report.skipped:
            self._outcomes[report.nodeid] = ("skipped", _reason(report))
        elif report.failed:
            self._outcomes[report.nodeid] = ("failed", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note the outcome of a test: failed where any phase of it failed."""
        if report.failed:
            self._outcomes[report.nodeid] = ("failed", "")
        elif report.skipped and not hasattr(report, "wasxfail"):
            self._outcomes[report.nodeid] = ("skipped", _reason(report))
        else:
            self._outcomes.setdefault(report.nodeid, ("passed", ""))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController) -> None:
        """Note the files that a worker skipped: xdist names one file of those with the same reason."""
        for file, reason in getattr(node, "workeroutput", {}).get(SKIPPED_FILES, {}).items():
            self._outcomes[file] = ("skipped", reason)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write them; a run that ended by something else than its tests has failed as a whole."""
        if exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._outcomes[f"exit code {int(exitstatus)}"] = ("failed", "")
        rows = ({"id": name, "outcome": kind, "reason": why} for name, (kind, why) in self._outcomes.items())
        self._file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


class SkippedFiles:
    """Sends the files that a worker skips while it collects to the process that writes outcomes."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that is skipped whole."""
        if report.skipped:
            self._reasons[report.nodeid] = _reason(report)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Put them into the output of the worker."""
        session.config.workeroutput[SKIPPED_FILES] = self._reasons  # type: ignore[attr-defined]


def _reason(report: pytest.CollectReport | pytest.TestReport) -> str:
    found = report.longrepr
    return str(found[2] if isinstance(found, tuple) else found).removeprefix("Skipped: ")


def leave_out_played(config: pytest.Config, items: list[pytest.Item], file: str) -> None:
    """Deselect the tests that passed in an earlier run, which wrote its outcomes to the file."""
    passed = _ids_of(file, "passed")
    _select(config, items, lambda item: item.nodeid not in passed)


def keep_failed(config: pytest.Config, items: list[pytest.Item], file: str) -> None:
    """Deselect all but the tests that failed in an earlier run, which wrote its outcomes to the file.

    Raises UsageError where none failed, more than MAX_ACCIDENTS, or something that is no test.
    """
    failed = _ids_of(file, "failed")
    if not 0 < len(failed) <= MAX_ACCIDENTS:
        raise pytest.UsageError(f"{len(failed)} tests failed in {file}; 1 to {MAX_ACCIDENTS} are played again")
    if others := failed - {item.nodeid for item in items}:
        raise pytest.UsageError(f"no test that can be played again: {', '.join(sorted(others))}")
    _select(config, items, lambda item: item.nodeid in failed)


def _ids_of(file: str, outcome: str) -> set[str]:
    rows = (json.loads(line) for line in Path(file).read_text("utf-8").splitlines())
    return {row["id"] for row in rows if row["outcome"] == outcome}


def _select(config: pytest.Config, items: list[pytest.Item], is_wanted: Callable[[pytest.Item], bool]) -> None:
    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = filter(is_wanted, items)


def shuffle(items: list[pytest.Item], seed: int) -> None:
    """Bring the files into a random order, and the tests of each file."""
    chance = random.Random(seed)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = [*files.values()]
    chance.shuffle(order)
    for file in order:
        chance.shuffle(file)
    items[:] = [item for file in order for item in file]
