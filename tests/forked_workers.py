"""Plays the tests in several processes, which are forks of the one that has collected them.

Each worker of pytest-xdist collects all tests itself, for five CPU seconds, or eleven in a fresh clone. A file of tests
stays in one worker: its browser, desk and database belong to it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import struct
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from _pytest._io import TerminalWriter

_PR_SET_PDEATHSIG = 1
_TURN = struct.Struct("i")
N_FILES_OF_MANY = 100
"""Above it nearly the whole suite is played."""
Files = Sequence[Sequence[pytest.Item]]
ItemPosition = tuple[int, int]
"""That of a test: the number of its file, and its own within the file."""
Said = tuple[ItemPosition, Mapping[str, object] | None]
"""Which test is under way, and a report of it."""


def play_in_forks(session: pytest.Session, n_workers: int, first: Sequence[str]) -> None:
    """Play what was collected, beginning with the files of the names `first`, and tell what happens as pytest does.

    Who has played a file takes the next. Where a worker ends within a test, this test has failed, and another plays on.
    """
    files = _by_file(session.items, first)
    if len(files) > N_FILES_OF_MANY:
        _import_ahead()
    session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # in which each worker has a folder
    turns = _Turns(len(files))
    workers = [_Worker(session, files, turns) for _ in range(min(n_workers, len(files)))]
    try:
        while at_work := {worker.said: worker for worker in workers if not worker.has_ended}:
            for said in wait([*at_work]):
                at_work[cast("Connection", said)].tell_next()
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
    finally:
        for worker in workers:
            worker.interrupt()


def _import_ahead() -> None:
    """Import what many files use, once for all forks: LiteLLM and pandas take three CPU seconds in each."""
    from evaldesk.llm.client import open_litellm

    open_litellm()
    for name in ("alembic.command", "pandas", "rouge_score.rouge_scorer"):
        import_module(name)
    gc.freeze()


def _by_file(items: Sequence[pytest.Item], first: Sequence[str]) -> Files:
    files: dict[object, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = {name: place for place, name in enumerate(first)}
    return sorted(files.values(), key=lambda file: order.get(file[0].path.name, len(order)))


class _Turns:
    """The numbers of the files that nobody has taken, in a pipe from which each worker reads the next."""

    def __init__(self, n_files: int) -> None:
        self._reads, writes = os.pipe()
        os.write(writes, b"".join(map(_TURN.pack, range(n_files))))  # it has room for 16,000
        os.close(writes)

    def __iter__(self) -> Iterator[int]:
        while turn := os.read(self._reads, _TURN.size):
            yield _TURN.unpack(turn)[0]


class _Worker:
    """A fork, as the process sees it that has collected the tests."""

    def __init__(self, session: pytest.Session, files: Files, turns: _Turns) -> None:
        self._session, self._files, self._turns = session, files, turns
        self._under_way: ItemPosition | None = None
        self.said = self._begin(None)

    def tell_next(self) -> None:
        """Tell what it says next; where it has ended within a test, let another play on after this one."""
        heard = self._hear()
        if not heard:
            self._follow_up()
            return
        self._under_way, data = heard
        if data:
            config = self._session.config
            report = config.hook.pytest_report_from_serializable(config=config, data=data)
            config.hook.pytest_runtest_logreport(report=report)

    def interrupt(self) -> None:
        """Let it end as Ctrl-C does, and wait for that."""
        if not self.has_ended:
            self.said.close()
            os.kill(self._pid, signal.SIGINT)
            os.waitpid(self._pid, 0)

    def _begin(self, at: ItemPosition | None) -> Connection:
        said, says = Pipe(duplex=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the threads of NumPy have nothing to do yet
            self._pid = os.fork()
        self.has_ended = False
        if not self._pid:
            said.close()
            _Fork(self._session, self._files, says).play(at, self._turns)
        says.close()
        return said

    def _hear(self) -> Said | None:
        try:
            return cast("Said | None", self.said.recv())
        except EOFError:
            return None

    def _follow_up(self) -> None:
        self.said.close()
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self.has_ended = True
        if code == 0:
            return
        assert self._under_way, "a worker could not begin"
        number, place = self._under_way
        item = self._files[number][place]
        why = f"the worker ended with {signal.Signals(-code).name if code < 0 else code} within or after this test"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self._session.config.hook.pytest_runtest_logreport(report=report)
        self._under_way = None
        self.said = self._begin((number, place + 1))


class _Fork:
    """The same as it sees itself."""

    def __init__(self, session: pytest.Session, files: Files, says: Connection) -> None:
        self._session, self._files, self._says = session, files, says
        self._under_way: ItemPosition | None = None

    def play(self, at: ItemPosition | None, turns: _Turns) -> NoReturn:
        """Play the rest of a file from the test `at`, then files while there are any; then end."""
        code = 1
        try:
            self._become_a_worker()
            try:
                if at:
                    self._play_file(*at)
                for number in turns:
                    self._play_file(number, 0)
            finally:
                # Private names of pytest: decision 370.
                self._session._setupstate.teardown_exact(None)
            self._says.send(None)  # a process that a test left may hold the pipe open
            code = 0
        except KeyboardInterrupt:
            code = 2
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)

    def _play_file(self, number: int, start: int) -> None:
        file = self._files[number]
        for place in range(start, len(file)):
            if self._session.shouldfail or self._session.shouldstop:
                return
            self._under_way = (number, place)
            self._says.send((self._under_way, None))
            following = file[place + 1] if place + 1 < len(file) else self._session  # keeps the fixtures of the session
            file[place].config.hook.pytest_runtest_protocol(item=file[place], nextitem=following)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tell it to the process that shows it: of a test that passes, one report of three is shown."""
        if report.passed and report.when != "call" and self._session.config.option.durations is None:
            return
        data = self._session.config.hook.pytest_report_to_serializable(config=self._session.config, report=report)
        self._says.send((self._under_way, data))

    def _become_a_worker(self) -> None:
        """End with the process that collected, show nothing, and have output and temporary files of its own."""
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        config = self._session.config
        config.pluginmanager.unregister(name="terminalreporter")
        config.pluginmanager.register(self)
        captured = config.pluginmanager.getplugin("capturemanager")
        captured.stop_global_capturing()
        captured.start_global_capturing()
        # pytest-timeout writes where each thread stands to it, which is then part of the report of the test
        config.pluginmanager.register(SimpleNamespace(_tw=TerminalWriter(sys.stderr)), "terminalreporter")
        temporary = config._tmp_path_factory  # type: ignore[attr-defined]
        temporary._basetemp = temporary.mktemp("worker")
