"""Trial threads: each has an event loop of its own and runs one attempt at a time.

User code that blocks without yielding so holds up nobody but itself. (reference/stack.md section 7)
"""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias
from weakref import WeakSet

from evaldesk.engine.failures import place_of
from evaldesk.llm.direct import use_loop

Work: TypeAlias = Coroutine[Any, Any, object]
Done: TypeAlias = Callable[[asyncio.Task[object]], None]

_numbers = itertools.count(1)


class TrialThread:
    """One thread and its loop. `on_done` of a piece of work is called in the trial thread's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        self._loop.set_task_factory(self._made)
        self._task: asyncio.Task[object] | None = None
        self._thread = threading.Thread(target=self._run, name=f"trial-{next(_numbers)}", daemon=True)
        self._thread.start()

    @property
    def is_usable(self) -> bool:
        """Whether work may be started: user code can close the loop it runs in."""
        return not self._loop.is_closed() and self._thread.is_alive()

    def start(self, work: Work, on_done: Done) -> None:
        """Carry out `work` as a task of the trial thread's loop."""
        self._loop.call_soon_threadsafe(self._begin, work, on_done)

    def cancel(self) -> None:
        """Cancel the work under way; without effect where the loop is blocked."""
        if self.is_usable:
            self._loop.call_soon_threadsafe(self._cancel)

    def place(self) -> str:
        """Where the thread stands at this moment, as a stack."""
        return place_of(self._thread)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        use_loop(self._loop)
        while not self._loop.is_closed():
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # of a task: asyncio lets these two through, and the loop can go on

    def _begin(self, work: Work, on_done: Done) -> None:
        self._task = self._loop.create_task(work)
        self._task.add_done_callback(self._end)
        self._task.add_done_callback(on_done)

    def _cancel(self) -> None:
        if self._task:
            self._task.cancel()

    def _end(self, task: asyncio.Task[object]) -> None:
        """Cancel what the work left running, so that it cannot reach into the next."""
        self._task = None
        for left in list(self._tasks):  # asyncio.all_tasks would look at those of every trial thread
            left.cancel()

    def _made(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        """A task as the loop would make it, remembered."""
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        self._tasks.add(task)
        return task
