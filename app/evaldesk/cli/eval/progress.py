"""Progress of a run: a bar that moves for a person, a line now and then in a log."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, TypeAlias

from evaldesk.model.stored import RunSummary
from evaldesk.wording.printable import in_one_line
from evaldesk.wording.words import cost_words, least_words
from evaldesk.wording.writer import show

if TYPE_CHECKING:
    from rich.progress import Progress

Show: TypeAlias = Callable[[RunSummary, str], None]
"""Receives each moment of a run, and the pauses of its trials."""

LOG_EVERY_S = 10.0


class ProgressLog:
    """Plain lines, at most one in ten seconds, and one when trials begin to wait; none for a run that ends before."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._began = self._last = clock()
        self._n_before: int | None = None
        self._paused: float | None = None

    def __call__(self, summary: RunSummary, pause: str = "") -> None:
        """Show a moment of the run, and the pauses of its trials."""
        now = self._clock()
        if self._n_before is None:
            self._n_before, self._began = summary.n_done, now
        is_new = bool(pause) and (self._paused is None or now - self._paused >= LOG_EVERY_S)
        if is_new or now - self._last >= LOG_EVERY_S:
            self._last = now
            self._paused = now if pause else self._paused
            self._write(progress_words(summary, remaining_s(summary, self._n_before, now - self._began), pause))


class ProgressBar:
    """A bar with the numbers behind it, which goes away when it ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._clock = clock
        columns = BarColumn(bar_width=24), TextColumn("{task.description}", markup=False)
        console = Console(file=sys.stderr)
        self._shown: Progress = Progress(*columns, console=console, transient=True, refresh_per_second=4)
        self._task = self._shown.add_task("starting", total=None)
        self._began = clock()
        self._n_before: int | None = None

    def __enter__(self) -> ProgressBar:
        self._shown.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.stop()

    def __call__(self, summary: RunSummary, pause: str = "") -> None:
        """Show a moment of the run, and the pauses of its trials."""
        now = self._clock()
        if self._n_before is None:
            self._n_before, self._began = summary.n_done, now
        words = progress_words(summary, remaining_s(summary, self._n_before, now - self._began), pause)
        self._shown.update(self._task, total=summary.n_trials, completed=summary.n_done, description=in_one_line(words))


def shown_progress(*, is_quiet: bool) -> AbstractContextManager[Show]:
    """A bar where standard error is a terminal that can move its cursor, lines elsewhere, nothing when quiet."""
    if is_quiet:
        return nullcontext(lambda *_: None)
    if sys.stderr.isatty() and os.environ.get("TERM", "") != "dumb":
        return ProgressBar()
    return nullcontext(ProgressLog(lambda line: show(line, err=True)))


def progress_words(summary: RunSummary, left_s: float | None, pause: str = "") -> str:
    """`12 of 100 done, 10 passed, 1 errored, 3,400 tokens, $0.012, about 2 min left`, then the reason of a pause."""
    counts = summary.counts
    parts = [f"{counts.done:,} of {counts.planned:,} done", f"{counts.passed:,} passed"]
    others = (("errored", counts.errored), ("unscored", counts.unscored))
    parts += [f"{n:,} {word}" for word, n in others if n]
    if summary.tokens:
        parts.append(f"{least_words(f'{summary.tokens:,}', summary.n_uncounted > 0)} tokens")
    if summary.cost:
        parts.append(least_words(cost_words(summary.cost), summary.is_cost_unknown))
    elif summary.is_cost_unknown:
        parts.append("cost not known")
    if left_s is not None:
        parts.append(f"about {left_words(left_s)} left")
    return "; ".join(filter(None, (", ".join(parts), pause.removesuffix("."))))


def remaining_s(summary: RunSummary, n_before: int, elapsed_s: float) -> float | None:
    """Seconds to the end at the pace so far; None before the first trial is done and at the end."""
    n = summary.n_done - n_before
    return elapsed_s / n * summary.n_todo if n > 0 and summary.n_todo else None


def left_words(seconds: float) -> str:
    """`8 s`, `3 min`, `2 h 5 min`."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
