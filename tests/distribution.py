"""Distribution of test files over the workers of pytest-xdist (decision 370)."""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from importlib import import_module
from threading import Thread
from typing import cast

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.workermanage import Marker, WorkerController

MAX_WORKERS = 4
SEED = "evaldesk_random_order"
TEARDOWN_S = 300.0
"""The time of a failed test for its teardown, which the slowest machine does not take."""
SILENCE_S = 700.0
"""The time of a worker between two outcomes, above that of a test, of which pytest tells each phase."""
STDERR = pytest.StashKey[int]()
"""The file descriptor of the error output beside what a test writes to it."""
N_FILES_OF_MANY = 100
"""Above it nearly the whole suite is played."""


def is_worker(config: pytest.Config) -> bool:
    """Whether this process plays the tests that another one hands out."""
    return hasattr(config, "workerinput")


def seed_of_controller(config: pytest.Config) -> int | None:
    """Return the seed of the random order in a worker; None for the order of the files."""
    return cast("int | None", config.workerinput[SEED])  # type: ignore[attr-defined]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the workers of `-n auto`: a test that waits for a process or a page leaves its core to another."""
    return min((os.cpu_count() or 1) + 1, MAX_WORKERS)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """Give each worker the seed of one order for all: each collects by itself.

    Raises UsageError for a path that does not exist, of which a worker says nothing.
    """
    for argument in node.config.args:
        if not os.path.exists(argument.partition("::")[0]):
            raise pytest.UsageError(f"file or directory not found: {argument}")
    node.workerinput[SEED] = node.config.option.random_order


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> FileScheduling:
    """Keep each file in one worker: its browser, desk and database belong to it."""
    return FileScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_exception_interact(node: pytest.Item | pytest.Collector) -> None:
    """End this process, with the stacks of all threads, where the teardown of a failed test waits for ever.

    At a failure pytest and pytest-timeout take back their own limits, for a person who looks at it with a debugger.
    """
    if isinstance(node, pytest.Item):
        if STDERR not in node.stash:
            node.stash[STDERR] = os.dup(sys.stderr.fileno())  # nothing is captured at this moment
        faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=node.stash[STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Take the limit back when the test is over."""
    try:
        return (yield)
    finally:
        if STDERR in item.stash:
            faulthandler.cancel_dump_traceback_later()
            os.close(item.stash[STDERR])
            del item.stash[STDERR]


class Watchdog:
    """Ends, in the controller, workers that report nothing for too long, with the stacks of their threads.

    So a test has a name that no limit of its own process ends: a cleanup that waits after the limit was reached, a
    lock of a library in C. xdist is also told of a worker that has ended while a process that it left holds its pipe.
    The test in which a worker ended fails, and another plays on.
    """

    def __init__(self, silence_s: float) -> None:
        self.silence_s = silence_s
        self.last_outcomes: dict[WorkerController, float] = {}
        Thread(target=self._watch, name="watchdog of workers", daemon=True).start()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: WorkerController) -> None:
        """Begin with this worker."""
        self.last_outcomes[node] = time.monotonic()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: WorkerController) -> None:
        """Watch it no longer."""
        self.last_outcomes.pop(node, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count from this outcome."""
        node = getattr(report, "node", None)
        if node in self.last_outcomes:
            self.last_outcomes[node] = time.monotonic()

    def _watch(self) -> None:
        pause_s, gone = min(self.silence_s / 10, 10), set[WorkerController]()
        while True:
            time.sleep(pause_s)
            for node, since in list(self.last_outcomes.items()):
                process = node.gateway._io.popen  # private to execnet: decision 370
                if node in gone:  # for a pause, in which its last words were read
                    node.process_from_remote(Marker.END)
                    self.last_outcomes.pop(node, None)
                elif process.poll() is not None:
                    gone.add(node)
                elif time.monotonic() - since > self.silence_s:
                    note = f"no outcome for {self.silence_s:.0f} s; the stacks of {node.gateway.id} follow"
                    print(note, file=sys.__stderr__, flush=True)
                    process.send_signal(signal.SIGABRT)  # pytest has faulthandler write all stacks at it


def put_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Move the files of these names to the front, in their order; other files and the tests of a file keep theirs."""
    files: dict[object, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = {name: place for place, name in enumerate(names)}
    by_place = sorted(files.values(), key=lambda file: order.get(file[0].path.name, len(order)))
    items[:] = [item for file in by_place for item in file]


def import_ahead(items: Sequence[pytest.Item]) -> None:
    """Import the slow packages of many files before the garbage collector is told to leave alone what is there."""
    if len({item.path for item in items}) > N_FILES_OF_MANY:
        from evaldesk.llm.client import open_litellm

        open_litellm()
        for name in ("alembic.command", "pandas", "rouge_score.rouge_scorer"):
            import_module(name)


class FileScheduling(LoadFileScheduling):  # type: ignore[misc] # xdist has no types
    """Hands out whole files in the order of the collection; the test in which a worker ends is not played again."""

    def __init__(self, config: pytest.Config, log: object = None) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def remove_node(self, node: WorkerController) -> str | None:
        """Name the test in which the worker ended, and queue the rest of its files.

        xdist would queue this test again, which ends the next worker, and files that are done, for whose tests a worker
        waits for ever.
        """
        files = self.assigned_work[node]
        crashed = next(((file, test) for file, tests in files.items() for test in tests if not tests[test]), None)
        if crashed:
            file, test = crashed
            files[file][test] = True
        for file in [file for file, tests in files.items() if all(tests.values())]:
            del files[file]
        super().remove_node(node)  # its attributes are private to xdist: decision 370
        return crashed[1] if crashed else None
