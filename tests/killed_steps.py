"""A process that is killed at a chosen step: a call of the file layer, an SQL statement or a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread

from sqlalchemy import Engine, event
from tests.faulty_disk import FaultyDisk

from evaldesk.store.evalsets.lines import KEEPER


class KilledSteps(FaultyDisk):
    """Kills at step `at`; the statements and commits of SQL are steps, too."""

    @contextmanager
    def inserted(self) -> Iterator[None]:
        """Count, and kill, for a while."""
        with super().inserted():
            event.listen(Engine, "before_cursor_execute", self._step)
            event.listen(Engine, "commit", self._step)
            try:
                yield
            finally:
                event.remove(Engine, "before_cursor_execute", self._step)
                event.remove(Engine, "commit", self._step)

    def _step(self, *_: object) -> None:
        if current_thread().name != KEEPER:  # a kill ends its process; here it would go on without its thread
            self.call("sql", int)


def kill_at_each_statement(engine: Engine, step: Callable[[], object], after_kill: Callable[[], None]) -> int:
    """Kill `step` at its first SQL statement, then at its second, until it ends; gives how often it was called."""
    n_statements = n_calls = 0

    def kill(*_: object) -> None:
        nonlocal n_statements
        n_statements += 1
        if n_statements == n_calls:
            raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", kill)
    try:
        while n_calls < 100:
            n_statements, n_calls = 0, n_calls + 1
            try:
                step()
            except KeyboardInterrupt:
                after_kill()
            else:
                break
    finally:
        event.remove(engine, "before_cursor_execute", kill)
    return n_calls
